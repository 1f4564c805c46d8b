"""Cases B and C: orders, simulator and rewards that broke other tools."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import (
    TWAP,
    CurrentStepStateInterpreter,
    Direction,
    Engine,
    ExecutionRules,
    Order,
    align_orders,
    order_table,
    parse_direction,
)
from rlwb.market import Calendar
from tests.execution.markets import AskAtStep, OneOrder, order, run, sessions_of

LUNCH = (("09:30", "11:30"), ("13:00", "15:00"))


def test_b01_order_starts_inside_a_step() -> None:
    close = [10 + 0.01 * bar for bar in range(90)]
    _, steps, summary = run(sessions_of([close]), [order(600, start="09:45", end="10:45")], 30, TWAP)
    assert (steps["end_tick"] - steps["start_tick"]).tolist() == [15, 30, 15]
    assert steps["fill"].tolist() == pytest.approx([150.0, 300.0, 150.0])
    assert summary["twap"].iloc[0] == pytest.approx(10.445)
    assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-8)


def test_b03_order_larger_than_the_volume() -> None:
    sessions = sessions_of([[10.0] * 10], 10_000.0)
    big = order(300_000)
    assert list(align_orders([big], sessions).noted) == ["the amount exceeds the whole volume of its window"]
    _, _, free = run(sessions, [big], 5, TWAP)
    assert (free["ffr"].iloc[0], free["participation"].iloc[0]) == (1.0, 3.0)
    _, _, capped = run(sessions, [big], 5, TWAP, ExecutionRules(volume_limit=0.25))
    assert capped["filled"].iloc[0] == 25_000.0
    assert capped["ffr"].iloc[0] == pytest.approx(0.0833, abs=1e-4)
    assert capped["amount"].iloc[0] - capped["filled"].iloc[0] == 275_000.0
    assert capped["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)


def test_b05_amounts_around_one_lot() -> None:
    sessions = sessions_of([[10.0] * 8])
    rule = ExecutionRules(lot_size=100)
    with pytest.raises(OrderError, match="below one lot of 100"):
        align_orders([order(40)], sessions, rule)
    fills = {}
    for amount in (100, 150, 199):
        ticks, _, summary = run(sessions, [order(amount)], 2, TWAP, rule)
        fills[amount] = ticks["filled"][ticks["filled"] > 0].tolist()
        assert summary["ffr"].iloc[0] == 1.0
    assert fills == {100: [100.0], 150: [100.0, 50.0], 199: [100.0, 99.0]}
    leave = ExecutionRules(lot_size=100, odd_lot="leave")
    _, _steps, left = run(sessions, [order(150)], 2, TWAP, leave)
    assert left["filled"].iloc[0] == 100.0
    assert "odd lot leave" in leave.describe()


@pytest.mark.parametrize("steps", [1, 2])
def test_b05_china_takes_the_odd_lot_of_a_sell_alone_and_that_whole(steps: int) -> None:
    """Buys are in multiples of 100; what a sell has below that goes in one piece, or not at all."""
    sessions = sessions_of([[10.0] * 4], 4000.0)
    rules = ExecutionRules.preset("cn")
    sold, bought = (run(sessions, [order(250, side)], steps, TWAP, rules) for side in ("SELL", "BUY"))
    assert sold[0]["filled"].sum() == 250.0
    assert (sold[0]["filled"] % 100).tolist() == [0.0, 0.0, 0.0, 50.0]
    assert bought[2]["filled"].iloc[0] == 200.0
    assert bought[2]["ffr"].iloc[0] == 0.8
    assert (bought[0]["filled"] % 100 == 0).all()
    # The last bar has room for 30 shares: of the 50 that are left none is sold.
    dry = sessions_of([[10.0] * 4], [[4000.0, 4000.0, 4000.0, 600.0]])
    capped = ExecutionRules.preset("cn", volume_limit=0.05)
    _, _, left = run(dry, [order(250, "SELL")], steps, TWAP, capped)
    assert left["filled"].iloc[0] == 200.0


@pytest.mark.parametrize("steps", [3, 4, 7])
@pytest.mark.parametrize("amount", [4.0, 5.0, 4.5])
def test_b05_what_asks_for_all_in_the_end_trades_whole_lots_without_a_forced_end(steps: int, amount: float) -> None:
    # Thirds of a position of whole lots are no lots: what rounding moved must not be missing in the end.
    rule = ExecutionRules(lot_size=1, complete_at_end=False)
    ticks, _, summary = run(sessions_of([[10.0] * steps]), [order(amount)], 1, TWAP, rule)
    assert summary["filled"].iloc[0] == amount
    assert (ticks["filled"].iloc[:-1] % 1 == 0).all()


@pytest.mark.parametrize(("ask", "filled"), [(75.0, 100.0), (120.0, 100.0), (40.0, 0.0), (150.0, 150.0)])
def test_b05_a_last_ask_of_a_part_trades_whole_lots(ask: float, filled: float) -> None:
    rule = ExecutionRules(lot_size=100, complete_at_end=False)
    simulator = OneOrder(order(150), Engine(sessions_of([[10.0] * 4]), 4, rule))
    simulator.step(ask)
    assert simulator.known.filled[0] == filled


@pytest.mark.parametrize("amount", [0.0000004, 5e-7, 20_000_001, 1e12])
def test_b07_very_small_and_very_large_amounts(amount: float) -> None:
    sessions = sessions_of([[10.0 + 0.01 * t for t in range(8)]])
    _, steps, summary = run(sessions, [order(amount)], 2, TWAP)
    assert len(steps) == 4
    assert steps["position"].iloc[-1] == 0.0
    assert summary["ffr"].iloc[0] == 1.0
    obs = CurrentStepStateInterpreter(4).interpret(OneOrder(order(amount), Engine(sessions, 2)).known)
    assert all(np.isfinite(value).all() for value in obs.values())


def test_b09_direction_codes() -> None:
    for text in ("buy", "BUY", "B", " b ", 1, np.int64(1), "+1", Direction.BUY):
        assert parse_direction(text) is Direction.BUY
    for text in ("sell", "SELL", "S", -1, "-1", Direction.SELL):
        assert parse_direction(text) is Direction.SELL
    for wrong in (0, 2, "0", "2", "long", None, math.nan, ""):
        with pytest.raises(OrderError, match="is not BUY or SELL"):
            parse_direction(wrong)
    qlib = {0: "SELL", 1: "BUY"}
    assert [parse_direction(code, qlib) for code in (0, 1)] == [Direction.SELL, Direction.BUY]
    with pytest.raises(OrderError, match="direction 2"):
        parse_direction(2, qlib)


def test_b09_the_sign_of_pa_each_way() -> None:
    sessions = sessions_of([[10.0, 11.0]])
    _, _, summary = run(sessions, [order(10, "BUY"), order(10, "SELL")], 1, AskAtStep(0))
    # Bought and sold at 10.00 against 10.50.
    assert summary["pa"].tolist() == pytest.approx([(1 - 10 / 10.5) * 1e4, (10 / 10.5 - 1) * 1e4])
    assert summary["pa"].iloc[0] > 0 > summary["pa"].iloc[1]


@pytest.mark.parametrize("amount", [1e7, 1e12])
def test_b07_small_fills_of_a_huge_order_have_their_price(amount: float) -> None:
    """Of 1e12 only steps of 1e-4 are left to subtract 3.33 in; the average of one price would be off by 0.2 bp."""
    sessions = sessions_of([[10.0] * 8], 333.0)
    ticks, _, summary = run(sessions, [order(amount)], 2, TWAP, ExecutionRules(volume_limit=0.01))
    assert summary["filled"].iloc[0] == pytest.approx(8 * 3.33, rel=1e-12)
    assert summary["filled"].iloc[0] == pytest.approx(ticks["filled"].sum(), rel=1e-12)
    assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start": "11:35", "end": "12:55"}, "holds no tick"),
        ({"start": "16:00", "end": "17:00"}, "at or after the session's close"),
        ({"start": "10:30", "end": "10:00"}, "its end is not after its start"),
        ({"start": "10:00", "end": "10:00"}, "its end is not after its start"),
        ({"date": "2024-01-07"}, "not a trading weekday"),
        ({"date": "2024-01-09"}, "no session on that date"),
        ({"instrument": "BBB"}, "the instrument is not in the data"),
    ],
)
def test_b11_windows_without_a_bar(change: dict[str, str], reason: str) -> None:
    sessions = sessions_of([[10.0] * 240], segments=LUNCH)
    sessions = type(sessions)(
        Calendar(segments=LUNCH), sessions.instruments, sessions.dates, sessions.num_ticks, dict(sessions.fields)
    )
    row = {
        "instrument": "AAA",
        "date": "2024-01-01",
        "direction": "BUY",
        "amount": 10.0,
        "start": "09:30",
        "end": "15:00",
    }
    with pytest.raises(OrderError, match=reason):
        align_orders(pd.DataFrame([row | change]), sessions)
    left = align_orders(pd.DataFrame([row, row | change]), sessions, on_refused="drop")
    assert len(left) == 1
    assert [len(ids) for ids in left.refused.values()] == [1]


def test_b11_all_refused_is_refused() -> None:
    with pytest.raises(OrderError, match="none of the 1 orders can be executed: the instrument is not in the data"):
        align_orders(
            [Order("BBB", pd.Timestamp(2024, 1, 1), Direction.BUY, 1.0)], sessions_of([[10.0] * 4]), on_refused="drop"
        )


def test_b11_a_window_without_a_price_is_refused() -> None:
    with pytest.raises(OrderError, match="no bar with a price"):
        align_orders([order(1.0, start="09:31", end="09:33")], sessions_of([[10.0, math.nan, math.nan, 10.0]]))


def test_b13_one_bar_and_less_than_one_step() -> None:
    sessions = sessions_of([[10.0 + t for t in range(60)]])
    for end in ("10:01", "10:07"):
        _, steps, summary = run(sessions, [order(70, start="10:00", end=end)], 30, TWAP)
        assert len(steps) == 1
        assert summary["ffr"].iloc[0] == 1.0
        assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)


def test_b15_results_name_their_rules() -> None:
    text = ExecutionRules(volume_limit=0.25, lot_size=100, commission_bps=1.0).describe()
    assert text == (
        "fills at close; cap 0.25 of volume; completes at the window's end; lots of 100, odd lot trade_at_end; "
        "price limit rule off; halted bars do not fill; costs: commission_bps 1"
    )


def test_b17_audit_sums_match_the_summary() -> None:
    rng = np.random.default_rng(0)
    close = 10 + rng.normal(size=(1, 60)).cumsum(axis=1) * 0.05
    rule = ExecutionRules(volume_limit=0.02)
    orders = [order(300, "BUY"), order(500, "SELL", start="09:37", end="10:20")]
    ticks, steps, summary = run(sessions_of(close), orders, 10, TWAP, rule)
    value = (ticks["filled"] * ticks["price"]).groupby(ticks["order_id"], sort=False).sum()
    filled = ticks.groupby("order_id", sort=False)["filled"].sum()
    np.testing.assert_allclose(filled, summary["filled"], rtol=1e-12)
    np.testing.assert_allclose(value / filled, summary["price"], rtol=1e-12)
    by_step = steps.groupby("order_id", sort=False)
    np.testing.assert_allclose(by_step["fill"].sum(), summary["filled"], rtol=1e-12)
    np.testing.assert_allclose(by_step["reward"].sum(), summary["reward"], rtol=1e-12)
    np.testing.assert_allclose(steps["reward_pa"] + steps["reward_penalty"], steps["reward"], rtol=1e-12)
    assert {"action", "requested", "fill", "price", "position"} <= set(steps)
    assert {"requested", "filled", "price", "left", "constraint"} <= set(ticks)


def test_c01_reward_counts_what_was_filled() -> None:
    # Filled 10 of 1000 at 20 bp better than the benchmark: 10 / 1000 * 20 = 0.2, less 100 * 0.01 ** 2.
    benchmark = 10.0
    price = benchmark * (1 - 20e-4)
    sessions = sessions_of([[price, 2 * benchmark - price]], [[100.0, 1e9]])
    _, steps, _ = run(sessions, [order(1000)], 1, AskAtStep(0), ExecutionRules(volume_limit=0.1))
    assert steps["fill"].iloc[0] == 10.0
    assert steps["reward_pa"].iloc[0] == pytest.approx(0.2)
    assert steps["reward_penalty"].iloc[0] == pytest.approx(-0.01)


def test_c03_more_steps_than_max_step() -> None:
    known = OneOrder(order(10), Engine(sessions_of([[10.0] * 13]), 1)).known
    with pytest.raises(ConfigError, match="max_step is 8 but an order has 13 steps"):
        CurrentStepStateInterpreter(8).interpret(known)


def test_d_forms_of_dates_and_ids() -> None:
    calendar = Calendar(segments=LUNCH)
    for date in ("2024-01-02", 20240102, "20240102", pd.Timestamp(2024, 1, 2), pd.Timestamp(2024, 1, 2).date()):
        table = order_table(
            pd.DataFrame([{"instrument": "000001", "date": date, "direction": "B", "amount": 1}]), calendar
        )
        assert table["order_id"].tolist() == ["000001-20240102-B"]
    with pytest.raises(OrderError, match=r"row 0 .*: date 'tomorrow' is not a date"):
        order_table(pd.DataFrame([{"instrument": "A", "date": "tomorrow", "direction": "B", "amount": 1}]), calendar)
    with pytest.raises(OrderError, match="instrument 1 is not text; quote it"):
        order_table(pd.DataFrame([{"instrument": 1, "date": "2024-01-02", "direction": "B", "amount": 1}]), calendar)
    for amount in (0, -5, math.nan, "many"):
        with pytest.raises(OrderError, match=r"row 0 .*: amount .* is not a number above 0"):
            order_table(
                pd.DataFrame([{"instrument": "A", "date": "2024-01-02", "direction": "B", "amount": amount}]), calendar
            )
