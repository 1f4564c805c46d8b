"""The stage train: the policy, and its teacher if it has one, each taken up where its training stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, OrderBatch
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.market import MarketFeatures

if TYPE_CHECKING:
    from rlwb.learner import Learner
    from rlwb.trainer import Callback

Progress = Literal["bar", "lines", "none"]
#: Checkpoints of a teacher that stay: the newest, and one more in case that it is damaged.
_TEACHER_KEEPS = 2


def train_policy(
    run: RunDirectory, config: RunConfig, callbacks: Sequence[Callback] = (), *, progress: Progress | None = None
) -> None:
    """Train, writing ``checkpoints/`` and ``metrics/``; what is there of the same settings is continued.

    A teacher is trained first, into a folder ``teacher`` of each; its checkpoints say ``sees_future``.

    Parameters
    ----------
    callbacks
        Called beside those of the run.
    progress
        A bar, or a line an iteration with the time left; None means a bar where someone watches and lines elsewhere.

    Raises
    ------
    ConfigError
        When more iterations are trained already than are asked for; fewer would not be the run that its
        configuration describes.
    """
    import torch

    from rlwb.trainer import find_resumable

    settings = config.train
    resume, _ = find_resumable(run.checkpoints)
    if resume is not None:
        refuse_shorter(int(resume.stem), settings.iterations)
    torch.set_num_threads(config.threads)
    bench = workbench(run, config)
    tables = {part: load_orders(run, bench, part) for part in ("train", "valid")}
    orders = {part: bench.align(table) for part, table in tables.items()}
    features = bench.features(tables["train"])
    trainings = _Trainings(bench, features, orders, progress or ("bar" if is_attended() else "lines"))
    teacher = None
    if bench.is_taught:
        teacher = bench.teacher(features)
        print("the teacher, which sees the rest of the day:")  # noqa: T201 - the reader must know whose figures follow
        iterations = config.algorithm.settings.get("teacher_iterations") or settings.iterations
        folders = teacher_checkpoints(run), run.metrics / "teacher"
        trainings.fit(teacher, *folders, iterations, keep_last=_TEACHER_KEEPS, meta={"sees_future": True})
        print("the student:")  # noqa: T201
    trainings.fit(
        bench.learner(features, teacher),
        run.checkpoints,
        run.metrics,
        settings.iterations,
        every=settings.checkpoint_every,
        keep_best=settings.keep or None,
        keep_last=settings.keep or None,
        patience=settings.patience,
        callbacks=callbacks,
    )


@dataclass(frozen=True)
class _Trainings:
    """What the trainings of a run share: its parts, the normalised features, its orders, how progress is shown."""

    bench: Workbench
    features: MarketFeatures
    orders: Mapping[str, OrderBatch]
    progress: Progress

    def fit(
        self,
        learner: Learner,
        checkpoints: Path,
        metrics: Path,
        iterations: int,
        *,
        every: int = 1,
        keep_best: int | None = None,
        keep_last: int | None = None,
        patience: int | None = None,
        meta: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Train to the end, going on from what the folder of checkpoints has; see `rlwb.trainer.Checkpoint`."""
        from rlwb.trainer import (
            Checkpoint,
            EarlyStopping,
            MetricsWriter,
            ProgressLines,
            Trainer,
            TrainingVessel,
            find_resumable,
        )

        bench, settings, rules = self.bench, self.bench.config.train, self.bench.config.execution.rules
        monitor = f"val/{rules.judged_by}"
        resume, faults = find_resumable(checkpoints)
        all_meta = {**bench.meta(self.features), **(meta or {})}
        keep = {"keep_best": keep_best, "keep_last": keep_last}
        own: list[Callback] = [
            MetricsWriter(metrics),
            Checkpoint(checkpoints, every, **keep, monitor=monitor, meta=all_meta),
        ]
        if patience is not None:
            own.append(EarlyStopping(monitor, patience))
        if self.progress == "lines":
            own.append(ProgressLines(progress_figures(rules)))
        vessel = TrainingVessel(
            simulator=bench.simulator,
            state_interpreter=bench.state_interpreter(self.features),
            action_interpreter=bench.action_interpreter,
            policy=learner,
            reward=bench.reward,
            train_initial_states=self.orders["train"],
            val_initial_states=self.orders["valid"],
            episode_per_iter=settings.episodes_per_iteration,
            seed=bench.config.seed,
        )
        trainer = Trainer(
            max_iters=iterations,
            val_every_n_iters=settings.validate_every,
            callbacks=[*callbacks, *own],
            finite_env_type=settings.env,
            concurrency=settings.concurrency,
            progress=self.progress == "bar",
        )
        for fault in faults.values():
            print(f"left out: {fault}")  # noqa: T201 - the reader of the notebook must know
        # Without patience nothing stops a training early, so one that an earlier patience had stopped goes on.
        trainer.fit(vessel, resume, train_on=patience is None)


def progress_figures(rules: ExecutionRules) -> dict[str, str]:
    """Return the figures of a training's lines, with their titles: the PA by which it is judged, which may be net."""
    from rlwb.evaluation.results import PA_TITLES

    pa = PA_TITLES[rules.judged_by]
    return {rules.judged_by: pa, f"val/{rules.judged_by}": f"validation {pa}", "reward": "reward"}


def teacher_checkpoints(run: RunDirectory) -> Path:
    """Return the folder of a teacher's checkpoints."""
    return run.checkpoints / "teacher"


def refuse_shorter(trained: int, iterations: int) -> None:
    """Refuse to call a training of `trained` iterations one of fewer."""
    if trained > iterations:
        raise ConfigError(
            f"train.iterations is {iterations}, but {trained} iterations are trained already; set it to {trained} or "
            "more, or start a new run."
        )
