"""Observations and actions: one state and a batch give the same bits, and the future moves nothing."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError, InterpreterError, OrderError
from rlwb.execution import (
    TWAP,
    VWAP,
    AmountItself,
    BatchedOrderExecution,
    BatchState,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    PAPenaltyReward,
    PPOReward,
    SingleAssetOrderExecution,
    StateItself,
    TwapRelativeActionInterpreter,
    align_orders,
    generate_orders,
)
from rlwb.market import MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from tests.execution.markets import order, sessions_of


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=2, days=4))


def features_of(sessions: Sessions) -> MarketFeatures:
    return MarketFeatures.build(sessions, fit_rows=np.arange(2))


def test_single_states_equal_rows_of_a_batch_bit_for_bit(sessions: Sessions) -> None:
    engine = Engine(sessions, 6)
    table = generate_orders(sessions)
    batch = align_orders(table, sessions)
    observe = FullHistoryStateInterpreter(features_of(sessions), engine.max_step)
    act, rewards = CategoricalActionInterpreter(4), (PAPenaltyReward(), PPOReward())
    rng = np.random.default_rng(0)
    state = BatchState.start(engine, batch)
    singles = [SingleAssetOrderExecution(one, engine) for one in batch]
    for _ in range(engine.max_step):
        alive = np.flatnonzero(~state.now.done)
        if not len(alive):
            break
        rows = state.take(alive)
        together = observe.interpret_batch(rows)
        actions = rng.integers(0, 5, len(alive))
        asks = np.zeros(len(batch))
        asks[alive] = act.interpret_batch(rows, actions)
        for k, i in enumerate(alive):
            alone = observe(singles[i].get_state())
            assert observe.observation_space.contains(alone)
            for key, value in alone.items():
                assert np.array_equal(value, together[key][k]), key
            ask = act(singles[i].get_state(), int(actions[k]))
            assert ask == asks[i]
            singles[i].step(ask)
        now, fills = engine.step(batch, state.now, asks)
        state = state.advance(now, fills)
        for reward in rewards:
            after = reward.reward_batch(state.take(alive))
            assert [reward(singles[i].get_state()) for i in alive] == after.tolist()
    for i, single in enumerate(singles):
        assert single.done()
        assert single.metrics()["filled"] == state.now.filled[i]


def test_observation_holds_the_past_alone(sessions: Sessions) -> None:
    engine = Engine(sessions, 6)
    one = align_orders(generate_orders(sessions), sessions)[0]
    simulator = SingleAssetOrderExecution(one, engine)
    features = features_of(sessions)
    observe = FullHistoryStateInterpreter(features, engine.max_step)
    simulator.step(one.amount / 8)
    obs = observe(simulator.get_state())
    row = sessions.row(one.instrument, one.date)
    assert obs["cur_tick"] == 6
    assert obs["cur_step"] == 1
    np.testing.assert_array_equal(obs["data_processed"][:6], features.today[row, :6])
    assert not obs["data_processed"][6:].any()
    np.testing.assert_allclose(obs["position_history"][:3], np.array([1, 7 / 8, 0]) * one.amount, rtol=1e-6)


def test_terminal_observations_are_valid() -> None:
    engine = Engine(sessions_of([[10.0] * 8]), 2)
    simulator = SingleAssetOrderExecution(order(8), engine)
    observe = CurrentStepStateInterpreter(engine.max_step)
    for _ in range(4):
        simulator.step(simulator.get_state().position / 2)
    assert simulator.done()
    assert observe(simulator.get_state())["cur_step"] == 4


def test_last_step_is_the_orders_own() -> None:
    engine = Engine(sessions_of([[10.0] * 90]), 30)
    simulator = SingleAssetOrderExecution(order(90, start="09:45", end="10:15"), engine)
    act = CategoricalActionInterpreter([0.0, 0.5])
    assert act(simulator.get_state(), 0) == 0.0
    simulator.step(0.0)
    assert act(simulator.get_state(), 0) == 90.0


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
    act = TwapRelativeActionInterpreter()
    state = SingleAssetOrderExecution(order(80), engine).get_state()
    assert [act.interpret(state, ratio) for ratio in (0.0, 0.5, 1.0, 2.0, 9.0)] == [0.0, 10.0, 20.0, 40.0, 80.0]


@pytest.mark.parametrize("policy", [TWAP(), VWAP(days=2)])
@pytest.mark.parametrize("tick", [0, 6, 20, 36])
def test_changing_the_future_moves_no_observation_and_no_action(sessions: Sessions, policy: object, tick: int) -> None:
    rng = np.random.default_rng(tick)

    def disturbed(name: str, values: np.ndarray) -> np.ndarray:
        values = values.copy()
        row = np.arange(len(sessions)) % 4 == 2  # the third day of each instrument, and all days after
        values[row, tick:] *= rng.uniform(0.5, 2.0, values[row, tick:].shape)
        values[np.arange(len(sessions)) % 4 == 3] *= 3.0
        return values

    changed = Sessions(
        sessions.calendar,
        sessions.instruments,
        sessions.dates,
        sessions.num_ticks,
        {name: disturbed(name, np.asarray(field)) for name, field in sessions.fields.items()},
    )
    day = sessions.dates[2]
    table = generate_orders(sessions)
    table = table[table["date"] == day.astype("datetime64[ns]")]
    seen = []
    for panel in (sessions, changed):
        engine = Engine(panel, 6)
        batch = align_orders(table, panel)
        features = MarketFeatures.build(panel, normaliser=features_of(sessions).normaliser)
        observe = FullHistoryStateInterpreter(features, engine.max_step)
        env = BatchedOrderExecution(engine, batch, state_interpreter=StateItself(), action_interpreter=AmountItself())
        active, steps = env.reset(), []
        while len(active.episode) and env.state.now.tick.max() <= tick:
            action = policy.act(active.obs)  # type: ignore[attr-defined]
            steps.append({"action": action, **observe.interpret_batch(active.obs)})
            _, active = env.step(action)
        seen.append(steps)
    assert len(seen[0]) == tick // 6 + 1
    for before, after in zip(*seen, strict=True):
        for key, value in before.items():
            np.testing.assert_array_equal(value, after[key], err_msg=key)


@pytest.mark.parametrize("action", [-1, 5, 1.0, True, float("nan")])
def test_an_action_that_names_no_share_is_refused(action: object) -> None:
    state = SingleAssetOrderExecution(order(1.0), Engine(sessions_of([[10.0] * 4]), 2)).get_state()
    with pytest.raises(InterpreterError, match="not whole numbers from 0 to 4"):
        CategoricalActionInterpreter(4).interpret(state, action)  # type: ignore[arg-type]


def test_room_for_more_steps_than_the_clock_allows_is_filled_with_zeros(sessions: Sessions) -> None:
    engine = Engine(sessions, 12)
    simulator = SingleAssetOrderExecution(align_orders(generate_orders(sessions), sessions)[0], engine)
    interpreter = FullHistoryStateInterpreter(features_of(sessions), engine.max_step + 3)
    history = interpreter(simulator.get_state())["position_history"]
    assert history.shape == (engine.max_step + 3,)
    assert history.tolist() == [history[0]] + [0.0] * (engine.max_step + 2)


def test_a29_features_of_other_sessions_than_the_engines_are_refused(sessions: Sessions) -> None:
    other = synthetic_sessions(SyntheticSettings(instruments=2, days=4, seed=1))
    state = SingleAssetOrderExecution(
        align_orders(generate_orders(sessions), sessions)[0], Engine(sessions, 12)
    ).get_state()
    with pytest.raises(DataError, match="made from other bars"):
        FullHistoryStateInterpreter(features_of(other), 99)(state)


def test_the_clock_does_not_run_back_at_midnight() -> None:
    sessions = sessions_of([[10.0] * 60], segments=(("23:00", "24:00"),))
    simulator = SingleAssetOrderExecution(order(1.0), Engine(sessions, 60))
    simulator.step(1.0)
    assert simulator.get_state().cur_time == pd.Timestamp("2024-01-02 00:00")


@pytest.mark.parametrize("amount", [None, "all", [0.5, 0.5]])
def test_an_amount_that_is_no_number_is_refused(amount: object) -> None:
    simulator = SingleAssetOrderExecution(order(1.0), Engine(sessions_of([[10.0] * 4]), 2))
    with pytest.raises(OrderError, match="not one number"):
        simulator.step(amount)  # type: ignore[arg-type]
