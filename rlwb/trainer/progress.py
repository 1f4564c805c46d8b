"""How far a training is, in lines that a log can hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from rlwb.trainer.trainer import Callback, Trainer
from rlwb.trainer.vessel import TrainingVessel

_RECENT = 10
"""Iterations whose mean duration tells how long the rest will take."""


class ProgressLines(Callback):
    """Prints a line an iteration: the figures asked for, and the time left.

    Parameters
    ----------
    figures
        Name in ``trainer.metrics`` to what the line calls it; one that is missing is left out.
    echo
        Receives each line.
    clock
        Seconds that never run backwards.
    """

    rank = 3

    def __init__(
        self,
        figures: dict[str, str] | None = None,
        echo: Callable[[str], None] = print,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.figures = {"pa": "PA", "val/pa": "validation PA", "reward": "reward"} if figures is None else figures
        self.echo = echo
        self.clock = clock
        self._ends: list[float] = []

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self._ends = [self.clock()]
        if trainer.current_iter:
            self.echo(f"continued after iteration {trainer.current_iter}")

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self._ends = [*self._ends, self.clock()][-1 - _RECENT :]
        done, total = trainer.current_iter, trainer.max_iters
        each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        parts = [f"iteration {done:{len(str(total or 0))}d}" + (f" of {total}" if total else "")]
        for name, title in self.figures.items():
            value: Any = trainer.metrics.get(name)
            if value is not None:
                parts.append(f"{title} {'missing' if math.isnan(value) else format(round(value, 2) + 0.0, '.2f')}")
        parts.append(f"{each:.1f} s each")
        if trainer.is_last_iter:
            parts.append("done")
        elif total:
            parts.append(f"{duration(each * (total - done))} left")
        self.echo("  ".join(parts))


def duration(seconds: float) -> str:
    """Return seconds as ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
