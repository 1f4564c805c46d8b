"""Figures of finished orders by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.execution import TWAP, Engine, ExecutionRules, OrderExecution, price_advantage
from tests.execution.markets import AskAtStep, order, run, sessions_of


def test_costs_make_the_net_price_worse_on_both_sides() -> None:
    rule = ExecutionRules(commission_bps=2.0, sell_tax_bps=10.0, half_spread_bps=5.0)
    sessions = sessions_of([[10.0, 10.0]])
    _, _, summary = run(sessions, [order(1000, "BUY"), order(1000, "SELL")], 1, AskAtStep(0), rule)
    assert summary["price"].tolist() == [10.0, 10.0]
    # Buy: +5 bp spread +2 bp commission; sell: -5 -2 -10.
    assert summary["pa"].tolist() == pytest.approx([0.0, 0.0])
    assert summary["pa_net"].tolist() == pytest.approx([-7.0, -17.0])


def test_minimum_fee() -> None:
    rule = ExecutionRules(commission_bps=1.0, min_fee=5.0)
    _, _, summary = run(sessions_of([[10.0, 10.0]]), [order(100)], 1, AskAtStep(0), rule)
    # 1000 traded; 0.1 of commission is lifted to 5, which is 50 bp.
    assert summary["pa_net"].iloc[0] == pytest.approx(-50.0)


def test_an_unfilled_order_has_missing_prices_and_fulfilment_zero() -> None:
    rule = ExecutionRules(volume_limit=0.5)
    _, _, summary = run(sessions_of([[10.0, 10.0]], [[0.0, 0.0]]), [order(100)], 1, AskAtStep(0), rule)
    assert summary["ffr"].iloc[0] == 0.0
    assert all(math.isnan(summary[name].iloc[0]) for name in ("price", "price_net", "pa", "pa_net", "participation"))
    assert summary["twap"].iloc[0] == 10.0


NAN = math.nan


@pytest.mark.parametrize(
    ("prices", "volumes", "rules", "untraded"),
    [
        # 50 over 8 bars, 6.25 each, six of them without volume.
        ([10.0] * 8, [100.0, *[0.0] * 6, 100.0], ExecutionRules(), 0.75),
        ([10.0] * 8, [100.0, *[NAN] * 6, 100.0], ExecutionRules(), 0.75),  # what is not stated is not known either
        ([10.0] * 8, [100.0, *[1.0] * 6, 100.0], ExecutionRules(), 0.0),
        # Bars without a price fill nothing: four of the six that are left have no volume.
        ([10.0, NAN, 10.0, 10.0, 10.0, 10.0, NAN, 10.0], [100.0, *[0.0] * 6, 100.0], ExecutionRules(), 4 / 6),
        ([10.0] * 8, [0.0] * 8, ExecutionRules(), 1.0),
        ([10.0] * 8, [100.0, *[0.0] * 6, 100.0], ExecutionRules(volume_limit=1.0), 0.0),
        ([10.0] * 8, [0.0] * 8, ExecutionRules(volume_limit=1.0), NAN),  # nothing is filled at all
    ],
)
@pytest.mark.parametrize("ticks", [1, 8])
def test_j01_the_share_of_fills_in_bars_in_which_nothing_traded(
    prices: list[float], volumes: list[float], rules: ExecutionRules, untraded: float, ticks: int
) -> None:
    for side in ("BUY", "SELL"):
        audited, _, row = run(sessions_of([prices], [volumes]), [order(50, side)], ticks, TWAP, rules)
        assert row["untraded"].tolist() == pytest.approx([untraded], nan_ok=True)
        by_hand = audited["filled"][~(audited["volume"] > 0)].sum()
        assert by_hand == pytest.approx(0.0 if math.isnan(untraded) else untraded * row["filled"][0], abs=1e-12)


@pytest.mark.parametrize("width", [None, 5], ids=["as wide as the step", "wider"])
def test_j01_a_simulator_of_ones_own_tells_it_too(width: int | None) -> None:
    class Own(OrderExecution):
        def step(self, state, action):  # type: ignore[no-untyped-def]
            ticks = state.step_ticks()
            fill = np.zeros((1, width or ticks.shape[1]))
            fill[:, : ticks.shape[1]] = np.where(ticks >= 0, 5.0, 0.0)
            return state.traded(np.asarray(action), fill, np.where(fill > 0, 10.0, np.nan))

    sessions = sessions_of([[10.0] * 4], [[100.0, 0.0, 100.0, math.nan]])
    own = Own(Engine(sessions, 3))
    state = own.start([order(20)], np.zeros(1, dtype=np.uint64))
    state = own.step(state, np.array([15.0]))
    assert state.outcome.untraded.tolist() == [5.0]
    assert own.step(state, np.array([5.0])).metrics()["untraded"].tolist() == [0.5]


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0.01, 100))
def test_price_advantage_ignores_the_unit_of_price_and_mirrors(price: float, benchmark: float, scale: float) -> None:
    p, b = np.array([price]), np.array([benchmark])
    buy, sell = price_advantage(p, b, np.array([1.0])), price_advantage(p, b, np.array([-1.0]))
    assert buy == pytest.approx(-sell)
    assert price_advantage(p * scale, b * scale, np.array([1.0])) == pytest.approx(buy, abs=1e-7)
    assert (buy[0] > 0) == (price < benchmark) or price == pytest.approx(benchmark)
