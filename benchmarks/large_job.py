"""Training on a large market, stage by stage. Run as ``python -m benchmarks.large_job train FOLDER OUT``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import peak_memory, run_job
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    OrderExecution,
    PAPenaltyReward,
    generate_orders,
    split_orders,
)
from rlwb.market import MarketFeatures, Sessions
from rlwb.policy import PPO, ActorCritic, Recurrent, make_network
from rlwb.trainer import Trainer, TrainingVessel
from rlwb.trainer.callbacks import Callback

_DECISIONS = 8
_CHOICES = 4


class Watch:
    """Seconds and peak memory of each stage.

    Mapped files count as resident while the machine has room for them, so the memory of the process's own (RssAnon)
    is watched beside; only Linux tells it, at the moment, hence the thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.own: dict[str, float] = {}
        self._peak = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def run(self, name: str, stage: Callable[[], Any]) -> Any:
        """Run a stage under a name."""
        self._peak, began = own_memory(), time.perf_counter()
        result = stage()
        self.seconds[name] = time.perf_counter() - began
        self.own[name] = max(self._peak, own_memory())
        print(f"{name}: {self.seconds[name]:.3g} s, {self.own[name]:,.0f} MB", flush=True)
        return result

    def _sample(self) -> None:
        while not self._end.wait(0.02):
            self._peak = max(self._peak, own_memory())


def own_memory() -> float:
    """Return the resident memory that is not mapped from files, in MB (1e6 bytes); NaN where it is not told."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("RssAnon")), float("nan"))


class _Seconds(Callback):
    """Keeps the seconds of every iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.seconds.append(trainer.metrics["seconds"])


def train(folder: Path) -> dict[str, Any]:
    """Open the market, make orders and features for its training part, and train as a run does."""
    job = json.loads((folder / "large.json").read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    bare = peak_memory()
    with Watch() as watch:
        figures = _stages(job, watch)
    return {**figures, "resident_after_imports_mb": bare}


def _stages(job: dict[str, Any], watch: Watch) -> dict[str, Any]:
    sessions = watch.run("open", lambda: Sessions.open(job["market"]))
    table = watch.run("orders", lambda: split_orders(generate_orders(sessions))["train"])
    days = table["date"].to_numpy().astype("datetime64[D]")
    features = watch.run("features", lambda: MarketFeatures.build(sessions, fit_rows=np.isin(sessions.dates, days)))
    simulator = OrderExecution(Engine(sessions, sessions.calendar.num_ticks // _DECISIONS))
    orders = watch.run("bind", lambda: simulator.align(table))
    channels = features.shape[2]
    net = make_network(lambda: ActorCritic(Recurrent(channels), _CHOICES + 1), seed=0)
    vessel = TrainingVessel(
        simulator=simulator,
        state_interpreter=FullHistoryStateInterpreter(features, simulator.engine.max_step),
        action_interpreter=CategoricalActionInterpreter(_CHOICES),
        policy=PPO(net),
        reward=PAPenaltyReward(),
        train_initial_states=orders,
        episode_per_iter=job["episodes"],
    )
    iterations = _Seconds()
    trainer = Trainer(max_iters=job["iterations"], callbacks=[iterations])
    watch.run("train", lambda: trainer.fit(vessel))
    rows = np.random.default_rng(0).choice(len(sessions), min(job["episodes"], len(sessions)), replace=False)
    watch.run("rows", lambda: features.rows(rows))
    return {
        "train_orders": len(orders),
        "episodes_an_iteration": job["episodes"],
        "transitions": int(trainer.metrics["transitions"]),
        **{f"{name}_seconds": seconds for name, seconds in watch.seconds.items()},
        "iteration_seconds": iterations.seconds,
        "seconds_an_iteration": float(np.median(iterations.seconds[1:] or iterations.seconds)),
        "peak_resident_mb": peak_memory(),
        "peak_own_mb": max(watch.own.values()),
        "peak_own_mb_by_stage": watch.own,
    }


if __name__ == "__main__":
    run_job({"train": train})
