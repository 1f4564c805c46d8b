"""The split of costs against hand-computed orders, and against the net value of random ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.execution import Engine, ExecutionRules, ExecutionState, align_orders
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_PARTS, attribute_costs, tick_charges
from rlwb.execution.costs import net_value
from tests.execution.markets import order, sessions_of


def split(engine: Engine, state: ExecutionState) -> dict[str, np.ndarray]:
    """Return the parts of each order's cost by their names."""
    columns = attribute_costs(engine, state.orders, state.metrics(), state.details()["requested"])
    return {part: columns[column] for part, column in COST_COLUMNS.items()}


def played(engine: Engine, orders: list, requests: list[list[float]]) -> ExecutionState:
    state = ExecutionState.start(engine, align_orders(orders, engine.sessions, engine.rules))
    for request in requests:
        state = state.after(*engine.step(state.orders, state.now, np.array(request)))
    return state


def by_hand() -> tuple[Engine, ExecutionState]:
    """A sell of 400: three fills of 100, the last of its four bars has no volume, and the session closes at 9.80.

    It begins at the second bar and arrives at its open, 10.00.
    """
    sessions = sessions_of([[10.1, 10.0, 10.2, 10.1, 9.9, 9.8]], [[900.0, 1000.0, 400.0, 1000.0, 0.0, 500.0]])
    rules = ExecutionRules(
        volume_limit=0.25,
        half_spread_bps=2.0,
        commission_bps=1.0,
        min_fee=1.0,
        sell_tax_bps=5.0,
        temporary_impact_bps=50.0,
        temporary_impact_shape="square_root",
        permanent_impact_bps=20.0,
        transient_impact_bps=40.0,
        transient_half_life=1.0,
    )
    engine = Engine(sessions, 1, rules)
    return engine, played(engine, [replace(order(400, "SELL", "09:31", "09:35"), decision_price=10.05)], [[100.0]] * 4)


def test_one_order_split_by_hand() -> None:
    engine, state = by_hand()
    parts = {name: float(values[0]) for name, values in split(engine, state).items()}
    expected = {
        "delay": 400 * 0.05,  # decided at 10.05, arrived at 10.00
        "drift": -300 * 0.05,  # the TWAP of 10.0, 10.2, 10.1 and 9.9 is 10.05, good for a sell
        "selection": -(3030.0 - 300 * 10.05),  # sold at 10.10 on average
        "spread": 3030 * 2e-4,
        "temporary_impact": 50e-4 * (1000 * math.sqrt(0.1) + 1020 * math.sqrt(0.25) + 1010 * math.sqrt(0.1)),
        "permanent_impact": 20e-4 * (1020 * 0.1 + 1010 * 0.35),
        # of its own move two thirds; of those one and two minutes earlier 1 / 2 and 1 / sqrt(7)
        "transient_impact": 40e-4
        * (
            1000 * math.sqrt(0.1) * 2 / 3
            + 1020 * (math.sqrt(0.25) * 2 / 3 + math.sqrt(0.1) / 2)
            + 1010 * (math.sqrt(0.1) * 2 / 3 + math.sqrt(0.25) / 2 + math.sqrt(0.1) / math.sqrt(7))
        ),
        "within_bar": 0.0,
        "commission": 1.0,  # 1 bp of 3030 is below the minimum
        "tax": 3030 * 5e-4,
        "opportunity": 100 * 0.2,  # 100 left, which close at 9.80
    }
    assert parts == pytest.approx({**expected, "total": sum(expected.values())}, rel=1e-12, abs=1e-9)


RULES = st.fixed_dictionaries(
    {
        "volume_limit": st.sampled_from([0.1, 0.5, 1.0]),
        "lot_size": st.sampled_from([0.0, 10.0]),
        "commission_bps": st.sampled_from([0.0, 3.0]),
        "min_fee": st.sampled_from([0.0, 5.0]),
        "sell_tax_bps": st.sampled_from([0.0, 5.0]),
        "half_spread_bps": st.sampled_from([0.0, 2.0]),
        "temporary_impact_bps": st.sampled_from([0.0, 60.0]),
        "permanent_impact_bps": st.sampled_from([0.0, 30.0]),
        "transient_impact_bps": st.sampled_from([0.0, 40.0]),
        "complete_at_end": st.booleans(),
    }
)


@given(seed=st.integers(0, 2**32 - 1), rules=RULES, root=st.booleans(), is_quoted=st.booleans())
def test_the_parts_are_the_total_to_the_last_bit_and_the_total_is_that_of_the_net_value(
    seed: int, rules: dict[str, Any], root: bool, is_quoted: bool
) -> None:
    rng = np.random.default_rng(seed)
    prices = 10 * np.exp(np.cumsum(rng.normal(0, 0.01, (2, 12)), axis=1))
    sessions = sessions_of(prices, rng.integers(0, 3, (2, 12)) * 500.0)
    half = prices * rng.uniform(0, 1e-3, prices.shape)
    if is_quoted:
        sessions = replace(sessions, fields={**sessions.fields, "bid": prices - half, "ask": prices + half})
        rules = {**rules, "price_field": "quotes", "half_spread_bps": 0.0}
    if root and rules["permanent_impact_bps"]:
        rules = {**rules, "permanent_impact_shape": "square_root"}
    if rules["transient_impact_bps"]:
        linear: dict[str, Any] = {"transient_impact_shape": "linear", "transient_decay": "exponential"}
        rules = {**rules, "transient_half_life": 2.0, **({} if root else linear)}
    engine = Engine(sessions, 3, ExecutionRules(**rules))
    given = [
        replace(order(300, "BUY"), decision_price=9.9),
        order(700, "SELL", "09:31", "09:40"),
        replace(order(450, "SELL", day=2), decision_price=10.2),
    ]
    state = ExecutionState.start(engine, align_orders(given, sessions, engine.rules))
    while not state.done.all():
        request = np.where(state.done, 0.0, state.now.position * rng.uniform(0, 1, 3))
        state = state.after(*engine.step(state.orders, state.now, request))
    parts, now, side = split(engine, state), state.now, state.orders.side.astype(float)
    total = np.zeros(3)
    for name, values in parts.items():
        if name != "total":
            total += values
    assert parts["total"].tolist() == total.tolist()
    record, charges = state.tick_record(), tick_charges(engine, state.orders, state.tick_record().fill)
    np.testing.assert_allclose(sum(charges), record.cost, rtol=1e-12, atol=1e-15)
    # Perold: what the whole order is worth at the decision, less what it brought, what stayed open at the close.
    amount, arrival = state.orders.amount, state.benchmarks.arrival
    paid = side * net_value(now.notional, now.cost, side, engine.rules)
    left = np.where(now.filled < amount, side * (amount - now.filled) * prices[[0, 0, 1], -1], 0.0)
    fair = side * amount * np.array([9.9, arrival[1], 10.2])
    np.testing.assert_allclose(parts["total"], paid + left - fair, rtol=1e-9, atol=1e-7)
    # What the fills alone lost against arrival is minus their PA against it.
    timing, value = parts["drift"] + parts["selection"], now.filled * arrival
    pa = np.nan_to_num(state.metrics()["pa_arrival"])
    np.testing.assert_allclose(timing, -pa * value / 1e4, rtol=1e-9, atol=1e-7)


def test_costs_off_leave_timing_and_opportunity_alone() -> None:
    engine = Engine(sessions_of([[10.0, 11.0, 12.0]]), 1)
    parts = split(engine, played(engine, [order(300)], [[100.0], [200.0]]))
    assert {name for name, values in parts.items() if values[0]} == {"drift", "selection", "total"}
    assert parts["drift"][0] == pytest.approx(300.0)
    assert parts["selection"][0] == pytest.approx(-100.0)


def test_charges_that_the_engine_cannot_repeat_are_missing_and_not_0() -> None:
    engine, state = by_hand()
    figures, requested = state.metrics(), state.details()["requested"]
    unknown = attribute_costs(engine, state.orders, figures, None)
    tick_parts = ["cost_spread", *(f"cost_{part}" for part in IMPACT_PARTS), "cost"]
    assert all(np.isnan(unknown[name]).all() for name in tick_parts)
    assert unknown["cost_tax"] == attribute_costs(engine, state.orders, figures, requested)["cost_tax"]
    # A simulator of one's own that charges nothing by tick: what the rules charge on the whole order alone.
    net = net_value(state.now.notional, np.zeros(1), np.array([-1.0]), engine.rules) / state.now.filled
    free = attribute_costs(engine, state.orders, {**figures, "price_net": net}, requested)
    assert [free[name][0] for name in tick_parts[:4]] == pytest.approx([3030 * 2e-4, 0.0, 0.0, 0.0])
    assert np.isfinite(free["cost"]).all()
