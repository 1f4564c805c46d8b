"""Forms of tables and stamps that vendors write: wide tables, numbers for stamps, stamps beside the grid, no bars."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, import_bars, load_sessions, read_bars
from rlwb.market.quality import check_bars
from tests.market.helpers import random_bars
from tests.test_cli import call

US = Calendar.preset("us", tick_minutes=30)
BARS = random_bars(US, ["AAA", "BBB"], ["2024-01-03", "2024-01-04"])
FIELDS = ["open", "high", "low", "close", "volume"]
WRITERS = {".csv": "to_csv", ".csv.gz": "to_csv", ".parquet": "to_parquet", ".feather": "to_feather"}


def write(frame: pd.DataFrame, path: Path) -> Path:
    """Write a table without its index in the format that the name says."""
    ending = next(ending for ending in WRITERS if path.name.endswith(ending))
    getattr(frame, WRITERS[ending])(path, **({"index": False} if ending != ".feather" else {}))
    return path


def wide(fields: dict[str, str], instruments: dict[str, str], *, first: str = "field") -> pd.DataFrame:
    """Return the bars with columns of two levels, those of `first` above."""
    names = BARS.assign(instrument=BARS["instrument"].map(instruments)).rename(columns=fields)
    table = names.pivot(index="datetime", columns="instrument", values=list(fields.values()))
    table = table.rename_axis(columns=["Price", "Ticker"], index="Datetime")
    return table if first == "field" else table.swaplevel(axis=1).sort_index(axis=1)


def made_long(message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Run the lines of pandas that a refusal gives, and return the bars of what they write."""
    monkeypatch.chdir(folder)
    code = message.partition("with pandas: ")[2]
    exec(code.removesuffix("."), {"pd": pd})
    return read_bars(folder / "long.csv")


def check_same_bars(found: pd.DataFrame, instruments: dict[str, str]) -> None:
    wanted = BARS.assign(instrument=BARS["instrument"].map(instruments)).sort_values(["instrument", "datetime"])
    assert found["instrument"].tolist() == wanted["instrument"].tolist()
    assert found["datetime"].tolist() == wanted["datetime"].tolist()
    np.testing.assert_allclose(found[FIELDS], wanted[FIELDS], rtol=1e-12)


CAPITALS = {name: name.capitalize() for name in FIELDS}
SAME = {"AAA": "AAA", "BBB": "BBB"}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("first", ["field", "ticker"])
@pytest.mark.parametrize("instruments", [SAME, {"AAA": "600519", "BBB": "BRK.B"}])
def test_i10_a_table_with_two_header_rows_says_so_and_how_to_make_it_long(
    ending: str, first: str, instruments: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = wide(CAPITALS, instruments, first=first), tmp_path / f"bars{ending}"
    getattr(table, WRITERS[ending])(path)
    with pytest.raises(DataError, match="is a wide table") as refused:
        import_bars([path], tmp_path / "set", calendar=US)
    assert str(path) in str(refused.value)
    check_same_bars(made_long(str(refused.value), tmp_path, monkeypatch), instruments)


@pytest.mark.parametrize("ticker", ["AAA", "600519"])
def test_i10_one_ticker_under_two_header_rows(ticker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As yfinance writes one name: a third row names the index."""
    wide(CAPITALS, {"AAA": ticker, "BBB": "other"}).xs(ticker, level="Ticker", axis=1, drop_level=False).to_csv(
        tmp_path / "one.csv"
    )
    with pytest.raises(DataError, match=f"as Open of {ticker}") as refused:
        read_bars(tmp_path / "one.csv")
    found = made_long(str(refused.value), tmp_path, monkeypatch)
    np.testing.assert_allclose(found["close"], BARS.loc[BARS["instrument"] == "AAA", "close"])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
@pytest.mark.parametrize("form", ["{ticker}_{field}", "{field}_{ticker}", "{ticker} {field}", "{field}.{ticker}"])
@pytest.mark.parametrize("instruments", [SAME, {"AAA": "000001", "BBB": "BRK-B"}])
def test_i10_one_header_row_of_fields_and_tickers(
    ending: str, form: str, instruments: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide(CAPITALS, instruments)
    table.columns = pd.Index([form.format(field=field, ticker=ticker) for field, ticker in table.columns])
    path = write(table.reset_index(), tmp_path / f"bars{ending}")
    with pytest.raises(DataError, match="is a wide table") as refused:
        read_bars(path)
    check_same_bars(made_long(str(refused.value), tmp_path, monkeypatch), instruments)


def test_i10_bars_are_not_taken_for_a_wide_table(tmp_path: Path) -> None:
    """Other columns that name a field, an id at the front, and cells that are no numbers."""
    rows = BARS.assign(day_open=1.0, prev_close=2.0, close_adj=3.0)[["instrument", *BARS.columns[1:], "prev_close"]]
    assert len(read_bars(write(rows, tmp_path / "bars.csv"))) == len(BARS)
    (tmp_path / "flat.csv").write_text("symbol,date,open,high,low,close,volume\nT,2024-01-03 09:30,7,7,7,7,7\n")
    assert read_bars(tmp_path / "flat.csv")["close"].tolist() == [7.0]
    (tmp_path / "bad.csv").write_text("datetime,open,high,low,close,volume\n2024-01-03 09:30,1,1,1,halted,1\n")
    with pytest.raises(DataError, match="row 2: close is 'halted', not a number"):
        read_bars(tmp_path / "bad.csv")


STAMPS = pd.to_datetime(["2023-03-01 09:30", "2023-03-01 09:31", "2023-03-01 10:05"]).to_series(index=range(3))


def one(stamps: object) -> pd.DataFrame:
    return pd.DataFrame({"datetime": stamps} | dict.fromkeys(FIELDS, 1.0), index=range(3))


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("kind", ["int64", "float64", "str"])
@pytest.mark.parametrize("form", ["%Y%m%d%H%M", "%Y%m%d%H%M%S", "%d%m%Y%H%M", "%y%m%d%H%M"])
def test_i11_numbers_are_read_by_the_format_in_every_file(ending: str, kind: str, form: str, tmp_path: Path) -> None:
    """Written as numbers they lose the zeros that they begin with: 010320230930 is 10320230930."""
    stamps = STAMPS.dt.strftime(form)
    path = write(one(stamps if kind == "str" else stamps.astype("int64").astype(kind)), tmp_path / f"A{ending}")
    assert read_bars(path, datetime_format=form)["datetime"].tolist() == STAMPS.tolist()


@pytest.mark.parametrize("ending", WRITERS)
def test_i11_dates_and_times_of_day_as_numbers(ending: str, tmp_path: Path) -> None:
    table = one(STAMPS).rename(columns={"datetime": "date"})
    table = table.assign(date=STAMPS.dt.strftime("%Y%m%d").astype(int), time=[930, 5, 1605])
    wanted = ["2023-03-01 00:05", "2023-03-01 09:30", "2023-03-01 16:05"]
    found = read_bars(write(table, tmp_path / f"A{ending}"), datetime_format="%Y%m%d %H%M")
    assert found["datetime"].tolist() == [pd.Timestamp(stamp) for stamp in wanted]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(("unit", "scale"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_i11_counts_from_1970_are_read_by_their_unit(ending: str, unit: str, scale: int, tmp_path: Path) -> None:
    path = write(one(STAMPS.astype("int64") // scale), tmp_path / f"A{ending}")
    found = read_bars(path, datetime_format=unit)["datetime"]
    assert found.tolist() == STAMPS.dt.tz_localize("UTC").tolist()
    with pytest.raises(DataError, match=f"row [12].*is a number; give datetime_format, which looks like '{unit}' here"):
        read_bars(path)


def test_i11_fractions_of_a_second_count_too(tmp_path: Path) -> None:
    path = write(one([1677663000.25, np.nan, 1677663060.5]), tmp_path / "A.parquet")
    found = read_bars(path, datetime_format="s")["datetime"]
    assert found.tolist()[:2] == [pd.Timestamp("2023-03-01 09:30:00.25Z"), pd.Timestamp("2023-03-01 09:31:00.5Z")]
    assert found.isna().sum() == 1
    with pytest.raises(DataError, match=r"A\.csv, row 2"):
        read_bars(write(one(["x", "1", "2"]), tmp_path / "A.csv"), datetime_format="s")


@pytest.mark.parametrize("ending", WRITERS)
def test_i11_numbers_without_a_format_name_the_one_that_they_seem_to_have(ending: str, tmp_path: Path) -> None:
    path = write(one(STAMPS.dt.strftime("%Y%m%d%H%M").astype(int)), tmp_path / f"A{ending}")
    with pytest.raises(DataError, match=r"the stamp 202303010930 is a number; .* looks like '%Y%m%d%H%M' here"):
        read_bars(path)


def late(seconds: float, every: int = 3) -> pd.DataFrame:
    """Return the bars, of which one in `every` is stamped so late."""
    moved = pd.to_timedelta(np.where(np.arange(len(BARS)) % every == 0, seconds, 0.0), unit="s")
    return BARS.assign(datetime=BARS["datetime"] + moved)


@pytest.mark.parametrize("label", ["start", "end"])
@pytest.mark.parametrize("seconds", [14.0, -2.0, 0.25])
def test_i12_stamps_beside_the_grid_are_moved_onto_it_and_counted(label: str, seconds: float, tmp_path: Path) -> None:
    clock = Calendar.preset("us", tick_minutes=30, label=label)
    bars = late(seconds).assign(datetime=lambda table: table["datetime"] + pd.Timedelta(minutes=30 * (label == "end")))
    path = write(bars, tmp_path / "bars.csv")
    with pytest.raises(DataError, match=f"round_seconds.*the farthest lies {abs(seconds):g} s away"):
        load_sessions(path, clock)
    sessions = load_sessions(path, clock, round_seconds=15)
    assert sessions.report.counts["stamp_rounded"] == 18  # of 52 bars, every third from the first
    assert f"moved by {-seconds:+g} s" in sessions.report.examples["stamp_rounded"]
    sound = load_sessions(write(BARS, tmp_path / "sound.csv"), US)
    np.testing.assert_array_equal(sessions.fields["close"], sound.fields["close"])
    with pytest.raises(DataError, match="round_seconds"):
        load_sessions(path, clock, round_seconds=abs(seconds) / 2)


def test_i12_two_bars_that_meet_on_one_tick_are_told(tmp_path: Path) -> None:
    again = BARS.iloc[[5]].assign(datetime=lambda table: table["datetime"] + pd.Timedelta(seconds=3), close=99.0)
    path = write(pd.concat([BARS, again]), tmp_path / "bars.csv")
    done = import_bars([path], tmp_path / "set", calendar=US, round_seconds=5)
    assert {"stamp_rounded": 1, "duplicate_conflicting": 1}.items() <= done.report.counts.items()
    assert done.bars == len(BARS)


def test_i12_rounding_by_command_and_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(late(14.0), tmp_path / "bars.csv"))
    words = ("data", "check", path, "--calendar", "us", "--tick-minutes", "30", "--round-seconds")
    _, out, _ = call(capsys, *words, "14")
    assert "18 bars: stamp beside the tick grid" in out
    code, _, err = call(capsys, *words, "1000")
    assert (code, "0 to half a tick, 900 seconds" in err) == (2, True)
    with pytest.raises(ConfigError, match="round_seconds has no effect"):
        read_bars(path, round_seconds=14)


@pytest.mark.parametrize(
    "span", [{"start": "2025-01-01"}, {"end": "2023-12-31"}, {"start": "2024-01-06", "end": "2024-01-07"}]
)
@pytest.mark.parametrize("stored", [True, False])
def test_i13_dates_outside_the_data_name_what_was_asked_what_is_there_and_the_file(
    span: dict[str, str], stored: bool, tmp_path: Path
) -> None:
    path = write(BARS, tmp_path / "bars.csv")
    if stored:
        import_bars([path], tmp_path / "set", calendar=US)
        path = tmp_path / "set"
    for read in (lambda: load_sessions(path, US, **span), lambda: read_bars(path, **span)):
        with pytest.raises(DataError) as refused:
            read()
        for word in (str(path), *span.values(), "2024-01-03", "2024-01-04"):
            assert word in str(refused.value)


def test_i13_dates_of_other_instruments_alone_do_not_count(tmp_path: Path) -> None:
    later = BARS[BARS["instrument"] == "AAA"].assign(datetime=lambda table: table["datetime"] + pd.Timedelta(days=7))
    path = write(pd.concat([BARS, later]), tmp_path / "bars.csv")
    with pytest.raises(
        DataError, match=re.escape("no bars of BBB from 2024-01-08; its bars are of 2024-01-03 to 2024")
    ):
        load_sessions(path, US, instruments=["BBB"], start="2024-01-08")


@pytest.mark.parametrize("ending", WRITERS)
def test_i13_a_file_with_a_header_alone_is_named(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(BARS.iloc[:0], tmp_path / f"bars{ending}")
    with pytest.raises(DataError, match=re.escape(f"{path} holds no bars: a header")):
        load_sessions(path, US)
    report = Report()
    assert len(read_bars(path, report=report)) == 0
    assert report.examples["file_empty"] == path.name
    code, _, err = call(capsys, "data", "check", str(path), "--calendar", "us")
    assert (code, str(path) in err) == (2, True)


def test_i13_instruments_of_a_folder_are_picked_and_what_none_of_its_files_has_is_named(tmp_path: Path) -> None:
    for name in ("AAA", "BBB"):
        write(BARS[BARS["instrument"] == name], tmp_path / f"{name}.csv")
    for name in ("AAA", "BBB"):
        assert set(load_sessions(tmp_path, US, instruments=[name]).instruments) == {name}
    with pytest.raises(DataError, match="has no instrument AAB; the nearest of its 2 names is AAA"):
        load_sessions(tmp_path, US, instruments=["AAB"])


def test_i13_one_file_of_a_folder_may_have_a_header_alone_and_is_told(tmp_path: Path) -> None:
    for name in ("AAA", "BBB"):
        write(BARS[BARS["instrument"] == name].drop(columns="instrument"), tmp_path / f"{name}.csv")
    write(BARS.iloc[:0].drop(columns="instrument"), tmp_path / "CCC.csv")
    sessions = load_sessions(tmp_path, US)
    assert sessions.report.examples["file_empty"] == "CCC.csv"
    assert "file_empty" in check_bars(tmp_path, calendar=US).found.counts
    assert "file_empty" not in load_sessions(tmp_path, US, instruments=["AAA"]).report.counts
