"""Readers: one long file, a folder of files, ids and stamps as they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, build_sessions, load_sessions, read_bars
from rlwb.market.source import open_source
from tests.market.helpers import day_bars, random_bars

SMALL = Calendar(segments=(("10:00", "10:04"),), infer_early_close_minutes=0)
ODD_IDS = [
    "000001",
    "000010",
    "0010",
    "1e5",
    "NA",
    "nan",
    "null",
    "True",
    "600000.SH",
    "600000.SZ",
    "BRK.B",
    "BRK-B",
    "^GSPC",
    "MM&M",
]


def long_bars(ids: list[str]) -> pd.DataFrame:
    return pd.concat([day_bars(SMALL, instrument=name, close=10.0 + place) for place, name in enumerate(ids)])


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a19_a21_ids_stay_text_in_a_long_file(tmp_path: Path, ending: str) -> None:
    bars, path = long_bars(ODD_IDS), tmp_path / f"bars{ending}"
    bars.to_parquet(path) if ending == ".parquet" else bars.to_csv(path, index=False)
    read = read_bars(path)
    assert sorted(read["instrument"].unique()) == sorted(ODD_IDS)
    sessions = build_sessions(read, SMALL)
    assert len(sessions) == len(ODD_IDS)
    for place, name in enumerate(ODD_IDS):
        assert sessions.fields["close"][sessions.row(name, "2024-01-03"), 0] == 10.0 + place


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a19_a21_ids_come_from_file_names_and_no_two_meet(tmp_path: Path, ending: str) -> None:
    for place, name in enumerate(ODD_IDS):
        bars = day_bars(SMALL, close=10.0 + place).drop(columns="instrument")
        path = tmp_path / f"{name}{ending}"
        bars.to_parquet(path) if ending == ".parquet" else bars.to_csv(path, index=False)
    sessions = build_sessions(read_bars(tmp_path), SMALL)
    assert sorted(sessions.instruments.tolist()) == sorted(ODD_IDS)
    assert sessions.fields["close"][sessions.row("600000.SZ", "2024-01-03"), 0] == 10.0 + ODD_IDS.index("600000.SZ")
    only = read_bars(tmp_path, instruments=["000001", "NA"])
    assert sorted(only["instrument"].unique()) == ["000001", "NA"]


def test_a19_an_id_given_as_a_number_is_refused_with_the_hint_to_quote(tmp_path: Path) -> None:
    long_bars(["000001"]).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(ConfigError, match="quote"):
        read_bars(tmp_path / "bars.csv", instruments=[1])  # type: ignore[list-item]
    long_bars(["000001"]).assign(instrument=1).to_parquet(tmp_path / "bars.parquet")
    with pytest.raises(DataError, match="as text"):
        build_sessions(read_bars(tmp_path / "bars.parquet"), SMALL)


def test_a23_a_byte_order_mark_and_other_headings_are_tolerated(tmp_path: Path) -> None:
    bars = day_bars(SMALL)[["datetime", "instrument", "open", "high", "low", "close", "volume"]]
    bars.columns = pd.Index([f" {name.upper()} " if name != "datetime" else name for name in bars.columns])
    bars.to_csv(tmp_path / "bars.csv", index=False, encoding="utf-8-sig")
    assert (tmp_path / "bars.csv").read_bytes().startswith(b"\xef\xbb\xbfdatetime")
    plain = build_sessions(day_bars(SMALL), SMALL)
    assert build_sessions(read_bars(tmp_path / "bars.csv"), SMALL).fingerprint == plain.fingerprint


def test_a15_text_with_and_without_a_zone_is_refused(tmp_path: Path) -> None:
    bars = day_bars(SMALL)
    stamps = bars["datetime"].astype(str)
    bars.assign(datetime=stamps.where(stamps.index > 1, stamps + "+00:00")).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(DataError, match=r"bars\.csv: some stamps carry a zone"):
        read_bars(tmp_path / "bars.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    bars.drop(columns="instrument").to_csv(folder / "A.csv", index=False)
    bars.assign(datetime=stamps + "Z").drop(columns="instrument").to_csv(folder / "B.csv", index=False)
    with pytest.raises(DataError, match="write all of them one way"):
        read_bars(folder)


def test_offsets_over_a_clock_change_are_one_zone(tmp_path: Path) -> None:
    us = Calendar.preset("us")
    bars = pd.concat([day_bars(us, "2024-03-08"), day_bars(us, "2024-03-11")])
    local = bars["datetime"].dt.tz_localize("America/New_York")
    bars.assign(datetime=local.map(lambda stamp: stamp.isoformat())).to_csv(tmp_path / "bars.csv", index=False)
    assert build_sessions(read_bars(tmp_path / "bars.csv"), us).fingerprint == build_sessions(bars, us).fingerprint
    monday = read_bars(tmp_path / "bars.csv", start="2024-03-11", end="2024-03-11", timezone="America/New_York")
    assert len(monday) == 390


def test_stamps_without_a_zone_may_be_in_another_than_the_sessions(tmp_path: Path) -> None:
    us = Calendar.preset("us")
    bars = pd.concat([day_bars(us, "2024-03-08"), day_bars(us, "2024-03-11")])
    utc = bars["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("UTC").dt.tz_localize(None)
    bars.assign(datetime=utc).to_parquet(tmp_path / "bars.parquet")
    read = read_bars(tmp_path / "bars.parquet", source_timezone="UTC")
    assert build_sessions(read, us).fingerprint == build_sessions(bars, us).fingerprint
    with pytest.raises(ConfigError, match="IANA"):
        read_bars(tmp_path / "bars.parquet", source_timezone="Mars/Base")
    bars.assign(datetime=utc.dt.tz_localize("UTC")).to_parquet(tmp_path / "bars.parquet")
    with pytest.raises(DataError, match="leave source_timezone out"):
        read_bars(tmp_path / "bars.parquet", source_timezone="UTC")


def test_a33_stray_files_are_ignored_and_counted(tmp_path: Path) -> None:
    day_bars(SMALL).drop(columns="instrument").to_csv(tmp_path / "A.csv", index=False)
    for name in (".DS_Store", "README.md", "B.csv.tmp", ".C.csv", "~D.csv", "notes.txt"):
        (tmp_path / name).write_text("not bars")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    report = Report()
    assert read_bars(tmp_path, report=report)["instrument"].unique().tolist() == ["A"]
    assert report.counts["file_ignored"] == 7
    with pytest.raises(DataError, match="not a file of bars"):
        read_bars(tmp_path / "README.md")


def test_two_files_of_one_instrument_are_refused(tmp_path: Path) -> None:
    bars = day_bars(SMALL).drop(columns="instrument")
    bars.to_csv(tmp_path / "A.csv", index=False)
    bars.to_parquet(tmp_path / "A.parquet")
    with pytest.raises(DataError, match=r"A\.csv and A\.parquet are both A"):
        read_bars(tmp_path)


def test_a_file_an_instrument_and_day_needs_a_pattern(tmp_path: Path) -> None:
    for date in ("2024-01-03", "2024-01-04"):
        name = f"000001.SZ-{date.replace('-', '')}.csv"
        day_bars(SMALL, date).drop(columns="instrument").rename(columns={"datetime": "time"}).to_csv(
            tmp_path / name, index=False
        )
    sessions = build_sessions(read_bars(tmp_path, instrument_pattern=r"(.+)-\d{8}"), SMALL)
    assert sessions.instruments.tolist() == ["000001.SZ"] * 2
    with pytest.raises(DataError, match="instrument_pattern"):
        read_bars(tmp_path, instrument_pattern=r"(\d+)")


def test_columns_by_mapping_alias_and_separate_date_and_time(tmp_path: Path) -> None:
    plain = build_sessions(day_bars(SMALL), SMALL).fingerprint
    bars = day_bars(SMALL).rename(
        columns={"instrument": "Symbol", "datetime": "timestamp", "open": "o", "close": "$close"}
    )
    bars.to_csv(tmp_path / "alias.csv", index=False)
    assert build_sessions(read_bars(tmp_path / "alias.csv"), SMALL).fingerprint == plain
    split = day_bars(SMALL).rename(columns={"close": "Last"})
    split["date"], split["ToD"] = split["datetime"].dt.date, split.pop("datetime").dt.time
    split.to_csv(tmp_path / "split.csv", index=False)
    read = read_bars(tmp_path / "split.csv", columns={"Last": "close", "ToD": "time"})
    assert build_sessions(read, SMALL).fingerprint == plain
    split.to_parquet(tmp_path / "split.parquet")
    read = read_bars(tmp_path / "split.parquet", columns={"Last": "close", "ToD": "time"})
    assert build_sessions(read, SMALL).fingerprint == plain
    with pytest.raises(DataError, match="no column 'Price'"):
        read_bars(tmp_path / "split.csv", columns={"Price": "close"})
    with pytest.raises(ConfigError, match="did you mean close"):
        read_bars(tmp_path / "split.csv", columns={"Last": "closes"})


def test_two_columns_of_one_meaning_are_refused(tmp_path: Path) -> None:
    day_bars(SMALL).assign(CLOSE=11.0).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(DataError, match="both mean close"):
        read_bars(tmp_path / "bars.csv")
    assert read_bars(tmp_path / "bars.csv", columns={"CLOSE": "close"})["close"].eq(11.0).all()


def test_other_stamps_need_their_format(tmp_path: Path) -> None:
    bars = day_bars(SMALL)
    bars.assign(datetime=bars["datetime"].dt.strftime("%d/%m/%Y %H:%M")).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(DataError, match="datetime_format"):
        read_bars(tmp_path / "bars.csv")
    read = read_bars(tmp_path / "bars.csv", datetime_format="%d/%m/%Y %H:%M")
    assert read["datetime"].tolist() == bars["datetime"].tolist()


def test_empty_cells_are_missing_and_text_is_refused_with_its_row(tmp_path: Path) -> None:
    bars = day_bars(SMALL).astype({"close": object})
    bars.loc[1, "close"] = ""
    bars.to_csv(tmp_path / "bars.csv", index=False)
    assert np.isnan(read_bars(tmp_path / "bars.csv")["close"].iloc[1])
    bars.loc[2, "close"] = "ten"
    bars.to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(DataError, match=r"bars\.csv, row 4: close is 'ten'"):
        read_bars(tmp_path / "bars.csv")


def test_dates_and_instruments_are_picked(tmp_path: Path) -> None:
    random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04", "2024-01-05"]).to_parquet(tmp_path / "bars.parquet")
    read = read_bars(tmp_path / "bars.parquet", instruments="B", start="2024-01-04", end="2024-01-04")
    assert read["instrument"].unique().tolist() == ["B"]
    assert read["datetime"].dt.date.astype(str).unique().tolist() == ["2024-01-04"]
    with pytest.raises(DataError, match=r"no instrument C; the nearest of its 2 names is"):
        read_bars(tmp_path / "bars.parquet", instruments=["A", "C"])
    with pytest.raises(ConfigError, match="empty list"):
        read_bars(tmp_path / "bars.parquet", instruments=[])
    with pytest.raises(ConfigError, match="is not of the form YYYY-MM-DD"):
        read_bars(tmp_path / "bars.parquet", start="yesterdayish")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bars.parquet", b"PAR1 half a file", "not a readable Parquet"),
        ("bars.csv", b"", "is empty"),
        ("bars.csv", b"\xef\xbb\xbf\xef\xbb\xbf", "is empty"),
        ("bars.csv", "datetime,名\n".encode("gbk"), "not UTF-8"),
        ("bars.csv.gz", b"not gzip", "cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_bars(tmp_path / name)
    assert name in str(caught.value)


def test_missing_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no file"):
        open_source(tmp_path).files  # noqa: B018


@pytest.mark.parametrize("start", [20240104, "20240104", "2024-01-04T00:00:00Z", pd.Timestamp("2024-01-04 12:00")])
def test_a_first_date_in_any_clear_form(tmp_path: Path, start: object) -> None:
    random_bars(SMALL, ["A"], ["2024-01-03", "2024-01-04"]).to_parquet(tmp_path / "bars.parquet")
    assert read_bars(tmp_path / "bars.parquet", start=start)["datetime"].dt.day.unique().tolist() == [4]


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ({"start": "01/04/2024"}, "'01/04/2024' is not of the form"),
        ({"end": 2024}, "2024 is not of the form"),
        ({"start": "2024-01-05", "end": "2024-01-04"}, "is after end"),
    ],
)
def test_unclear_dates_are_refused(tmp_path: Path, span: dict[str, object], words: str) -> None:
    random_bars(SMALL, ["A"], ["2024-01-03"]).to_parquet(tmp_path / "bars.parquet")
    with pytest.raises(ConfigError, match=words):
        read_bars(tmp_path / "bars.parquet", **span)  # type: ignore[arg-type]


def test_a_file_without_stamps_is_named_also_when_dates_are_picked(tmp_path: Path) -> None:
    bars = random_bars(SMALL, ["A"], ["2024-01-03"]).rename(columns={"datetime": "moment"})
    bars.to_parquet(tmp_path / "bars.parquet")
    with pytest.raises(DataError, match="lack the columns datetime"):
        load_sessions(tmp_path / "bars.parquet", SMALL, start="2024-01-03")
