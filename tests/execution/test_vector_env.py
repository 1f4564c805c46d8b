"""The batched environment, the gymnasium environment and the workers give the same, to the last bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlwb.env import DataQueue, EnvWrapper, LogBuffer, vectorize_env
from rlwb.execution import (
    BatchedOrderExecution,
    CategoricalActionInterpreter,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderExecutionFactory,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.market import MarketFeatures, SyntheticSettings, synthetic_sessions
from rlwb.trainer import collect


class Parts:
    """A small market with everything that an environment needs."""

    def __init__(self, rules: ExecutionRules | None = None) -> None:
        sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=4))
        self.factory = OrderExecutionFactory(sessions, 6, rules)
        self.features = MarketFeatures.build(sessions, fit_rows=np.arange(4))
        self.orders = self.factory.bind(generate_orders(sessions))
        self.observe = FullHistoryStateInterpreter(self.features, self.factory.engine.max_step)
        self.act = CategoricalActionInterpreter(4)
        self.reward = PAPenaltyReward()

    def native(self, **options: object) -> BatchedOrderExecution:
        env: BatchedOrderExecution = self.factory.vectorize(
            self.orders,
            state_interpreter=self.observe,
            action_interpreter=self.act,
            reward=self.reward,
            **options,
        )
        return env


class ByNumber:
    """Chooses by the observation's numbers alone, so that equal observations give equal actions."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def act(self, obs: dict[str, np.ndarray], noise: np.ndarray | None = None) -> np.ndarray:
        code = obs["data_processed"].sum(axis=(1, 2)) * 1e3 + obs["position"] + obs["cur_step"]
        return np.floor(code).astype(np.int64) % 5


@pytest.mark.parametrize("kind", ["dummy", "subproc", "shmem"])
def test_every_environment_type_gives_the_same_bits(kind: str) -> None:
    parts = Parts(ExecutionRules(volume_limit=0.2))
    native = collect(parts.native(by_reference=False), ByNumber(), keep=True)

    def env_fn() -> EnvWrapper:
        return EnvWrapper(parts.factory, parts.observe, parts.act, reward_fn=parts.reward)

    with vectorize_env(env_fn, parts.orders, finite_env_type=kind, concurrency=2) as env:  # type: ignore[arg-type]
        other = collect(env, ByNumber(), keep=True)
    assert other.count == native.count == len(parts.orders)
    for name, value in native.obs.items():
        assert value.dtype == other.obs[name].dtype
        np.testing.assert_array_equal(value, other.obs[name], err_msg=name)
    for name in ("action", "reward", "done", "length", "returns"):
        np.testing.assert_array_equal(getattr(native, name), getattr(other, name), err_msg=name)
    assert set(native.metrics) == set(other.metrics)
    for name, value in native.metrics.items():
        np.testing.assert_array_equal(value, other.metrics[name], err_msg=name)


def test_h03_the_environment_follows_the_standard() -> None:
    parts = Parts()
    env = EnvWrapper(
        parts.factory,
        parts.observe,
        CategoricalActionInterpreter([0.0, 0.125]),
        seed_iterator=DataQueue(parts.orders, repeat=-1, shuffle=False),
        reward_fn=parts.reward,
    )
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
    np.testing.assert_array_equal(obs["session"], parts.orders.session)


def test_loggers_hear_of_every_episode_once() -> None:
    parts = Parts()
    heard: list[dict[str, float]] = []

    def listen(on_episode: bool, on_collect: bool, buffer: LogBuffer) -> None:
        if on_episode:
            heard.append(buffer.episode_metrics())

    episodes = collect(parts.native(loggers=[LogBuffer(listen)]), ByBlock())
    assert len(heard) == len(parts.orders)
    assert sorted(one["pa"] for one in heard) == sorted(episodes.metrics["pa"].tolist())
    assert sorted(one["reward"] for one in heard) == pytest.approx(sorted(episodes.returns.tolist()))


class ByBlock:
    """Trades a quarter a step."""

    def act(self, obs: dict[str, np.ndarray], noise: np.ndarray | None = None) -> np.ndarray:
        return np.ones(len(obs["position"]), dtype=np.int64)


def test_inventory_keeps_its_last_value() -> None:
    parts = Parts()
    env = parts.native()
    collect(env, ByBlock())
    expected = np.array([1, 0.75, 0.5, 0.25, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(env.inventory(), np.tile(expected, (len(parts.orders), 1)), atol=1e-12)


def test_results_have_one_row_an_order_in_their_sequence() -> None:
    parts = Parts()
    env = parts.native()
    episodes = collect(env, ByBlock())
    table = env.results()
    assert table["order_id"].tolist() == parts.orders.table["order_id"].tolist()
    np.testing.assert_array_equal(table["reward"], episodes.returns)
