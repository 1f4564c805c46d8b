"""The interface of trackers, and several of them as one that never ends what it watches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["finished", "failed", "interrupted"]

ITERATION = "iteration"
"""Name of the figure, behind that of its series, by which each row says its step and is found again."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedRun:
    """A training or a whole run, as trackers know it.

    Attributes
    ----------
    id
        By which a tool finds the same run again when it goes on: letters and digits.
    name
        What people call it.
    folder
        Where a tracker that was told no place keeps its files.
    group
        The name of the runs that it belongs to; empty for none.
    config
        Parameter by dotted name to number, truth value, text, or None.
    tags
        Facts about how it is made: commit, seeds, versions.
    step
        Iteration behind which it goes on, where nobody can send the rows before it again. None: whoever sends rows has
        all of them.
    """

    id: str
    name: str
    folder: Path = Path()
    group: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None


class Tracker(ABC):
    """A writer of runs for a tool that shows them. One object follows one run; only `log` must be written.

    Whatever a method raises is told once, in a sentence, and the run goes on without the tracker.
    """

    def start(self, run: TrackedRun) -> bool:
        """Begin to follow a run; tell whether the tool has what an earlier process sent of it, and goes on there."""
        return False

    def last_step(self, series: str = "") -> int:
        """Return the last step that the tool has of ``<series>iteration``, a figure of every row; 0 for none."""
        return 0

    @abstractmethod
    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write figures of a step, an iteration from 1 on; what is missing is left out of `figures`."""

    def figure(self, name: str, path: Path, step: int) -> None:
        """Write a picture, a PNG file, as it is after `step`."""
        return

    def artefact(self, path: Path, kind: str) -> None:
        """Keep a copy of a file; `kind` is the folder that it is from: checkpoints, backtest, metrics, run."""
        return

    def finish(self, status: Status) -> None:
        """Say how the run has ended, and close."""
        return


class Trackers:
    """Several trackers as one that never fails: one that does is told of in a sentence, and then left out.

    Parameters
    ----------
    trackers
        Each with what it is called.
    warn
        Receives the sentences.
    """

    def __init__(self, trackers: Iterable[tuple[str, Tracker]], warn: Callable[[str], None] = logger.warning) -> None:
        self._working = dict(enumerate(trackers))
        self._warn = warn
        self._last: dict[tuple[int, str], int] = {}
        self.goes_on: dict[int, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._working)

    def start(self, run: TrackedRun) -> None:
        """Let all begin; ``goes_on`` tells by number which of them have what was sent earlier."""

        def begin(number: int, tracker: Tracker) -> None:
            self.goes_on[number] = bool(tracker.start(run))

        self._each(begin)

    def send(self, series: str, rows: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Let each log those rows, step and figures in order, that it does not have yet.

        Names begin with `series`, such as ``teacher/``. A figure that is missing (NaN) is left out.
        """
        told = [
            (step, {f"{series}{name}": float(one) for name, one in {**row, ITERATION: step}.items() if one == one})
            for step, row in rows
        ]

        def log(number: int, tracker: Tracker) -> None:
            key = (number, series)
            if key not in self._last:
                self._last[key] = tracker.last_step(series)
            for step, row in told:
                if step > self._last[key]:
                    tracker.log(step, row)
                    self._last[key] = step

        self._each(log)

    def each(self, number: int, do: Callable[[Tracker], None]) -> bool:
        """Have one tracker do something; tell whether it did."""
        self._each(lambda _, tracker: do(tracker), only=number)
        return number in self._working

    def finish(self, status: Status) -> None:
        """Let all say how it ended, and close."""
        self._each(lambda _, tracker: tracker.finish(status))

    def give_up(self, reason: str) -> None:
        """Leave all out from now on."""
        for number, (name, _) in list(self._working.items()):
            self._drop(number, f"tracker {name}: {reason}")

    def _each(self, do: Callable[[int, Tracker], None], only: int | None = None) -> None:
        for number, (name, tracker) in list(self._working.items()):
            if only is not None and number != only:
                continue
            try:
                do(number, tracker)
            except Exception as error:
                said = " ".join(str(error).split()) or type(error).__name__
                kind = "" if said == type(error).__name__ else f"{type(error).__name__}: "
                self._drop(number, f"tracker {name}: {kind}{said[:300].rstrip('.')}")

    def _drop(self, number: int, said: str) -> None:
        if self._working.pop(number, None) is not None:
            self._warn(f"{said}; the run goes on without it.")
