"""What may be known, what a step led to, and the bookkeeping of a simulator of one's own."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import Engine, ExecutionState, Known, OrderExecution, Outcome, SparseReward
from rlwb.interpreter import per_order
from rlwb.market import Sessions
from rlwb.reward import Reward, sum_parts
from tests.execution.markets import OneOrder, order, sessions_of


def panel(rng: np.random.Generator) -> Sessions:
    plain = sessions_of(rng.uniform(5, 15, (3, 8)).tolist(), rng.uniform(50, 800, (3, 8)).tolist())
    factors = (1, 2, 0.5, 1, 1)
    fields = {name: plain.fields[name] * factor for name, factor in zip(plain.fields, factors, strict=True)}
    return Sessions(plain.calendar, plain.instruments, plain.dates, plain.num_ticks, fields)


def another_future(sessions: Sessions, day: int, tick: int, rng: np.random.Generator) -> Sessions:
    """Bars from the tick on and of later days have other values, and some come or go."""
    fields = {}
    for name, values in sessions.fields.items():
        other = rng.uniform(5, 15, values.shape)
        other[rng.uniform(size=values.shape) < 0.3] = np.nan
        later = np.arange(len(values))[:, None] * 8 + np.arange(8) >= day * 8 + tick
        fields[name] = np.where(later, other, values)
    return Sessions(sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, fields)


def everything(known: Known, sessions: Sessions) -> dict[str, Any]:
    """Return the value of every public attribute, and of every public method for every argument that it takes."""
    found: dict[str, Any] = {}
    for name in dir(known):
        if name.startswith("_"):
            continue
        value = getattr(known, name)
        if name in ("bars", "yesterday"):
            found |= {f"{name}({field})": value(field) for field in sessions.fields}
        elif name == "bars_table":
            found |= {f"{name}({row})": value(row) for row in range(np.size(known.amount))}
        elif name == "check_features":
            continue
        elif callable(value):
            assert not [p for p in inspect.signature(value).parameters.values() if p.default is p.empty], name
            found[name] = value()
        else:
            found[name] = value
    return found


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_no_attribute_of_known_moves_with_the_future(seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    sessions = panel(rng)
    changed = another_future(sessions, 1, 2 * steps, rng)
    orders = [order(100.0, day=2), order(60.0, "SELL", day=2)]
    seen = []
    for each in (sessions, changed):
        simulator = OrderExecution(Engine(each, 2))
        state = simulator.start(orders, np.zeros(2, dtype=np.uint64))
        for _ in range(steps):
            state = simulator.step(state, np.array([10.0, 7.0]))
        seen.append([*(everything(part, each) for part in (state.known, state.known[1]))])
    for before, after in zip(*seen, strict=True):
        assert before.keys() == after.keys()
        assert {"bars(close)", "position_history", "steps_table", "instrument", "time"} <= before.keys()
        for name, value in before.items():
            if isinstance(value, pd.DataFrame):
                pd.testing.assert_frame_equal(value, after[name])
            else:
                np.testing.assert_array_equal(value, after[name], err_msg=name)


def test_known_by_hand() -> None:
    sessions = sessions_of([[9.0] * 4, [10.0, 11.0, 12.0, 13.0]], [[50.0] * 4, [100.0, 200.0, 300.0, 400.0]])
    one = OneOrder(order(80.0, "SELL", day=2), Engine(sessions, 2))
    one.step(30.0)
    known = one.known
    assert (known.side[0], known.amount[0], known.position[0], known.filled[0]) == (-1, 80.0, 50.0, 30.0)
    assert (known.tick[0], known.step[0], known.num_steps[0], known.ticks_left[0]) == (2, 1, 2, 2)
    assert known.is_last_step.tolist() == [True]
    np.testing.assert_array_equal(known.bars()[0], [10.0, 11.0, np.nan, np.nan])
    np.testing.assert_array_equal(known.bars("volume")[0], [100.0, 200.0, np.nan, np.nan])
    np.testing.assert_array_equal(known.yesterday()[0], [9.0] * 4)
    np.testing.assert_array_equal(known.position_history[0], [80.0, 50.0, np.nan])
    np.testing.assert_array_equal(known.requested_history[0], [30.0, np.nan])
    np.testing.assert_array_equal(known.fill_history[0], [30.0, np.nan])
    np.testing.assert_array_equal(known.price_history[0], [10.5, np.nan])
    assert known.instrument.tolist() == ["AAA"]
    assert known.date[0] == np.datetime64("2024-01-02")
    assert known.time[0] == np.datetime64("2024-01-02T09:32")
    assert known.steps_table().to_dict("records") == [
        {"order": 0, "step": 0, "requested": 30.0, "fill": 30.0, "price": 10.5, "position": 50.0}
    ]
    assert known[0].steps_table().equals(known.steps_table())
    assert [str(time) for time in known.bars_table().index] == ["09:30:00", "09:31:00"]
    with pytest.raises(OrderError, match=r"'vwap'.*close"):
        known.bars("vwap")
    with pytest.raises(IndexError):
        known[1]


def test_outcome_and_tick_record_by_hand() -> None:
    one = OneOrder(order(80.0), Engine(sessions_of([[10.0, 11.0, 12.0, 13.0]], [[100.0, 200.0, 300.0, 400.0]]), 2))
    one.step(30.0)
    outcome = one.state.outcome
    assert (outcome.requested[0], outcome.fill[0], outcome.notional[0]) == (30.0, 30.0, 15 * 10.0 + 15 * 11.0)
    assert outcome.sum_sq_fill[0] == 2 * 15.0**2
    assert (outcome.twap[0], outcome.arrival[0], outcome.volume[0]) == (11.5, 10.0, 1000.0)
    assert outcome.vwap[0] == pytest.approx(12.0)
    assert outcome.step_price[0] == 10.5
    assert outcome.step_pa[0] == pytest.approx((1 - 10.5 / 11.5) * 1e4)
    assert not outcome.done[0]
    one.step(50.0)
    record = one.state.tick_record()
    assert record.fill[0].tolist() == [15.0, 15.0, 25.0, 25.0]
    assert record.requested[0].tolist() == [15.0, 15.0, 25.0, 25.0]
    assert one.state.done[0]


class PerStep(Reward[Outcome]):
    """A user's own reward, for one order."""

    @per_order
    def reward(self, outcome: Any) -> float:
        share = outcome.fill / outcome.known.amount
        return share * outcome.step_pa if outcome.fill > 0 else 0.0


class Together(Reward[Outcome]):
    """The same for all orders at once."""

    def reward(self, outcome: Outcome) -> np.ndarray:
        return np.where(outcome.fill > 0, outcome.fill / outcome.known.amount * outcome.step_pa, 0.0)


def test_a_reward_for_one_order_is_lifted_to_many() -> None:
    simulator = OrderExecution(Engine(sessions_of([[10.0, 11.0, 12.0, 13.0]]), 2))
    state = simulator.start([order(80.0), order(40.0, "SELL"), order(5.0)], np.zeros(3, dtype=np.uint64))
    state = simulator.step(state, np.array([30.0, 40.0, 0.0]))
    one, all_ = (sum_parts(reward.parts(state.outcome)) for reward in (PerStep(), Together()))
    assert one.tolist() == all_.tolist()
    assert one[2] == 0.0


def test_fills_of_a_simulator_of_ones_own_are_booked_like_the_engines() -> None:
    sessions = sessions_of([[10.0, 11.0, 12.0, 13.0]])
    engine = Engine(sessions, 2)
    simulator = OrderExecution(engine)
    state = simulator.start([order(80.0), order(40.0, "SELL")], np.zeros(2, dtype=np.uint64))
    booked = state
    for request in (np.array([30.0, 40.0]), np.array([50.0, 0.0])):
        before, state = state, simulator.step(state, request)
        ticks = booked.step_ticks()
        start = int(before.now.tick[0])
        assert ticks.tolist() == [[-1, -1] if done else [start, start + 1] for done in before.done]
        price = np.take_along_axis(engine.price[booked.orders.session], np.maximum(ticks, 0), axis=1)
        fill = np.where(booked.done[:, None], 0.0, request[:, None] / 2 * np.ones(2))
        booked = booked.traded(request, fill, price)
        for name, value in vars(state.now).items():
            np.testing.assert_allclose(value, getattr(booked.now, name), rtol=1e-15, err_msg=name)
        np.testing.assert_array_equal(state.outcome.sum_sq_fill, booked.outcome.sum_sq_fill)
    assert state.metrics().keys() == booked.metrics().keys()
    np.testing.assert_allclose(booked.tick_record().fill, state.tick_record().fill)
    assert SparseReward().parts(booked.outcome)["SparseReward"].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize(
    ("fill", "price"), [([-1.0, 0.0], [10.0, 10.0]), ([41.0, 40.0], [10.0, 10.0]), ([1.0, 0.0], [np.nan, 10.0])]
)
def test_impossible_fills_are_refused_with_the_order(fill: list[float], price: list[float]) -> None:
    engine = Engine(sessions_of([[10.0] * 4]), 2)
    state = ExecutionState.start(engine, OrderExecution(engine).align([order(80.0)]))
    with pytest.raises(OrderError, match="BUY 80 AAA on 2024-01-01: step 0"):
        state.traded(np.array([41.0]), np.array([fill]), np.array([price]))


def test_the_sessions_before_the_first_have_no_yesterday() -> None:
    known = OneOrder(order(80.0), Engine(sessions_of([[10.0] * 4]), 2)).known
    assert np.isnan(known.yesterday()).all()
