"""Weights & Biases: runs in files on this disk, or, where the user says so, at its service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rlwb.packages import require_packages
from rlwb.tracking.tracker import ITERATION, Status, TrackedRun, Tracker

#: Series of figures that count their own iterations.
_SERIES = ("teacher/",)


class WandB(Tracker):
    """Figures, configuration, pictures and files of a run in a file of Weights & Biases.

    Nothing goes to the network unless `mode` is ``online``. A file cannot be added to: a run that goes on writes a new
    one with all its rows, and the earlier ones of it go. ``wandb leet`` shows a file here, ``wandb sync`` uploads it
    with the files that it names, which are those of the run.

    Parameters
    ----------
    project
        Which the run belongs to.
    entity
        User or team that the project belongs to, for ``online``.
    mode
        ``offline`` writes files alone; ``online`` uploads, by the account that ``wandb login`` was told.
    folder
        Where the folder ``wandb`` is made; by default that of the run's neighbours.
    artefacts
        Whether files are kept: checkpoints and tables.
    """

    def __init__(
        self,
        project: str = "rlwb",
        entity: str | None = None,
        mode: Literal["offline", "online"] = "offline",
        folder: str | None = None,
        artefacts: bool = True,
    ) -> None:
        require_packages("it", "wandb", "wandb")
        self.project = project
        self.entity = entity
        self.mode = mode
        self.folder = folder
        self.artefacts = artefacts
        self._run: Any = None
        self._files: dict[str, list[Path]] = {}

    def start(self, run: TrackedRun) -> bool:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read where wandb is imported
        import wandb

        place = Path(self.folder or run.folder).absolute()
        place.mkdir(parents=True, exist_ok=True)
        earlier = list(place.glob(f"wandb/offline-run-*-{run.id}"))
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, disable_job_creation=True,
            x_disable_stats=True, x_disable_machine_info=True,
        )  # fmt: skip
        self._run = wandb.init(
            id=run.id, name=run.name, group=run.group or None, project=self.project, entity=self.entity,
            mode=self.mode, dir=str(place), config={**run.config, "facts": dict(run.tags)},
            resume="allow" if self.mode == "online" else None, reinit="create_new", settings=quiet,
        )  # fmt: skip
        for series in ("", *_SERIES):
            self._run.define_metric(f"{series}*", step_metric=f"{series}{ITERATION}")
        if run.step is None:  # so that all rows come again
            for folder in earlier:
                shutil.rmtree(folder, ignore_errors=True)
        return bool(self._run.resumed)

    def last_step(self, series: str = "") -> int:
        return int(self._run.summary.get(f"{series}{ITERATION}") or 0)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures))

    def figure(self, name: str, path: Path, step: int) -> None:
        import wandb

        self._run.log({name: wandb.Image(str(path))})

    def artefact(self, path: Path, kind: str) -> None:
        if self.artefacts:
            self._files.setdefault(kind, []).append(path)

    def finish(self, status: Status) -> None:
        import wandb

        for kind, paths in self._files.items():
            kept = wandb.Artifact(f"{self._run.id}-{kind}", type=kind)
            for path in paths:
                kept.add_file(str(path), policy="immutable")  # else it is copied to the home folder
            self._run.log_artifact(kept)
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)
