"""Spread, impact and fees by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import TWAP, Engine, ExecutionRules, ExecutionState, PAPenaltyReward, align_orders
from rlwb.market import Sessions, build_sessions
from rlwb.reward import sum_parts
from tests.execution.markets import AskAtStep, order, run, sessions_of


def quoted(bid: list[float], ask: list[float], close: list[float] | None = None) -> Sessions:
    plain = sessions_of([close or bid])
    fields = {**plain.fields, "bid": np.array([bid]), "ask": np.array([ask])}
    return Sessions(plain.calendar, plain.instruments, plain.dates, plain.num_ticks, fields)


def test_buys_pay_the_ask_and_sells_get_the_bid() -> None:
    sessions = quoted([9.9, 10.9], [10.1, 11.3], close=[10.05, 11.0])
    rules = ExecutionRules(price_field="quotes")
    ticks, _, summary = run(sessions, [order(100, "BUY"), order(100, "SELL")], 1, TWAP, rules)
    # Mids 10 and 11.1, half spreads 0.1 and 0.2: even parts reach the TWAP of the mids, 10.55, before the spread.
    assert summary["twap"].tolist() == pytest.approx([10.55, 10.55])
    assert summary["price"].tolist() == pytest.approx([10.55, 10.55])
    assert summary["pa"].tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
    assert summary["price_net"].tolist() == pytest.approx([(10.1 + 11.3) / 2, (9.9 + 10.9) / 2])
    assert summary["pa_net"].tolist() == pytest.approx([-0.15 / 10.55 * 1e4] * 2)
    assert ticks["cost"].tolist() == pytest.approx([5.0, 10.0, 5.0, 10.0])


def test_a_bar_with_one_quote_alone_has_no_price() -> None:
    sessions = quoted([9.9, math.nan, 10.9], [10.1, 10.5, 11.3], close=[10.0, 10.4, 11.0])
    ticks, _, summary = run(sessions, [order(100)], 3, TWAP, ExecutionRules(price_field="quotes"))
    assert ticks["constraint"].tolist() == ["", "no price", ""]
    assert summary["twap"].iloc[0] == pytest.approx(10.55)


def test_quotes_that_the_data_lack_are_refused_by_engine_and_binding() -> None:
    sessions, rules = sessions_of([[10.0] * 4]), ExecutionRules(price_field="quotes")
    with pytest.raises(ConfigError, match=r"the data have no bid and no ask.*half_spread_bps"):
        Engine(sessions, 1, rules)
    with pytest.raises(ConfigError, match="the data have no bid and no ask"):
        align_orders([order(1.0)], sessions, rules)


def test_temporary_impact_is_of_the_fill_that_makes_it() -> None:
    sessions = sessions_of([[10.0, 20.0]], [[1000.0, 400.0]])
    for shape, first, second in (("linear", 0.1, 0.25), ("square_root", math.sqrt(0.1), 0.5)):
        rules = ExecutionRules(volume_limit=1.0, temporary_impact_bps=50.0, temporary_impact_shape=shape)  # type: ignore[arg-type]
        ticks, _, summary = run(sessions, [order(200)], 2, AskAtStep(0), rules)
        assert ticks["filled"].tolist() == [100.0, 100.0]
        # 1000 and 2000 traded at 50 bp times the share of the volume, or its root.
        assert ticks["cost"].tolist() == pytest.approx([1000 * 0.005 * first, 2000 * 0.005 * second])
        paid = 1000 * 0.005 * first + 2000 * 0.005 * second
        assert summary["pa_net"].iloc[0] - summary["pa"].iloc[0] == pytest.approx(-paid / 200 / 15.0 * 1e4)


def test_permanent_impact_is_of_the_fills_before() -> None:
    sessions = sessions_of([[10.0, 10.0, 20.0]], [[1000.0, 400.0, 1000.0]])
    rules = ExecutionRules(volume_limit=1.0, permanent_impact_bps=80.0)
    ticks, _, summary = run(sessions, [order(300, "SELL")], 3, AskAtStep(0), rules)
    # 80 bp times a share of 0.1 moves the second price, and 0.25 more the third.
    assert ticks["cost"].tolist() == pytest.approx([0.0, 1000 * 0.0008, 2000 * 0.0028])
    assert summary["price_net"].iloc[0] == pytest.approx((4000 - 0.8 - 5.6) / 300)


def test_permanent_impact_stays_over_steps() -> None:
    sessions = sessions_of([[10.0] * 4], 1000.0)
    rules = ExecutionRules(volume_limit=1.0, permanent_impact_bps=100.0, permanent_impact_shape="square_root")
    ticks, _, _ = run(sessions, [order(400)], 1, TWAP, rules)
    root = math.sqrt(0.1)
    assert ticks["cost"].tolist() == pytest.approx([1000 * 0.01 * root * k for k in range(4)])


def test_transient_impact_is_paid_by_later_fills_until_it_is_gone() -> None:
    """Tick by tick shares of 0.1 move the price by 10 bp, or by 100 bp times the root; half is left a minute later."""
    sessions = sessions_of([[10.0] * 4], 1000.0)
    rules = ExecutionRules(
        volume_limit=1.0,
        transient_impact_bps=100.0,
        transient_impact_shape="linear",
        transient_decay="exponential",
        transient_half_life=1.0,
    )
    ticks, _, summary = run(sessions, [order(400)], 2, TWAP, rules)
    # The mean of its own move, and what is left of the moves before.
    paid = [10 * 1 / 2, 10 * (1 / 2 + 1 / 2), 10 * (1 / 2 + 1 / 2 + 1 / 4), 10 * (1 / 2 + 1 / 2 + 1 / 4 + 1 / 8)]
    assert ticks["cost"].tolist() == pytest.approx([1000 * bp / 1e4 for bp in paid])
    assert summary["pa"].iloc[0] == pytest.approx(0.0, abs=1e-9)
    assert summary["pa_net"].iloc[0] == pytest.approx(-sum(paid) / 4)
    slow = dataclasses.replace(rules, transient_decay="power", transient_impact_shape="square_root")
    ticks, _, _ = run(sessions, [order(400, "SELL")], 2, TWAP, slow)
    root, left = 100 * math.sqrt(0.1), [1.0, 1 / 2, 1 / math.sqrt(7), 1 / math.sqrt(10)]
    paid = [root * (2 / 3 + sum(left[1 : k + 1])) for k in range(4)]
    assert ticks["cost"].tolist() == pytest.approx([1000 * bp / 1e4 for bp in paid])


def test_halts_may_be_left_out_where_the_data_have_them() -> None:
    halted = np.array([[False, True, True, False]])
    sessions = sessions_of([[10] * 4], halted=halted)
    ticks, _, _ = run(sessions, [order(100)], 4, AskAtStep(0), ExecutionRules(halts=False))
    assert ticks["filled"].tolist() == [25.0] * 4
    with pytest.raises(ConfigError, match="halts off has no effect"):
        Engine(sessions_of([[10.0] * 4]), 1, ExecutionRules(halts=False))


def episode(rules: ExecutionRules, sides: list[str], amounts: list[list[float]]) -> tuple[list[ExecutionState], Engine]:
    sessions = sessions_of([[10.0, 10.4, 10.2, 9.9]], [[900.0, 1000.0, 700.0, 1200.0]])
    engine = Engine(sessions, 2, rules)
    state, states = (
        ExecutionState.start(engine, align_orders([order(200, side) for side in sides], sessions, rules)),
        [],
    )
    for ask in amounts:
        state = state.after(*engine.step(state.orders, state.now, np.array(ask)))
        states.append(state)
    return states, engine


def test_rewards_under_costs_add_up_to_the_net_price_advantage() -> None:
    from rlwb.execution import order_metrics

    rules = ExecutionRules(
        volume_limit=0.09,
        complete_at_end=False,
        commission_bps=3.0,
        sell_tax_bps=5.0,
        half_spread_bps=2.0,
        min_fee=4.0,
        temporary_impact_bps=60.0,
        permanent_impact_bps=20.0,
    )
    states, _ = episode(rules, ["BUY", "SELL"], [[120.0, 10.0], [80.0, 20.0]])
    reward = PAPenaltyReward(penalty=0.0, scale=0.5)
    total = np.sum([sum_parts(reward.parts(state.outcome)) for state in states], axis=0)
    last = states[-1]
    figures = order_metrics(last.orders, last.now, last.benchmarks, rules)
    assert figures["ffr"].tolist() == pytest.approx([1.0, 0.15])
    assert total.tolist() == pytest.approx((0.5 * figures["ffr"] * figures["pa_net"]).tolist(), rel=1e-12)
    # The minimum fee is charged once, at the end: 3 bp of some 300 is 0.09.
    assert reward.parts(states[0].outcome)["cost"][1] > reward.parts(last.outcome)["cost"][1]


def test_the_reward_has_no_cost_part_without_costs() -> None:
    states, _ = episode(ExecutionRules(volume_limit=0.5), ["BUY"], [[100.0], [100.0]])
    assert list(PAPenaltyReward().parts(states[0].outcome)) == ["pa", "penalty"]


def test_a_session_of_real_quotes_costs_half_its_spread() -> None:
    from pathlib import Path

    from rlwb.market import Calendar

    path = Path(__file__).parents[3] / "shared/data/us_equity_1min_quotes/bars.parquet"
    if not path.is_file():
        pytest.skip("the set us_equity_1min_quotes is not beside this checkout")
    bars = pd.read_parquet(path)
    bars = bars[(bars["instrument"] == "SPY") & (bars["datetime"].dt.strftime("%Y-%m-%d") == "2013-10-07")]
    inside = bars.set_index("datetime").between_time("10:30", "11:29")
    sessions = build_sessions(bars, Calendar.preset("us"))
    stamp = pd.Timestamp("2013-10-07")
    one = {"instrument": "SPY", "date": stamp, "direction": "BUY", "amount": 6000.0, "start": "10:30", "end": "11:30"}
    rules = ExecutionRules(price_field="quotes")
    orders = align_orders(pd.DataFrame([one]), sessions, rules)
    engine = Engine(sessions, 60, rules)
    state, _ = engine.step(orders, engine.reset(orders), np.array([6000.0]))
    assert len(inside) == 60
    assert state.notional[0] / 6000 == pytest.approx(((inside["bid"] + inside["ask"]) / 2).mean(), rel=1e-12)
    assert (state.notional[0] + state.cost[0]) / 6000 == pytest.approx(inside["ask"].mean(), rel=1e-12)
