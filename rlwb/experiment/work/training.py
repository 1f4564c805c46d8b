"""The stage train: the policy, and its teacher if it has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import Progress, Trainings, refuse_shorter
from rlwb.experiment.work.orders import load_orders, workbench

if TYPE_CHECKING:
    from rlwb.trainer import Callback


def train_policy(
    run: RunDirectory,
    config: RunConfig,
    callbacks: Sequence[Callback] = (),
    *,
    progress: Progress | None = None,
) -> None:
    """Train, writing ``checkpoints/`` and ``metrics/``; what is there of the same settings is continued.

    By oracle policy distillation the teacher is trained first, into a folder ``teacher`` of each.

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
    orders = {part: bench.bind(table) for part, table in tables.items()}
    features = bench.features(tables["train"])
    trainings = Trainings(bench, features, orders, progress or ("bar" if is_attended() else "lines"))
    teacher = trainings.teach(run) if settings.algorithm == "opd" else None
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
