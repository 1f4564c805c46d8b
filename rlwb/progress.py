"""Progress of a piece of work: a bar where someone watches, lines in a log, a file for who watches from elsewhere."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

Mode = Literal["bar", "lines", "none"]

PROGRESS_ENV = "RLWB_PROGRESS"
"""Environment variable that settles what a process and its children show of work: ``none``, nor any other line; or
``file``, no progress, where another process shows what is in the file."""

RECENT = 10
"""Units whose mean duration tells how long the rest will take."""
_FILE_SECONDS = 0.5
"""Least time between two writes of the file."""
_FOLLOW_SECONDS = 0.3
"""Time between two looks at the file of another process."""


class Progress:
    """The count of a piece of work's units that are done, with the time that a unit takes and the time left.

    Only the time between `start`, or the end of the unit before, and `step` counts, so that a pause between two units
    lengthens no estimate.

    Parameters
    ----------
    unit
        What is counted, in the singular: ``iteration``.
    total
        Units in all; None where that is not known.
    title
        Name of the work, for a bar and the file.
    mode
        ``bar`` draws one by tqdm, in a notebook as a widget; ``lines`` prints a line a unit; ``none`` shows nothing.
    done
        Units that were done before.
    echo
        Receives each line.
    every
        Least time between two lines, in seconds; the last unit always has its line, unless all took less than that.
    clock
        Seconds that never run backwards.
    file
        Where the state is kept as JSON while the work goes on: `title`, `unit`, `done`, `total`, `each` and `left` in
        seconds, which are null until a unit has ended, and `figures`. It is removed at the end.
    """

    def __init__(
        self,
        unit: str,
        total: int | None,
        *,
        title: str = "",
        mode: Mode = "lines",
        done: int = 0,
        echo: Callable[[str], None] = print,
        every: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        file: Path | None = None,
    ) -> None:
        self.unit, self.total, self.title, self.mode, self.done = unit, total, title, mode, done
        self.each = math.nan
        self._echo, self._every, self._clock, self._file = echo, every, clock, file
        self._durations: deque[float] = deque(maxlen=RECENT)
        self._mark = self._said = clock()
        self._written = -math.inf
        self._bar: Any = None
        if mode == "bar":
            from tqdm.auto import tqdm

            self._bar = tqdm(initial=done, **_drawn(title or unit, unit, total))
        self._write({})

    @property
    def left(self) -> float:
        """Seconds until the end, from the mean of the last ten units; NaN where that cannot be told."""
        return math.nan if self.total is None else self.each * (self.total - self.done)

    def start(self) -> None:
        """Begin a unit now: the time since the one before does not count."""
        self._mark = self._clock()

    def step(self, figures: Mapping[str, str] | None = None, *, is_last: bool | None = None) -> None:
        """Count a unit that has ended.

        Parameters
        ----------
        figures
            What to show beside: name to figure as text.
        is_last
            Whether the work ends here; None means where the total is reached.
        """
        now = self._clock()
        self._durations.append(now - self._mark)
        self._mark = now
        self.done += 1
        self.each = sum(self._durations) / len(self._durations)
        figures = dict(figures or {})
        ends = self.done == self.total if is_last is None else is_last
        if self._bar is not None:
            self._bar.set_postfix(figures, refresh=False)
            self._bar.update()
        elif self.mode == "lines" and (now - self._said >= self._every or (ends and self._is_long(now))):
            self._said = now
            self._echo(self._line(figures, ends=ends))
        if ends or now - self._written >= _FILE_SECONDS:
            self._written = now
            self._write(figures)

    def note(self, line: str) -> None:
        """Print a line, above the bar where there is one; nothing where nothing is shown."""
        if self._bar is not None:
            with self._bar.external_write_mode():
                self._echo(line)
        elif self.mode == "lines":
            self._echo(line)

    def close(self) -> None:
        """Leave the bar as it stands, and remove the file, unless another process shows and then removes it."""
        if self._bar is not None:
            self._bar.close()
        is_followed = os.environ.get(PROGRESS_ENV) == "file" and self.done == self.total
        if self._file is not None and not is_followed:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, figures: Mapping[str, str]) -> None:
        if self._file is None:
            return
        from rlwb.files import write_json

        state = {"title": self.title, "unit": self.unit, "done": self.done, "total": self.total}
        times = {"each": self.each, "left": self.left}
        with suppress(OSError):  # of a full disk, which the work itself will tell
            write_json(self._file, {**state, **times, "figures": dict(figures)})

    def _is_long(self, now: float) -> bool:
        return sum(self._durations) >= self._every or now - self._said >= self._every

    def _line(self, figures: Mapping[str, str], *, ends: bool) -> str:
        parts = [f"{self.unit} {self.done:{len(str(self.total or 0))}d}" + (f" of {self.total}" if self.total else "")]
        parts += [f"{name} {value}" for name, value in figures.items()]
        parts.append(f"{self.each:.1f} s each")
        if ends:
            parts.append("done")
        elif self.total:
            parts.append(f"{duration(self.left)} left")
        return "  ".join(parts)


class FollowedProgress:
    """Bars of the work that another process keeps in a file (`Progress`), one for each title that comes.

    Parameters
    ----------
    file
        The file, which need not be there yet.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._title, self._ends = file, "", threading.Event()
        self._bar: Any = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> FollowedProgress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._look()
        self._close(is_done=kind is None)
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def note(self, line: str, echo: Callable[[str], None]) -> None:
        """Print a line above the bar."""
        from tqdm import tqdm

        with tqdm.external_write_mode():
            echo(line)

    def _follow(self) -> None:
        while not self._ends.wait(_FOLLOW_SECONDS):
            self._look()

    def _look(self) -> None:
        if (state := read_progress(self._file)) is not None:
            self._show(state)

    def _show(self, state: Mapping[str, Any]) -> None:
        from tqdm import tqdm

        if self._bar is None or state["title"] != self._title:
            self._close(is_done=True)
            self._title = state["title"]
            self._bar = tqdm(initial=state["done"], **_drawn(self._title, state["unit"], state["total"]))
        self._bar.set_postfix(state["figures"], refresh=False)
        self._bar.update(state["done"] - self._bar.n)
        self._bar.refresh()

    def _close(self, *, is_done: bool) -> None:
        if self._bar is not None:
            if is_done and self._bar.total:
                self._bar.update(self._bar.total - self._bar.n)
            self._bar.close()
            self._bar = None


def _drawn(title: str, unit: str, total: int | None) -> dict[str, Any]:
    """Return how tqdm draws a bar: the figures before the times, so that a narrow terminal cuts what matters least."""
    text = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix} [{elapsed}<{remaining}, {rate_fmt}]"
    how = {"desc": title, "unit": f" {unit}", "total": total, "dynamic_ncols": True}
    return how if total is None else {**how, "bar_format": text}


def duration(seconds: float) -> str:
    """Return seconds as ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def is_settled() -> bool:
    """Tell whether a command has settled that its processes show no progress themselves."""
    return os.environ.get(PROGRESS_ENV) in ("none", "file")


def is_quiet() -> bool:
    """Tell whether a command was told to print its result alone."""
    return os.environ.get(PROGRESS_ENV) == "none"


def quieten() -> None:
    """Let this process and its children print results alone."""
    os.environ[PROGRESS_ENV] = "none"


def read_progress(file: Path) -> dict[str, Any] | None:
    """Return the state that a `Progress` keeps in a file; None where there is none, or none that can be read."""
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("done"), int):
            return found
    return None
