"""What happens around a training: stopping early, checkpoints, tables of figures, lines of progress."""

from __future__ import annotations

import copy
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, ConfigError
from rlwb.files import atomic_path
from rlwb.progress import Mode, Progress
from rlwb.trainer.checkpoint import (
    checkpoint_name,
    list_checkpoints,
    load_checkpoint,
    packed_size,
    point_latest,
    save_checkpoint,
)
from rlwb.trainer.collect import Episodes, unknown_figure
from rlwb.trainer.trainer import Callback, Trainer
from rlwb.trainer.vessel import TrainingVessel

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
        self.best_weights: Any = None
        self.waited = 0
        self.missing = 0

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
                self.best_weights = copy.deepcopy(vessel.policy.state_dict())
        else:
            self.waited += 1
            trainer.should_stop |= self.waited >= self.patience

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if self.best_weights is not None:
            vessel.policy.load_state_dict(copy.deepcopy(self.best_weights))

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "best_iteration", "best_weights", "waited", "missing")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: state[name] for name in self.state_dict()})


class ValidationFigure(Callback):
    """Adds a figure of all episodes of a validation together, which is no mean of figures of single ones.

    Parameters
    ----------
    name
        Its name in ``trainer.metrics``, after ``val/``.
    of
        Computes it.
    """

    rank = -1

    def __init__(self, name: str, of: Callable[[Episodes], float]) -> None:
        self.name = name
        self.of = of
        self.gives = (f"val/{name}",)

    @property
    def state_key(self) -> str:
        return f"ValidationFigure({self.name})"

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        assert trainer.validation is not None
        trainer.metrics[f"val/{self.name}"] = self.of(trainer.validation)


class Checkpoint(Callback):
    """Saves the whole state of the training, named by iteration: ``0001.pt``, …, and the link ``latest``.

    The last iteration of a fit is always saved, with the weights that its figures belong to. A new training is
    refused in a folder that has checkpoints; a resumed one replaces those beyond where it started. Before the first
    iteration a state is packed once: what could not be loaded again is refused by its key, and so is a training whose
    checkpoints would need more space than the disk has; beyond half of it there is a warning.

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
        if time_interval is not None and not time_interval > 0:
            raise ConfigError(f"time_interval is {time_interval}; it must be above 0 seconds, or none.")
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
        self._is_first = True
        self._has_warned = False

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
        self._saved_at, self._is_first, self._has_warned = time.monotonic(), True, False
        self.scores = {}
        if self.keep_best is not None:
            self.scores = {number: self._score(path) for number, path in old.items() if number <= trainer.current_iter}
        needed, free = self.space_needed(trainer, packed_size(self._state(trainer))), _free_bytes(self.dirpath)
        if needed > free:
            raise ConfigError(f"{self.dirpath}: {_too_little(needed, free)}")
        if needed > free / 2:
            logger.warning("%s: %s", self.dirpath, _too_little(needed, free))

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        number = trainer.current_iter
        due = self.every_n_iters is not None and number % self.every_n_iters == 0
        late = self.time_interval is not None and time.monotonic() - self._saved_at >= self.time_interval
        if due or late or trainer.is_last_iter:
            path = self.dirpath / checkpoint_name(number)
            save_checkpoint(path, self._state(trainer), read_back=self._is_first)
            self._is_first = False
            point_latest(path)
            self._saved_at = time.monotonic()
            self.scores[number] = trainer.metrics.get(self.monitor, math.nan)
            self._prune(number)
            self._warn_of_space(trainer, path.stat().st_size)

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        """Finish what a kill right after the last save has kept from being done."""
        path = self.dirpath / checkpoint_name(trainer.current_iter)
        if path.is_file():
            point_latest(path)
            self._prune(trainer.current_iter)

    def space_needed(self, trainer: Trainer, size: int) -> int:
        """Return how many bytes the checkpoints to come take beside those that there are, each of `size` bytes.

        Those that only `time_interval` makes are not foreseen, and no checkpoint is of a fit without an end.
        """
        if trainer.max_iters is None or trainer.current_iter >= trainer.max_iters:
            return 0
        every = self.every_n_iters or trainer.max_iters
        files = trainer.max_iters // every - trainer.current_iter // every + (trainer.max_iters % every > 0)
        if self.keep_best is not None or self.keep_last is not None:
            # One more is there before the one that it replaces is gone.
            kept = (self.keep_best or 0) + (self.keep_last or 1) + 1
            files = min(files, max(0, kept - len(list_checkpoints(self.dirpath))))
        return files * size

    def _state(self, trainer: Trainer) -> dict[str, Any]:
        return {**trainer.state_dict(), "meta": self.meta}

    def _score(self, path: Path) -> float:
        """Return the figure that ranks a checkpoint of an earlier fit; NaN where it has none or is damaged."""
        try:
            return float(load_checkpoint(path)["metrics"].get(self.monitor, math.nan))
        except (CheckpointError, KeyError):
            return math.nan

    def _warn_of_space(self, trainer: Trainer, size: int) -> None:
        """Warn once where the checkpoints have grown, with a replay buffer for example, beyond what the disk has."""
        needed, free = self.space_needed(trainer, size), _free_bytes(self.dirpath)
        if needed > free and not self._has_warned:
            self._has_warned = True
            logger.warning("%s: %s", self.dirpath, _too_little(needed, free))

    def _prune(self, newest: int) -> None:
        saved = list_checkpoints(self.dirpath)
        keep = {number for number in saved if number <= newest}
        if self.keep_best is not None or self.keep_last is not None:
            ranked = [number for number in keep if not math.isnan(self.scores.get(number, math.nan))]
            ranked.sort(key=lambda number: (-self.scores[number], number))
            keep = {*ranked[: self.keep_best or 0], *sorted(keep)[-(self.keep_last or 1) :]}
        for number in saved.keys() - keep:
            saved[number].unlink()
        self.scores = {number: score for number, score in self.scores.items() if number in keep}


def _free_bytes(folder: Path) -> int:
    """Return the free space of the disk that a folder, which need not be there yet, is or will be on."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _too_little(needed: int, free: int) -> str:
    return (
        f"the checkpoints to come need about {needed / 1e6:,.0f} MB and the disk has {free / 1e6:,.0f}; free some, "
        "keep fewer of them, or save them less often."
    )


class History(Callback):
    """Keeps the figures of every iteration in memory, for a script or notebook that writes no files.

    It is in no checkpoint, which would hold all earlier rows again each time; see `MetricsWriter`.

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

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        done = trainer.current_iter
        self.train, self.validation = (
            [row for row in rows if row["iteration"] <= done] for rows in (self.train, self.validation)
        )

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        number = {"iteration": trainer.current_iter}
        figures = trainer.metrics.items()
        judged = {name.removeprefix("val/"): value for name, value in figures if name.startswith("val/")}
        self.train.append({**number, **{name: value for name, value in figures if not name.startswith("val/")}})
        if judged:
            self.validation.append({**number, **judged})


class MetricsWriter(History):
    """Writes ``train.csv`` (a row an iteration) and ``validation.csv`` (a row a validation), whole each time.

    The files are the one place of these rows: a resumed training reads its earlier ones there, and a checkpoint knows
    their number alone. Where they are not there, it is refused.

    Parameters
    ----------
    dirpath
        Folder; made when missing.
    """

    def __init__(self, dirpath: str | os.PathLike[str]) -> None:
        super().__init__()
        self.dirpath = Path(dirpath)
        self._before = {"train": 0, "validation": 0}

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if trainer.current_iter and not self.train:
            self.train, self.validation = self._read("train"), self._read("validation")
        super().on_fit_start(trainer, vessel)
        for name, rows in {"train": self.train, "validation": self.validation}.items():
            if len(rows) < self._before[name]:
                raise CheckpointError(
                    f"{self.dirpath / name}.csv has {len(rows)} rows up to iteration {trainer.current_iter}, the "
                    f"training that is to be continued had written {self._before[name]}; put the file back, or train "
                    "anew into other folders."
                )
        self._before = dict.fromkeys(self._before, 0)
        self._write()

    def state_dict(self) -> dict[str, Any]:
        return {"train": len(self.train), "validation": len(self.validation)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._before = {name: int(state[name]) for name in self._before}

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.dirpath / f"{name}.csv"
        if not path.is_file():
            return []
        try:
            rows = pd.read_csv(path, float_precision="round_trip").astype({"iteration": int}).to_dict("records")
            return [{str(name): value for name, value in row.items()} for row in rows]
        except (KeyError, ValueError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}); put it back, or train anew.") from None

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


class ProgressLines(Callback):
    """Prints a line an iteration, short enough for a log: the figures asked for, and the time left; or draws a bar.

    Parameters
    ----------
    figures
        Name in ``trainer.metrics`` to what the line calls it; one that is missing is left out.
    echo
        Receives each line.
    clock
        Seconds that never run backwards.
    mode, title, file
        See `rlwb.progress.Progress`.
    """

    rank = 3

    def __init__(
        self,
        figures: dict[str, str] | None = None,
        echo: Callable[[str], None] = print,
        clock: Callable[[], float] = time.perf_counter,
        *,
        mode: Mode = "lines",
        title: str = "train",
        file: Path | None = None,
    ) -> None:
        self.figures = {"pa": "PA", "val/pa": "validation PA", "reward": "reward"} if figures is None else figures
        self.echo = echo
        self._how: dict[str, Any] = {"clock": clock, "mode": mode, "title": title, "file": file}
        self._progress: Progress | None = None

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.close()
        done = trainer.current_iter
        self._progress = Progress("iteration", trainer.max_iters, done=done, echo=self.echo, **self._how)
        if done:
            self._progress.note(f"continued after iteration {done}")

    def on_iter_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        assert self._progress is not None
        self._progress.start()

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        assert self._progress is not None
        shown = {}
        for name, title in self.figures.items():
            value: Any = trainer.metrics.get(name)
            if value is not None:
                shown[title] = "missing" if math.isnan(value) else format(round(value, 2) + 0.0, ".2f")
        self._progress.step(shown, is_last=trainer.is_last_iter)

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.close()

    def close(self) -> None:
        """End the bar and the file; a fit does so at its end, and whoever started one that was cut short should."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None


class BetweenIterations(Callback):
    """Calls a function between two iterations, when all that belongs to the first is done; what it raises ends the fit.

    Parameters
    ----------
    call
        The function, which may wait; not called after the last iteration.
    """

    rank = 4

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if not trainer.is_last_iter:
            self.call()
