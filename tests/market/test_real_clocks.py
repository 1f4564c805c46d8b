"""Clocks on real bars: 1 s to 30 min, labels at either end, auctions, extended hours, holidays; skipped without them.

The expected values come from plain pandas on the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.execution import TWAP
from rlwb.market import Calendar, Sessions, build_sessions, load_sessions, resample
from tests.execution.markets import run

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")


def bars_of(name: str) -> Path:
    return DATA / name / "bars.parquet"


def order_of(sessions: Sessions, row: int, side: str, amount: float) -> Any:
    from rlwb.execution import Order, parse_direction

    date = pd.Timestamp(sessions.dates[row])
    return Order(str(sessions.instruments[row]), date, parse_direction(side), amount)


@pytest.fixture(scope="module")
def seconds() -> Sessions:
    """A day of Apple by the second: the last trade and the shares traded, as open, high, low and close."""
    book = pd.read_parquet(DATA / "us_lob_2012" / "book_1s_AAPL.parquet")
    prices = dict.fromkeys(("open", "high", "low", "close"), book["last_trade"])
    quotes = {"bid": book["bid_price_1"], "ask": book["ask_price_1"]}
    frame = book[["instrument", "datetime"]].assign(**prices, volume=book["trade_volume"], **quotes)
    calendar = Calendar(segments=(("10:00", "15:30"),), tick_minutes=1 / 60, infer_early_close_minutes=0)
    return build_sessions(frame, calendar, strict=True, min_coverage=0.0)  # most seconds have no trade


def test_a_day_of_seconds_is_a_session_of_19800_ticks(seconds: Sessions) -> None:
    assert seconds.fields["close"].shape == (1, 19_800)
    assert seconds.calendar.time_of(1).isoformat() == "10:00:01"
    orders = [order_of(seconds, 0, side, 1e5) for side in ("BUY", "SELL")]
    ticks, steps, summary = run(seconds, orders, 1800, TWAP)
    assert summary["num_steps"].tolist() == [11, 11]
    np.testing.assert_allclose(summary["filled"], 1e5)
    np.testing.assert_allclose(summary["pa"], 0.0, atol=1e-8)
    np.testing.assert_allclose(summary["twap"], np.nanmean(seconds.fields["close"]), rtol=1e-12)
    assert len(ticks) == 2 * 19_800
    assert steps.groupby("order_id").size().tolist() == [11, 11]


@pytest.mark.parametrize(("minutes", "ticks"), [(1, 330), (5, 66), (15, 22), (30, 11)])
def test_seconds_join_to_the_bars_that_pandas_makes(seconds: Sessions, minutes: int, ticks: int) -> None:
    joined = resample(seconds, minutes)
    assert joined.calendar.num_ticks == ticks
    book = pd.read_parquet(DATA / "us_lob_2012" / "book_1s_AAPL.parquet").set_index("datetime")
    by_bar = book.resample(f"{minutes}min")
    expected = by_bar["last_trade"].agg(["first", "max", "min", "last"])
    for field, column in (("open", "first"), ("high", "max"), ("low", "min"), ("close", "last")):
        np.testing.assert_array_equal(joined.fields[field][0], expected[column])
    np.testing.assert_array_equal(joined.fields["volume"][0], by_bar["trade_volume"].sum())
    np.testing.assert_array_equal(joined.fields["bid"][0], by_bar["bid_price_1"].last())


def test_half_hours_of_a_day_with_a_lunch_break() -> None:
    calendar = Calendar.exchange("XSHG", label="end")
    minutes = load_sessions(bars_of("cn_equity_1min_2024"), calendar, instruments=["600519.SH"], volume_multiplier=100)
    joined = resample(minutes, 30)
    assert joined.calendar.num_ticks == 8
    assert [f"{joined.calendar.time_of(tick):%H:%M}" for tick in (3, 4, 7)] == ["11:00", "13:00", "14:30"]
    frame = pd.read_parquet(bars_of("cn_equity_1min_2024"))
    frame = frame[(frame["instrument"] == "600519.SH") & (frame["datetime"].dt.strftime("%H:%M") != "09:30")]
    by_bar = frame.set_index("datetime").resample("30min", closed="right", label="right")
    volume = by_bar["volume"].sum()
    np.testing.assert_array_equal(joined.fields["volume"].ravel(), volume[volume > 0] * 100)
    np.testing.assert_array_equal(joined.fields["close"].ravel(), by_bar["close"].last().dropna())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("us_equity_1min_2025", {}),
        ("us_equity_5min_2025", {"tick_minutes": 5}),
        ("us_equity_5min_ext", {"tick_minutes": 5}),
    ],
)
def test_a01_early_closes_that_bars_show_are_those_of_the_exchange(name: str, settings: dict[str, Any]) -> None:
    shown = load_sessions(bars_of(name), Calendar.preset("us", **settings))
    stated = load_sessions(bars_of(name), Calendar.exchange("XNYS", **settings))
    np.testing.assert_array_equal(stated.instruments, shown.instruments)
    np.testing.assert_array_equal(stated.dates, shown.dates)
    np.testing.assert_array_equal(stated.num_ticks, shown.num_ticks)
    assert "closed_day" not in stated.report.counts
    early = np.unique(shown.dates[shown.num_ticks < shown.calendar.num_ticks])
    assert stated.report.counts.get("early_close_stated", 0) == len(early)


@pytest.mark.parametrize(
    ("name", "settings"), [("cn_equity_1min_2024", {}), ("cn_equity_15min_2025", {"tick_minutes": 15})]
)
def test_no_bar_lies_on_a_day_that_shanghai_is_closed(name: str, settings: dict[str, Any]) -> None:
    sessions = load_sessions(bars_of(name), Calendar.exchange("XSHG", label="end", **settings))
    assert "closed_day" not in sessions.report.counts
    days = np.unique(sessions.dates)
    every = np.arange(days[0], days[-1] + 1)
    missing = every[sessions.calendar.is_open(every) & ~np.isin(every, days)].astype(str).tolist()
    assert missing == (["2024-03-05", "2024-03-06"] if name == "cn_equity_1min_2024" else [])


def test_mock_sessions_are_closed_days_of_the_exchange() -> None:
    sessions = load_sessions(bars_of("in_equity_1min_2021"), Calendar.exchange("XBOM"))
    assert sessions.report.counts["closed_day"] == 171
    assert sessions.report.examples["closed_day"].split()[1] in ("2021-05-01", "2021-06-12")


def test_the_closing_auction_of_new_york_as_a_segment_of_its_own() -> None:
    segments = (("09:30", "16:00"), ("16:00", "16:01"))
    calendar = Calendar(segments=segments, timezone="America/New_York", infer_early_close_minutes=0)
    sessions = load_sessions(bars_of("us_equity_1min_2018"), calendar, instruments=["AAL", "BRK.B"])
    assert "auction" not in sessions.report.counts
    frame = pd.read_parquet(bars_of("us_equity_1min_2018"))
    frame = frame[frame["instrument"].isin(["AAL", "BRK.B"]) & (frame["datetime"].dt.strftime("%H:%M") == "16:00")]
    frame = frame.sort_values(["instrument", "datetime"])
    np.testing.assert_array_equal(sessions.fields["volume"][:, 390], frame["volume"])
    np.testing.assert_array_equal(sessions.fields["close"][:, 390], frame["close"])
    _, steps, _ = run(sessions, [order_of(sessions, 0, "SELL", 1000.0)], 60, TWAP)
    assert len(steps) == 8  # six hours and a half, and the auction alone


def test_the_opening_auction_of_shanghai_as_a_segment_of_its_own() -> None:
    segments = (("09:29", "09:30"), ("09:30", "11:30"), ("13:00", "15:00"))
    calendar = Calendar(segments=segments, label="end", timezone="Asia/Shanghai")
    sessions = load_sessions(bars_of("cn_equity_1min_2024"), calendar, volume_multiplier=100)
    assert "auction" not in sessions.report.counts
    assert sessions.report.totals["bars_kept"] == sessions.report.totals["bars_read"] == 219_061
    frame = pd.read_parquet(bars_of("cn_equity_1min_2024"))
    opening = frame[frame["datetime"].dt.strftime("%H:%M") == "09:30"].sort_values(["instrument", "datetime"])
    np.testing.assert_array_equal(sessions.fields["volume"][:, 0], opening["volume"] * 100)


def test_extended_hours_are_a_longer_segment() -> None:
    calendar = Calendar(
        segments=(("04:00", "20:00"),), tick_minutes=5, timezone="America/New_York", infer_early_close_minutes=0
    )
    sessions = load_sessions(bars_of("us_equity_5min_ext"), calendar, min_coverage=0.0)
    assert sessions.fields["close"].shape == (1002, 192)
    assert sessions.report.totals["bars_kept"] == sessions.report.totals["bars_read"] == 92_269
    regular = load_sessions(bars_of("us_equity_5min_ext"), Calendar.exchange("XNYS", tick_minutes=5))
    first = calendar.first_tick("09:30")
    full = regular.num_ticks == 78
    np.testing.assert_array_equal(sessions.fields["close"][full, first : first + 78], regular.fields["close"][full])


def test_a25_either_label_gives_the_same_panel() -> None:
    frame = pd.read_parquet(bars_of("us_equity_1min_2023"))
    end = build_sessions(frame, Calendar.exchange("XNYS", label="end"))
    moved = frame.assign(datetime=frame["datetime"] - pd.Timedelta(minutes=1))
    start = build_sessions(moved, Calendar.exchange("XNYS"))
    for name, values in end.fields.items():
        np.testing.assert_array_equal(start.fields[name], values)


def test_stamps_in_utc_land_on_the_same_ticks_in_winter_and_summer() -> None:
    """The source of the extended hours has naive stamps in UTC, across a change of clocks."""
    raw = DATA / "raw" / "polygon_csv" / "MA_5m.first20000.csv.gz"
    calendar = Calendar.exchange("XNYS", tick_minutes=5)
    sessions = load_sessions(raw, calendar, source_timezone="UTC")
    tidy = load_sessions(bars_of("us_equity_5min_ext"), calendar, instruments=["MA"])
    rows = tidy.rows(sessions.instruments.tolist(), sessions.dates)
    whole = sessions.dates < sessions.dates.max()  # the file was cut within its last day
    changes = np.array(["2023-11-05", "2024-03-10"], dtype="datetime64[D]")
    assert all(sessions.dates.min() < change < sessions.dates.max() for change in changes)
    np.testing.assert_array_equal(sessions.fields["close"][whole], tidy.fields["close"][rows[whole]])
