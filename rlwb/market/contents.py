"""What a source of bars holds, in a few figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.market.dataset.bars import NUMBERS
from rlwb.market.dataset.layout import is_dataset, list_instruments, list_months
from rlwb.market.dataset.partition import read_partition
from rlwb.market.dataset.state import State, read_state
from rlwb.market.read import read_bars
from rlwb.market.report import Report, counted
from rlwb.market.source import open_source

_MOST = 20
_DAY = 86_400_000_000


@dataclass(frozen=True)
class Contents:
    """What a source holds as it is, before any calendar is laid on it.

    Parameters
    ----------
    kind
        The reader that reads it, ``"table"`` for Parquet and CSV.
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
                f"imported {one.name}: {counted(one.rows, 'rows')}, {counted(one.bars, 'bars')}"
                f"{'' if one.complete else ', in part'}"
                for one in self.dataset.sources[:_MOST]
            ]
            more = len(self.dataset.sources) - _MOST
            lines += [f"         and {more:,} more of them (--json has all)"] if more > 0 else []
        return "\n".join([*lines, *(self.report.as_text().splitlines() if self.report.counts else ())])


def read_contents(
    source: str | os.PathLike[str], *, kind: str | None = None, options: Mapping[str, Any] | None = None
) -> Contents:
    """Read `source` whole and tell what it holds; parameters as for `rlwb.market.read.read_bars`."""
    if is_dataset(source) and kind is None and not options:
        return _of_dataset(Path(source))
    opened = open_source(source, kind, options)
    report = Report()
    bars = read_bars(source, kind=kind, options=options, report=report)
    stamps = bars["datetime"] if "datetime" in bars else pd.Series([], dtype="datetime64[ns]")
    dated = stamps.dropna() if stamps.dtype.kind == "M" else pd.Series([], dtype="datetime64[ns]")
    return Contents(
        kind=opened.kind,
        files=len(opened.files),
        size=sum(path.stat().st_size for path in opened.files),
        bars=len(bars),
        instruments=int(bars["instrument"].nunique()),
        days=int(dated.dt.normalize().nunique()),
        first=dated.min().isoformat() if len(dated) else None,
        last=dated.max().isoformat() if len(dated) else None,
        columns=tuple(str(name) for name in bars.columns),
        report=report,
    )


def _of_dataset(directory: Path) -> Contents:
    """Tell what a data set holds, an unfinished one too, from its state and its stamps."""
    state = read_state(directory)
    paths = [path for folder in list_instruments(directory).values() for path in list_months(folder).values()]
    days: set[int] = set()
    span: list[int] = []
    for path in paths:
        stamp = read_partition(path, ()).stamp
        days.update(np.unique(stamp // _DAY).tolist())
        span += [int(stamp[0]), int(stamp[-1])]
    return Contents(
        kind="dataset",
        files=len(paths),
        size=sum(path.stat().st_size for path in paths),
        bars=state.bars,
        instruments=len(list_instruments(directory)),
        days=len(days),
        first=pd.Timestamp(min(span), unit="us").isoformat() if span else None,
        last=pd.Timestamp(max(span), unit="us").isoformat() if span else None,
        columns=("instrument", "datetime", *(name for name in (*NUMBERS, "halted") if name in state.columns)),
        report=state.report(),
        dataset=state,
    )
