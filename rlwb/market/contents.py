"""What a source of bars holds, in a few figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.market.bars import DAY, NUMBERS
from rlwb.market.dataset.state import BARS, State, is_dataset
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import Report, counted
from rlwb.market.source import open_source

_MOST = 20


@dataclass(frozen=True)
class Contents:
    """What a source holds as it is, before any calendar is laid on it.

    Parameters
    ----------
    kind
        The reader that reads it, ``"table"`` for Parquet and CSV, ``"dataset"`` for a data set.
    files, size
        How many files, and their bytes.
    bars, instruments, days
        Rows; distinct ids; distinct dates of stamps, as they are written.
    first, last
        The earliest and latest stamp, ISO 8601; None without any.
    columns
        Those of the schema that are there.
    report
        What was ignored or changed while reading; of a data set, what its imports dropped and repaired.
    dataset
        What a data set says of itself: its calendar and sources.
    """

    kind: str
    files: int
    size: int
    bars: int
    instruments: int
    days: int
    first: str | None
    last: str | None
    columns: tuple[str, ...]
    report: Report
    dataset: State | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold."""
        found = {**vars(self), "columns": list(self.columns), "report": self.report.as_dict()}
        return {**found, "dataset": None if self.dataset is None else self.dataset.as_dict()}

    def as_text(self) -> str:
        """Return the figures as lines for people."""
        instruments, days = counted(self.instruments, "instruments"), counted(self.days, "days")
        lines = [
            f"{counted(self.bars, 'bars')} of {instruments} on {days}",
            f"stamps   {'none' if self.first is None else f'{self.first} to {self.last}'}",
            f"columns  {', '.join(self.columns)}",
            f"source   {counted(self.files, 'files')} of kind {self.kind}, {counted(self.size, 'bytes')}",
        ]
        if self.dataset is not None:
            clock = self.dataset.calendar
            spans = ", ".join("-".join(segment) for segment in clock.segments)
            lines.append(
                f"calendar {spans} {clock.timezone}, bars of {clock.tick_minutes:g} min named by their {clock.label}"
            )
            lines += [
                f"imported {one.name}: {counted(one.rows, 'rows')}{'' if one.complete else ', in part'}"
                for one in self.dataset.sources[:_MOST]
            ]
            more = len(self.dataset.sources) - _MOST
            lines += [f"         and {more:,} more of them (--json has all)"] if more > 0 else []
        return "\n".join([*lines, *(self.report.as_text().splitlines() if self.report.counts else ())])


def read_contents(
    source: str | os.PathLike[str], *, kind: str | None = None, options: Mapping[str, Any] | None = None
) -> Contents:
    """Read `source` and tell what it holds; parameters as for `rlwb.market.source.open_source`."""
    seen = _Seen()
    if is_dataset(source) and kind is None and not options:
        stored = Stored(Path(source), unfinished=True)
        for part in stored.parts():
            seen.add(part.names[np.unique(part.code)].tolist(), part.stamp)
        state = stored.state
        paths = [Path(source) / BARS / name for name in state.files]
        seen.columns = dict.fromkeys(name for name in (*NUMBERS, "halted") if name in state.columns)
        return seen.contents("dataset", paths, state.report, state)
    report = Report()
    opened = open_source(source, kind, options, report=report)
    for table in opened.batches():
        stamps = table["datetime"].cast("timestamp[us]", safe=False).drop_null()
        seen.add(table["instrument"].unique().drop_null().to_pylist(), stamps.to_numpy().view(np.int64), table.num_rows)
        seen.columns |= dict.fromkeys(table.column_names[2:])
    return seen.contents(opened.kind, opened.files, report)


class _Seen:
    """What was seen of bars so far."""

    def __init__(self) -> None:
        self.bars = 0
        self.names: set[str] = set()
        self.days: set[int] = set()
        self.span: list[int] = []
        self.columns: dict[str, None] = {}

    def add(self, names: list[str], stamps: np.ndarray, bars: int | None = None) -> None:
        self.names.update(names)
        self.bars += len(stamps) if bars is None else bars
        if len(stamps):
            self.days.update(np.unique(stamps // DAY).tolist())
            self.span += [int(stamps.min()), int(stamps.max())]

    def contents(self, kind: str, files: list[Path], report: Report, dataset: State | None = None) -> Contents:
        first, last = (pd.Timestamp(end(self.span), unit="us").isoformat() if self.span else None for end in (min, max))
        size = sum(path.stat().st_size for path in files)
        columns = ("instrument", "datetime", *self.columns)
        counts = len(files), size, self.bars, len(self.names), len(self.days)
        return Contents(kind, *counts, first, last, columns, report, dataset)
