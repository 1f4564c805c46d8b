"""The peer's training against the clock. Run as ``python -m benchmarks.peer.quality JOB FOLDER OUT``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Timer, run_job
from benchmarks.peer.data import keep_all_files, read_orders
from benchmarks.peer.worker import Parts

# isort: split
import torch
from qlib.rl.trainer import Trainer, TrainingVessel
from qlib.rl.trainer.callbacks import Callback
from tianshou.data import Collector

_WARM_UP = 8


class Clock(Callback):
    """Notes the time after each iteration, keeps the weights, and ends the fit before it outruns its budget.

    Parameters
    ----------
    folder
        Where the weights go.
    budget
        Seconds. An iteration begins when it will end within them if it takes as long as those before; the first always
        begins.
    parts
        Timers by the name of the part of an iteration that they add up.
    """

    def __init__(self, folder: Path, budget: float, parts: dict[str, Timer]) -> None:
        self.folder = folder
        self.budget = budget
        self.parts = parts
        self.points: list[dict[str, float]] = []
        self.began = time.perf_counter()

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.began = time.perf_counter()

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        passed, number = time.perf_counter() - self.began, trainer.current_iter
        so_far = {name: timer.seconds for name, timer in self.parts.items()}
        self.points.append({"iteration": number, "seconds": passed, **so_far})
        torch.save(vessel.policy.state_dict(), self.folder / f"peer-{number:04d}.pt")
        if passed * (number + 1) / number > self.budget:
            trainer.should_stop = True


def train(folder: Path) -> dict[str, Any]:
    """Train within the budget, then time one validation on some of the validation orders.

    No validation is run within the training: rlwb scores the weights of every iteration afterwards, on all orders.
    """
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    keep_all_files()
    parts = Parts(folder)
    policy = parts.policy()
    parts.fit(parts.policy(), _WARM_UP)
    timers = {"collect": Timer(), "update": Timer()}
    Collector.collect = timers["collect"].wrap(Collector.collect)
    policy.update = timers["update"].wrap(policy.update)
    clock = Clock(folder, asked["budget"], timers)
    vessel = parts.vessel(policy, parts.schedule.episodes)
    settings = {"finite_env_type": "dummy", "concurrency": parts.schedule.concurrency}
    Trainer(max_iters=asked["iterations"], callbacks=[clock], **settings).fit(vessel)

    valid = read_orders(folder, "valid")
    vessel.test_initial_states = [valid[row] for row in asked["validated"]]
    tester = Trainer(**settings)
    began = time.perf_counter()
    tester.test(vessel)
    validation = {
        "orders": len(vessel.test_initial_states),
        "of": len(valid),
        "seconds": time.perf_counter() - began,
        "pa": float(tester.metrics["pa"]),
    }
    return {"points": clock.points, "validation": validation}


if __name__ == "__main__":
    run_job({"train": train})
