"""rlwb's training against the clock. Run as ``python -m benchmarks.quality_job JOB FOLDER OUT``."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import run_job
from benchmarks.network import load_peer_weights
from benchmarks.parts import Parts
from benchmarks.schedule import Schedule
from rlwb.execution import OrderBatch
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.trainer import Callback, Trainer, TrainingVessel, backtest


class Clock(Callback):
    """Notes time and validation PA after each iteration; ends the fit at a target, or when the time is over.

    Parameters
    ----------
    target
        Validation PA in basis points at which the fit ends; NaN never ends it.
    budget
        Seconds after which it ends.
    """

    def __init__(self, target: float = math.nan, budget: float = math.inf) -> None:
        self.target = target
        self.budget = budget
        self.points: list[dict[str, float]] = []
        self.began = time.perf_counter()

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        passed, pa = time.perf_counter() - self.began, trainer.metrics["val/pa"]
        self.points.append({"iteration": trainer.current_iter, "seconds": passed, "pa": pa})
        trainer.should_stop |= pa >= self.target or passed > self.budget


def run_config(schedule: Schedule, asked: dict[str, Any]) -> RunConfig:
    """Return the configuration of ``rlwb run`` on the schedule's market, with the changes that were asked for."""
    market = {"instruments": schedule.instruments, "days": schedule.days}
    changes = [f"market.{name}={value}" for name, value in market.items()]
    return RunConfig.load(None, parse_assignments([*changes, f"threads={schedule.threads}", *asked["changes"]]))


def default(folder: Path) -> dict[str, Any]:
    """Train as the training stage of ``rlwb run`` does, with the seed that was asked for; all iterations.

    The clock begins where the stage begins, before the market is made, and goes through checkpoints and metrics. The
    orders are those of seed 0 whatever the seed, so that all trainings are judged on the same.
    """
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    config = run_config(Schedule.read(folder), asked)
    run = RunDirectory.create(folder / f"run-{asked['seed']}", config)
    make_orders(run, config)
    clock = Clock()
    train_policy(run, config.model_copy(update={"seed": asked["seed"]}), [clock], progress="none")
    return {"points": clock.points}


def same(folder: Path) -> dict[str, Any]:
    """Train the peer's network by the schedule in the folder, from the peer's initial weights, up to the target."""
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    parts = Parts(folder)
    vessel = parts.vessel(parts.policy(), parts.schedule.episodes)
    clock = Clock(asked["target"], asked["budget"])
    Trainer(max_iters=asked["iterations"], val_every_n_iters=1, callbacks=[clock]).fit(vessel)
    return {"points": clock.points}


def score(folder: Path) -> dict[str, Any]:
    """Return the PA of the peer's weights after each iteration, on all validation orders.

    Also that of the last on the orders that the peer has validated itself, which must agree with the peer's own.
    """
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    parts = Parts(folder)
    assert parts.valid is not None, "the schedule of these folders splits the orders"
    policy = parts.policy()

    def pa(orders: OrderBatch) -> float:
        acts = (parts.action_interpreter, policy)
        episodes = backtest(parts.simulator, parts.state_interpreter, orders, *acts, reward=parts.reward)
        return episodes.means()["pa"]

    found = []
    for path in sorted(folder.glob("peer-[0-9]*.pt")):
        load_peer_weights(policy.network, torch.load(path, weights_only=True))
        found.append(pa(parts.valid))
    return {"pa": found, "again": pa(parts.valid[np.array(asked["validated"])])}


if __name__ == "__main__":
    run_job({job.__name__: job for job in (default, same, score)})
