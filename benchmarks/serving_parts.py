"""What the measurements of the service share: a small run, its bundle, and a day of bars and orders to serve."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.market import Sessions
from rlwb.serving.export import export_run

#: A recurrent network as the plain handlers have it, trained too little to be any good: that costs a service nothing.
SMALL = {
    "network": "recurrent",
    "head": {"mask_actions": False, "even_start": False},
    "market.instruments": 20,
    "market.days": 15,
    "train.iterations": 3,
    "train.episodes_per_iteration": 100,
    "backtest.top": 2,
    "backtest.bootstrap_samples": 200,
}
#: As small as it goes, for schedules of faults: days of 16 ticks, in 8 steps.
TINY = {
    **SMALL,
    "market.instruments": 3,
    "market.tick_minutes": 15,
    "execution.ticks_per_step": 2,
    "network": {"name": "recurrent", "hidden": 8},
    "algorithm.batch_size": 40,
    "algorithm.repeat": 1,
    "train.episodes_per_iteration": 40,
}


def make_bundle(folder: Path, settings: dict[str, Any]) -> tuple[RunDirectory, Path]:
    """Make a run below a folder and export its best checkpoint; return both."""
    config = RunConfig.load(None, Layer("benchmark", settings))
    run = RunDirectory.create(folder / "run", config)
    work = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}
    with recorded(run, list(work)):
        for stage, do in work.items():
            run_stage(stage, run, config, do, echo=lambda line: None)
    return run, export_run(run.path, folder / "bundle")


@dataclass(frozen=True)
class Day:
    """Bars of the last date of a run, and of the dates before it."""

    sessions: Sessions

    @classmethod
    def of(cls, run: RunDirectory) -> Day:
        return cls(workbench(run, run.config).sessions)

    @cached_property
    def date(self) -> np.datetime64:
        """The last date of all."""
        return self.sessions.dates.max()

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of the panel on the date, one an instrument."""
        return np.flatnonzero(self.sessions.dates == self.date)

    @property
    def instruments(self) -> list[str]:
        return [str(name) for name in self.sessions.instruments[self.rows]]

    @property
    def num_ticks(self) -> int:
        return int(self.sessions.calendar.num_ticks)

    def stamps(self, date: np.datetime64, ticks: np.ndarray) -> np.ndarray:
        """Return what the bars of ticks are stamped with, datetime64[us]."""
        calendar = self.sessions.calendar
        seconds = np.asarray(calendar.tick_start)[ticks]
        if calendar.label == "end":
            seconds = seconds + calendar.tick_seconds
        return date.astype("datetime64[us]") + (seconds * 1e6).astype("timedelta64[us]")

    def columns(self, rows: Sequence[int], start: int, stop: int, date: np.datetime64 | None = None) -> dict[str, Any]:
        """Return the bars of some rows and ticks as columns, row by row; under another date if one is given."""
        ticks = np.arange(start, stop)
        named = [str(self.sessions.instruments[row]) for row in rows for _ in ticks]
        days = [self.sessions.dates[row] if date is None else date for row in rows]
        stamps = [self.stamps(day.astype("datetime64[D]"), ticks) for day in days]
        fields = {name: values[rows, start:stop].ravel() for name, values in self.sessions.fields.items()}
        return {"instrument": named, "datetime": np.concatenate([*stamps, np.empty(0, "datetime64[us]")]), **fields}

    def before(self) -> dict[str, Any]:
        """Return all bars of the dates before."""
        rows = np.flatnonzero(self.sessions.dates < self.date)
        return self.columns(rows.tolist(), 0, self.num_ticks)


def as_json(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns of bars as JSON has them: stamps as text, missing numbers as null."""
    told: dict[str, Any] = {"instrument": columns["instrument"]}
    told["datetime"] = [str(stamp) for stamp in np.asarray(columns["datetime"]).astype("datetime64[s]")]
    for name, values in columns.items():
        if name not in told:
            told[name] = [None if not np.isfinite(value) else float(value) for value in values]
    return told


@contextmanager
def process(command: Sequence[str], log: Path, *, core: int | None = None, **env: str) -> Iterator[subprocess.Popen]:
    """Run a command on one core with one thread, its output in a file, and end it afterwards."""
    words = [str(word) for word in command]
    if core is not None and sys.platform == "linux":
        allowed = sorted(os.sched_getaffinity(0))
        words = ["taskset", "-c", str(allowed[core % len(allowed)]), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1]), **env}
    with log.open("ab") as file:
        started = subprocess.Popen(words, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
