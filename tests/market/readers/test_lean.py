"""Lean's minute files: scaled or not by where they lie, trades beside quotes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, load_sessions, read_bars
from tests.market.readers.sources import lean, write_zip

TRADE = "34200000,6450600,6450600,6450600,6450600,300"


def write(folder: Path, lines: list[str], place: str = "equity/usa/minute/spy", tick: str = "trade") -> Path:
    symbol = place.rsplit("/", 1)[-1]
    write_zip(folder / place / f"20240103_{tick}.zip", f"20240103_{symbol}_minute_{tick}.csv", "\n".join(lines))
    return folder


def test_trades_and_quotes_of_a_minute_stand_in_one_bar(tmp_path: Path) -> None:
    source = lean(tmp_path)
    bars = read_bars(source)
    assert bars["datetime"].astype(str).tolist() == [f"2024-01-03 09:3{minute}:00-05:00" for minute in range(3)]
    assert bars["instrument"].unique().tolist() == ["SPY"]
    np.testing.assert_array_equal(bars["close"], [100.5, 100.5, np.nan])
    np.testing.assert_array_equal(bars["high"], [101, 100.5, np.nan])
    np.testing.assert_array_equal(bars["volume"], [300, 200, np.nan])
    np.testing.assert_array_equal(bars["bid"], [99.99, np.nan, 99.98])
    np.testing.assert_array_equal(bars["bid_size"], [4, np.nan, 2])
    np.testing.assert_array_equal(bars["ask"], [100.01, np.nan, np.nan])
    np.testing.assert_array_equal(bars["ask_size"], [6, np.nan, np.nan])


def test_equities_are_scaled_and_crypto_is_not(tmp_path: Path) -> None:
    equity = read_bars(write(tmp_path / "a", [TRADE]))
    assert equity["close"].tolist() == [645.06]
    assert str(equity["datetime"].dt.tz) == "America/New_York"
    crypto = read_bars(
        write(tmp_path / "b", ["0,17212.12,17216.55,17208.88,17208.88,110.66042"], "crypto/x/minute/btc")
    )
    assert crypto["close"].tolist() == [17208.88]
    assert crypto["volume"].tolist() == [110.66042]
    assert crypto["datetime"].astype(str).tolist() == ["2024-01-03 00:00:00+00:00"]


def test_files_outside_the_layout_are_not_guessed_at(tmp_path: Path) -> None:
    source = write(tmp_path, [TRADE], "copied/spy")
    with pytest.raises(DataError, match=r"prices could be scaled or not; give security"):
        read_bars(source)
    assert read_bars(source, options={"security": "equity"})["close"].tolist() == [645.06]
    assert read_bars(source, options={"security": "crypto"})["close"].tolist() == [6450600]
    alone = source / "copied" / "spy" / "20240103_trade.zip"
    assert read_bars(alone, options={"security": "equity"})["close"].tolist() == [645.06]


@pytest.mark.parametrize("place", ["forex/oanda/minute/eurusd", "cfd/oanda/minute/x", "option/usa/minute/spy"])
def test_other_securities_are_refused(tmp_path: Path, place: str) -> None:
    source = write(tmp_path, [TRADE], place)
    with pytest.raises(DataError, match=f"is of {place.split('/', maxsplit=1)[0]}, not of equity or crypto"):
        read_bars(source)
    with pytest.raises(DataError, match="not of equity or crypto"):
        read_bars(source, options={"security": "equity"})


def test_a_market_of_an_unknown_zone_needs_it(tmp_path: Path) -> None:
    source = write(tmp_path, [TRADE], "equity/mars/minute/abc")
    with pytest.raises(DataError, match="market mars, whose time zone is not known; give zone"):
        read_bars(source)
    assert str(read_bars(source, options={"zone": "Asia/Tokyo"})["datetime"].dt.tz) == "Asia/Tokyo"
    with pytest.raises(ConfigError, match="'Mars/Base' is unknown"):
        read_bars(source, options={"zone": "Mars/Base"})


def test_two_markets_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path, [TRADE])
    write(tmp_path, [TRADE], "crypto/x/minute/btc")
    with pytest.raises(DataError, match="crypto/x, equity/usa; read one of these folders at a time"):
        read_bars(tmp_path)
    assert len(read_bars(tmp_path / "equity")) == len(read_bars(tmp_path / "crypto")) == 1


def test_one_symbol_in_two_folders_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [TRADE])
    write(tmp_path, [TRADE], "equity/usa/minute/SPY")
    with pytest.raises(DataError, match="are both SPY 20240103 trade; keep one"):
        read_bars(tmp_path)


def test_other_resolutions_and_files_are_ignored_and_counted(tmp_path: Path) -> None:
    source = write(tmp_path, [TRADE])
    write(tmp_path, ["garbage"], "equity/usa/second/spy")
    (source / "equity" / "usa" / "map_files").mkdir()
    (source / "equity" / "usa" / "map_files" / "spy.csv").write_text("19980102,spy,P\n")
    report = Report()
    assert len(read_bars(source, report=report)) == 1
    assert report.counts == {"file_ignored": 2}


def test_a_name_inside_that_denies_the_name_outside_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "equity" / "usa" / "minute" / "spy"
    for name in (
        "20240104_spy_minute_trade.csv",
        "20240103_aig_minute_trade.csv",
        "20240103_spy_second_trade.csv",
        "x",
    ):
        write_zip(place / "20240103_trade.zip", name, TRADE)
        with pytest.raises(DataError, match="which its own name denies"):
            read_bars(tmp_path)


def test_a11_a13_repeated_and_misplaced_minutes_are_counted(tmp_path: Path) -> None:
    lines = ["34260000,2,2,2,2,1", "34200000,10000,10000,10000,10000,1", "34260000,2,2,2,2,1", "34260000,3,3,3,30000,5"]
    report = Report()
    bars = read_bars(write(tmp_path, lines), report=report)
    assert bars["close"].tolist() == [1, 3]
    assert bars["volume"].tolist() == [1, 5]
    assert report.counts == {"unsorted": 1, "duplicate_identical": 1, "duplicate_conflicting": 1}


def test_the_hour_that_a_clock_change_skips_or_repeats_is_missing_and_dropped_by_the_panel(tmp_path: Path) -> None:
    place = tmp_path / "equity" / "usa" / "minute" / "spy"
    lines = [f"{hour * 3_600_000},10000,10000,10000,10000,1" for hour in (1, 2, 3)]
    for date in ("20240310", "20241103"):
        write_zip(place / f"{date}_trade.zip", f"{date}_spy_minute_trade.csv", "\n".join(lines))
    bars = read_bars(tmp_path)
    kept = ["03-10 01-0500", "03-10 03-0400", "11-03 02-0500", "11-03 03-0500"]
    assert bars["datetime"].dropna().dt.strftime("%m-%d %H%z").tolist() == kept
    assert bars["datetime"].isna().sum() == 2
    hours = Calendar(segments=(("01:00", "04:00"),), tick_minutes=60, timezone="America/New_York", weekdays=(6,))
    assert load_sessions(tmp_path, hours, min_coverage=0.1).report.counts["datetime_missing"] == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("86400000,1,1,1,1,1", "row 1: the time in milliseconds since midnight is 86400000"),
        ("-1,1,1,1,1,1", "since midnight is -1"),
        ("0.5,1,1,1,1,1", "since midnight is 0.5"),
        (",1,1,1,1,1", "since midnight is missing"),
        ("\n\n", "holds no rows"),
        ("0,1,1,1,1", "row 1 holds 5 values where 6 belong"),
        ("0,1,1,1,one,1", "row 1: close is 'one', not a number"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_bars(write(tmp_path, [line]))
    assert "spy/20240103_trade.zip" in str(caught.value)


def test_a_date_that_does_not_exist_is_named(tmp_path: Path) -> None:
    place = tmp_path / "equity" / "usa" / "minute" / "spy"
    write_zip(place / "20240230_trade.zip", "20240230_spy_minute_trade.csv", TRADE)
    with pytest.raises(DataError, match=r"20240230_trade\.zip: the date 2024-02-30 in its name does not exist"):
        read_bars(tmp_path)


@pytest.mark.parametrize("symbol", ["000001", "na", "true", "1e5", "brk.b", "brk-b"])
def test_a19_a21_symbols_are_the_text_of_the_folder(tmp_path: Path, symbol: str) -> None:
    source = write(tmp_path, [TRADE], f"equity/usa/minute/{symbol}")
    assert read_bars(source)["instrument"].tolist() == [symbol.upper()]
    with pytest.raises(DataError, match="no instrument 1"):
        read_bars(source, instruments="1")


def test_the_panel_of_a_day_knows_zone_and_label(tmp_path: Path) -> None:
    lines = [f"{34_200_000 + 60_000 * minute},{x},{x},{x},{x},9" for minute in range(390) for x in (10_000 + minute,)]
    source = write(tmp_path, lines)
    sessions = load_sessions(source, Calendar.preset("us"), cache_dir=tmp_path / "cache")
    assert sessions.fields["close"].shape == (1, 390)
    assert sessions.fields["close"][0, 389] == 1.0389
    with pytest.raises(ConfigError, match="set it to 'start'"):
        load_sessions(source, Calendar.preset("us", label="end"))
    moved = write(tmp_path / "other", lines, "crypto/x/minute/spy")
    noon = Calendar.preset("us", timezone="UTC", weekdays=tuple(range(7)))
    assert load_sessions(moved, noon, cache_dir=tmp_path / "cache").fields["close"][0, 389] == 10_389
    stamps = pd.Series(sessions.dates).astype(str)
    assert stamps.tolist() == ["2024-01-03"]
