"""The trainings of a run, of a policy and of its teacher: each in folders of its own, taken up where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, OrderBatch
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.market import MarketFeatures

if TYPE_CHECKING:
    from rlwb.policy import DQN, PPO
    from rlwb.trainer import Callback

Progress = Literal["bar", "lines", "none"]
#: Checkpoints of a teacher that stay: the newest, and one more in case that it is damaged.
_TEACHER_KEEPS = 2


@dataclass(frozen=True)
class Trainings:
    """What the trainings of a run share.

    Attributes
    ----------
    bench
        The parts of the run.
    features
        What the network reads, normalised by the training part.
    orders
        The orders of the parts ``train`` and ``valid``.
    progress
        A bar, a line an iteration, or nothing.
    """

    bench: Workbench
    features: MarketFeatures
    orders: Mapping[str, OrderBatch]
    progress: Progress

    def fit(
        self,
        learner: PPO | DQN,
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
        """Train `learner` to the end, going on from what its folder of checkpoints has.

        Parameters
        ----------
        checkpoints, metrics
            Folders to write to.
        iterations
            In all, those of before included.
        every, keep_best, keep_last
            See `rlwb.trainer.Checkpoint`.
        patience
            Validations without improvement until it stops; none trains to the end.
        meta
            Goes into every checkpoint, beside what `Workbench.meta` says.
        callbacks
            Called beside those of the run.
        """
        from rlwb.trainer import Checkpoint, EarlyStopping, MetricsWriter, Trainer, TrainingVessel, find_resumable
        from rlwb.trainer.progress import ProgressLines

        bench, settings = self.bench, self.bench.config.train
        monitor = f"val/{bench.config.execution.rules.judged_by}"
        resume, faults = find_resumable(checkpoints)
        own: list[Callback] = [
            MetricsWriter(metrics),
            Checkpoint(
                checkpoints,
                every,
                keep_best=keep_best,
                keep_last=keep_last,
                monitor=monitor,
                meta={**bench.meta(self.features), **(meta or {})},
            ),
        ]
        if patience is not None:
            own.append(EarlyStopping(monitor, patience))
        if self.progress == "lines":
            own.append(ProgressLines(progress_figures(bench.config.execution.rules)))
        vessel = TrainingVessel(
            simulator_fn=bench.simulator,
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

    def teach(self, run: RunDirectory) -> PPO:
        """Train the teacher of oracle policy distillation, or what is left of its training, and return it.

        Its folders are ``checkpoints/teacher`` and ``metrics/teacher``; its checkpoints say ``sees_future``.
        """
        teacher = self.bench.teacher(self.features)
        iterations = self.bench.config.train.opd.teacher_iterations
        assert iterations is not None, "the configuration settles it"
        print("the teacher, which sees the rest of the day:")  # noqa: T201 - the reader must know whose figures follow
        self.fit(
            teacher,
            teacher_checkpoints(run),
            run.metrics / "teacher",
            iterations,
            keep_last=_TEACHER_KEEPS,
            meta={"sees_future": True},
        )
        print("the student:")  # noqa: T201
        return teacher


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
