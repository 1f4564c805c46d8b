"""Observations and actions: what they hold, and one order and a batch give the same bits."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlwb.errors import ConfigError, DataError, InterpreterError, OrderError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderExecution,
    PAPenaltyReward,
    SparseReward,
    TwapRelativeActionInterpreter,
    align_orders,
    generate_orders,
)
from rlwb.interpreter import row_of
from rlwb.market import MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from tests.execution.markets import OneOrder, order, sessions_of


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=2, days=4))


def features_of(sessions: Sessions) -> MarketFeatures:
    return MarketFeatures.build(sessions, fit_rows=np.arange(2))


def test_single_orders_equal_rows_of_a_batch_bit_for_bit(sessions: Sessions) -> None:
    engine = Engine(sessions, 6)
    simulator = OrderExecution(engine)
    batch = simulator.align(generate_orders(sessions))
    observe = FullHistoryStateInterpreter(features_of(sessions), engine.max_step)
    act, rewards = CategoricalActionInterpreter(4), (PAPenaltyReward(), SparseReward())
    rng = np.random.default_rng(0)
    state = simulator.start(batch, np.zeros(len(batch), dtype=np.uint64))
    singles = [OneOrder(one, engine) for one in batch]
    while not state.done.all():
        rows = np.flatnonzero(~state.done)
        state, singles = state.take(rows), [singles[i] for i in rows]
        together = observe.interpret(state.known)
        actions = rng.integers(0, 5, len(state))
        amounts = act.interpret(state.known, actions)
        for i, single in enumerate(singles):
            alone = observe.interpret(single.known)
            assert alone.keys() == together.keys()
            for key, value in alone.items():
                assert np.array_equal(value[0], together[key][i]), key
            amount = act.interpret(single.known, actions[i : i + 1])
            assert amount[0] == amounts[i]
            single.step(amount[0])
        state = simulator.step(state, amounts)
        for reward in rewards:
            parts = reward.parts(state.outcome)
            for i, single in enumerate(singles):
                own = reward.parts(single.state.outcome)
                assert {name: values[i] for name, values in parts.items()} == {n: v[0] for n, v in own.items()}
        for i, single in enumerate(singles):
            assert single.state.metrics()["filled"][0] == state.metrics()["filled"][i]


def test_observation_holds_the_past_alone(sessions: Sessions) -> None:
    engine = Engine(sessions, 6)
    one = align_orders(generate_orders(sessions), sessions)[0]
    order_ = OneOrder(one, engine)
    features = features_of(sessions)
    observe = FullHistoryStateInterpreter(features, engine.max_step)
    order_.step(one.amount / 8)
    obs = row_of(observe.interpret(order_.known), 0, observe.observation_space)
    assert observe.observation_space.contains(obs)
    row = sessions.row(one.instrument, one.date)
    assert obs["cur_tick"] == 6
    assert obs["cur_step"] == 1
    np.testing.assert_array_equal(obs["data_processed"][:6], features.today[row, :6])
    assert not obs["data_processed"][6:].any()
    np.testing.assert_allclose(obs["position_history"][:3], np.array([1, 7 / 8, 0]) * one.amount, rtol=1e-6)


def test_terminal_observations_are_valid() -> None:
    engine = Engine(sessions_of([[10.0] * 8]), 2)
    one = OneOrder(order(8), engine)
    observe = CurrentStepStateInterpreter(engine.max_step)
    for _ in range(4):
        one.step(one.known.position[0] / 2)
    assert one.state.done[0]
    obs = row_of(observe.interpret(one.known), 0, observe.observation_space)
    assert obs["cur_step"] == 4
    assert observe.observation_space.contains(obs)


def test_last_step_is_the_orders_own() -> None:
    engine = Engine(sessions_of([[10.0] * 90]), 30)
    one = OneOrder(order(90, start="09:45", end="10:15"), engine)
    act = CategoricalActionInterpreter([0.0, 0.5])
    assert act.interpret(one.known, np.array([0])).tolist() == [0.0]
    one.step(0.0)
    assert act.interpret(one.known, np.array([0])).tolist() == [90.0]


@pytest.mark.parametrize("values", [0, [0.5], [0.0, 1.5], [[0.0, 1.0]]])
def test_impossible_action_values_are_refused(values: object) -> None:
    with pytest.raises(ConfigError, match="action values"):
        CategoricalActionInterpreter(values)  # type: ignore[arg-type]


def test_action_values_of_an_integer() -> None:
    act = CategoricalActionInterpreter(4)
    assert act.shares.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert act.action_space == gym.spaces.Discrete(5)


def test_twap_relative_scales_the_even_rate_and_is_cut_to_the_position() -> None:
    engine = Engine(sessions_of([[10.0] * 8]), 2)
    act = TwapRelativeActionInterpreter(engine)
    known, ratios = OneOrder(order(80), engine).known, (0.0, 0.5, 1.0, 2.0, 9.0)
    amounts = [act.interpret(known, np.array([ratio]))[0] for ratio in ratios]
    assert amounts == [0.0, 10.0, 20.0, 40.0, 80.0]
    assert act.interpret(known, np.array([[0.5]])).tolist() == [10.0], "an action may be a vector of one number"


@pytest.mark.parametrize("action", [-1, 5, 1.0, True, float("nan")])
def test_an_action_that_names_no_share_is_refused(action: object) -> None:
    known = OneOrder(order(1.0), Engine(sessions_of([[10.0] * 4]), 2)).known
    with pytest.raises(InterpreterError, match="from 0 to 4"):
        CategoricalActionInterpreter(4).interpret(known, np.array([action]))


def test_room_for_more_steps_than_the_clock_allows_is_filled_with_zeros(sessions: Sessions) -> None:
    engine = Engine(sessions, 12)
    one = OneOrder(align_orders(generate_orders(sessions), sessions)[0], engine)
    interpreter = FullHistoryStateInterpreter(features_of(sessions), engine.max_step + 3)
    history = interpreter.interpret(one.known)["position_history"][0]
    assert history.shape == (engine.max_step + 3,)
    assert history.tolist() == [history[0]] + [0.0] * (engine.max_step + 2)


def test_a29_features_of_other_sessions_than_the_engines_are_refused(sessions: Sessions) -> None:
    other = synthetic_sessions(SyntheticSettings(instruments=2, days=4, seed=1))
    known = OneOrder(align_orders(generate_orders(sessions), sessions)[0], Engine(sessions, 12)).known
    with pytest.raises(DataError, match="made from other bars"):
        FullHistoryStateInterpreter(features_of(other), 99).interpret(known)


def test_the_clock_does_not_run_back_at_midnight() -> None:
    sessions = sessions_of([[10.0] * 60], segments=(("23:00", "24:00"),))
    one = OneOrder(order(1.0), Engine(sessions, 60))
    one.step(1.0)
    assert one.known.time[0] == np.datetime64("2024-01-02T00:00")


@pytest.mark.parametrize("amount", [None, "all", [0.5, 0.5]])
def test_an_amount_that_is_no_number_is_refused(amount: object) -> None:
    one = OneOrder(order(1.0), Engine(sessions_of([[10.0] * 4]), 2))
    with pytest.raises(OrderError, match="BUY 1 AAA on 2024-01-01"):
        one.step(amount)


@pytest.mark.parametrize(
    ("make", "action", "left"),
    [
        (lambda engine: CategoricalActionInterpreter(4), 1, 50.0),  # a quarter of 100 in each of two steps
        (lambda engine: CategoricalActionInterpreter(4), 0, 100.0),
        (TwapRelativeActionInterpreter, 0.5, 37.5),  # half of 50, then half of 75
        (lambda engine: AmountActionInterpreter(), 30.0, 40.0),
    ],
)
def test_j02_an_order_that_need_not_complete_keeps_what_the_policy_leaves(
    make: Any, action: float, left: float
) -> None:
    for complete in (True, False):
        engine = Engine(sessions_of([[10.0] * 4]), 2, ExecutionRules(complete_at_end=complete))
        interpreter = make(engine)
        one = OneOrder(order(100), engine)
        while not one.state.done.all():
            given = np.asarray([action], interpreter.action_space.dtype)
            one.step(interpreter.interpret(one.known, given)[0])
        assert one.known.position[0] == pytest.approx(0.0 if complete else left, abs=1e-5)
        assert one.state.metrics()["ffr"][0] == pytest.approx(1.0 if complete else 1.0 - left / 100, abs=1e-7)


def test_j02_a_policy_is_told_whether_the_last_step_completes() -> None:
    for complete in (True, False):
        engine = Engine(sessions_of([[10.0] * 4]), 2, ExecutionRules(complete_at_end=complete))
        one = OneOrder(order(100), engine)
        assert one.known.completes.tolist() == [False]
        one.step(0.0)
        assert one.known.is_last_step.tolist() == [True]
        assert one.known.completes.tolist() == [complete]
