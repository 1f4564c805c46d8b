"""Stopping a training early, and saving checkpoints."""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from pathlib import Path
from typing import Any, Literal

from rlwb.errors import ConfigError
from rlwb.trainer.checkpoint import checkpoint_name, list_checkpoints, point_latest, save_checkpoint
from rlwb.trainer.trainer import Callback, Trainer
from rlwb.trainer.vessel import TrainingVessel
from rlwb.trainer.watched import unknown_figure

logger = logging.getLogger(__name__)


class EarlyStopping(Callback):
    """Stops when a validation figure has not improved for a while.

    Parameters
    ----------
    monitor
        Name in ``trainer.metrics``, for example ``"val/pa"``.
    patience
        Number of validations in a row without improvement that stop the fit, at least 1.
    min_delta
        Least change that counts as an improvement.
    mode
        Whether ``"max"`` or ``"min"`` is better.
    baseline
        Value to beat before anything counts as an improvement.
    restore_best_weights
        Whether the policy gets the weights of its best validation back at the end of the fit.

    Notes
    -----
    A missing figure (NaN) is no improvement; each is logged as a warning and counted in `missing`.
    """

    can_stop = True

    def __init__(
        self,
        monitor: str = "val/pa",
        patience: int = 10,
        *,
        min_delta: float = 0.0,
        mode: Literal["max", "min"] = "max",
        baseline: float | None = None,
        restore_best_weights: bool = False,
    ) -> None:
        if patience < 1:
            raise ConfigError(f"patience is {patience}; stop after at least 1 validation without improvement.")
        if mode not in ("max", "min"):
            raise ConfigError(f"mode is {mode!r}; it must be 'max' or 'min'.")
        self.monitor = self.watches = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.sign = 1.0 if mode == "max" else -1.0
        self.restore_best_weights = restore_best_weights
        self.best = -math.inf if baseline is None else self.sign * baseline
        self.best_iteration = 0
        self.waited = 0
        self.missing = 0
        self._best_weights: Any = None

    @property
    def state_key(self) -> str:
        return f"EarlyStopping({self.monitor})"

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if self.monitor not in trainer.metrics:
            raise ConfigError(unknown_figure(type(self).__name__, self.monitor, trainer.metrics))
        value = self.sign * trainer.metrics[self.monitor]
        if math.isnan(value):
            self.missing += 1
            logger.warning("%s is missing at iteration %d, which is no improvement", self.monitor, trainer.current_iter)
        if value - self.min_delta > self.best:
            self.best, self.best_iteration, self.waited = value, trainer.current_iter, 0
            if self.restore_best_weights:
                self._best_weights = copy.deepcopy(vessel.policy.state_dict())
        else:
            self.waited += 1
            if self.waited >= self.patience:
                trainer.should_stop = True

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if self._best_weights is not None:
            vessel.policy.load_state_dict(copy.deepcopy(self._best_weights))

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "best_iteration": self.best_iteration,
            "waited": self.waited,
            "missing": self.missing,
            "best_weights": self._best_weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.best_iteration = state["best"], state["best_iteration"]
        self.waited, self.missing, self._best_weights = state["waited"], state["missing"], state["best_weights"]


class Checkpoint(Callback):
    """Saves the whole state of the training, named by iteration: ``0001.pt``, …, and the link ``latest``.

    The last iteration of a fit is always saved, with the weights that its figures belong to. A new training is
    refused in a folder that has checkpoints; a resumed one replaces those beyond where it started.

    Parameters
    ----------
    dirpath
        Folder; made when missing.
    every_n_iters
        Save after every so many iterations.
    time_interval
        Save when so many seconds have passed since the last save, as well.
    keep_best, keep_last
        How many checkpoints to keep by the monitored figure and by age; without either, all stay. One kept by
        either stays, and the newest always does.
    monitor
        Figure that ranks them; larger is better. A missing one never ranks.
    meta
        Plain values stored with each checkpoint: what is needed to build the policy again.
    """

    rank = 2

    def __init__(
        self,
        dirpath: str | os.PathLike[str],
        every_n_iters: int | None = 1,
        *,
        time_interval: float | None = None,
        keep_best: int | None = None,
        keep_last: int | None = None,
        monitor: str = "val/pa",
        meta: dict[str, Any] | None = None,
    ) -> None:
        for name, value in {"every_n_iters": every_n_iters, "keep_best": keep_best, "keep_last": keep_last}.items():
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1, or none.")
        self.dirpath = Path(dirpath)
        self.every_n_iters = every_n_iters
        self.time_interval = time_interval
        self.keep_best = keep_best
        self.keep_last = keep_last
        self.monitor = monitor
        self.watches = monitor if keep_best is not None else None
        self.meta = dict(meta or {})
        self.scores: dict[int, float] = {}
        self._saved_at = time.monotonic()

    @property
    def state_key(self) -> str:
        return f"Checkpoint({self.monitor})"

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        old = list_checkpoints(self.dirpath)
        if old and not trainer.current_iter:
            raise ConfigError(
                f"{self.dirpath} has checkpoints of an earlier training ({next(iter(old.values())).name}, …); "
                "resume it, or train into another folder."
            )
        self._saved_at = time.monotonic()

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        number = trainer.current_iter
        if self.monitor in trainer.metrics:
            self.scores[number] = trainer.metrics[self.monitor]
        due = self.every_n_iters is not None and number % self.every_n_iters == 0
        late = self.time_interval is not None and time.monotonic() - self._saved_at >= self.time_interval
        if due or late or trainer.is_last_iter:
            self._save(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self.scores}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scores = dict(state["scores"])

    def _save(self, trainer: Trainer) -> None:
        path = self.dirpath / checkpoint_name(trainer.current_iter)
        save_checkpoint(path, {**trainer.state_dict(), "meta": self.meta})
        point_latest(path)
        self._saved_at = time.monotonic()
        self._prune(trainer.current_iter)

    def _prune(self, newest: int) -> None:
        saved = list_checkpoints(self.dirpath)
        for iteration in [i for i in saved if i > newest]:
            saved.pop(iteration).unlink()
        if self.keep_best is None and self.keep_last is None:
            return
        ranked = [i for i in saved if not math.isnan(self.scores.get(i, math.nan))]
        ranked.sort(key=lambda i: (-self.scores[i], i))
        keep = set(ranked[: self.keep_best or 0]) | set(list(saved)[-(self.keep_last or 1) :])
        for iteration, path in saved.items():
            if iteration not in keep:
                path.unlink()
