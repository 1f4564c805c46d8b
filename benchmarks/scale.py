"""How time and memory grow with orders and with ticks; writes ``results/scale.json``, ``.png`` and ``.svg``."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.measure import context, peak_memory, run_job
from benchmarks.table import RESULTS
from rlwb.env import NativeVectorEnv
from rlwb.evaluation import style
from rlwb.evaluation.plots import save_figure
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
from rlwb.files import write_json
from rlwb.market import MarketFeatures
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, PPOSettings, Recurrent, make_network
from rlwb.trainer import Episodes, TrainingVessel, collect

#: Job to its title.
_TITLES = {
    "engine": "engine, an even schedule",
    "collect": "collect, recurrent policy",
    "update": "PPO update, one pass",
}
#: Decisions a day, the same for all lengths of a day.
_STEPS = 6
_BATCH = 1000
#: Session and bar length that make a day of so many ticks.
DAYS: dict[int, tuple[Literal["us", "cn"], int]] = {48: ("cn", 5), 78: ("us", 5), 240: ("cn", 1), 390: ("us", 1)}


class _Point:
    """Orders of a market of fixed size, as many as the point asks for."""

    def __init__(self, ticks: int, count: int = _BATCH, batch_size: int = _BATCH) -> None:
        torch.set_num_threads(1)
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


def _timed(function: Callable[[], float]) -> dict[str, float]:
    bare, began = peak_memory(), time.perf_counter()
    work = function()
    return {"seconds": time.perf_counter() - began, "work": work, "memory": peak_memory() - bare}


def engine(folder: Path, orders: int, ticks: int) -> dict[str, float]:
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

    run(_Point(ticks))
    point = _Point(ticks, orders)
    return _timed(lambda: run(point))


def collecting(folder: Path, orders: int, ticks: int) -> dict[str, float]:
    """Collect one exploring episode an order."""
    _Point(ticks).gather()
    point = _Point(ticks, orders)
    return _timed(lambda: float(len(point.gather().reward)))


def update(folder: Path, orders: int, ticks: int) -> dict[str, float]:
    """Pass once over the transitions of all orders."""
    small, point = _Point(ticks), _Point(ticks, orders)

    def run(point: _Point, episodes: Episodes) -> float:
        point.policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)
        return float(len(episodes.reward))

    run(small, small.gather())
    episodes = point.gather()
    return _timed(lambda: run(point, episodes))


def iterations(folder: Path, orders: int, ticks: int) -> dict[str, float]:
    """Train many short iterations; return the peak memory in MB after each tenth of them."""
    point = _Point(ticks, orders, batch_size=100)
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


JOBS = {"engine": engine, "collect": collecting, "update": update, "iterations": iterations}


def measure(jobs: Iterable[str], orders: Sequence[int], ticks: Sequence[int], budget: float) -> list[dict[str, Any]]:
    """Measure all points; a line of points ends where the next would take longer than `budget` seconds."""
    points = []
    with tempfile.TemporaryDirectory(prefix="rlwb-scale-") as folder:
        for job in jobs:
            for day in ticks:
                for count in orders:
                    found = run_job("scale", job, Path(folder), orders=count, ticks=day)
                    points.append({"job": job, "ticks": day, "orders": count, **found})
                    print(f"{job}, {day} ticks, {count:,} orders: {found['seconds']:.3g} s", flush=True)
                    if found["seconds"] * 10 > budget and count != orders[-1]:
                        print(f"{job}, {day} ticks: more orders would take over {budget:g} s, left out", flush=True)
                        break
    return points


def measure_iterations() -> dict[str, float]:
    """Return the peak memory in MB after so many short training iterations."""
    with tempfile.TemporaryDirectory(prefix="rlwb-scale-") as folder:
        return run_job("scale", "iterations", Path(folder), orders=1000, ticks=48)


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw time and memory against orders, to `path` with the endings .png and .svg."""
    with style.theme("light", width=1200):
        save(_drawn(results), path)


@style.styled
def _drawn(results: dict[str, Any]) -> Figure:
    engine = [point for point in results["points"] if point["job"] == "engine"]
    most = max(engine or results["points"], key=lambda one: (one["orders"], one["ticks"]))
    needed = f"{most['seconds']:.1f} s, {most['memory']:,.0f} MB more"
    title = f"{_TITLES[most['job']]}: {most['orders']:,} orders of {most['ticks']} ticks in {needed}"
    figure, axes = style.canvas(title, results["machine"], rows=2, columns=len(_TITLES), height=5.5)
    for column, (job, name) in enumerate(_TITLES.items()):
        above, below = axes[column], axes[column + len(_TITLES)]
        points = [point for point in results["points"] if point["job"] == job]
        lengths = sorted({point["ticks"] for point in points})
        for ticks, (color, marker) in zip(lengths, style.points(len(lengths)), strict=True):
            line = [point for point in points if point["ticks"] == ticks]
            counts, look = [point["orders"] for point in line], {"color": color, "marker": marker, "markersize": 4}
            above.loglog(counts, [point["seconds"] for point in line], label=f"{ticks} ticks", **look)
            below.loglog(counts, [max(point["memory"], 0.1) for point in line], **look)
        above.set_title(name, fontsize=9, fontweight="normal")
        below.set_xlabel("orders, count")
        for axis in (above.yaxis, below.yaxis, below.xaxis):
            style.plain_log(axis)
    axes[0].set_ylabel("time, s")
    axes[len(_TITLES)].set_ylabel("memory added, MB")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure beside `path` with the endings .png and .svg."""
    save_figure(figure, path.with_suffix(""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, nargs="+", default=[10**power for power in range(2, 7)])
    parser.add_argument("--ticks", type=int, nargs="+", default=[48, 240, 390], help="48, 78, 240 or 390")
    parser.add_argument("--jobs", nargs="+", choices=_TITLES, default=list(_TITLES))
    parser.add_argument("--budget", type=float, default=600, help="seconds that a point may take")
    parser.add_argument("--out", type=Path, default=RESULTS.with_name("scale.json"))
    args = parser.parse_args()
    results: dict[str, Any] = {
        **context(", 1 thread"),
        "points": measure(args.jobs, sorted(args.orders), args.ticks, args.budget),
        "memory_over_iterations": measure_iterations(),
    }
    write_json(args.out, results)
    plot(results, args.out)
    print(f"peak memory in MB after iterations: {results['memory_over_iterations']}")


if __name__ == "__main__":
    main()
