"""CartPole by rlwb and by tianshou's own trainer, and the speed of environments: ``python -m benchmarks.cartpole``.

Rows of ``results/cartpole.json`` are ``{who, algorithm, seed, seconds, cpu_seconds, transitions, mean_return}``: until
a validation of 20 greedy episodes has a mean return of 475, and the mean return of 100 fresh episodes then. Both sides
validate after every iteration of 16 episodes (rlwb's DQN after every fifth of 8). tianshou's trainer gets the algorithm
object that rlwb's bridge trains, with the same networks, weights and settings, on 16 environments.

``speeds`` has ``{what, environments, per_second}``, by the processor's clock: transitions of CartPole that are
collected for an update, and steps of order execution with the full history observed, by the single environment, by the
vector environment for other libraries, and by the native one, which starts every order at once and none anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import rlwb
from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.env import DataQueue, EnvWrapper, FiniteVectorEnv, GymVectorEnv, NativeVectorEnv, vectorize_env
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    OrderExecution,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.files import write_json
from rlwb.interop.gym_training import DEFAULTS
from rlwb.learner import Actor
from rlwb.market import MarketFeatures, SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, make_network
from rlwb.policy.space_network import SpaceNetwork
from rlwb.policy.tianshou import TianshouLearner, TianshouSettings
from rlwb.trainer import History, collect

_OUT = RESULTS.with_name("cartpole.json")
ENV, ENOUGH, SLOTS, TESTED = "CartPole-v1", 475.0, 16, 100
_PPO = DEFAULTS["ppo"]
#: PPO's settings by tianshou's names.
_SAME = {
    "learning_rate": _PPO["learning_rate"],
    "batch_size": _PPO["batch_size"],
    "repeat": _PPO["repeat"],
    "gamma": _PPO["gamma"],
    "gae_lambda": _PPO["gae_lambda"],
    "ent_coef": _PPO["entropy_coef"],
    "max_grad_norm": _PPO["max_grad_norm"],
    "return_scaling": True,
}


class _Clock:
    """Seconds by the wall and of the processor since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def passed(self) -> dict[str, float]:
        wall, cpu = self._began
        return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def ours(algorithm: str, *, seed: int, **settings: Any) -> dict[str, Any]:
    """Train by rlwb's trainer."""
    history, clock = History(), _Clock()
    given = {"callbacks": [history], "concurrency": SLOTS, "progress": "none", **settings}
    trainer = rlwb.train_gym(ENV, algorithm, seed=seed, **given)
    passed = clock.passed()
    assert trainer.vessel is not None
    test = trainer.test(trainer.vessel)
    made = int(sum(row["transitions"] for row in history.train))
    return {**passed, "transitions": made, "mean_return": float(test.returns.mean())}


def theirs(seed: int) -> dict[str, Any]:
    """Train by tianshou's trainer, with its collectors and its buffer."""
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainer, OnPolicyTrainerParams

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - tianshou draws from it
    algorithm = _learner(seed).algorithm
    make = partial(gym.make, ENV, disable_env_checker=True)
    envs, tests = DummyVectorEnv([make] * SLOTS), DummyVectorEnv([make] * 20)
    envs.seed(seed)
    tests.seed(10_000 + seed)
    collector = Collector[CollectStats](algorithm, envs, VectorReplayBuffer(SLOTS * 4096, SLOTS))
    tested = Collector[CollectStats](algorithm, tests)
    parameters = OnPolicyTrainerParams(
        max_epochs=200,
        epoch_num_steps=1,  # an epoch is one collect, its update and its test
        training_collector=collector,
        test_collector=tested,
        collection_step_num_env_steps=None,
        collection_step_num_episodes=SLOTS,
        test_step_num_episodes=20,
        batch_size=_PPO["batch_size"],
        update_step_num_repetitions=_PPO["repeat"],
        stop_fn=lambda score: score >= ENOUGH,
        verbose=False,
        show_progress=False,
    )
    clock = _Clock()
    info = OnPolicyTrainer(algorithm, parameters).run()
    passed = clock.passed()
    last = Collector[CollectStats](algorithm, tests)
    last.reset()
    returns = last.collect(n_episode=TESTED).returns
    return {**passed, "transitions": int(info.train_step), "mean_return": float(np.mean(returns))}


def _learner(seed: int) -> TianshouLearner:
    """Return tianshou's PPO as rlwb's bridge makes it, with the settings of rlwb's own."""
    fields = ("learning_rate", "batch_size", "repeat")
    options = {name: value for name, value in _SAME.items() if name not in fields}
    settings = TianshouSettings(algorithm="PPO", options=options, **{name: _SAME[name] for name in fields})
    env = gym.make(ENV)
    trunk = partial(SpaceNetwork, env.observation_space)
    return TianshouLearner(lambda number: make_network(trunk, number), env.action_space, settings, seed=seed)


def rows(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a row a training."""
    runs: tuple[tuple[str, str, Callable[..., dict[str, Any]]], ...] = (
        ("rlwb", "ppo", partial(ours, "ppo", validate_every=1)),
        ("rlwb", "tianshou's PPO", partial(ours, "PPO", validate_every=1, **_SAME)),
        ("tianshou", "tianshou's PPO", theirs),
        ("rlwb", "dqn", partial(ours, "dqn")),
    )
    for seed in range(seeds):
        for who, algorithm, run in runs:
            yield {"who": who, "algorithm": algorithm, "seed": seed, **run(seed=seed)}


def speeds(least: float) -> Iterator[dict[str, Any]]:
    """Yield a row a speed, each measured for `least` seconds."""
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv

    make = partial(gym.make, ENV, disable_env_checker=True)
    learner = _learner(0)
    network = make_network(lambda: ActorCritic(SpaceNetwork(make().observation_space), 2), 0)
    policies: dict[str, Actor] = {"its PPO": PPO(network), "tianshou's PPO": learner}
    for name, policy in policies.items():
        with vectorize_env(make, range(SLOTS * 4), concurrency=SLOTS) as env:
            rate = _rate(partial(_collect, env, policy), least)
        yield {"what": f"collect of rlwb, {name}", "environments": SLOTS, "per_second": rate}
    collector = Collector[CollectStats](
        learner.algorithm, DummyVectorEnv([make] * SLOTS), VectorReplayBuffer(SLOTS * 4096, SLOTS)
    )
    collector.reset()
    rate = _rate(lambda: int(collector.collect(n_episode=SLOTS * 4).n_collected_steps), least)
    yield {"what": "collect of tianshou, its PPO", "environments": SLOTS, "per_second": rate}
    yield from _execution(least)


def _collect(env: FiniteVectorEnv, policy: Actor) -> int:
    return len(collect(env, policy, seed=(0,), keep=True).reward)


def _execution(least: float) -> Iterator[dict[str, Any]]:
    sessions = synthetic_sessions(SyntheticSettings(instruments=20, days=60))
    engine = Engine(sessions, sessions.calendar.num_ticks // 8)
    simulator, rng = OrderExecution(engine), np.random.default_rng(0)
    orders = simulator.align(generate_orders(sessions))
    parts: dict[str, Any] = {
        "state_interpreter": FullHistoryStateInterpreter(
            MarketFeatures.build(sessions, fit_rows=np.arange(600)), engine.max_step
        ),
        "action_interpreter": CategoricalActionInterpreter(4),
        "reward": PAPenaltyReward(),
    }
    single = EnvWrapper(simulator, seed_iterator=DataQueue(orders, repeat=-1), **parts)

    def episodes() -> int:
        steps = 0
        for _ in range(20):
            single.reset()
            done = False
            while not done:
                _, _, done, _, _ = single.step(int(rng.integers(5)))
                steps += 1
        return steps

    yield {"what": "single environment", "environments": 1, "per_second": _rate(episodes, least)}
    for count in (64, 512, 2048):
        env = GymVectorEnv(simulator, orders, num_envs=count, **parts)
        env.reset(seed=0)

        def step(env: GymVectorEnv = env, count: int = count) -> int:
            env.step(rng.integers(5, size=count))
            return count

        yield {"what": "vector environment", "environments": count, "per_second": _rate(step, least)}
    native = NativeVectorEnv(simulator, orders, by_reference=False, **parts)

    def whole() -> int:
        steps, active = 0, native.reset()
        while len(active):
            steps += len(active)
            _, active = native.step(rng.integers(5, size=len(active)))
        return steps

    yield {"what": "native, every order at once", "environments": len(orders), "per_second": _rate(whole, least)}


def _rate(work: Callable[[], int], least: float) -> float:
    """Return how many a second `work` does, which returns how many it has done; the first call is not counted."""
    work()
    done, began = 0, time.process_time()
    while (passed := time.process_time() - began) < least:
        done += work()
    return done / passed


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each speed")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, measured in {"speeds": speeds(asked.seconds), "rows": rows(asked.seeds)}.items():
        found[name] = []
        for row in measured:
            print(row, flush=True)
            found[name].append(row)
    write_json(_OUT, {**context(), **found})


if __name__ == "__main__":
    main()
