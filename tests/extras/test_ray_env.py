"""Episodes in processes of a Ray cluster give what the native environment gives, to the last bit."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray

from rlwb.env import make_env, ray_actors
from rlwb.env.ray_actors import Actors, Connection
from rlwb.env.ray_env import RayVectorEnv
from rlwb.errors import ConfigError, WorkerError
from rlwb.execution import PAPenaltyReward
from rlwb.trainer import Episodes, Trainer, collect
from tests.env.test_workers import gone
from tests.execution.test_native_env import Drift, Shaky
from tests.trainer.small import assert_same_weights, small, small_ppo, small_vessel


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = Connection(2)
    yield
    connection.close()
    assert not ray.is_initialized()


def open_env(kind: str, simulator: Any, concurrency: int = 2) -> Any:
    market = small()
    parts = (simulator, market.observer, market.chooser, PAPenaltyReward(scale=0.1), market.orders)
    return make_env(*parts, finite_env_type=kind, concurrency=concurrency, aux_info_collector=Drift(), seed=5)


def gathered(env: Any) -> Episodes:
    return collect(env, small_ppo(), seed=(7,), keep=True)


@pytest.fixture(scope="module")
def env(cluster: None) -> Iterator[RayVectorEnv]:
    with open_env("ray", Shaky(small().simulator.engine)) as made:
        yield made


@pytest.fixture(scope="module")
def native() -> Episodes:
    return gathered(open_env("native", Shaky(small().simulator.engine)))


def assert_same(one: Episodes, other: Episodes) -> None:
    assert one.obs.keys() == other.obs.keys()
    arrays = {name: value for name, value in one.obs.items() if isinstance(value, np.ndarray)}
    assert len(arrays) >= len(one.obs) - 1
    for name, value in arrays.items():
        assert value.dtype == other.obs[name].dtype
        np.testing.assert_array_equal(value, other.obs[name], err_msg=name)
    for name in ("length", "returns", "action", "reward", "done"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for kind in ("metrics", "details"):
        mine, its = getattr(one, kind), getattr(other, kind)
        assert mine.keys() == its.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], its[name], err_msg=name)


def test_all_numbers_are_those_of_the_native_environment(env: RayVectorEnv, native: Episodes) -> None:
    assert_same(gathered(env), native)
    assert not np.array_equal(native.returns, gathered(open_env("native", small().simulator)).returns)  # by chance


@pytest.mark.parametrize("orders", [1, 7])
def test_one_environment_serves_many_collects(env: RayVectorEnv, orders: int) -> None:
    few, alone = small().orders[:orders], open_env("native", Shaky(small().simulator.engine))
    before = env.initial_states
    for one in (env, alone):
        one.initial_states, one.seed, one.first_episode = few, 6, 3
    assert_same(gathered(env), gathered(alone))
    env.initial_states, env.seed, env.first_episode = before, 5, 0


def test_a_killed_worker_is_made_again_and_changes_no_number(
    env: RayVectorEnv, native: Episodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = env.step, itertools.count()

    def dying(action: Any) -> Any:
        if next(count) == 2:
            os.kill(env.actors.processes()[1], signal.SIGKILL)
        return step(action)

    monkeypatch.setattr(env, "step", dying)
    assert_same(gathered(env), native)
    assert next(count) > 3


def test_a_training_gives_the_weights_of_the_native_environment() -> None:
    trained = []
    for kind in ("native", "ray"):
        vessel = small_vessel()
        trainer = Trainer(max_iters=2, val_every_n_iters=1, finite_env_type=kind, concurrency=2)
        trainer.fit(vessel)
        trained.append((vessel.policy, {k: v for k, v in trainer.metrics.items() if k != "seconds"}))
    assert trained[0][1] == trained[1][1]
    assert_same_weights(trained[0][0], trained[1][0])


class Breaks(Shaky):
    def step(self, state: Any, action: np.ndarray) -> Any:
        raise ValueError("the bar is missing")


def test_what_a_simulator_raises_in_a_worker_is_told_with_its_place() -> None:
    with pytest.raises(WorkerError, match=r"ValueError in step of worker 0: the bar is missing(.|\n)*in step"):
        gathered(open_env("ray", Breaks(small().simulator.engine), 1))


class Dies:
    def work(self) -> None:
        os._exit(1)

    def refuse(self) -> None:
        raise ConfigError("no.")


def test_a_call_that_always_kills_its_process_is_given_up_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "ATTEMPTS", 2)
    with Actors(Dies, 1) as actors:
        with pytest.raises(WorkerError, match="died in work"):
            actors.submit("work").result()
        with pytest.raises(ConfigError, match=r"^no\.$"):
            actors.submit("refuse").result()
        (process,) = actors.processes()
    assert gone([process], seconds=30)


def test_a_cluster_that_another_still_uses_is_left_alone() -> None:
    Connection().close()
    assert ray.is_initialized()


def test_a_part_of_the_orders_travels_without_the_rest() -> None:
    whole = small().orders
    part = whole[np.array([3, 1, 3])]
    sent = pickle.dumps(part)
    assert len(sent) < len(pickle.dumps(whole)) / 3
    came = pickle.loads(sent)
    assert came.fingerprint == part.fingerprint
    assert [str(one) for one in came] == [str(one) for one in part]
    assert len(came.source["order_id"]) == 2
