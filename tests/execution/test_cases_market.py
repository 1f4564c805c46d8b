"""Cases A: market data that broke other tools, seen from the engine."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import TWAP, Engine, ExecutionRules, OrderBatch, OrderSettings, align_orders, generate_orders
from rlwb.market import Calendar, build_sessions
from tests.execution.markets import AskAtStep, order, run, sessions_of


def bars(
    date: str, times: pd.DatetimeIndex | list[str], close: float | np.ndarray = 10.0, **more: object
) -> pd.DataFrame:
    stamps = pd.to_datetime([f"{date} {t}" for t in times]) if isinstance(times, list) else times
    frame = pd.DataFrame({"instrument": "AAA", "datetime": stamps, "close": close})
    for name in ("open", "high", "low"):
        frame[name] = frame["close"]
    return frame.assign(volume=1000.0, **more)


def minutes(date: str, count: int, start: str = "09:30") -> pd.DatetimeIndex:
    return pd.date_range(f"{date} {start}", periods=count, freq="min")


US = Calendar(segments=(("09:30", "16:00"),))


def full_days(frame: pd.DataFrame, ticks_per_step: int = 30, calendar: Calendar = US) -> tuple[pd.DataFrame, ...]:
    sessions = build_sessions(frame, calendar)
    orders = generate_orders(sessions, OrderSettings(volume_days=0))
    return run(sessions, orders, ticks_per_step, TWAP)  # type: ignore[arg-type]


def test_a01_half_day_between_full_days() -> None:
    days = [("2024-07-02", 390), ("2024-07-03", 210), ("2024-07-05", 390)]
    frame = pd.concat([bars(day, minutes(day, count)) for day, count in days], ignore_index=True)
    _, _steps, summary = full_days(frame)
    by_day = summary.groupby("date")
    assert by_day["num_steps"].first().tolist() == [13, 7, 13]
    assert summary["ffr"].tolist() == [1.0] * 6
    assert by_day["end"].first().dt.strftime("%H:%M").tolist() == ["16:00", "13:00", "16:00"]
    shuffled = pd.concat([bars(day, minutes(day, count)) for day, count in reversed(days)], ignore_index=True)
    pd.testing.assert_frame_equal(full_days(shuffled)[2], summary)


def test_a01_an_order_that_names_the_regular_close_ends_at_the_early_one() -> None:
    day = "2024-07-03"
    sessions = build_sessions(bars(day, minutes(day, 210)), US)
    table = pd.DataFrame(
        {"instrument": ["AAA"], "date": [day], "direction": ["BUY"], "amount": [10.0], "end": ["16:00"]}
    )
    assert align_orders(table, sessions).end.tolist() == [210]


def test_a03_zero_volume_minutes_with_a_cap() -> None:
    volume = [[1000.0, 1000.0, 1000.0, 0.0, 0.0, 1000.0, 1000.0, 1000.0]]
    rule = ExecutionRules(volume_limit=0.1)
    ticks, steps, summary = run(sessions_of([[10.0] * 8], volume), [order(100)], 1, TWAP, rule)
    assert ticks["filled"].iloc[3:5].tolist() == [0.0, 0.0]
    assert summary["ffr"].iloc[0] == 1.0
    assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)
    assert (steps["reward"] <= 0).all()
    assert math.isnan(steps["price"].iloc[3])


def test_a05_missing_close_inside_the_window() -> None:
    prices = [[10.0, math.nan, 10.0, 12.0]]
    for ticks_per_step in (1, 2, 4):
        ticks, _, summary = run(sessions_of(prices, 100.0), [order(300)], ticks_per_step, TWAP)
        assert ticks["filled"].tolist() == pytest.approx([100.0, 0.0, 100.0, 100.0])
        assert summary["twap"].iloc[0] == pytest.approx(32 / 3)
        assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)


def test_a07_price_zero_is_missing() -> None:
    frame = bars("2024-01-02", minutes("2024-01-02", 4), np.array([10.0, 0.0, 10.0, 10.0]))
    sessions = build_sessions(frame, Calendar(segments=(("09:30", "09:34"),)))
    one = order(400, day=2)
    _, _, twap = run(sessions, [one], 1, TWAP)
    ticks, _, second = run(sessions, [one], 1, AskAtStep(1))
    assert twap["twap"].iloc[0] == 10.0
    assert ticks["filled"].iloc[1] == 0.0
    assert second["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)
    assert second["ffr"].iloc[0] == 1.0


def test_a09_limit_up_blocks_buys_and_not_sells() -> None:
    pinned = [10.0] * 30 + [11.0] * 30
    sessions = sessions_of([[10.0] * 60, pinned])
    orders = [order(600, "BUY", day=2), order(600, "SELL", day=2)]
    ticks, _, summary = run(sessions, orders, 30, TWAP, ExecutionRules(price_limit=0.1))
    assert summary["filled"].tolist() == pytest.approx([300.0, 600.0])
    assert set(ticks["constraint"]) == {"", "halt or price limit"}
    _, _, off = run(sessions, orders, 30, TWAP)
    assert off["ffr"].tolist() == [1.0, 1.0]
    assert "price limit rule off" in ExecutionRules().describe()


def test_a09_limit_is_rounded_to_the_price_tick() -> None:
    # 10.03 * 1.1 = 11.033, so the limit is 11.03.
    sessions = sessions_of([[10.03] * 2, [11.02, 11.03]])
    ticks, _, _ = run(sessions, [order(10, day=2)], 2, TWAP, ExecutionRules(price_limit=0.1))
    assert ticks["filled"].tolist() == [5.0, 0.0]


def test_a11_a13_doubled_and_shuffled_bars_give_the_sorted_result() -> None:
    rng = np.random.default_rng(0)
    day = bars("2024-01-02", minutes("2024-01-02", 390), 10 + rng.normal(size=390).cumsum() * 0.01)
    expected = full_days(day)[2]
    shuffled = day.sample(frac=1.0, random_state=1)
    pd.testing.assert_frame_equal(full_days(shuffled)[2], expected)
    doubled = pd.concat([day, day.iloc[[35]]], ignore_index=True)
    pd.testing.assert_frame_equal(full_days(doubled)[2], expected)


def test_a15_aware_stamps_of_orders_are_read_in_the_session_zone_or_refused() -> None:
    day = "2024-01-02"
    zoned = Calendar(segments=(("09:30", "16:00"),), timezone="America/New_York")
    frame = bars(day, minutes(day, 390))
    table = pd.DataFrame({"instrument": ["AAA"], "direction": ["BUY"], "amount": [10.0]})
    table["start"], table["end"] = pd.Timestamp(f"{day} 15:00", tz="UTC"), pd.Timestamp(f"{day} 16:00", tz="UTC")
    batch = align_orders(table, build_sessions(frame, zoned))
    assert (batch.start[0], batch.end[0]) == (30, 90)  # 10:00 to 11:00 in New York
    with pytest.raises(OrderError, match=r"\+00:00.*timezone"):
        align_orders(table, build_sessions(frame, US))


def test_a17_no_step_spans_the_lunch_break() -> None:
    clock = (("09:30", "11:30"), ("13:00", "15:00"))
    sessions = sessions_of([[10.0] * 240], segments=clock)
    ticks, steps, _ = run(sessions, [order(300, start="11:15", end="13:15")], 30, TWAP)
    assert (steps["end_tick"] - steps["start_tick"]).tolist() == [15, 15]
    assert steps["fill"].tolist() == pytest.approx([150.0, 150.0])
    assert ticks.groupby("step")["time"].agg(["min", "max"]).astype(str).to_numpy().tolist() == [
        ["11:15:00", "11:29:00"],
        ["13:00:00", "13:14:00"],
    ]


def test_a17_ticks_left_count_trading_minutes() -> None:
    from tests.execution.markets import OneOrder

    sessions = sessions_of([[10.0] * 240], segments=(("09:30", "11:30"), ("13:00", "15:00")))
    simulator = OneOrder(order(300, start="11:15", end="13:15"), Engine(sessions, 30))
    assert simulator.known.ticks_left[0] == 30
    simulator.step(150.0)
    assert simulator.known.ticks_left[0] == 15
    assert str(simulator.known.time[0]).endswith("T13:00:00")


def test_a19_a21_ids_stay_apart() -> None:
    names = sorted(["000001", "000010", "600000.SH", "600000.SZ", "BRK.B", "BRK-B", "^GSPC"])
    prices = [[10.0 + i] * 4 for i in range(len(names))]
    sessions = sessions_of(prices, instruments=names)
    orders = generate_orders(sessions, OrderSettings(volume_days=0))
    _, _, summary = run(sessions, orders, 2, TWAP)  # type: ignore[arg-type]
    price = summary.groupby("instrument")["price"].first()
    assert price.index.tolist() == names
    assert price.tolist() == pytest.approx([row[0] for row in prices])


def test_a25_end_and_start_labels_give_equal_fills() -> None:
    day = "2024-01-02"
    close = 10 + np.random.default_rng(0).normal(size=390).cumsum() * 0.01
    start = bars(day, minutes(day, 390), close)
    end = bars(day, minutes(day, 390, "09:31"), close)
    ending = Calendar(segments=(("09:30", "16:00"),), label="end")
    pd.testing.assert_frame_equal(full_days(end, calendar=ending)[2], full_days(start)[2])


def test_a27_missing_minutes_leave_the_clock_alone() -> None:
    clock = (("09:30", "11:30"), ("13:00", "15:00"))
    calendar = Calendar(segments=clock)
    day = "2024-01-02"
    times = minutes(day, 120).append(minutes(day, 120, "13:00"))
    close = np.arange(240.0) + 100
    frame = bars(day, times, close)
    gone = [f"{day} 10:07", f"{day} 10:08", f"{day} 14:59"]
    frame = frame[~frame["datetime"].isin(pd.to_datetime(gone))]
    sessions = build_sessions(frame, calendar)
    ticks, steps, summary = run(sessions, [order(240, day=2)], 30, TWAP)
    assert steps["start_tick"].tolist() == [0, 30, 60, 90, 120, 150, 180, 210]
    assert summary["ffr"].iloc[0] == 1.0
    assert summary["twap"].iloc[0] == pytest.approx(frame["close"].mean())
    assert ticks.loc[ticks["tick"].isin([37, 38, 239]), "filled"].tolist() == [0.0, 0.0, 0.0]


def test_batch_type() -> None:
    assert isinstance(align_orders([order(1.0)], sessions_of([[10.0] * 4])), OrderBatch)
