"""Binance's public klines, in both units of time, packed or not, with or without a header."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, load_sessions, read_bars
from tests.market.readers.sources import NEW_YEAR, binance, kline, write_zip

NAME = "BTCUSDT-1m-2024-01-01"


def write(folder: Path, lines: list[str], name: str = NAME) -> Path:
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_milliseconds_and_microseconds_are_the_same_clock(tmp_path: Path) -> None:
    source = binance(tmp_path)
    bars = read_bars(source)
    bitcoin = bars[bars["instrument"] == "BTCUSDT"]
    assert bitcoin["datetime"].dt.tz is not None
    expected = [f"2024-01-01 00:0{minute}:00+00:00" for minute in range(3)]
    expected += [f"2025-01-01 00:0{minute}:00+00:00" for minute in range(2)]
    assert bitcoin["datetime"].astype(str).tolist() == expected
    assert bitcoin["close"].tolist() == [42000.5, 42001.5, 42002.5, 90000, 90000]
    assert bars[bars["instrument"] == "ETHUSDT"]["close"].tolist() == [2300]


def test_vwap_is_the_quote_volume_over_the_volume(tmp_path: Path) -> None:
    cells = kline(NEW_YEAR, 10.0, 4.0).split(",")
    cells[7] = "42"
    empty = kline(NEW_YEAR + 60, 10.0, 0.0)
    bars = read_bars(write(tmp_path, [",".join(cells), empty]))
    np.testing.assert_array_equal(bars["vwap"], [10.5, np.nan])
    assert bars["volume"].tolist() == [4, 0]


@pytest.mark.parametrize("symbol", ["BTCUSD_PERP", "BNBUSD_240329"])
def test_futures_margined_in_coins_have_no_vwap(symbol: str, tmp_path: Path) -> None:
    cells = kline(NEW_YEAR, 42000.0, 10.0).split(",")
    cells[7] = "0.0238"  # ten contracts of 100 dollars, in coins
    write(tmp_path, [",".join(cells)], f"{symbol}-1m-2024-01-01")
    assert "vwap" not in read_bars(tmp_path)
    write(tmp_path, [kline(NEW_YEAR, 42000.0, 1.0)])
    bars = read_bars(tmp_path).set_index("instrument")["vwap"]
    assert np.isnan(bars[symbol])
    assert bars["BTCUSDT"] == 42000


def test_a_whole_day_is_one_session_of_1440_ticks(tmp_path: Path) -> None:
    lines = [kline(NEW_YEAR + 60 * minute, 100.0 + minute, 1.0) for minute in range(1440)]
    write_zip(tmp_path / f"{NAME}.zip", f"{NAME}.csv", "\n".join(lines))
    sessions = load_sessions(tmp_path, Calendar.preset("crypto"))
    assert sessions.fields["close"].shape == (1, 1440)
    assert sessions.fields["close"][0, [0, 1439]].tolist() == [100, 1539]
    assert not sessions.report.problems()


def test_a25_a_calendar_of_the_other_label_is_refused(tmp_path: Path) -> None:
    source = binance(tmp_path)
    with pytest.raises(ConfigError, match=r"name the start of a bar, .* set it to 'start'"):
        load_sessions(source, Calendar.preset("crypto", label="end"))


def test_a15_utc_becomes_the_zone_of_the_session_or_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [kline(NEW_YEAR + 60 * minute, 100.0 + minute, 1.0) for minute in range(30)])
    segments = (("08:00", "08:30"),)
    shanghai = Calendar(segments=segments, timezone="Asia/Shanghai", infer_early_close_minutes=0)
    assert load_sessions(tmp_path, shanghai).fields["close"][0, 0] == 100
    with pytest.raises(DataError, match="stamped in the zone UTC and the calendar has none"):
        load_sessions(tmp_path, Calendar(segments=segments))


def test_a13_rows_in_another_order_are_the_same_bars(tmp_path: Path) -> None:
    lines = [kline(NEW_YEAR + 60 * minute, 100.0 + minute, 1.0) for minute in range(10)]
    bars = read_bars(write(tmp_path, lines))
    report = Report()
    backwards = read_bars(write(tmp_path, lines[::-1]), report=report)
    pd.testing.assert_frame_equal(bars, backwards)
    assert report.counts == {"unsorted": 9}


def test_a11_a_day_that_a_month_repeats_is_dropped_by_the_panel_and_counted(tmp_path: Path) -> None:
    lines = [kline(NEW_YEAR + 60 * minute, 100.0 + minute, 1.0) for minute in range(1440)]
    write(tmp_path, lines)
    write(tmp_path, lines, "BTCUSDT-1m-2024-01")
    sessions = load_sessions(tmp_path, Calendar.preset("crypto"))
    assert sessions.fields["close"].shape == (1, 1440)
    assert sessions.report.counts == {"file_repeated": 1}


def test_intervals_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path, [kline(NEW_YEAR, 1.0, 1.0)])
    write(tmp_path, [kline(NEW_YEAR, 2.0, 1.0)], "BTCUSDT-5m-2024-01-01")
    with pytest.raises(DataError, match="klines of 1m, 5m; choose interval"):
        read_bars(tmp_path)
    with pytest.raises(DataError, match="no klines of 3m; choose interval from 1m, 5m"):
        read_bars(tmp_path, options={"interval": "3m"})
    report = Report()
    assert read_bars(tmp_path, options={"interval": "5m"}, report=report)["close"].tolist() == [2]
    assert report.counts == {"bar_unfinished": 1, "file_ignored": 1}


def test_bars_longer_than_the_name_says_are_refused(tmp_path: Path) -> None:
    cells = kline(NEW_YEAR, 1.0, 1.0).split(",")
    cells[6] = str((NEW_YEAR + 300) * 1000 - 1)
    with pytest.raises(DataError, match="row 1: the bar of 2024-01-01 00:00:00 lasts longer than 60 s"):
        read_bars(write(tmp_path, [",".join(cells)]))


def test_a_checksum_beside_a_file_is_checked(tmp_path: Path) -> None:
    path = write_zip(tmp_path / f"{NAME}.zip", f"{NAME}.csv", kline(NEW_YEAR, 1.0, 1.0))
    sums = tmp_path / f"{NAME}.zip.CHECKSUM"
    sums.write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    report = Report()
    assert len(read_bars(tmp_path, report=report)) == 1
    assert not report.counts
    sums.write_text(f"{'0' * 64}  {path.name}\n")
    with pytest.raises(DataError, match=r"is not the file that .*CHECKSUM was made for"):
        read_bars(tmp_path)


@pytest.mark.parametrize("name", ["000001", "NA", "TRUE", "1E5", "1000SATSUSDT", "BTCUSD_PERP"])
def test_a19_a21_ids_are_the_text_of_the_file_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, [kline(NEW_YEAR, 1.0, 1.0)], f"{name}-1m-2024-01-01")
    assert read_bars(tmp_path)["instrument"].tolist() == [name]
    assert read_bars(tmp_path, instruments=name)["instrument"].tolist() == [name]
    with pytest.raises(DataError, match=f"no instrument 1; the nearest of its 1 names is {name}"):
        read_bars(tmp_path, instruments="1")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1,2,3"], "row 1 holds 3 values where 12 belong"),
        ([kline(NEW_YEAR, 1, 1), "x" + kline(NEW_YEAR + 60, 1, 1)], "row 2: open_time is 'x17"),
        ([kline(NEW_YEAR, 1, 1), "", "1"], "row 2 holds 1 values where 12 belong"),
        ([kline(NEW_YEAR, 1, 1, 1)], r"row 1: open_time \(milliseconds or microseconds since 1970\) is 1704067200;"),
        ([kline(NEW_YEAR, 1, 1, 10**9)], r"row 1: open_time .* is 1\.7040672e\+18;"),
        (["1704067200000.5" + kline(NEW_YEAR, 1, 1)[13:]], "row 1: open_time .* is 1704067200000.5"),
        (["date,open,high,low,close,volume"], "begins with neither a kline nor the header"),
        ([""], "begins with neither a kline nor the header"),
        (['"' + kline(NEW_YEAR, 1, 1) + '"'], "begins with neither"),
        (["\0" + kline(NEW_YEAR, 1, 1)], "begins with neither"),
        ([kline(NEW_YEAR, 1, 1).replace(",", ";")], "begins with neither"),
    ],
)
def test_rows_that_are_no_klines_are_named(tmp_path: Path, lines: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_bars(write(tmp_path, lines))
    assert f"{NAME}.csv" in str(caught.value)


def test_a05_a07_values_that_cannot_be_are_left_for_the_panel_to_count(tmp_path: Path) -> None:
    lines = [kline(NEW_YEAR + 60 * minute, 10.0, 1.0).split(",") for minute in range(1440)]
    lines[0][4], lines[1][4], lines[2][4], lines[3][5] = "", "0", "inf", "-1"
    write(tmp_path, [",".join(cells) for cells in lines])
    sessions = load_sessions(tmp_path, Calendar.preset("crypto"))
    wanted = {"price_not_finite": 2, "price_zero": 1, "volume_negative": 1}
    assert wanted.items() <= sessions.report.counts.items()
    assert np.isnan(sessions.fields["close"][0, :4]).tolist() == [True, True, True, False]


def test_a_zip_bomb_is_refused_without_unpacking(tmp_path: Path) -> None:
    write_zip(tmp_path / f"{NAME}.zip", f"{NAME}.csv", b"0" * 3_000_000)
    assert (tmp_path / f"{NAME}.zip").stat().st_size < 5_000
    with pytest.raises(DataError, match=r"unpacks to 3,000,000 bytes: it is larger than 1 MB; raise max_megabytes"):
        read_bars(tmp_path, options={"max_megabytes": 1})


def test_a_zip_bomb_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / f"{NAME}.zip", f"{NAME}.csv", b"0" * 3_000_000)
    content = path.read_bytes().replace(struct.pack("<L", 3_000_000), struct.pack("<L", 100))
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        assert archive.infolist()[0].file_size == 100
    with pytest.raises(DataError, match="not a whole ZIP archive"):
        read_bars(tmp_path)


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / f"{NAME}.zip", "w") as archive:
        archive.writestr("a.csv", kline(NEW_YEAR, 1, 1))
        archive.writestr("b.csv", kline(NEW_YEAR, 2, 1))
    with pytest.raises(DataError, match="holds 2 files and not one"):
        read_bars(tmp_path)
