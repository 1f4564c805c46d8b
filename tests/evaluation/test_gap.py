"""The gap between simple and full rules."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from rlwb.evaluation import PolicyResult, gap_table, rule_steps
from rlwb.evaluation.gap import CAUSES, SIMPLE, TOTAL
from rlwb.execution import (
    TWAP,
    AmountActionInterpreter,
    Engine,
    ExecutionRules,
    KnownStateInterpreter,
    OrderExecution,
    align_orders,
    generate_orders,
)
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions
from rlwb.trainer import backtest, result_table

FULL = ExecutionRules(
    volume_limit=0.02,
    complete_at_end=False,
    catch_up=False,
    step_grid="session",
    lot_size=100,
    price_limit=0.01,
    commission_bps=3.0,
    sell_tax_bps=5.0,
    min_fee=5.0,
    half_spread_bps=2.0,
    temporary_impact_bps=50.0,
    temporary_impact_shape="square_root",
    permanent_impact_bps=10.0,
    transient_impact_bps=20.0,
    transient_half_life=2.0,
)


def test_every_rule_is_part_of_one_cause() -> None:
    names = [name for cause in CAUSES.values() for name in cause]
    judged = ["benchmark", "unfilled_at"]
    assert sorted([*names, *judged]) == sorted(field.name for field in dataclasses.fields(ExecutionRules))


def test_steps_go_from_the_simple_rules_to_the_full_ones_by_what_differs() -> None:
    assert rule_steps(ExecutionRules(), halts=False) == {SIMPLE: ExecutionRules()}
    steps = rule_steps(FULL, halts=True)
    assert steps[SIMPLE] == ExecutionRules(halts=False)
    assert list(steps)[1:] == [cause for cause in CAUSES if cause != "price field"]
    assert list(steps.values())[-1] == FULL
    quotes = rule_steps(ExecutionRules(price_field="quotes", volume_limit=0.1), halts=False)
    assert list(quotes) == [SIMPLE, "volume cap", "spread"]
    assert quotes["volume cap"].price_field == "close"


@pytest.fixture(scope="module")
def market() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=3, days=7, tick_minutes=15))


def player(sessions: Sessions):  # type: ignore[no-untyped-def]
    table = generate_orders(sessions)
    orders = align_orders(table.assign(amount=np.maximum(table["amount"], 100.0)), sessions, FULL)

    def play(rules: ExecutionRules) -> PolicyResult:
        simulator = OrderExecution(Engine(sessions, 4, rules))
        episodes = backtest(
            simulator, KnownStateInterpreter(), orders, AmountActionInterpreter(), TWAP(simulator.engine)
        )
        return PolicyResult("twap", "baseline", result_table(orders.table, episodes))

    return play


def test_the_causes_add_up_to_the_whole_gap(market: Sessions) -> None:
    play = player(market)
    steps = rule_steps(FULL, halts=False)
    table = gap_table(play, steps, resamples=200).set_index("cause")
    assert list(table.index) == [*steps, TOTAL]
    assert math.isnan(table.loc[SIMPLE, "difference"])
    between = table["difference"].iloc[1:-1]
    assert between.sum() == pytest.approx(table.loc[TOTAL, "difference"], abs=1e-9)
    assert table.loc[TOTAL, "difference"] == pytest.approx(
        table.loc["sell tax", "pa_net"] - table.loc[SIMPLE, "pa_net"]
    )
    assert (table["difference_lo"].iloc[1:] <= table["difference"].iloc[1:]).all()
    assert (table["difference"].iloc[1:] <= table["difference_hi"].iloc[1:]).all()
    # TWAP under simple rules has PA 0, a half spread of 2 bp costs what is traded at the price it is traded at.
    assert table.loc[SIMPLE, "pa"] == pytest.approx(0.0, abs=1e-9)
    assert table.loc["spread", "difference"] == pytest.approx(-2.0, abs=0.05)
    # What only costs changes no gross PA and no fill.
    for name in ("pa", "ffr"):
        assert table.loc["halts" if "halts" in steps else "price limits" :, name].nunique() == 1
    assert (table.loc["spread":"sell tax", "difference"] <= 0.0).all()  # type: ignore[misc]


def test_orders_that_a_rule_leaves_without_a_pa_are_left_out_of_all_rows() -> None:
    pas = {None: [1.0, 2.0, 3.0], 0.5: [0.0, math.nan, 5.0]}

    def play(rules: ExecutionRules) -> PolicyResult:
        values = np.array(pas[rules.volume_limit])
        dates = pd.to_datetime(["2024-01-02", "2024-01-03", "2024-01-03"])
        table = {"order_id": ["a", "b", "c"], "instrument": "A", "date": dates, "pa": values, "pa_net": values}
        filled = np.isfinite(values).astype(float)
        return PolicyResult("p", "checkpoint", pd.DataFrame({**table, "ffr": filled}))

    table = gap_table(play, rule_steps(ExecutionRules(volume_limit=0.5), halts=False), resamples=200)
    assert table["pa"].tolist() == [2.0, 2.5, 2.5]
    assert table["difference"].tolist()[1:] == [0.5, 0.5]
    assert table["ffr"].tolist() == pytest.approx([1.0, 2 / 3, 2 / 3])
    assert table["left_out"].tolist() == [1, 1, 1]
    assert table["orders"].tolist() == [2, 2, 2]
