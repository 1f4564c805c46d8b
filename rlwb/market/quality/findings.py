"""What was found, counted in full and listed up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlwb.market.quality.kinds import KINDS


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Parameters
    ----------
    kind
        Key of `rlwb.market.quality.kinds.KINDS`.
    instrument, date, stamp
        Where it is; the stamp as it is written in the data. None where there is no such thing.
    value
        The price, volume, return, ratio or count that it is about; NaN without one.
    what
        The value in words.
    file, row
        Where the bar came from, rows counted from 1; None where no bar is there or the source does not say.
    """

    kind: str
    instrument: str | None = None
    date: str | None = None
    stamp: str | None = None
    value: float = float("nan")
    what: str = ""
    file: str | None = None
    row: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold, with gravity and advice."""
        kind = KINDS[self.kind]
        return {**vars(self), "gravity": kind.gravity, "advice": kind.advice}

    def place(self) -> str:
        """Return where it is, in words."""
        where = " ".join(part for part in (self.instrument, self.stamp or self.date) if part)
        if self.file is not None:
            origin = self.file if self.row is None else f"{self.file} row {self.row}"
            where = f"{where} ({origin})" if where else origin
        return ": ".join(part for part in (where, self.what) if part)


@dataclass(frozen=True)
class Window:
    """Bars around a finding, to look at.

    Parameters
    ----------
    finding
        What is in the middle.
    stamps
        datetime64[us] of shape ``(bars,)``.
    close
        Float64 of shape ``(bars,)``.
    at
        Index of the bar that it is about.
    price
        The price that it is about.
    """

    finding: Finding
    stamps: np.ndarray
    close: np.ndarray
    at: int
    price: float


@dataclass
class Findings:
    """Counts by kind, the first `limit` findings of each, and the worst few with the bars around them."""

    limit: int = 1000
    counts: dict[str, int] = field(default_factory=dict)
    listed: dict[str, list[Finding]] = field(default_factory=dict)
    windows: dict[str, list[Window]] = field(default_factory=dict)

    _SHOWN = 3

    def count(self, kind: str, count: int = 1) -> None:
        """Add to the count of a kind."""
        if kind not in KINDS:
            raise KeyError(kind)
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def room(self, kind: str) -> int:
        """Return how many more findings of the kind are listed."""
        return self.limit - len(self.listed.get(kind, ()))

    def add(self, findings: Sequence[Finding]) -> None:
        """List findings that are counted already, as far as there is room."""
        for finding in findings:
            if self.room(finding.kind) > 0:
                self.listed.setdefault(finding.kind, []).append(finding)

    def show(self, window: Window) -> None:
        """Keep the window if it is among the worst of its kind."""
        kept = self.windows.setdefault(window.finding.kind, [])
        kept.append(window)
        kept.sort(key=lambda one: -abs(one.finding.value))
        del kept[self._SHOWN :]
