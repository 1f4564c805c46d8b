"""The state of a run's training, read from its directory whatever process trains; and a training in the background."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.control import standing
from rlwb.experiment.own_code import TRUST_ENV, require_trust
from rlwb.experiment.run import PROGRESS, WINDOWS, RunDirectory, last_iteration
from rlwb.experiment.stages import TRAIN, begin_stage, run_stage
from rlwb.progress import PROGRESS_ENV, RECENT, duration, read_progress

if TYPE_CHECKING:
    import pandas as pd

LOG = ".train.log"
"""File of a run with what its training in the background prints."""

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingState:
    """The state of a training, as its run's directory tells.

    Attributes
    ----------
    standing
        ``created``, ``running``, ``pausing``, ``paused``, ``stopping``, ``finished``, ``failed`` or ``interrupted``.
    stage
        The stage that runs, or that the run ended in; empty where there is none.
    part
        What is trained now: ``train``, or ``teacher``.
    iteration, iterations
        Iterations of that part that are done, and in all.
    steps_per_second
        Steps that are gathered and learnt from a second, over the last ten iterations; NaN without one.
    seconds_left
        Time until the training's end; NaN where that cannot be told, or nothing runs.
    judged_by
        The figure that checkpoints are chosen by: ``pa``, ``pa_net`` or ``objective``.
    train, validation
        The tables of figures by iteration, empty without any.
    error
        What ended a failed run; empty elsewhere.
    saved
        The newest iteration of that part that is kept, from which it can go on; 0 without any.
    is_cut
        True where its process ended without saying so, as one that was killed does.
    resume
        How a run that has ended before its end is taken up again; empty elsewhere.
    window
        Of a run over windows the name of the newest, which the figures are of; empty elsewhere.
    """

    standing: str
    stage: str
    part: str
    iteration: int
    iterations: int
    steps_per_second: float
    seconds_left: float
    judged_by: str
    train: pd.DataFrame
    validation: pd.DataFrame
    error: str = ""
    saved: int = 0
    is_cut: bool = False
    resume: str = ""
    window: str = ""

    @property
    def is_working(self) -> bool:
        """True while a process works on the run, or waits in it."""
        return self.standing in ("running", "pausing", "paused", "stopping")

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that the run can take now, out of ``pause``, ``resume`` and ``stop``."""
        return {
            "running": ("pause", "stop"),
            "pausing": ("resume", "stop"),
            "paused": ("resume", "stop"),
        }.get(self.standing, ())

    @property
    def best(self) -> dict[str, Any] | None:
        """The best validation, `value` and `iteration`, and the `last` value; None before there is one."""
        if self.judged_by not in self.validation or self.validation[self.judged_by].isna().all():
            return None
        judged = self.validation.set_index("iteration")[self.judged_by].dropna()
        return {"value": float(judged.max()), "iteration": int(judged.idxmax()), "last": float(judged.iloc[-1])}

    @property
    def advice(self) -> str:
        """A sentence on what happens next, or what can be done; empty where nothing needs to be said."""
        kept = f"The state after iteration {self.saved:,} is kept. " if self.saved else "No iteration is kept yet. "
        cut = "Its process has ended without saying so, as one that was killed does. " if self.is_cut else ""
        return {
            "pausing": "It pauses after the iteration that it is in.",
            "paused": "It keeps its memory and waits to be resumed or stopped.",
            "stopping": "It stops after the iteration that it is in; what is done is kept.",
            "interrupted": f"{cut}{kept}{self.resume}",
            "failed": f"{kept}Mend the fault first. {self.resume}",
        }.get(self.standing, "")

    def sentence(self) -> str:
        """Return in a line what a person at the monitor wants to know."""
        from rlwb.evaluation.results import PA_TITLES

        named = {"created": "not begun", "interrupted": "ended" if self.is_cut else "stopped"}
        parts = [
            named.get(self.standing, self.standing)
            + (f" in stage {self.stage}" if self.stage not in ("", TRAIN.name) else "")
        ]
        whose = "teacher's iteration" if self.part == "teacher" else "iteration"
        where = f"window {self.window}, " if self.window else ""
        parts.append(f"{where}{whose} {self.iteration:,} of {self.iterations:,}")
        if math.isfinite(self.steps_per_second):
            parts.append(f"{self.steps_per_second:,.0f} steps/s")
        if math.isfinite(self.seconds_left):
            parts.append(f"{duration(self.seconds_left)} left")
        if self.best is not None:
            title = f"validation {PA_TITLES[self.judged_by]}"
            last, best, at = self.best["last"], self.best["value"], self.best["iteration"]
            parts.append(f"{title} {last:z.2f} bp, best {best:z.2f} bp of iteration {at}")
        return "; ".join(parts) + (f". {self.error}" if self.error else "")


def read_training(run: RunDirectory) -> TrainingState:
    """Read how far the training of a run is, of one over windows its newest; what is not there counts as not begun."""
    now, whole = standing(run), run
    if windows := sorted((run.path / WINDOWS).glob("*/status.json")):
        run = RunDirectory(windows[-1].parent)
    config, status = run.config, run.status
    if run is whole and now == "created" and status["stages"].get(TRAIN.name, {}).get("state") == "finished":
        now = "finished"  # a run whose stages are run by hand: the training is done, the next stage not begun
    progress = read_progress(run.path / PROGRESS) or read_progress(whole.path / PROGRESS) or {}
    stages = status["stages"]
    stage = next((name for name, one in stages.items() if one.get("state") != "finished"), "")
    part = "teacher" if _is_taught(run, stages) else TRAIN.name
    folder = "teacher" if part == "teacher" else ""
    train, validation = (_table(run.metrics / folder / f"{name}.csv") for name in ("train", "validation"))
    iterations = config.train.iterations
    if folder:
        iterations = config.algorithm.settings.get("teacher_iterations") or iterations
    done = int(train["iteration"].max()) if len(train) else 0
    recent, left, speed = train.tail(RECENT), math.nan, math.nan
    if {"transitions", "seconds"} <= set(recent) and recent["seconds"].sum() > 0:
        speed = float(recent["transitions"].sum() / recent["seconds"].sum())
    if now in ("running", "pausing") and stage == TRAIN.name:
        if progress.get("title") == part and progress.get("left") is not None:
            left = float(progress["left"])
        elif "seconds" in recent:
            left = float(recent["seconds"].mean()) * (iterations - done)
    error = (status.get("failure") or {}).get("error") or stages.get(stage, {}).get("error") or ""
    return TrainingState(
        standing=now,
        stage=stage,
        part=part,
        iteration=done,
        iterations=iterations,
        steps_per_second=speed,
        seconds_left=left,
        judged_by=config.judged_by,
        train=train,
        validation=validation,
        error=str(error) if now == "failed" else "",
        saved=last_iteration(run.checkpoints / folder),
        is_cut=now == "interrupted" and "running" in (status["state"], stages.get(stage, {}).get("state")),
        window="" if run is whole else run.path.name,
        resume=whole.how_to_resume(now) if now in ("interrupted", "failed") else "",
    )


def _is_taught(run: RunDirectory, stages: dict[str, Any]) -> bool:
    """Tell whether the last figures are a teacher's, which is trained first."""
    is_begun = stages.get(TRAIN.name, {}).get("state") not in (None, "finished")
    return is_begun and last_iteration(run.checkpoints / "teacher") > 0 and not last_iteration(run.checkpoints)


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    with suppress(OSError, ValueError):
        table = pd.read_csv(path)
        if "iteration" in table:
            return table
    return pd.DataFrame({"iteration": []})


class BackgroundTraining:
    """The training of a run in a process of its own, which goes on when the one that started it ends.

    Parameters
    ----------
    run
        The run, whose orders are there.
    config
        Its settings from now on.

    Raises
    ------
    ConfigError
        Where the training cannot start, as `rlwb.experiment.stages.run_stage` says, or another works on the run.
    """

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        begin_stage(TRAIN, run, config)
        self.run = run
        self._had = _stamp(run)
        words = [sys.executable, "-m", "rlwb.cli", "train", str(run.path)]
        environment = {**os.environ, TRUST_ENV: "1", PROGRESS_ENV: ""}
        with (run.path / LOG).open("wb") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def is_alive(self) -> bool:
        """Tell whether the process has not ended yet."""
        return self.process.poll() is None

    def wait_for_figures(self) -> None:
        """Wait until it has validated for the first time since it was started, or has ended.

        Raises
        ------
        RlwbError
            When the process failed, with what it said.
        """
        while self.is_alive() and _stamp(self.run) == self._had:
            time.sleep(_LOOK_SECONDS)
        self.check()

    def wait(self) -> None:
        """Wait until the process has ended; an `RlwbError` where it failed, with what it said."""
        self.process.wait()
        self.check()

    def check(self) -> None:
        """Raise an `RlwbError` where the process has failed, with what it said; one that was stopped has not."""
        if self.process.poll() not in (None, 0, 130):
            said = (self.run.path / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            told = [line for line in said if line.startswith("rlwb: ")]
            last = (told or said or [f"it ended with code {self.process.returncode}"])[-1].removeprefix("rlwb: ")
            raise RlwbError(f"the training in the background failed: {last}")


def _stamp(run: RunDirectory) -> int | None:
    with suppress(OSError):
        return (run.metrics / "validation.csv").stat().st_mtime_ns
    return None


def launch_training(path: Path, *, trust_code: bool = False, echo: Callable[[str], None] = print) -> TrainingState:
    """Do what ``rlwb train`` asks for: the stage train of a run, whose orders are there, and no other."""
    from rlwb.experiment.pipeline import stop_on_terminate
    from rlwb.experiment.tracked import tracked
    from rlwb.experiment.training import train_policy

    run = RunDirectory.open(path)
    require_trust(run.config, given=trust_code)
    stop_on_terminate()
    with run.telling_limits(), tracked(run, run.config):
        run_stage(TRAIN, run, run.config, train_policy, echo=echo)
    return read_training(run)
