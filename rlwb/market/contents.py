"""A summary of a source of bars, in a few figures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.market.bars import DAY, NUMBERS
from rlwb.market.dataset.state import BARS, State, is_dataset
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import Report, counted
from rlwb.market.source import Reading, open_source

_MOST = 20


@dataclass(frozen=True)
class Contents:
    """A summary of a source of bars as it is, before any calendar is laid on it."""

    kind: str  # the reader that reads it, ``"dataset"`` for a data set
    files: int
    size: int  # bytes of all files
    bars: int
    instruments: int
    days: int  # distinct dates of stamps, as they are written
    first: str | None  # the earliest stamp, ISO 8601; None without any
    last: str | None
    columns: tuple[str, ...]  # those of the schema that are there
    report: Report  # what was ignored or changed while reading; of a data set, what its imports dropped and repaired
    dataset: State | None = None  # what a data set says of itself

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
        return "\n".join([*lines, *([self.report.as_text()] if self.report.counts else [])])


def read_contents(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> Contents:
    """Read `source` and tell what it holds; `reading` as for `rlwb.market.source.open_source`."""
    columns: dict[str, None] = {}
    state: State | None = None
    if is_dataset(source) and not any(reading.values()):
        stored = Stored(Path(source), unfinished=True)
        state, report, kind = stored.state, stored.state.report, "dataset"
        files = [Path(source) / BARS / name for name in state.files]
        columns |= dict.fromkeys(name for name in (*NUMBERS, "halted") if name in state.columns)
        pieces = ((part.names[np.unique(part.code)].tolist(), part.stamp, len(part)) for part in stored.parts())
    else:
        report = Report()
        opened = open_source(source, report=report, **reading)
        kind, files = opened.kind, opened.files
        pieces = (_piece(table, columns) for table in opened.batches())
    bars, names, days, span = 0, set[str](), set[int](), list[int]()
    for of_piece, stamps, count in pieces:
        bars += count
        names.update(of_piece)
        if len(stamps):
            days.update(np.unique(stamps // DAY).tolist())
            span += [int(stamps.min()), int(stamps.max())]
    first, last = (pd.Timestamp(end(span), unit="us").isoformat() if span else None for end in (min, max))
    size = sum(path.stat().st_size for path in files)
    counts = len(files), size, bars, len(names), len(days)
    return Contents(kind, *counts, first, last, ("instrument", "datetime", *columns), report, state)


def _piece(table: pa.Table, columns: dict[str, None]) -> tuple[list[str], np.ndarray, int]:
    """Return ids, stamps (microseconds) and rows of a table, whose other columns are added to `columns`."""
    columns |= dict.fromkeys(table.column_names[2:])
    stamps = table["datetime"].cast("timestamp[us]", safe=False).drop_null().to_numpy().view(np.int64)
    return table["instrument"].unique().drop_null().to_pylist(), stamps, table.num_rows
