"""Figures of finished orders by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.execution import ExecutionRules, price_advantage
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


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0.01, 100))
def test_price_advantage_ignores_the_unit_of_price_and_mirrors(price: float, benchmark: float, scale: float) -> None:
    p, b = np.array([price]), np.array([benchmark])
    buy, sell = price_advantage(p, b, np.array([1.0])), price_advantage(p, b, np.array([-1.0]))
    assert buy == pytest.approx(-sell)
    assert price_advantage(p * scale, b * scale, np.array([1.0])) == pytest.approx(buy, abs=1e-7)
    assert (buy[0] > 0) == (price < benchmark) or price == pytest.approx(benchmark)
