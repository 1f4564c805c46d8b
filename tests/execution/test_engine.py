"""The engine against its specification, and rules by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import TWAP, Engine, ExecutionRules, OrderBatch, TickRecord, align_orders
from rlwb.execution.kernel import CONSTRAINTS, count_priced
from rlwb.market import Calendar, Sessions
from tests.execution.markets import AskAtStep, order, run, sessions_of
from tests.execution.specification import SpecifiedOrder, ticks_of

SHAPES = st.sampled_from(["linear", "square_root"])
SHARES = (0.0, 0.1, 1 / 3, 0.5, 1.0)


def mixed(rng: np.random.Generator, count: int, low: float, high: float, special: Sequence[float]) -> np.ndarray:
    """A third each of any number, a round one, and a special one or NaN, so that ties and gaps are common."""
    every = rng.uniform(low, high, count)
    kinds = [every, np.round(every, rng.integers(0, 3)), rng.choice([*special, math.nan], count)]
    return np.choose(rng.integers(0, 3, count), kinds)


@st.composite
def rules(draw: st.DrawFn) -> ExecutionRules:
    lot = draw(st.sampled_from([0.0, 0.0, 1.0, 7.0, 100.0]))
    cap = draw(st.sampled_from([None, 0.05, 0.25, 1.0]))
    impact: dict[str, Any] = {}
    for name in ("temporary", "permanent") if cap else ():
        if size := draw(st.sampled_from([0.0, 30.0])):
            impact |= {f"{name}_impact_bps": size, f"{name}_impact_shape": draw(SHAPES)}
    if cap and draw(st.booleans()):
        impact |= {"transient_impact_bps": 40.0, "transient_impact_shape": draw(SHAPES)}
        impact |= {"transient_half_life": draw(st.sampled_from([0.3, 2.0, 1e3]))}
        power = {"transient_exponent": draw(st.sampled_from([0.2, 0.5, 1.5]))}
        impact |= draw(st.sampled_from([{"transient_decay": "exponential"}, power]))
    return ExecutionRules(
        price_field=draw(st.sampled_from(["close", "quotes"])),
        halts=draw(st.booleans()),
        volume_limit=cap,
        complete_at_end=draw(st.booleans()),
        catch_up=draw(st.booleans()),
        step_grid=draw(st.sampled_from(["segment", "session"])),
        lot_size=lot,
        odd_lot=draw(st.sampled_from(["trade_at_end", "sell_at_end", "leave"])) if lot else "trade_at_end",
        price_limit=draw(st.sampled_from([None, 0.1])),
        **impact,
    )


@st.composite
def problems(
    draw: st.DrawFn,
) -> tuple[Sessions, ExecutionRules, int, list[tuple[int, float, int, int]], list[list[float]]]:
    """Two sessions on a clock with a lunch break, several orders on the second, and shares to ask for."""
    first, second = draw(st.integers(2, 7)), draw(st.integers(2, 7))
    ticks = first + second
    clock = (("09:30", f"09:{30 + first}"), ("13:00", f"13:{second:02d}"))
    calendar = Calendar(segments=clock, weekdays=(0, 1, 2, 3, 4, 5, 6))
    # What every tick has comes from a generator: drawn by hypothesis one by one it would take most of the time.
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    price = np.array([[10.0] * ticks, mixed(rng, ticks, 5.0, 15.0, [9.0, 10.0, 11.0])])
    volume = np.array([[100.0] * ticks, mixed(rng, ticks, 0.0, 500.0, [0.0])])
    halted = np.zeros((2, ticks), dtype=bool)
    halted[1] = rng.integers(0, 2, ticks) if draw(st.booleans()) else False
    half = mixed(rng, ticks, 0.0, 0.1, [0.0])
    # Quotes around the close, so that the mid is the close up to rounding; the spread's missing ones are one-sided.
    quotes = {"bid": price - np.nan_to_num(half), "ask": price + half}
    fields = dict.fromkeys(("open", "high", "low", "close"), price) | {"volume": volume} | quotes
    dates = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    sessions = Sessions(
        calendar, np.array(["A", "A"]), dates, np.array([ticks, ticks], dtype=np.int32), fields, halted=halted
    )
    rule = draw(rules())
    orders = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, ticks - 1))
        end = draw(st.integers(start + 1, ticks))
        amount = draw(st.floats(max(rule.lot_size, 1e-6), 1e4))
        orders.append((draw(st.sampled_from([1, -1])), amount, start, end))
    shares = rng.choice(SHARES, (len(orders), ticks)).tolist()
    return sessions, rule, draw(st.integers(1, 4)), orders, shares


def batch_of(orders: list[tuple[int, float, int, int]], session: int = 1) -> OrderBatch:
    side, amount, start, end = (np.array(column) for column in zip(*orders, strict=True))
    table = pd.DataFrame(
        {"order_id": [str(i) for i in range(len(orders))], "instrument": "A", "date": pd.Timestamp(2024, 1, 2)}
    )
    table["direction"] = np.where(side > 0, "BUY", "SELL")
    table["amount"], table["start"], table["end"] = amount, pd.NaT, pd.NaT
    rows = np.full(len(orders), session, dtype=np.int32)
    return OrderBatch(
        table,
        np.arange(len(orders)),
        rows,
        side.astype(np.int8),
        amount.astype(float),
        start.astype(np.int32),
        end.astype(np.int32),
    )


@settings(max_examples=700, deadline=None)
@given(problems())
def test_engine_equals_the_specification_exactly(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, orders, shares = problem
    engine = Engine(sessions, ticks_per_step, rule)
    batch = batch_of(orders)
    volume = sessions.fields["volume"][1]
    ticks = ticks_of(sessions, 1, rule)
    limits = (9.0 + 1e-7, 11.0 - 1e-7) if rule.price_limit else (-math.inf, math.inf)
    cells = sessions.calendar.cells(ticks_per_step).tolist()
    if rule.step_grid == "session":
        cells = [tick // ticks_per_step for tick in range(len(cells))]
    specified = [SpecifiedOrder(ticks, cells, *values, rule, limits) for values in orders]
    state, record = engine.reset(batch), TickRecord.empty(len(orders), len(ticks))
    filled = np.zeros(len(orders))
    for step in range(len(ticks)):
        done = [one.done for one in specified]
        assert state.done.tolist() == done
        if state.done.all():
            break
        ask = np.array([0.0 if one.done else shares[i][step] * one.position for i, one in enumerate(specified)])
        state, fills = engine.step(batch, state, ask, record)
        expected = [0.0 if one.done else one.step(float(ask[i])) for i, one in enumerate(specified)]
        assert fills.fill.tolist() == expected
        paid = [0.0 if was else one.step_cost for one, was in zip(specified, done, strict=True)]
        # The engine carries what is left of transient moves from tick to tick, the specification sums them up.
        close = pytest.approx(paid, rel=1e-12) if rule.transient_impact_bps else paid
        assert fills.cost.tolist() == close
        if rule.transient_impact_bps and rule.transient_decay == "exponential":
            left = [[one.transient(one.tick)] for one in specified]
            np.testing.assert_allclose(state.transient_impact, left, rtol=1e-12, atol=1e-300)
        elif rule.transient_impact_bps:
            moves = [[one.moves.get(t, 0.0) for t in range(len(ticks))] for one in specified]
            assert state.transient_impact.tolist() == moves
        assert state.permanent_impact.tolist() == [one.moved for one in specified]
        assert state.position.tolist() == [one.position for one in specified]
        assert state.tick.tolist() == [one.tick for one in specified]
        filled += fills.fill
        value = [sum(f * ticks[t].price for t, f in one.fills.items()) for one in specified]
        np.testing.assert_allclose(state.notional, value, rtol=1e-12)
    assert state.done.all()
    for i, one in enumerate(specified):
        assert {t: f for t, f in enumerate(record.fill[i]) if f} == {t: f for t, f in one.fills.items() if f}
        costs = {t: c for t, c in one.costs.items() if c}
        close = pytest.approx(costs, rel=1e-12) if rule.transient_impact_bps else costs
        assert {t: c for t, c in enumerate(record.cost[i]) if c} == close
        assert state.cost[i] == pytest.approx(sum(one.costs.values()), rel=1e-12)
        assert state.cost[i] >= 0.0
        # A rule never creates or destroys anything.
        assert filled[i] + state.position[i] == pytest.approx(one.amount, rel=1e-12)
        assert 0.0 <= state.position[i] <= one.amount
        if rule.volume_limit:
            assert all(f <= rule.volume_limit * np.nan_to_num(volume[t]) * (1 + 1e-9) for t, f in one.fills.items())


@settings(max_examples=300, deadline=None)
@given(problems())
def test_a_batch_equals_its_orders_one_by_one(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, orders, shares = problem
    engine, batch = Engine(sessions, ticks_per_step, rule), batch_of(orders)

    def final(rows: list[int]) -> list[tuple[float, float]]:
        part = batch[np.array(rows)]
        state = engine.reset(part)
        step = 0
        while not state.done.all():
            asks = np.array([shares[i][step] for i in rows]) * np.where(state.done, 0.0, state.position)
            state, _ = engine.step(part, state, asks)
            step += 1
        return list(zip(state.filled.tolist(), state.notional.tolist(), strict=True))

    together = final(list(range(len(orders))))
    assert together == [final([i])[0] for i in range(len(orders))]


def test_without_a_cap_parts_are_equal_and_the_last_tick_takes_the_rest() -> None:
    ticks, _, summary = run(sessions_of([[10, 11, 12, 13]]), [order(100)], 2, AskAtStep(1))
    assert ticks["filled"].tolist() == [0.0, 0.0, 50.0, 50.0]
    assert summary["price"].iloc[0] == pytest.approx(12.5)


def test_last_step_catches_up_what_a_cap_cut() -> None:
    # Cap 10 % of 1000, 100, 1000, 1000: the second tick is cut from 50 to 10, the third asks for 90.
    volumes = [[1000.0, 100.0, 1000.0, 1000.0]]
    rule = ExecutionRules(volume_limit=0.1)
    ticks, _, _ = run(sessions_of([[10] * 4], volumes), [order(200)], 4, AskAtStep(0), rule)
    assert ticks["requested"].tolist() == [50.0, 50.0, 90.0, 50.0]
    assert ticks["filled"].tolist() == [50.0, 10.0, 90.0, 50.0]
    assert ticks["constraint"].tolist() == ["", "volume cap", "", ""]


def test_earlier_steps_leave_what_a_cap_cut_in_the_position() -> None:
    rule = ExecutionRules(volume_limit=0.1)
    volumes = [[1000.0, 100.0, 1000.0, 1000.0]]
    ticks, _, _ = run(sessions_of([[10] * 4], volumes), [order(200)], 2, AskAtStep(0), rule)
    # Step 0 asks 100 + 100 and gets 100 + 10; nothing is asked in step 1 until the end takes the rest, capped.
    assert ticks["filled"].tolist() == [100.0, 10.0, 45.0, 45.0]


def test_complete_at_end_off_leaves_the_rest() -> None:
    rule = ExecutionRules(complete_at_end=False)
    sessions = sessions_of([[10.0] * 4])
    engine = Engine(sessions, 2, rule)
    batch = batch_of([(1, 100.0, 0, 4)], session=0)
    state, _ = engine.step(batch, engine.reset(batch), np.array([50.0]))
    state, fills = engine.step(batch, state, np.array([0.0]))
    assert state.done.all()
    assert state.position.tolist() == [50.0]
    assert fills.fill.tolist() == [0.0]


def test_halted_ticks_do_not_fill() -> None:
    halted = np.array([[False, True, True, False]])
    ticks, _, _ = run(sessions_of([[10] * 4], halted=halted), [order(100)], 4, AskAtStep(0))
    assert ticks["filled"].tolist() == [25.0, 0.0, 0.0, 75.0]
    assert ticks["constraint"].tolist() == ["", "halt or price limit", "halt or price limit", ""]


@pytest.mark.parametrize("ask", [-1.0, math.nan, math.inf, 100.1])
def test_an_impossible_ask_is_refused_with_the_order(ask: float) -> None:
    engine, batch = Engine(sessions_of([[10.0] * 4]), 2), batch_of([(1, 100.0, 0, 4)], session=0)
    with pytest.raises(OrderError, match="BUY 100 A on 2024-01-02: step 0 requests"):
        engine.step(batch, engine.reset(batch), np.array([ask]))


def test_step_does_not_change_the_state_it_was_given() -> None:
    engine, batch = Engine(sessions_of([[10.0] * 4]), 2), batch_of([(1, 100.0, 0, 4)], session=0)
    before = engine.reset(batch)
    engine.step(batch, before, np.array([40.0]))
    assert before.position.tolist() == [100.0]
    assert before.tick.tolist() == [0]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="ticks_per_step is 5"):
        Engine(sessions_of([[10.0] * 4]), 5)
    with pytest.raises(ConfigError, match="price_field is 'vwap'"):
        Engine(sessions_of([[10.0] * 4]), 2, ExecutionRules(price_field="vwap"))


@settings(max_examples=200, deadline=None)
@given(problems())
def test_twap_has_price_advantage_zero_under_simple_rules(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, _, ticks_per_step, orders, _ = problem
    engine, batch = (
        Engine(
            sessions.__class__(
                sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, dict(sessions.fields)
            ),
            ticks_per_step,
        ),
        batch_of(orders),
    )
    state, bench = engine.reset(batch), engine.benchmarks(batch)
    while not state.done.all():
        ask = np.where(state.done, 0.0, state.position * engine.even_share(batch, state))
        state, _ = engine.step(batch, state, ask)
    for i in range(len(orders)):
        if np.isfinite(bench.twap[i]):
            assert state.notional[i] / state.filled[i] == pytest.approx(bench.twap[i], rel=1e-12)
        else:
            assert state.filled[i] == 0.0


def test_benchmarks_by_hand() -> None:
    sessions = sessions_of([[10.0, math.nan, 11.0, 13.0]], [[100.0, 50.0, 0.0, 300.0]])
    bench = Engine(sessions, 2).benchmarks(batch_of([(1, 1.0, 0, 4)], session=0))
    assert bench.twap[0] == pytest.approx(34 / 3)
    assert bench.vwap[0] == pytest.approx((10 * 100 + 13 * 300) / 400)
    assert bench.arrival[0] == 10.0
    assert bench.volume[0] == 450.0


def test_a09_the_limit_reaches_past_a_session_without_a_price() -> None:
    sessions = sessions_of([[10.0] * 4, [math.nan] * 4, [11.0] * 4])
    ticks, _, summary = run(
        sessions, [order(4.0, day=3), order(4.0, "SELL", day=3)], 4, TWAP, ExecutionRules(price_limit=0.1)
    )
    assert summary["filled"].tolist() == [0.0, 4.0]
    assert set(ticks["constraint"][:4]) == {"halt or price limit"}


def test_a09_the_limit_is_a_price_tick_away_at_least() -> None:
    sessions = sessions_of([[0.02] * 2, [0.02] * 2, [0.03] * 2, [0.01] * 2])
    rules = ExecutionRules(price_limit=0.1)
    _, _, summary = run(
        sessions, [order(1.0, side, day=day) for day in (2, 3) for side in ("BUY", "SELL")], 2, TWAP, rules
    )
    assert summary["filled"].tolist() == [1.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"price_field": "volume"},
        {"odd_lot": "x"},
        {"complete_at_end": "no"},
        {"volume_limit": True},
        {"volume_limit": "0.1"},
        {"lot_size": "100"},
    ],
)
def test_rules_of_another_kind_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ExecutionRules(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("ticks_per_step", [1.5, "3", None, True, 0, -1])
def test_a_step_is_a_whole_number_of_ticks(ticks_per_step: object) -> None:
    with pytest.raises(ConfigError, match="ticks_per_step is"):
        Engine(sessions_of([[10.0] * 4]), ticks_per_step)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(problems())
def test_the_room_of_a_tick_is_what_the_specification_lets_it_fill(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, orders, _ = problem
    ticks = ticks_of(sessions, 1, rule)
    limits = (9.0 + 1e-7, 11.0 - 1e-7) if rule.price_limit else (-math.inf, math.inf)
    room = Engine(sessions, ticks_per_step, rule).room(batch_of(orders))
    for row, (side, amount, start, end) in zip(room.tolist(), orders, strict=True):
        one = SpecifiedOrder(ticks, [], side, amount, start, end, rule, limits)
        inside = range(start, end)
        assert row == [one.room(t) if t in inside and tick.priced else 0.0 for t, tick in enumerate(ticks)]


def test_volumes_below_one_weigh_in_the_vwap() -> None:
    sessions = sessions_of([[10.0, 20.0]], [[0.5, 0.25]])
    bench = Engine(sessions, 1).benchmarks(align_orders([order(0.1)], sessions))
    assert bench.vwap.tolist() == pytest.approx([(0.5 * 10 + 0.25 * 20) / 0.75])
    assert bench.volume.tolist() == [0.75]


@pytest.mark.parametrize(("ticks_per_step", "steps"), [(1, 8), (3, 3), (4, 2), (8, 1)])
def test_the_largest_number_of_steps_is_that_of_the_whole_session(ticks_per_step: int, steps: int) -> None:
    assert Engine(sessions_of([[10.0] * 8]), ticks_per_step).max_step == steps


def test_a_tick_of_which_nothing_is_asked_was_not_cut_by_the_lot() -> None:
    sessions = sessions_of([[10.0] * 4])
    engine = Engine(sessions, 2, ExecutionRules(lot_size=100.0))
    batch = align_orders([order(150), order(50)], sessions)
    record = TickRecord.empty(2, 4)
    engine.step(batch, engine.reset(batch), np.array([0.0, 50.0]), record)
    cut = [CONSTRAINTS[one] for one in record.constraint[:, :2].ravel()]
    assert cut == ["", "", "lot", "lot"]


def test_the_ticks_with_a_price_of_each_order_are_counted() -> None:
    price = np.array([[1.0, math.nan, 2.0, 0.0], [3.0, 4.0, 5.0, 6.0]])
    session, start, end = np.array([0, 1, 1]), np.array([0, 1, 2]), np.array([4, 4, 2])
    np.testing.assert_array_equal(count_priced(price, session, start, end), [2, 3, 0])
