"""Callbacks that keep the figures of a training: in memory, or in tables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.files import atomic_path
from rlwb.trainer.trainer import Callback, Trainer
from rlwb.trainer.vessel import TrainingVessel


class History(Callback):
    """Keeps the figures of every iteration in memory, for a script or notebook that writes no files.

    Attributes
    ----------
    train, validation
        One mapping an iteration or validation, with its number under ``iteration``. On a resume, rows after the
        checkpoint's iteration are gone.
    """

    rank = 1

    def __init__(self) -> None:
        self.train: list[dict[str, float]] = []
        self.validation: list[dict[str, float]] = []

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        number = {"iteration": trainer.current_iter}
        figures = trainer.metrics.items()
        judged = {name.removeprefix("val/"): value for name, value in figures if name.startswith("val/")}
        self.train.append({**number, **{name: value for name, value in figures if not name.startswith("val/")}})
        if judged:
            self.validation.append({**number, **judged})

    def state_dict(self) -> dict[str, Any]:
        return {"train": self.train, "validation": self.validation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train, self.validation = list(state["train"]), list(state["validation"])


class MetricsWriter(History):
    """Writes ``train.csv`` (a row an iteration) and ``validation.csv`` (a row a validation), whole each time.

    Parameters
    ----------
    dirpath
        Folder; made when missing.
    """

    def __init__(self, dirpath: str | os.PathLike[str]) -> None:
        super().__init__()
        self.dirpath = Path(dirpath)

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self._write()

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        super().on_iter_end(trainer, vessel)
        self._write()

    def _write(self) -> None:
        for name, rows in {"train": self.train, "validation": self.validation}.items():
            if rows:
                with atomic_path(self.dirpath / f"{name}.csv") as path:
                    pd.DataFrame(rows).to_csv(path, index=False)


class EpisodesWriter(Callback):
    """Writes the training episodes of each iteration: ``episodes-000001.csv``, …, a row an episode, whole each time.

    Columns are ``episode`` (its number in the collect), ``length``, ``reward`` (sum of its rewards), then its figures
    as in `Episodes.metrics`; what is missing is an empty cell. The folder holds the episodes of one training: files of
    later iterations than the one that a fit starts behind are removed.

    Parameters
    ----------
    dirpath
        Folder; made when missing.
    """

    def __init__(self, dirpath: str | os.PathLike[str]) -> None:
        self.dirpath = Path(dirpath)

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        for path in self.dirpath.glob("episodes-*.csv"):
            name = re.fullmatch(r"episodes-(\d{6,})", path.stem)
            if name and int(name[1]) > trainer.current_iter:
                path.unlink()

    def on_train_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        episodes = trainer.episodes
        assert episodes is not None
        own = {"episode": np.arange(episodes.count), "length": episodes.length, "reward": episodes.returns}
        with atomic_path(self.dirpath / f"episodes-{trainer.current_iter:06d}.csv") as path:
            pd.DataFrame({**own, **episodes.metrics}).to_csv(path, index=False)
