"""How far an import or a check is: a bar where someone watches, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from tqdm.auto import tqdm


class BarProgress:
    """Takes the calls of `rlwb.market.dataset.importing.import_bars` and `rlwb.market.quality.check_bars`.

    Parameters
    ----------
    bar
        Whether to draw a bar with bars a second.
    echo
        Says a line, where no bar is drawn.
    every
        Seconds between two lines.
    """

    def __init__(self, *, bar: bool, echo: Callable[[str], None], every: float = 10.0) -> None:
        self._drawn = bar
        self._echo = echo
        self._every = every
        self._bar: Any = None
        self._name = ""
        self._rows = 0
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, name: str, rows: int, total: int | None) -> None:
        if name != self._name:
            self.__exit__()
            self._name, self._rows = name, 0
            self._bar = tqdm(total=total, desc=name, unit=" bars", unit_scale=True) if self._drawn else None
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(rows - self._bar.n)
        elif now - self._said >= self._every:
            of = "" if total is None else f" of {total:,}"
            self._echo(f"{name}: {rows:,}{of} bars, {(rows - self._rows) / (now - self._said):,.0f} bars/s")
            self._rows, self._said = rows, now
