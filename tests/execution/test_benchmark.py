"""The price that orders are judged against, and what the part that stays open counts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from rlwb.errors import ConfigError, OrderError
from rlwb.evaluation import rule_steps
from rlwb.evaluation.gap import SIMPLE
from rlwb.evaluation.results import ROUNDING_BP
from rlwb.execution import (
    TWAP,
    Engine,
    ExecutionRules,
    ExecutionState,
    HindsightOptimum,
    OrderBatch,
    PAPenaltyReward,
    SparseReward,
    align_orders,
    hindsight_table,
)
from rlwb.execution.rules import BENCHMARKS
from rlwb.reward import sum_parts
from tests.execution.markets import AskAtStep, order, run, sessions_of
from tests.execution.test_arrival import bars
from tests.execution.test_baselines_hindsight import greedy
from tests.execution.test_engine import batch_of, problems

NAN = math.nan
#: Eight bars; the window below is the third to the sixth, with closes 12, 10, 8 and 14.
OPEN = [NAN, 8.0, 11.0, 10.0, 9.0, 12.0, 13.0, 16.0]
CLOSE = [NAN, 10.0, 12.0, 10.0, 8.0, 14.0, 20.0, NAN]
VOLUME = [0.0, 100.0, 300.0, 100.0, 100.0, 100.0, 100.0, 0.0]
WINDOW = {"start": "09:32", "end": "09:36", "day": 2}
PRICES = {"twap": 11.0, "vwap": 68 / 6, "arrival": 11.0, "open": 8.0, "close": 20.0}


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize(("unfilled_at", "left"), [("ignore", NAN), ("close", 20.0), ("end", 14.0), (None, 20.0)])
def test_every_benchmark_by_hand(benchmark: str, unfilled_at: str | None, left: float) -> None:
    """Of 40, 20 are filled at 8 and 14 with a cap of 10 a bar; the last bar has no close, and fills count at closes."""
    rules = ExecutionRules(benchmark=benchmark, unfilled_at=unfilled_at, volume_limit=0.1)  # type: ignore[arg-type]
    orders = [order(40.0, side, **WINDOW) for side in ("BUY", "SELL")]  # type: ignore[arg-type]
    _, _, rows = run(bars(open=OPEN, close=CLOSE, volume=VOLUME), orders, 1, AskAtStep(2), rules)
    assert rows["filled"].tolist() == [20.0, 20.0]
    assert rows["price"].tolist() == rows["price_net"].tolist() == [11.0, 11.0]
    counts = unfilled_at in ("close", "end") or (unfilled_at is None and benchmark == "arrival")
    assert rows["valued"].tolist() == [40.0 if counts else 20.0] * 2
    assert rows["benchmark"].tolist() == pytest.approx([PRICES[benchmark]] * 2)
    paid = (11.0 + left) / 2 if counts else 11.0
    for name, price in PRICES.items():
        pa = (1 - paid / price) * 1e4
        assert rows[f"pa_{name}"].tolist() == pytest.approx([pa, -pa])
    assert rows["pa"].tolist() == rows["pa_net"].tolist() == rows[f"pa_{benchmark}"].tolist()
    missed = (1 - (14.0 if unfilled_at == "end" else 20.0) / PRICES[benchmark]) * 1e4 / 2
    assert rows["pa_unfilled"].tolist() == pytest.approx([missed, -missed])


def test_prices_that_are_missing_at_the_ends_of_the_session() -> None:
    """Without opening prices the first close is the open; a window's last price may lie before its last bar."""
    orders = [order(1.0, **WINDOW), order(1.0, start="09:30", end="09:32", day=2)]  # type: ignore[arg-type]
    closes = [NAN, 10.0, 12.0, 10.0, 8.0, NAN, 20.0, NAN]
    rules = ExecutionRules(unfilled_at="end")
    sessions = bars(close=closes)
    found = Engine(sessions, 1, rules).benchmarks(align_orders(orders, sessions))
    assert found.open.tolist() == [10.0, 10.0]
    assert found.close.tolist() == [20.0, 20.0]
    assert found.unfilled.tolist() == [8.0, 10.0]
    # Fills at the opens: what stands at an end is still the close, and the open where a bar has no close.
    sessions = bars(open=OPEN, close=[*closes[:5], 14.0, 20.0, NAN])
    rules = ExecutionRules(unfilled_at="end", price_field="open")
    found = Engine(sessions, 1, rules).benchmarks(align_orders(orders, sessions, rules))
    assert (found.open.tolist(), found.close.tolist(), found.unfilled.tolist()) == ([8.0] * 2, [16.0] * 2, [14.0, 10.0])


def test_an_order_of_which_nothing_was_filled_has_its_opportunity_cost() -> None:
    rules = ExecutionRules(benchmark="arrival", volume_limit=0.5, min_fee=5.0)
    market = sessions_of([[10.0, 12.0]], [[0.0, 0.0]])
    _, steps, rows = run(market, [order(100), order(100, "SELL")], 1, AskAtStep(0), rules)
    assert rows["price"].isna().all()
    assert rows["pa"].tolist() == rows["pa_net"].tolist() == pytest.approx([-2000.0, 2000.0])
    assert rows["reward"].tolist() == pytest.approx([-2000.0, 2000.0])
    assert steps["reward_opportunity"].tolist() == pytest.approx([0.0, 0.0, -2000.0, 2000.0])
    engine = Engine(market, 1, rules)
    state = ExecutionState.start(engine, align_orders([order(100), order(100, "SELL")], market))
    for _ in range(2):
        state = state.after(*engine.step(state.orders, state.now, np.zeros(2)))
    assert SparseReward().reward(state.outcome).tolist() == [-1.0, 1.0]


def played(engine: Engine, batch: OrderBatch, shares: np.ndarray, reward: PAPenaltyReward) -> tuple[Any, np.ndarray]:
    """Ask for shares of the position, of shape (N, steps); return the figures and the sum of the rewards."""
    state, total = ExecutionState.start(engine, batch), np.zeros(len(batch))
    while not state.done.all():
        open_, step = ~state.done, len(state.steps)
        request = shares[:, step] * np.where(state.done, 0.0, state.now.position)
        state = state.after(*engine.step(batch, state.now, request))
        total += np.where(open_, sum_parts(reward.parts(state.outcome)), 0.0)
    return state.metrics(), total


def with_a_benchmark(engine: Engine, orders: list[tuple[int, float, int, int]]) -> OrderBatch:
    """Return the orders that alignment would not refuse."""
    batch = batch_of(orders)
    found = engine.benchmarks(batch)
    return batch[np.isfinite(found.twap) & np.isfinite(found.benchmark)]  # type: ignore[no-any-return]


JUDGED = st.fixed_dictionaries(
    {"benchmark": st.sampled_from(BENCHMARKS), "unfilled_at": st.sampled_from([None, "close", "end", "ignore"])}
)
RATES = {"commission_bps": 30.0, "sell_tax_bps": 50.0}


@settings(max_examples=300, deadline=None)
@given(problems(), JUDGED, st.sampled_from([{}, RATES, {"min_fee": 2.0}]))
def test_rewards_add_up_to_the_net_pa(problem: tuple, judged: dict[str, Any], costs: dict[str, float]) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks_per_step, orders, shares = problem
    rules = dataclasses.replace(rules, **judged, **costs)
    engine = Engine(sessions, ticks_per_step, rules)
    batch = with_a_benchmark(engine, orders)
    figures, total = played(engine, batch, np.array(shares)[: len(batch)], PAPenaltyReward(0.0, 0.01))
    whole = 1.0 if rules.values_unfilled else figures["ffr"]
    have, filled = figures["valued"] > 0, figures["filled"] > 0
    assert np.isfinite(figures["pa_net"]).tolist() == have.tolist()
    np.testing.assert_allclose(total[have], (0.01 * whole * figures["pa_net"])[have], rtol=1e-7, atol=1e-7)
    own = np.where(filled, figures["ffr"] * batch.side * (1 - figures["price"] / figures["benchmark"]) * 1e4, 0.0)
    left = figures["pa_unfilled"] if rules.values_unfilled else 0.0
    np.testing.assert_allclose((whole * figures["pa"])[have], (own + left)[have], rtol=1e-6, atol=1e-4)


@settings(max_examples=120, deadline=None)
@given(problems(), JUDGED, st.booleans(), st.integers(0, 2**32 - 1))
def test_no_policy_passes_the_ceiling(problem: tuple, judged: dict[str, Any], taxed: bool, seed: int) -> None:  # type: ignore[type-arg]
    """Against every benchmark, whatever counts for what stays open, and after costs where the ceiling has such."""
    sessions, rules, ticks_per_step, orders, shares = problem
    rules = dataclasses.replace(rules, **judged, **(RATES if taxed else {}))
    engine = Engine(sessions, ticks_per_step, rules)
    batch = with_a_benchmark(engine, orders)
    shares = np.array(shares)[: len(batch)]
    ceiling, rng = hindsight_table(engine, batch), np.random.default_rng(seed)
    asks = [shares, greedy(engine, batch), np.zeros((len(batch), engine.max_step))]
    asks += [
        np.where(rng.uniform(size=asks[0].shape) < 0.5, rng.integers(0, 2, asks[0].shape), asks[0]) for _ in range(4)
    ]
    for asked in asks:
        figures, _ = played(engine, batch, asked, PAPenaltyReward())
        # The engine rounds what it fills by the amount, and calls it complete with 1e-9 of it left.
        share = figures["ffr"] if not rules.values_unfilled else np.ones(len(batch))
        slack = ROUNDING_BP * np.maximum(1.0, 1e-2 / np.maximum(share, 1e-300))
        for name in ("pa", "pa_net", *(f"pa_{one}" for one in BENCHMARKS)):
            bound, own = ceiling[name].to_numpy(), figures[name]
            if name == "pa_net" and (rules.costs_by_tick or rules.min_fee):
                assert np.isnan(bound).all()
                continue
            have = np.isfinite(own)
            assert (own[have] <= bound[have] + slack[have]).all(), name


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(5, 15), st.sampled_from([0.0, 10.0, 35.0, 100.0])), min_size=1, max_size=6),
    st.sampled_from([3.0, 20.0, 100.0]),
    st.booleans(),
    st.sampled_from([1, -1]),
    st.sampled_from([0.0, 0.05]),
)
def test_the_ceiling_of_the_whole_amount_is_that_of_linear_programming(
    ticks: list[tuple[float, float]], amount: float, complete: bool, side: int, rate: float
) -> None:
    """Leaving a part open is one more trade without a cap; a forced last bar is full, or nothing is left before it."""
    price, volume = (np.array(column) for column in zip(*ticks, strict=True))
    rules = ExecutionRules(volume_limit=0.5, complete_at_end=complete, benchmark="arrival", commission_bps=rate * 1e4)
    engine, batch = Engine(sessions_of([price], [volume]), 1, rules), batch_of([(side, amount, 0, len(ticks))], 0)
    cost = np.append(side * price * (1 + side * rate), side * price[-1])
    room = [*np.minimum(0.5 * volume, amount), amount]
    bounds = [[(0, r) for r in room]]
    if complete:
        bounds = [[*bounds[0][:-1], (0, 0)], [*bounds[0][:-2], (room[-2], room[-2]), bounds[0][-1]]]
    found = [linprog(cost, A_eq=np.ones((1, len(cost))), b_eq=[amount], bounds=one) for one in bounds]
    expected = min(one.fun for one in found if one.status == 0) / amount
    net = hindsight_table(engine, batch)["pa_net"][0]
    assert net == pytest.approx((side - expected / price[0]) * 1e4, rel=1e-9, abs=1e-6)
    if not rate:
        assert side * HindsightOptimum.of(engine, batch).price[0] == pytest.approx(expected, rel=1e-9)


def test_what_cannot_be_judged_by_is_refused() -> None:
    for name in ("benchmark", "unfilled_at"):
        with pytest.raises(ConfigError, match=name):
            ExecutionRules(**{name: "none"})  # type: ignore[arg-type]
    dry = sessions_of([[10.0, 11.0]], [[0.0, 0.0]])
    assert len(align_orders([order(1.0)], dry)) == 1
    with pytest.raises(OrderError, match="VWAP"):
        align_orders([order(1.0)], dry, ExecutionRules(benchmark="vwap"))


def test_every_step_of_the_gap_is_judged_alike() -> None:
    full = ExecutionRules(benchmark="open", unfilled_at="end", volume_limit=0.1, commission_bps=1.0)
    steps = rule_steps(full, halts=False)
    assert steps[SIMPLE] == ExecutionRules(benchmark="open", unfilled_at="end")
    assert list(steps) == [SIMPLE, "volume cap", "commission"]


def test_titles_name_a_benchmark_that_is_not_the_twap() -> None:
    assert ExecutionRules().name_pa("mean net PA, bp") == "mean net PA, bp"
    assert ExecutionRules(benchmark="arrival").name_pa("mean net PA, bp") == "mean net PA over arrival, bp"
    assert ExecutionRules(benchmark="vwap").name_pa("PA, bp") == "PA over VWAP, bp"


def test_titles_of_what_is_judged_say_net_where_there_are_costs() -> None:
    rules = ExecutionRules(benchmark="arrival", half_spread_bps=1.0)
    assert rules.name_judged("PA by month") == "Net PA over arrival by month"
    assert rules.name_judged("Cumulative PA") == "Cumulative net PA over arrival"
    assert rules.name_judged("net PA, bp") == "net PA over arrival, bp"
    assert ExecutionRules().name_judged("PA by month") == "PA by month"


def test_schedules_do_not_know_what_they_are_judged_by() -> None:
    market, orders = sessions_of([[10.0, 12.0, 11.0]]), [order(30.0)]
    prices = [run(market, orders, 1, TWAP, ExecutionRules(benchmark=name))[2]["price"][0] for name in BENCHMARKS]  # type: ignore[arg-type]
    assert prices == pytest.approx([11.0] * 5)
