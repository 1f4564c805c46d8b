"""The native environment, the gymnasium environment and the workers give the same, to the last bit."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlwb.env import DataQueue, EnvWrapper, GymVectorEnv, NativeVectorEnv, vectorize_env
from rlwb.errors import ConfigError, InterpreterError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    ExecutionState,
    FullHistoryStateInterpreter,
    OrderExecution,
    Outcome,
    PAPenaltyReward,
    TwapRelativeActionInterpreter,
    generate_orders,
)
from rlwb.interpreter import ActionInterpreter
from rlwb.market import MarketFeatures, SyntheticSettings, synthetic_sessions
from rlwb.reward import AuxiliaryInfoCollector, RewardCombination
from rlwb.seeds import uniform
from rlwb.trainer import collect, result_table


class Shaky(OrderExecution):
    """Fills a random part of what is requested, drawn from the episode's own seed."""

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        part = [uniform((int(seed),), int(step)) for seed, step in zip(state.seeds, state.now.step, strict=True)]
        return super().step(state, action * np.array(part))


class Drift(AuxiliaryInfoCollector[Outcome]):
    def collect(self, outcome: Outcome) -> dict[str, np.ndarray]:
        return {
            "steps_left": (outcome.known.num_steps - outcome.known.step).astype(float),
            "step_price": outcome.step_price,
        }


class Parts:
    """A small market with everything that an environment needs."""

    def __init__(self, rules: ExecutionRules | None = None, simulator: type[OrderExecution] = OrderExecution) -> None:
        sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=4))
        self.engine = Engine(sessions, 6, rules)
        self.simulator = simulator(self.engine)
        self.features = MarketFeatures.build(sessions, fit_rows=np.arange(4))
        self.orders = self.simulator.align(generate_orders(sessions))
        self.observe = FullHistoryStateInterpreter(self.features, self.engine.max_step)
        self.act = CategoricalActionInterpreter(4)
        self.reward = RewardCombination(
            {"quick": (PAPenaltyReward(penalty=0.0), 1.0), "slow": (PAPenaltyReward(), 0.5)}
        )

    def native(self, **options: Any) -> NativeVectorEnv:
        return NativeVectorEnv(
            self.simulator,
            self.orders,
            state_interpreter=self.observe,
            action_interpreter=self.act,
            reward=self.reward,
            aux_info_collector=Drift(),
            **options,
        )

    def single(self, states: Any = None) -> EnvWrapper:
        return EnvWrapper(self.simulator, self.observe, self.act, states, self.reward, Drift())


class ByNumber:
    """Chooses by the observation's numbers alone, so that equal observations give equal actions."""

    def act(self, obs: dict[str, np.ndarray], noise: np.ndarray | None = None) -> np.ndarray:
        code = obs["data_processed"].sum(axis=(1, 2)) * 1e3 + obs["position"] + obs["cur_step"]
        return np.floor(code).astype(np.int64) % 5


class Quarter:
    """Trades a quarter a step."""

    def act(self, obs: dict[str, np.ndarray], noise: np.ndarray | None = None) -> np.ndarray:
        return np.ones(len(obs["position"]), dtype=np.int64)


@pytest.mark.parametrize(
    ("kind", "simulator"),
    [("dummy", OrderExecution), ("subproc", OrderExecution), ("shmem", Shaky)],
)
def test_every_environment_type_gives_the_same_bits(kind: str, simulator: type[OrderExecution]) -> None:
    parts = Parts(ExecutionRules(volume_limit=0.2), simulator)
    native = collect(parts.native(by_reference=False, seed=3), ByNumber(), keep=True)
    with vectorize_env(parts.single, parts.orders, finite_env_type=kind, concurrency=2, seed=3) as env:
        other = collect(env, ByNumber(), keep=True)
    assert native.count == other.count == len(parts.orders)
    for name, value in native.obs.items():
        assert value.dtype == other.obs[name].dtype
        np.testing.assert_array_equal(value, other.obs[name], err_msg=name)
    for name in ("action", "reward", "done", "length", "returns"):
        np.testing.assert_array_equal(getattr(native, name), getattr(other, name), err_msg=name)
    assert set(native.metrics) == set(other.metrics)
    assert {"pa", "reward/quick", "reward/slow", "aux/steps_left", "aux/step_price"} <= set(native.metrics)
    for name, value in native.metrics.items():
        np.testing.assert_array_equal(value, other.metrics[name], err_msg=name)
    np.testing.assert_allclose(native.metrics["reward/quick"] + native.metrics["reward/slow"], native.returns)


def test_h03_the_environment_follows_the_standard() -> None:
    parts = Parts()
    parts.act = CategoricalActionInterpreter([0.0, 0.125])
    queue = DataQueue(parts.orders, repeat=-1, shuffle=False)
    env = EnvWrapper(parts.simulator, parts.observe, parts.act, queue, parts.reward)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    assert {name: part.dtype for name, part in env.observation_space.items()} == {
        "acquiring": np.int64,
        "cur_step": np.int32,
        "cur_tick": np.int32,
        "data_processed": np.float32,
        "data_processed_prev": np.float32,
        "num_step": np.int32,
        "position": np.float32,
        "position_history": np.float32,
        "target": np.float32,
    }


def test_a_random_agent_ends_every_order() -> None:
    parts = Parts()
    rng = np.random.default_rng(0)

    class Random:
        def act(self, obs: dict[str, np.ndarray], noise: np.ndarray | None = None) -> np.ndarray:
            return rng.integers(0, 5, len(obs["position"]))

    episodes = collect(parts.native(), Random())
    assert (episodes.metrics["ffr"] == 1.0).all()
    assert (episodes.length <= 8).all()


def test_observations_by_reference_name_the_session_and_hold_no_block() -> None:
    parts = Parts()
    obs = parts.native().reset().obs
    assert "data_processed" not in obs
    assert obs["features"] is parts.features
    np.testing.assert_array_equal(obs["session"], parts.orders.session)


def test_auxiliary_information_is_averaged_over_the_episode_where_it_is_there() -> None:
    parts = Parts()
    episodes = collect(parts.native(), Quarter())
    # Four of eight steps are taken: 7, 6, 5 and 4 are left after them.
    assert episodes.metrics["aux/steps_left"].tolist() == [5.5] * len(parts.orders)
    assert np.isfinite(episodes.metrics["aux/step_price"]).all()


def test_inventory_keeps_its_last_value() -> None:
    parts = Parts()
    env = parts.native()
    episodes = collect(env, Quarter())
    expected = np.array([1, 0.75, 0.5, 0.25, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(episodes.details["inventory"], np.tile(expected, (len(parts.orders), 1)), atol=1e-12)


def test_results_have_one_row_an_order_in_their_sequence() -> None:
    parts = Parts()
    episodes = collect(parts.native(), Quarter())
    table = result_table(parts.orders.table, episodes)
    assert table["order_id"].tolist() == parts.orders.table["order_id"].tolist()
    np.testing.assert_array_equal(table["reward"], episodes.returns)


@pytest.mark.parametrize("count", [1, 0, 99])
def test_j09_one_action_for_several_orders_and_a_step_after_the_end_are_refused(count: int) -> None:
    env = Parts().native()
    active = env.reset()
    with pytest.raises(ConfigError, match=f"{len(active.episode)} active episodes"):
        env.step(np.zeros(count, dtype=np.int64))
    while len(active.episode):
        _, active = env.step(np.full(len(active.episode), 4))
    with pytest.raises(ConfigError, match="call reset"):
        env.step(np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize(
    ("acts", "action"),
    [
        ("categorical", np.int64(5)),
        ("categorical", np.int64(-1)),
        ("categorical", 1.5),
        ("ratio", np.float32("nan")),
        ("ratio", np.float32(10.5)),
        ("ratio", np.float32(-0.5)),
        ("ratio", np.float32("inf")),
        ("amount", np.float64("nan")),
        ("amount", np.float64(-1.0)),
        ("several", np.array([0, 3])),
    ],
)
def test_j09_the_native_environment_refuses_the_actions_that_a_single_one_refuses(acts: str, action: Any) -> None:
    parts = Parts()
    made: dict[str, ActionInterpreter[Any]] = {
        "categorical": CategoricalActionInterpreter(4),
        "ratio": TwapRelativeActionInterpreter(parts.simulator.engine),
        "amount": AmountActionInterpreter(),
        "several": Several(),
    }
    parts.act = made[acts]  # type: ignore[assignment]
    one = EnvWrapper(parts.simulator, parts.observe, parts.act, DataQueue(parts.orders, repeat=-1), parts.reward)
    one.reset()
    with pytest.raises(InterpreterError, match=type(parts.act).__name__):
        one.step(action)
    env = parts.native()
    count = len(env.reset().episode)
    fine = np.stack([np.asarray(parts.act.action_space.sample())] * count)
    wrong = fine.astype(np.asarray(action).dtype)
    wrong[2] = action
    with pytest.raises(InterpreterError, match=f"{type(parts.act).__name__}, row [02],"):
        env.step(wrong)
    _, active = env.step(fine)  # a refused step has changed nothing
    assert len(active.episode) <= count


class Several(ActionInterpreter[Any]):
    """Two choices an order, of which the first counts."""

    action_space = gym.spaces.MultiDiscrete([5, 3])  # type: ignore[assignment]

    def interpret(self, known: Any, action: np.ndarray) -> np.ndarray:
        return np.asarray(known.position * action[:, 0] / 4)


def test_m02_the_vector_environment_for_other_libraries_gives_the_same_orders_the_same_figures() -> None:
    """Every order once, by the native environment and by the endless one that replaces them slot by slot."""
    parts, seed = Parts(), 3
    count = len(parts.orders)
    env = GymVectorEnv(
        parts.simulator,
        parts.orders,
        state_interpreter=parts.observe,
        action_interpreter=parts.act,
        reward=parts.reward,
        num_envs=5,
        seed=seed,
    )
    obs, infos = env.reset()
    assert env.observation_space.contains(obs)
    order, found = infos["initial_state"].copy(), np.full(count, np.nan)
    total, running = np.zeros(count), np.zeros(5)
    while np.isnan(found).any():
        obs, reward, ended, truncated, infos = env.step(obs["cur_step"] % 4)
        assert env.observation_space.contains(obs)
        running += reward
        for slot in np.flatnonzero(ended):
            found[order[slot]], total[order[slot]], running[slot] = infos["metrics"]["pa"][slot], running[slot], 0.0
        if "initial_state" in infos:
            order = np.where(infos["_initial_state"], infos["initial_state"], order)
        assert not truncated.any()

    class Steps:
        def act(self, obs: Any, noise: Any = None) -> np.ndarray:
            return np.asarray(obs["cur_step"] % 4)

    expected = collect(parts.native(), Steps())
    np.testing.assert_array_equal(found, expected.metrics["pa"])
    np.testing.assert_array_equal(total, expected.returns)
