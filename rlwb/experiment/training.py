"""The stage train: the policy, and its teacher if it has one, each taken up where its training stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.env.workers import uninterrupted
from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.control import obey
from rlwb.experiment.notebook import log_line, progress_mode
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.readings import READINGS, Readings
from rlwb.experiment.run import PROGRESS, RunDirectory, last_iteration
from rlwb.experiment.stages import ORDERS, TRAIN, run_stage, supersede, training_id
from rlwb.progress import Mode

if TYPE_CHECKING:
    from rlwb.experiment.workbench import Workbench
    from rlwb.learner import Learner
    from rlwb.trainer import Callback

#: Checkpoints of a teacher that stay: the newest, and one more in case that it is damaged.
_TEACHER_KEEPS = 2


def train_policy(
    run: RunDirectory,
    config: RunConfig,
    callbacks: Sequence[Callback] = (),
    *,
    progress: Mode | None = None,
    bench: Workbench | None = None,
) -> None:
    """Train, writing ``checkpoints/`` and ``metrics/``; what is there of the same settings is continued.

    A teacher is trained first, into a folder ``teacher`` of each; its checkpoints say ``sees_future``. Which days the
    training read is in ``metrics/readings.json`` (`rlwb.experiment.readings`). Between two iterations the training
    does what the run is asked for (`rlwb.experiment.control`).

    Parameters
    ----------
    callbacks
        Called beside those of the run.
    progress
        A bar, or a line an iteration with the time left, or ``"none"``; None means a bar where someone watches
        and lines elsewhere, unless the command was told to be quiet.
    bench
        The parts of the run, by default those of its configuration on its own bars.

    Raises
    ------
    ConfigError
        When more iterations are trained already than are asked for; fewer would not be the run that its
        configuration describes.
    """
    with uninterrupted():  # torch cannot be imported again once its import was cut short
        import torch

        from rlwb.evaluation.results import PA_TITLES
        from rlwb.trainer import (
            BetweenIterations,
            Checkpoint,
            EarlyStopping,
            MetricsWriter,
            ProgressLines,
            Trainer,
            TrainingVessel,
            ValidationFigure,
        )

    settings, figure, chosen_by = config.train, config.execution.rules.judged_by, config.judged_by
    refuse_shorter(last_iteration(run.checkpoints), settings.iterations)
    torch.set_num_threads(config.threads)
    progress = progress or progress_mode()
    bench = bench or workbench(run, config)
    tables = {part: load_orders(run, bench, part) for part in ("train", "valid")}
    orders = {part: bench.align(table) for part, table in tables.items()}
    say: Callable[[str], None] = _silent if progress == "none" else log_line
    for idle in bench.engine.idle_rules(orders["train"]):
        log_line(f"a rule that cannot act: {idle}")
    features = bench.features(tables["train"])
    readings = Readings(run.metrics / READINGS)
    readings.sessions("normaliser", bench.sessions, features.fit_rows)
    lines = {figure: PA_TITLES[figure], f"val/{chosen_by}": f"validation {PA_TITLES[chosen_by]}", "reward": "reward"}
    value = partial(bench.objective_value, orders["valid"])
    figures = [ValidationFigure("objective", value)] if chosen_by == "objective" else []

    def fit(
        learner: Learner,
        folder: str,
        iterations: int,
        saving: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        patience: int | None = None,
        first: Sequence[Callback] = (),
    ) -> None:
        """Train a learner to the end, going on from what its folder of checkpoints has."""
        checkpoints, monitor = run.checkpoints / folder, f"val/{chosen_by}"
        own: list[Callback] = [*figures, MetricsWriter(run.metrics / folder)]
        own.append(Checkpoint(checkpoints, monitor=monitor, meta={**bench.meta(features), **(meta or {})}, **saving))
        if patience is not None:
            own.append(EarlyStopping(monitor, patience))
        file = run.path / PROGRESS
        shown = ProgressLines(lines, log_line, mode=progress, title=folder or TRAIN.name, file=file)
        own += [shown, BetweenIterations(lambda: obey(run, echo=say))]
        vessel = TrainingVessel(
            simulator=bench.simulator,
            state_interpreter=bench.state_interpreter(features),
            action_interpreter=bench.action_interpreter,
            policy=learner,
            reward=bench.reward,
            train_initial_states=orders["train"],
            val_initial_states=orders["valid"],
            episode_per_iter=settings.episodes_per_iteration,
            seed=config.seed,
            run=training_id(config),
            on_states=readings.orders,
        )
        trainer = Trainer(
            max_iters=iterations,
            val_every_n_iters=settings.validate_every,
            callbacks=[*first, *own],
            finite_env_type=settings.env,
            concurrency=settings.concurrency,
            actors=settings.actors,
        )
        resume = _resume_from(run, checkpoints)
        # Without patience nothing stops a training early, so one that an earlier patience had stopped goes on.
        try:
            trainer.fit(vessel, resume, train_on=patience is None)
        finally:
            shown.close()
            readings.write()

    teacher = None
    if bench.is_taught:
        teacher = bench.teacher(features)
        say("the teacher, which sees the rest of the day:")  # the reader must know whose figures follow
        iterations = config.algorithm.settings.get("teacher_iterations") or settings.iterations
        fit(teacher, "teacher", iterations, {"keep_last": _TEACHER_KEEPS}, meta={"sees_future": True})
        say("the student:")
    keep = settings.keep or None
    saving = {"every_n_iters": settings.checkpoint_every, "keep_best": keep, "keep_last": keep}
    student = bench.learner(features, teacher)
    with features.noting() as rows:
        bench.fit(student, features, tables["train"])
    readings.sessions("network", bench.sessions, rows)
    fit(student, "", settings.iterations, saving, patience=settings.patience, first=callbacks)


@contextmanager
def temporary_run(config: RunConfig) -> Iterator[RunDirectory]:
    """Make a run up to its trained policy, in a directory that is gone afterwards, and print no progress.

    ``run.stage("train")["seconds"]`` is how long the training took.
    """
    with tempfile.TemporaryDirectory(prefix="rlwb-") as folder:
        run = RunDirectory.create(Path(folder) / "run", config)
        run_stage(ORDERS, run, config, make_orders, echo=_silent)
        run_stage(TRAIN, run, config, partial(train_policy, progress="none"), echo=_silent)
        yield run


def _silent(line: str) -> None:
    """Print nothing."""


def _resume_from(run: RunDirectory, folder: Path) -> Path | None:
    """Return the newest checkpoint before the first that is damaged; from that one on they go out of the way."""
    from rlwb.trainer import list_checkpoints, load_checkpoint

    paths = list(list_checkpoints(folder).values())
    for number, path in enumerate(paths):
        try:
            load_checkpoint(path)
        except CheckpointError as error:
            moved = supersede(run, TRAIN.name, [one.relative_to(run.path).as_posix() for one in paths[number:]])
            log_line(f"made again from there on: {error}{moved}")
            return paths[number - 1] if number else None
    return paths[-1] if paths else None


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
