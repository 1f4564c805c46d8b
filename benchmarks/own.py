"""rlwb against its own slow paths and against the machine. Run as ``python -m benchmarks.own JOB FOLDER OUT``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import scale_job
from benchmarks.measure import peak_memory, run_job, seconds
from benchmarks.parts import Parts
from benchmarks.roofline import measure_update
from benchmarks.schedule import Schedule
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from tests.execution.specification import SpecifiedOrder, Tick

#: Orders that the slow loop executes.
_FEW = 50
#: Instruments of the backtest at size, each with a buy and a sell a day, and its checkpoints.
_INSTRUMENTS, _CHECKPOINTS = 20, 10
#: Episodes that run before the memory of a collect is taken.
_WARM_UP = 8


def specification(folder: Path) -> dict[str, float]:
    """Execute the same orders by the engine and by the slow loop that specifies it."""
    parts = Parts(folder)
    engine, schedule = parts.simulator.engine, parts.schedule
    few = parts.orders[np.arange(_FEW)]
    cells = engine.cell.tolist()

    def slow() -> int:
        steps = 0
        for i in range(_FEW):
            row = int(few.session[i])
            ticks = [Tick(p, v) for p, v in zip(engine.price[row].tolist(), engine.volume[row].tolist(), strict=True)]
            order = SpecifiedOrder(
                ticks, cells, int(few.side[i]), float(few.amount[i]), int(few.start[i]), int(few.end[i]), engine.rules
            )
            while not order.done:
                order.step(min(order.amount / schedule.max_step, order.position))
                steps += 1
        return steps

    return {"specification": slow() / seconds(slow)}


def blocks(folder: Path) -> dict[str, float]:
    """Update from observations that carry their blocks, a pass over the day for every decision."""
    parts = Parts(folder)
    policy, schedule = parts.policy(), parts.schedule
    episodes = parts.gather(policy, parts.orders[np.arange(min(schedule.episodes, len(parts.orders)))])
    obs = dict(episodes.obs)
    session = obs.pop("session")
    del obs["features"]
    obs["data_processed"] = parts.features.block(session, obs["cur_tick"])
    obs["data_processed_prev"] = parts.features.block_previous(session)

    def update() -> None:
        policy.learn(obs, episodes.action, episodes.reward, episodes.done)

    return {"blocks": len(episodes.reward) * schedule.repeat / seconds(update)}


def roofline(folder: Path) -> dict[str, float]:
    """Compare the update with the matrix products in it."""
    parts = Parts(folder)
    count = min(parts.schedule.episodes, len(parts.orders))
    found = measure_update(parts, parts.gather(parts.policy(), parts.orders[np.arange(count)]))
    return {"roofline": found.share, "gflops": found.speed / 1e9}


def judge(folder: Path) -> dict[str, float]:
    """Run the backtest stage of a run on so many test orders of a market with the schedule's ticks.

    Timed is the whole stage, from making the market: beside the ten checkpoints on the test orders it scores these on
    the validation orders, runs the last one and the baselines, and does the statistics.
    """
    schedule = Schedule.read(folder)
    test = -(-schedule.judged // (2 * _INSTRUMENTS))
    few = max(test // 25, 2)
    changes = {
        "market.instruments": _INSTRUMENTS,
        "market.days": test + 2 * few,
        "market.tick_minutes": 240 // schedule.ticks,
        "execution.ticks_per_step": schedule.ticks_per_step,
        "split.train": few / (test + 2 * few),
        "split.valid": few / (test + 2 * few),
        "split.test": test / (test + 2 * few),
        "train.iterations": _CHECKPOINTS,
        "reward.penalty": schedule.penalty,
        "backtest.top": _CHECKPOINTS,
        "threads": schedule.threads,
    }
    config = RunConfig.load(None, parse_assignments([f"{name}={value}" for name, value in changes.items()]))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        run = RunDirectory.create(Path(place) / "run", config)
        make_orders(run, config)
        train_policy(run, config, progress="none")
        began = time.perf_counter()
        backtest_policies(run, config)
        passed = time.perf_counter() - began
        orders = len(pd.read_parquet(run.orders / "test.parquet"))
    return {"seconds": passed, "orders": orders, "orders/s": orders * _CHECKPOINTS / passed}


def gather(folder: Path) -> dict[str, float]:
    """Collect many episodes at once; the memory that this adds."""
    parts = Parts(folder)
    policy = parts.policy()
    parts.gather(policy, parts.tiled(_WARM_UP))
    orders = parts.tiled(parts.schedule.gathered)
    before = peak_memory()
    parts.gather(policy, orders)
    return {"memory added": peak_memory() - before}


def iterations(folder: Path) -> dict[str, float]:
    """Train 200 short iterations; the peak memory after each twenty of them."""
    (folder / "point.json").write_text(json.dumps({"orders": 1000, "ticks": 48}), encoding="utf-8")
    return scale_job.iterations(folder)


def main_job(folder: Path) -> dict[str, float]:
    """Run the README's main job in a process of its own, from the command to the end of it."""
    asked = Schedule.read(folder).iterations
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", "rlwb.cli", "run", "--run-dir", str(Path(place) / "run")]
        command += [] if asked is None else ["--set", f"train.iterations={asked}"]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        return {"seconds": time.perf_counter() - began}


if __name__ == "__main__":
    jobs = (specification, blocks, roofline, judge, gather, iterations, main_job)
    run_job({job.__name__: job for job in jobs})
