"""Qlib's binary directories: every value at its step, and no directory read on the wrong dates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, load_sessions, read_bars
from rlwb.market.readers.content import nearest_decimal
from rlwb.market.source import open_source
from tests.market.readers.sources import flat, qlib, write_bin, write_qlib

STEPS = [f"2024-01-03 10:0{minute}:00" for minute in range(5)]
FIVE = flat([1, 2, 3, 4, 5], [10, 20, 30, 40, 50])


def read(source: Path, **options: Any) -> tuple[pd.DataFrame, dict[str, int]]:
    report = Report()
    return read_bars(source, kind="qlib", options=options, report=report), report.counts


def test_values_stand_at_the_steps_that_the_start_index_says(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS)
    folder = source / "features" / "a"
    for field in ("open", "high", "low", "volume"):
        write_bin(folder / f"{field}.1min.bin", [7, 8], start=2)
    write_bin(folder / "close.1min.bin", [6.5, 7.5, 8.5], start=1)
    bars, counts = read(source)
    assert bars["datetime"].dt.minute.tolist() == [1, 2, 3]
    assert bars["close"].tolist() == [6.5, 7.5, 8.5]
    np.testing.assert_array_equal(bars["open"], [np.nan, 7, 8])
    assert not counts


def test_steps_without_any_value_are_no_bars_and_counted(tmp_path: Path) -> None:
    source = qlib(tmp_path)
    bars, counts = read(source)
    first = bars[bars["instrument"] == "SH600000"]
    assert first["datetime"].astype(str).tolist() == [f"2024-01-03 09:3{minute}:00" for minute in (0, 2, 3)]
    assert first["close"].tolist() == [10.5, 11.53, 10.25]
    assert first["volume"].tolist() == [100, 300, 0]
    assert counts == {"no_bar": 1}


def test_a05_a_hole_in_one_column_stays_a_hole(tmp_path: Path) -> None:
    holed = {**FIVE, "close": [1, 2, np.nan, 4, 5]}
    bars, _ = read(write_qlib(tmp_path / "q", {"A": holed}, STEPS))
    assert len(bars) == 5
    assert np.isnan(bars["close"]).tolist() == [False, False, True, False, False]
    calendar = Calendar(segments=(("10:00", "10:05"),), infer_early_close_minutes=0)
    sessions = load_sessions(tmp_path / "q", calendar)
    assert sessions.report.counts["price_not_finite"] == 1
    assert np.isnan(sessions.fields["close"][0, 2])


def test_prices_are_the_decimals_that_were_written(tmp_path: Path) -> None:
    bars, _ = read(write_qlib(tmp_path / "q", {"A": flat([11.53, 0.0001, 1699.99, 8.0, 99.95], [1] * 5)}, STEPS))
    assert bars["close"].tolist() == [11.53, 0.0001, 1699.99, 8.0, 99.95]


def test_the_nearest_decimal_is_the_same_float32() -> None:
    rng = np.random.default_rng(1)
    values = (rng.lognormal(3, 2, 20_000)).astype(np.float32)
    values[:6] = [np.nan, np.inf, -np.inf, 0, 3.4e38, 1e-40]
    np.testing.assert_array_equal(nearest_decimal(values).astype(np.float32), values)
    cents = rng.integers(1, 5_000_000, 20_000) / 100
    np.testing.assert_array_equal(nearest_decimal(cents.astype(np.float32)), cents)


@pytest.fixture
def adjusted(tmp_path: Path) -> Path:
    """10.00 and 12.00 a share, of which the first was before a 2:1 split: 200 shares of 5.00, factor 0.5."""
    columns = {"A": {**flat([5, 12, 4, 4, 4], [200, 100, 1, 1, 1]), "factor": [0.5, 1, 0, np.nan, 1]}}
    return write_qlib(tmp_path / "q", columns, STEPS)


def test_adjusted_prices_are_left_and_counted(adjusted: Path) -> None:
    bars, counts = read(adjusted)
    assert bars["close"].tolist() == [5, 12, 4, 4, 4]
    assert "factor" not in bars.columns
    assert counts == {"price_adjusted": 1}


def test_raw_prices_are_divided_by_the_factor_and_volumes_multiplied(adjusted: Path) -> None:
    bars, counts = read(adjusted, prices="raw")
    assert bars["close"].tolist()[:2] == [10, 12]
    assert bars["volume"].tolist()[:2] == [100, 100]
    assert np.isnan(bars["close"]).tolist() == [False, False, True, True, False]
    assert counts == {"factor_applied": 1, "factor_missing": 2}
    np.testing.assert_array_equal(bars["factor"], [0.5, 1, np.nan, np.nan, 1])
    (adjusted / "features" / "a" / "factor.1min.bin").unlink()
    with pytest.raises(DataError, match="A has no factor"):
        read(adjusted, prices="raw")


def test_folders_are_found_in_any_case_and_ids_stay_as_listed(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"SH600000": FIVE, "brk.b": FIVE}, STEPS)
    (source / "features" / "sh600000").rename(source / "features" / "SH600000")
    bars, _ = read(source)
    assert bars["instrument"].unique().tolist() == ["SH600000", "brk.b"]
    (source / "features" / "sh600000").mkdir()
    with pytest.raises(DataError, match=r"SH600000 and sh600000 .* differ by case alone"):
        read(source)


def test_two_spellings_of_one_folder_are_refused(tmp_path: Path) -> None:
    listing = "".join(f"{name}\t2024-01-03\t2024-01-03\n" for name in ("AAA", "aaa"))
    source = write_qlib(tmp_path / "q", {"AAA": FIVE}, STEPS, listing=listing)
    with pytest.raises(DataError, match="lists aaa in two spellings"):
        read(source)


ODD = ["000001", "0010", "NA", "nan", "null", "TRUE", "1E5", "600000.SH", "600000.SZ", "^GSPC", "MM&M", "con"]


def test_a19_a21_ids_that_parsers_spoil_stay_text(tmp_path: Path) -> None:
    columns = {name: flat([place + 1.0] * 5, [1] * 5) for place, name in enumerate(ODD)}
    source = write_qlib(tmp_path / "q", columns, STEPS)
    (source / "features" / "con").rename(source / "features" / "_qlib_con")  # as Qlib names it, for Windows
    bars, counts = read(source)
    assert bars["instrument"].unique().tolist() == sorted(ODD)
    for place, name in enumerate(ODD):
        assert bars.loc[bars["instrument"] == name, "close"].unique().tolist() == [place + 1.0]
    assert not counts
    only = read_bars(source, instruments=["000001", "1E5"])
    assert only["instrument"].unique().tolist() == ["000001", "1E5"]


@pytest.mark.parametrize("name", ["../x", "..", "/etc", "a/b"])
def test_ids_never_become_paths(tmp_path: Path, name: str) -> None:
    listing = f"A\t2024-01-03\t2024-01-03\n{name}\t2024-01-03\t2024-01-03\n"
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS, listing=listing)
    for field, values in FIVE.items():
        write_bin(tmp_path / "q" / "x" / f"{field}.1min.bin", values)
    bars, counts = read(source)
    assert bars["instrument"].unique().tolist() == ["A"]
    assert counts == {"instrument_without_bars": 1, "file_ignored": 1}
    with pytest.raises(DataError, match="no instrument"):
        read_bars(source, instruments=[name])


def test_a_blank_after_an_id_is_taken_off_and_counted(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS, listing="A \t2024-01-03\t2024-01-03\n")
    bars, counts = read(source)
    assert bars["instrument"].unique().tolist() == ["A"]
    assert counts == {"instrument_padded": 1}


def test_what_is_not_listed_is_left_out_and_counted(tmp_path: Path) -> None:
    listing = "A\t2024-01-03 10:01:00\t2024-01-03 10:02:00\nA\t2024-01-03 10:04:00\t2024-01-05\n"
    source = write_qlib(tmp_path / "q", {"A": {**FIVE, "change": [0] * 5}, "B": FIVE}, STEPS, listing=listing)
    bars, counts = read(source)
    assert bars["close"].tolist() == [2, 3, 5]
    assert counts == {"instrument_unlisted": 1, "outside_listing": 2, "column_ignored": 1}


def test_a_last_date_without_a_time_includes_its_day(tmp_path: Path) -> None:
    steps = ["2024-01-03 10:00:00", "2024-01-03 23:59:00", "2024-01-04 00:00:00"]
    listing = "A\t2024-01-03\t2024-01-03\n"
    source = write_qlib(tmp_path / "q", {"A": flat([1, 2, 3], [1, 1, 1])}, steps, listing=listing)
    assert read(source)[0]["close"].tolist() == [1, 2]


def test_one_of_several_frequencies_and_lists_has_to_be_chosen(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS, listing="A\t2024-01-03\t2024-01-04\n")
    (source / "calendars" / "day.txt").write_text("2024-01-03\n2024-01-04\n")
    (source / "calendars" / "day_future.txt").write_text("2024-01-05\n")
    for field, values in flat([9, 8], [1, 2]).items():
        write_bin(source / "features" / "a" / f"{field}.day.bin", values)
    with pytest.raises(DataError, match="choose freq from 1min, day"):
        read(source)
    day, _ = read(source, freq="day")
    assert day["datetime"].astype(str).tolist() == ["2024-01-03", "2024-01-04"]
    assert day["close"].tolist() == [9, 8]
    with pytest.raises(DataError, match=r"holds no 5min; choose freq"):
        read(source, freq="5min")
    with pytest.raises(DataError, match=r"no list '\.\./x'; choose market from all"):
        read(source, freq="day", market="../x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frequency": "day"}, "frequency; did you mean freq"),
        ({"prices": "row"}, "prices of reader qlib is 'row'"),
        ({"market": 300}, "market of reader qlib is 300"),
        ({"max_megabytes": 0}, "max_megabytes is 0"),
        ({"max_megabytes": True}, "max_megabytes of reader qlib is True"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    source = qlib(tmp_path)
    with pytest.raises(ConfigError, match=words):
        read(source, **options)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (np.nan, "the start index is nan"),
        (np.inf, "the start index is inf"),
        (-1, "the start index is -1"),
        (0.5, "the start index is 0.5"),
        (2.0**24, "the start index is 1.67772e"),
        # Its values had other dates on the calendar for which they were written.
        (1, "5 values from step 1 of a calendar of 5 steps; it was written for another calendar"),
    ],
)
def test_a_start_index_that_cannot_be_is_refused(tmp_path: Path, start: float, words: str) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS)
    write_bin(source / "features" / "a" / "low.1min.bin", [1, 2, 3, 4, 5], start)
    with pytest.raises(DataError, match=words) as caught:
        read(source)
    assert "a/low.1min.bin" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("calendars/1min.txt", "", "1min.txt is empty"),
        ("calendars/1min.txt", "\n\n", "holds no date"),
        ("calendars/1min.txt", "2024-01-03 10:00:00\n03/01/2024\n", "row 2: '03/01/2024' is not"),
        ("calendars/1min.txt", "2024-01-03 10:00:00\n\n2024-02-30 10:00:00\n", "row 3: '2024-02-30 10:00:00' is not"),
        ("calendars/1min.txt", "2024-01-03 10:01:00\n2024-01-03 10:01:00\n", "row 2: .* does not follow"),
        ("calendars/1min.txt", "9999-12-31\n", "outside the years"),
        ("calendars/1min.txt", "2024-01-03T10:00:00+01:00\n", "row 1"),
        ("instruments/all.txt", "A,2024-01-03,2024-01-03\n", "row 1: .* is not an id and two dates between tabs"),
        ("instruments/all.txt", "\t2024-01-03\t2024-01-03\n", "row 1"),
        ("instruments/all.txt", "A\t2024-01-03\tsoon\n", "row 1: 'soon' is not"),
        ("instruments/all.txt", "\n", "lists no instrument"),
        ("instruments/all.txt", "B\t2024-01-03\t2024-01-03\n", "holds no 1min prices"),
        ("features/a/close.1min.bin", "abcde", "has 5 bytes"),
        ("features/a/close.1min.bin", "", "has 0 bytes"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS)
    (source / name).write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        read(source)
    assert str(source) in str(caught.value)


def test_an_instrument_without_one_of_the_columns_is_refused(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE, "B": FIVE}, STEPS)
    (source / "features" / "b" / "volume.1min.bin").unlink()
    with pytest.raises(DataError, match="b has no volume, so B is without"):
        read(source)


def test_a_large_calendar_is_refused_before_it_is_read(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": FIVE}, STEPS)
    (source / "calendars" / "1min.txt").write_text("2024-01-03 10:00:00\n" * 60_000)
    with pytest.raises(DataError, match="larger than 1 MB; raise max_megabytes"):
        read(source, max_megabytes=1)


def test_a33_stray_files_are_left_alone(tmp_path: Path) -> None:
    source = qlib(tmp_path)
    for place in ("calendars", "instruments", "features", "features/sh600000", "."):
        (source / place / ".DS_Store").write_text("x")
    (source / "features" / "README.md").write_text("x")
    (source / "features" / "sh600000" / "close.1min.bin.tmp").write_text("x")
    bars, counts = read(source)
    assert len(bars) == 7
    assert counts == {"no_bar": 1, "file_ignored": 7}
    assert not [path for path in open_source(source).files if path.suffix not in (".bin", ".txt")]


def test_files_that_an_answer_depends_on_are_those_of_the_frequency(tmp_path: Path) -> None:
    source = qlib(tmp_path)
    write_bin(source / "features" / "sh600000" / "close.day.bin", [1])
    opened = open_source(source)
    assert len(opened.files) == 2 + 2 * 5
    assert opened.ignored == ["features/sh600000/close.day.bin"]
