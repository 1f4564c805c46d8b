"""One point of the scale measurements. Run as ``python -m benchmarks.scale_job JOB FOLDER OUT``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.measure import peak_memory, run_job
from rlwb.env import NativeVectorEnv
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    OrderSettings,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.market import MarketFeatures
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, PPOSettings, Recurrent, make_network
from rlwb.trainer import Episodes, TrainingVessel, collect

#: Decisions a day, the same for all lengths of a day.
_STEPS = 6
_BATCH = 1000
#: Session and bar length that make a day of so many ticks.
DAYS: dict[int, tuple[Literal["us", "cn"], int]] = {48: ("cn", 5), 78: ("us", 5), 240: ("cn", 1), 390: ("us", 1)}


class _Point:
    """Orders of a market of fixed size, as many as the point asks for."""

    def __init__(self, folder: Path, warm_up: bool = False, batch_size: int = _BATCH) -> None:
        point = json.loads((folder / "point.json").read_text(encoding="utf-8"))
        torch.set_num_threads(1)
        ticks, count = point["ticks"], _BATCH if warm_up else point["orders"]
        session, minutes = DAYS[ticks]
        sessions = synthetic_sessions(SyntheticSettings(instruments=20, days=50, session=session, tick_minutes=minutes))
        rules = ExecutionRules(volume_limit=0.25)
        self.simulator = OrderExecution(Engine(sessions, ticks // _STEPS, rules))
        bound = self.simulator.align(generate_orders(sessions, OrderSettings()))
        rows = np.random.default_rng(0).permutation(np.arange(count) % len(bound))
        self.orders: OrderBatch = bound[rows]
        self.features = MarketFeatures.build(sessions, fit_rows=np.arange(len(sessions)))
        self.actions = CategoricalActionInterpreter(4)
        channels = self.features.shape[2]
        settings = PPOSettings(batch_size=batch_size, repeat=1)
        self.policy = PPO(make_network(lambda: ActorCritic(Recurrent(channels), 5), seed=0), settings)

    def gather(self) -> Episodes:
        parts = {
            "state_interpreter": FullHistoryStateInterpreter(self.features, self.simulator.engine.max_step),
            "action_interpreter": self.actions,
            "reward": PAPenaltyReward(),
        }
        with NativeVectorEnv(self.simulator, self.orders, **parts) as env:
            return collect(env, self.policy, seed=(0, 1), keep=True)


def _timed(function: Callable[[], float], bare: float) -> dict[str, float]:
    began = time.perf_counter()
    work = function()
    return {"seconds": time.perf_counter() - began, "work": work, "memory": peak_memory() - bare}


def engine(folder: Path) -> dict[str, float]:
    """Execute all orders evenly."""

    def run(point: _Point) -> float:
        even = CategoricalActionInterpreter(_STEPS)
        parts = {"state_interpreter": KnownStateInterpreter(), "action_interpreter": even, "reward": PAPenaltyReward()}
        taken = 0
        with NativeVectorEnv(point.simulator, point.orders, **parts) as env:
            active = env.reset()
            while len(active.episode):
                taken += len(active.episode)
                _, active = env.step(np.ones(len(active.episode), dtype=np.int64))
        return taken

    run(_Point(folder, warm_up=True))
    point = _Point(folder)
    bare = peak_memory()
    return _timed(lambda: run(point), bare)


def collecting(folder: Path) -> dict[str, float]:
    """Collect one exploring episode an order."""
    _Point(folder, warm_up=True).gather()
    point = _Point(folder)
    bare = peak_memory()
    return _timed(lambda: float(len(point.gather().reward)), bare)


def update(folder: Path) -> dict[str, float]:
    """Pass once over the transitions of all orders."""
    small, point = _Point(folder, warm_up=True), _Point(folder)

    def run(point: _Point, episodes: Episodes) -> float:
        data = (episodes.obs, episodes.action, episodes.reward, episodes.done)
        point.policy.learn(*data)
        return float(len(episodes.reward))

    run(small, small.gather())
    episodes = point.gather()
    bare = peak_memory()
    return _timed(lambda: run(point, episodes), bare)


def iterations(folder: Path) -> dict[str, float]:
    """Train many short iterations; return the memory after each tenth of them."""
    point = _Point(folder, batch_size=100)
    vessel = TrainingVessel(
        simulator=point.simulator,
        state_interpreter=FullHistoryStateInterpreter(point.features, point.simulator.engine.max_step),
        action_interpreter=point.actions,
        policy=point.policy,
        reward=PAPenaltyReward(),
        train_initial_states=point.orders,
        episode_per_iter=min(50, len(point.orders)),
    )
    found = {}
    for number in range(1, 201):
        with vessel.make_env(vessel.train_seed_iterator()) as env:
            vessel.train(env, number)
        if number % 20 == 0:
            found[str(number)] = peak_memory()
    return found


if __name__ == "__main__":
    run_job({"engine": engine, "collect": collecting, "update": update, "iterations": iterations})
