"""Commission, tax and the least fee, in currency: above all where nothing was traded."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.execution import ExecutionRules
from rlwb.execution.costs import fees, net_value, step_costs

#: 3 bp of commission, at least 5; 10 bp of tax on sells.
RULES = ExecutionRules(commission_bps=3.0, sell_tax_bps=10.0, min_fee=5.0)


def test_an_order_that_traded_nothing_pays_nothing() -> None:
    nothing, sides = np.zeros(2), np.array([1, -1])
    assert fees(nothing, sides, RULES).tolist() == [0.0, 0.0]
    assert net_value(nothing, np.zeros(2), sides, RULES).tolist() == [0.0, 0.0]
    assert step_costs(nothing, np.zeros(2), nothing, np.array([True, True]), sides, RULES).tolist() == [0.0, 0.0]


def test_the_least_fee_is_due_from_the_smallest_fill_on() -> None:
    notional, sides = np.array([0.01, 0.01, 10_000.0, 10_000.0, 20_000.0]), np.array([1, -1, 1, -1, 1])
    # 3 bp of 10,000 is 3 and of 20,000 is 6; the tax of the sells, 0.00001 and 10, comes on top of the least fee.
    assert fees(notional, sides, RULES).tolist() == pytest.approx([5.0, 5.00001, 5.0, 15.0, 6.0], rel=1e-12)


def test_buys_pay_and_sells_get_less() -> None:
    notional, ticks, sides = np.full(2, 10_000.0), np.array([1.0, 2.0]), np.array([1, -1])
    rules = ExecutionRules(commission_bps=3.0, sell_tax_bps=10.0, min_fee=5.0, half_spread_bps=2.0)
    assert net_value(notional, ticks, sides, rules).tolist() == pytest.approx(
        [10_000 + 2 + 5 + 1, 10_000 - 2 - 15 - 2], rel=1e-12
    )


def test_the_least_fee_is_charged_with_the_last_step_of_an_order_that_traded() -> None:
    # Of a buy of 10,000 in all, 3 bp are 3, so 2 are short; in the steps before, and without a fill, nothing is.
    notional = np.array([10_000.0, 4_000.0, 0.0, 0.0, 0.0])
    total = np.array([10_000.0, 4_000.0, 10_000.0, 0.5, 0.0])
    done = np.array([True, False, True, True, True])
    cost = step_costs(notional, np.zeros(5), total, done, np.ones(5), RULES)
    assert cost.tolist() == pytest.approx([3 + 2, 1.2, 2.0, 5.0 - 0.5 * 3e-4, 0.0], rel=1e-12)


def test_a_step_of_a_sell_pays_tax_and_what_its_ticks_cost() -> None:
    rules = ExecutionRules(commission_bps=3.0, sell_tax_bps=10.0, half_spread_bps=2.0)
    cost = step_costs(
        np.full(2, 1_000.0), np.array([0.25, 0.5]), np.full(2, 1_000.0), np.ones(2, bool), np.array([1, -1]), rules
    )
    assert cost.tolist() == pytest.approx([0.25 + 0.5, 0.5 + 1.5], rel=1e-12)
