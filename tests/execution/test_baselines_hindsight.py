"""The hindsight bound: no policy beats it, and where it claims to be reached it is."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from rlwb.execution import Engine, ExecutionRules, HindsightOptimum, OrderBatch, hindsight_table
from rlwb.execution.engine import EngineState
from rlwb.execution.kernel import TOLERANCE
from rlwb.market import Sessions
from tests.execution.markets import sessions_of
from tests.execution.test_engine import batch_of, problems

ROUNDING = 2.0**-53


def played(engine: Engine, batch: OrderBatch, shares: np.ndarray) -> EngineState:
    """Ask for shares of the position, of shape (N, steps)."""
    state, step = engine.reset(batch), 0
    while not state.done.all():
        state, _ = engine.step(batch, state, shares[:, step] * np.where(state.done, 0.0, state.position))
        step += 1
    return state


def assert_not_beaten(engine: Engine, batch: OrderBatch, state: EngineState) -> None:
    """Compare average prices; a policy may be below the bound by what the engine itself rounds, and no more.

    `filled` is the amount less the position, off by half a unit in the last place of the amount a tick: the smaller the
    share that is filled, the more digits the average loses. An order counts as complete with `TOLERANCE` of its amount
    left, which it may so trade elsewhere, at most from the dearest tick to the cheapest.
    """
    bound = HindsightOptimum.of(engine, batch)
    for i in range(len(batch)):
        price = engine.price[batch.session[i], batch.start[i] : batch.latest_end[i]]
        price = price[np.isfinite(price) & (price > 0)]
        if math.isnan(bound.price[i]):
            assert state.filled[i] == 0.0
            continue
        if not state.filled[i] > 0:
            continue
        average, share = state.notional[i] / state.filled[i], state.filled[i] / batch.amount[i]
        rounding = (len(price) + 4) * ROUNDING / share + 4 * len(price) * ROUNDING
        slack = price.max() * rounding + np.ptp(price) * TOLERANCE / share
        assert batch.side[i] * (average - bound.price[i]) >= -slack, (average, bound.price[i], share)


def greedy(engine: Engine, batch: OrderBatch) -> np.ndarray:
    """Return shares that ask for everything in the steps whose mean price is best, ranked, and for nothing before."""
    shares = np.zeros((len(batch), engine.max_step))
    for i in range(len(batch)):
        window = np.arange(batch.start[i], batch.end[i])
        cells = engine.cell[window]
        price = np.where(engine.price[batch.session[i], window] > 0, engine.price[batch.session[i], window], np.nan)
        means = [
            batch.side[i] * price[cells == cell][np.isfinite(price[cells == cell])].sum() for cell in np.unique(cells)
        ]
        shares[i, int(np.argmin(means))] = 1.0
    return shares


@settings(max_examples=400, deadline=None)
@given(problems())
def test_no_policy_beats_the_bound(problem: tuple) -> None:  # type: ignore[type-arg]
    """Under every mix of cap, limits, halts, lots, odd remainders and missing ticks, completed at the end or not."""
    sessions, rules, ticks_per_step, orders, shares = problem
    engine, batch = Engine(sessions, ticks_per_step, rules), batch_of(orders)
    for asked in (np.array(shares), greedy(engine, batch), np.ones((len(batch), engine.max_step))):
        assert_not_beaten(engine, batch, played(engine, batch, asked))


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_search_among_asks_beats_the_bound(problem: tuple, seed: int) -> None:  # type: ignore[type-arg]
    """Sixty random plans, most of them all or nothing, and the best of them improved step by step."""
    sessions, rules, ticks_per_step, orders, _ = problem
    engine, rng = Engine(sessions, ticks_per_step, rules), np.random.default_rng(seed)
    batch = batch_of([orders[0]] * 60)
    shares = rng.uniform(size=(60, engine.max_step)) ** rng.choice([0.01, 1.0, 5.0], size=(60, engine.max_step))
    shares = np.where(rng.uniform(size=shares.shape) < 0.5, rng.integers(0, 2, size=shares.shape), shares)
    for _ in range(4):
        state = played(engine, batch, shares)
        assert_not_beaten(engine, batch, state)
        filled = state.filled > 0
        if not filled.any():
            return
        value = np.where(filled, batch.side * state.notional / np.where(filled, state.filled, 1.0), np.inf)
        best = shares[np.argmin(value)]
        moved = rng.uniform(size=shares.shape) < 0.3
        shares = np.where(moved, np.clip(best + rng.normal(0, 0.2, size=shares.shape), 0.0, 1.0), best)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_without_a_cap_the_bound_is_the_best_step_or_the_last_tick(
    problem: tuple,
) -> None:  # type: ignore[type-arg]
    sessions, _, ticks_per_step, orders, _ = problem
    free = Sessions(sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, dict(sessions.fields))
    engine, batch = Engine(free, ticks_per_step), batch_of(orders)
    bound = HindsightOptimum.of(engine, batch)
    best = np.full(len(batch), np.nan)
    for step in range(engine.max_step + 1):
        shares = np.zeros((len(batch), engine.max_step + 1))
        shares[:, step] = 1.0  # in a step beyond all it asks for nothing, and the last tick takes the whole
        state = played(engine, batch, shares)
        with np.errstate(invalid="ignore"):
            price = np.where(state.filled > 0, state.notional / state.filled, np.nan)
        best = np.fmin(best, batch.side * price)
    np.testing.assert_allclose(bound.price, batch.side * best, rtol=1e-12)
    np.testing.assert_allclose(bound.filled, np.where(np.isnan(best), 0.0, batch.amount), rtol=1e-12)


def optimum(cost: np.ndarray, room: np.ndarray, total: float, complete: bool) -> float:
    """Return the least average cost of fills within `room`, by linear programmes.

    With `complete`, the last tick takes what is left. Either that is all of it, or its room is full, and then the ratio
    is made linear by Charnes and Cooper's substitution: fills over their sum.
    """
    n, values = len(cost), []
    room = np.minimum(room, total)
    if not complete:
        return float(cost[room > 0].min(initial=np.inf))
    all_of_it = linprog(cost, A_eq=np.ones((1, n)), b_eq=[total], bounds=[(0, r) for r in room])
    if all_of_it.status == 0:
        values.append(all_of_it.fun / total)
    # y = fills / sum of fills, s = 1 / sum of fills
    if room[-1] > 0:
        below = np.hstack([np.eye(n), -room[:, None]])
        rows = np.vstack([below, np.r_[np.ones(n), -total]])
        equal = np.vstack([np.r_[np.ones(n), 0.0], np.r_[np.zeros(n - 1), 1.0, -room[-1]]])
        full = linprog(np.r_[cost, 0.0], A_ub=rows, b_ub=np.zeros(n + 1), A_eq=equal, b_eq=[1.0, 0.0])
        if full.status == 0:
            values.append(full.fun)
    else:
        values.append(cost[room > 0].min(initial=np.inf))
    return min(values, default=np.inf)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(5, 15), st.sampled_from([0.0, 0.0, 10.0, 35.0, 100.0, 400.0])), min_size=1, max_size=7
    ),
    st.sampled_from([0.1, 0.5, None]),
    st.sampled_from([3.0, 20.0, 100.0]),
    st.booleans(),
    st.sampled_from([1, -1]),
)
def test_with_a_tick_a_step_the_bound_is_that_of_linear_programming(
    ticks: list[tuple[float, float]], cap: float | None, amount: float, complete: bool, side: int
) -> None:
    price, volume = (np.array(column) for column in zip(*ticks, strict=True))
    engine = Engine(sessions_of([price], [volume]), 1, ExecutionRules(volume_limit=cap, complete_at_end=complete))
    batch = batch_of([(side, amount, 0, len(ticks))], 0)
    room = np.full(len(ticks), np.inf) if cap is None else cap * volume
    expected = optimum(side * price, room, amount, complete)
    bound = HindsightOptimum.of(engine, batch)
    if math.isinf(expected):
        assert math.isnan(bound.price[0])
        assert bound.filled[0] == 0.0
    else:
        assert side * bound.price[0] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(5, 15), st.sampled_from([0, 1, 2, 5, 30])), min_size=1, max_size=6),
    st.integers(1, 6),
    st.sampled_from([0.0, 1.0]),
    st.booleans(),
)
def test_with_a_tick_a_step_some_asks_reach_the_bound(
    ticks: list[tuple[float, int]], lots: int, lot: float, complete: bool
) -> None:
    """All ways to ask for whole lots are tried; with a cap in whole units, they hold the optimum without lots too."""
    price, volume = (np.array(column) for column in zip(*ticks, strict=True))
    rules = ExecutionRules(volume_limit=1.0, complete_at_end=complete, lot_size=lot)
    engine = Engine(sessions_of([price], [volume]), 1, rules)
    plans = [plan for plan in itertools.product(range(lots + 1), repeat=len(ticks)) if sum(plan) <= lots]
    batch = batch_of([(1, float(lots), 0, len(ticks))] * len(plans), 0)
    state = engine.reset(batch)
    for step in range(len(ticks)):
        ask = np.minimum(np.array([float(plan[step]) for plan in plans]), np.where(state.done, 0.0, state.position))
        state, _ = engine.step(batch, state, ask)
    filled = state.filled > 0
    bound = HindsightOptimum.of(engine, batch[:1])
    assert filled.any() == np.isfinite(bound.price[0])
    if filled.any():
        assert (state.notional[filled] / state.filled[filled]).min() == pytest.approx(bound.price[0], rel=1e-12)


def bound_of(
    price: list[float], volume: list[float] | float, amount: float, ticks: int, side: int = 1, **rules: object
) -> tuple[float, float]:
    volumes = [volume] if isinstance(volume, list) else volume
    engine = Engine(sessions_of([price], volumes), ticks, ExecutionRules(**rules))  # type: ignore[arg-type]
    bound = HindsightOptimum.of(engine, batch_of([(side, amount, 0, len(price))], 0))
    return float(bound.price[0]), float(bound.filled[0])


def test_bounds_by_hand() -> None:
    """Steps of two ticks with mean prices 12, 10 and 11."""
    price = [11.0, 13.0, 8.0, 12.0, 10.0, 12.0]
    assert bound_of(price, 100.0, 60.0, 2) == (10.0, 60.0)
    assert bound_of(price, 100.0, 60.0, 2, side=-1) == (12.0, 60.0)
    assert bound_of(price, 100.0, 60.0, 1) == (8.0, 60.0)
    # A cap of 10 a tick: an ask of 20 in the second step fills 10 at 8 and 10 at 12, one of 10 in the third 10 at 10,
    # and the last tick must take 10 of what is left at 12. The first step, at 11 and 13, would only raise 420 / 40.
    assert bound_of(price, 100.0, 60.0, 2, volume_limit=0.1) == (10.5, 40.0)
    # A cap that leaves the fourth tick without room: the second step fills at 8 alone, and the last tick, which must
    # take what is left, is shut too.
    assert bound_of(price, [100.0, 100.0, 100.0, 0.0, 100.0, 0.0], 60.0, 2, volume_limit=0.1) == (8.0, 10.0)
    # The last tick must take its 10 at 12 unless the order is complete before; 10 at 8 and 10 at 9 make that bearable.
    price[4] = 9.0
    assert bound_of(price, [100.0, 100.0, 100.0, 0.0, 100.0, 100.0], 60.0, 2, volume_limit=0.1) == (290 / 30, 30.0)


def test_without_its_cap_the_bound_is_that_of_rules_that_have_none() -> None:
    price, volume = [11.0, 13.0, 8.0, 12.0, 10.0, 12.0], [100.0, 100.0, 100.0, 0.0, 100.0, 0.0]
    rules = ExecutionRules(volume_limit=0.1, temporary_impact_bps=5.0, lot_size=7.0)
    batch = batch_of([(1, 60.0, 0, 6), (-1, 60.0, 1, 5)], 0)
    engine = Engine(sessions_of([price], [volume]), 2, rules)
    free = Engine(engine.sessions, 2, ExecutionRules(lot_size=7.0))
    off, none = HindsightOptimum.of(engine, batch, capped=False), HindsightOptimum.of(free, batch)
    np.testing.assert_array_equal(off.price, none.price)
    np.testing.assert_array_equal(off.filled, none.filled)
    assert off.price[0] != HindsightOptimum.of(engine, batch).price[0]
    table = hindsight_table(engine, batch, capped=False)
    np.testing.assert_array_equal(table["price"], none.price)
    assert table["pa_net"].isna().all(), "impact depends on which tick takes how much"


def test_transient_impact_leaves_the_bound_before_costs_and_none_after_them() -> None:
    sessions, batch = sessions_of([[11.0, 13.0, 8.0, 12.0, 10.0, 12.0]]), batch_of([(1, 60.0, 0, 6)], 0)
    passing = ExecutionRules(volume_limit=0.1, transient_impact_bps=5.0, transient_half_life=1.0)
    table = hindsight_table(Engine(sessions, 2, passing), batch)
    free = hindsight_table(Engine(sessions, 2, ExecutionRules(volume_limit=0.1)), batch)
    assert table["pa"].tolist() == free["pa"].tolist()
    assert table["pa_net"].isna().all()
    assert not free["pa_net"].isna().any()


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_not_caught_up_is_in_the_bound(complete: bool) -> None:
    """The first of three ticks is dry: half of 60 fills 10 each at 14 and at 9, all of it 20 at 14 and 40 at 9."""
    rules = ExecutionRules(volume_limit=1.0, complete_at_end=complete, catch_up=False)
    engine = Engine(sessions_of([[12.0, 14.0, 9.0]], [[0.0, 100.0, 100.0]]), 3, rules)
    batch = batch_of([(1, 60.0, 0, 3)], 0)
    half, whole = (played(engine, batch, np.full((1, 1), share)) for share in (0.5, 1.0))
    assert (half.notional / half.filled).tolist() == pytest.approx([590 / 60 if complete else 11.5])
    assert (whole.notional / whole.filled).tolist() == pytest.approx([640 / 60])
    for state in (half, whole):
        assert_not_beaten(engine, batch, state)


def test_nothing_to_fill_has_no_bound() -> None:
    price, filled = bound_of([10.0, 11.0], 0.0, 5.0, 1, volume_limit=0.1)
    assert math.isnan(price)
    assert filled == 0.0


def test_more_orders_than_a_block_and_none() -> None:
    engine = Engine(sessions_of([[11.0, 10.0, 12.0]]), 1)
    many = batch_of([(1, 1.0 + i, 0, 1 + i % 3) for i in range(5000)], 0)
    bound = HindsightOptimum.of(engine, many)
    np.testing.assert_array_equal(bound.price, np.array([11.0, 10.0, 10.0])[np.arange(5000) % 3])
    np.testing.assert_array_equal(bound.filled, many.amount)
    assert len(HindsightOptimum.of(engine, many[:0]).price) == 0


def test_the_table_has_the_figures_of_the_bound() -> None:
    price = [11.0, 13.0, 8.0, 12.0, 10.0, 12.0]
    rules = ExecutionRules(commission_bps=10.0)
    engine, batch = Engine(sessions_of([price]), 2, rules), batch_of([(1, 60.0, 0, 6), (-1, 60.0, 0, 6)], 0)
    table = hindsight_table(engine, batch)
    assert table["order_id"].tolist() == ["0", "1"]
    np.testing.assert_allclose(table["pa"], [(1 - 10 / 11) * 1e4, (12 / 11 - 1) * 1e4])
    np.testing.assert_allclose(table["pa_net"], [(1 - 10.01 / 11) * 1e4, (11.988 / 11 - 1) * 1e4])
    assert table["ffr"].tolist() == [1.0, 1.0]
    assert table[["num_steps", "reward"]].isna().all(axis=None)
    least = dataclasses.replace(rules, min_fee=1.0)
    assert hindsight_table(Engine(engine.sessions, 2, least), batch)["pa_net"].isna().all()
