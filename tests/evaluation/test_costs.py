"""Tables of costs: weights, sums by group, and what is left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.evaluation import PolicyResult, cost_groups, cost_table, plots
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_OFF
from tests.evaluation.tables import baseline, ceiling, checkpoint

VALUES = {"drift": [10.0, -4.0, 2.0, 6.0], "commission": [1.0, 2.0, 3.0, 4.0]}


def costed(result: PolicyResult, factor: float = 1.0, **parts: list[float]) -> PolicyResult:
    """Return a result of four orders worth 1000, 2000, 3000 and 4000 with the cost of some parts, others being 0."""
    orders = result.orders.assign(amount=[100.0, 200.0, 300.0, 400.0], arrival=10.0, direction=["BUY", "SELL"] * 2)
    columns = {column: factor * np.array(parts.get(part, [0.0] * 4)) for part, column in COST_COLUMNS.items()}
    columns["cost"] = sum(columns[COST_COLUMNS[part]] for part in COST_COLUMNS if part != "total")
    return PolicyResult(result.policy, result.kind, orders.assign(**columns), result.iteration)


def test_costs_are_weighted_by_value_and_parts_that_are_0_everywhere_are_left_out() -> None:
    chosen = [
        costed(checkpoint([1.0] * 4, number, days=2), factor, **VALUES) for number, factor in ((1, 1.0), (2, 3.0))
    ]
    twap = costed(baseline([0.0] * 4, days=2), **VALUES)
    groups = {"checkpoints": chosen, "twap": [twap], "x": [ceiling([9.0] * 4)]}
    table = cost_table(groups, resamples=100).set_index(["policy", "component"])
    assert list(table.index.get_level_values("component").unique()) == ["drift", "commission", "total"]
    assert list(table.index.get_level_values("policy").unique()) == ["checkpoints", "twap"]
    assert table.loc[("twap", "drift"), ["currency", "cost_bp"]].tolist() == pytest.approx([14.0, 14.0])
    assert table.loc[("twap", "total"), ["currency", "cost_bp", "orders", "days"]].tolist() == [24.0, 24.0, 4, 2]
    assert table.loc[("checkpoints", "commission"), ["currency", "cost_bp"]].tolist() == pytest.approx([20.0, 20.0])
    figure = plots.cost_parts(table.reset_index())
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["chosen checkpoints", "TWAP"]
    assert figure.axes[0].get_legend_handles_labels()[1] == ["drift", "commission"]


def test_sums_by_group_add_up_and_leave_out_what_is_not_known() -> None:
    spread = [0.5, 0.25, np.nan, 1.0]
    one = costed(baseline([0.0] * 4, days=2, instruments=("A", "B")), **VALUES, spread=spread)
    table = cost_groups([one, ceiling([9.0] * 4)]).set_index(["by", "group"])
    parts = [column for part, column in COST_COLUMNS.items() if part != "total"]
    total = np.zeros(len(table))
    for column in parts:
        total += table[column].to_numpy()
    assert table["cost"].tolist() == total.tolist()
    # The third order has no spread, so buys are the first alone, and sells the second and the fourth.
    assert table.loc[("side", "BUY"), ["orders", "value", "cost"]].tolist() == [1, 1000.0, 11.5]
    assert table.loc[("side", "SELL"), ["orders", "value", "cost_drift"]].tolist() == [2, 6000.0, 2.0]
    assert table.loc[("day", "2023-05-05"), "cost_bp"] == pytest.approx(1e4 * 9.25 / 6000)
    assert table.loc["instrument"].index.tolist() == ["A", "B"]


def test_what_impact_changes_in_the_fills_is_told_apart_from_what_it_charges() -> None:
    one = costed(baseline([0.0] * 4, days=2), **VALUES, temporary_impact=[3.0] * 4, permanent_impact=[2.0] * 4)
    orders = one.orders.assign(**{IMPACT_OFF: one.orders["cost"] - 5.0 - 1.0})  # its fills lost 1 each
    table = cost_table({"twap": [PolicyResult("twap", "baseline", orders)]}, resamples=100).set_index("component")
    assert table.loc["impact_on_fills", "currency"] == pytest.approx(4.0)
    assert table.loc["total", "currency"] == pytest.approx(44.0)


def test_a_table_of_orders_from_before_a_part_was_known_has_none_of_it() -> None:
    one = costed(baseline([0.0] * 4, days=2), **VALUES)
    orders = one.orders.drop(columns="cost_transient_impact").assign(**{IMPACT_OFF: one.orders["cost"]})
    older = PolicyResult("twap", "baseline", orders)
    table = cost_table({"twap": [older]}, resamples=100).set_index("component")
    assert table.index.tolist() == ["drift", "commission", "total", "impact_on_fills"]
    assert table.loc["total", "currency"] == pytest.approx(24.0)
    assert cost_groups([older])["cost"].notna().all()


def test_no_policy_with_costs_is_no_table_and_a_note() -> None:
    table = cost_table({"hindsight": [ceiling([1.0])]})
    assert table.empty
    assert cost_groups([ceiling([1.0])]).empty
    assert isinstance(table, pd.DataFrame)
    assert not plots.cost_parts(table).axes[0].axison
