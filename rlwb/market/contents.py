"""What a source of bars holds, in a few figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.market.read import bar_files, read_bars
from rlwb.market.readers.registry import TABLE, find_reader
from rlwb.market.report import Report


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
        What was ignored or changed while reading.
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

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold."""
        return {**vars(self), "columns": list(self.columns), "report": self.report.as_dict()}

    def as_text(self) -> str:
        """Return the figures as lines for people."""
        lines = [
            f"{self.bars:,} bars of {self.instruments:,} instruments on {self.days:,} days",
            f"stamps   {self.first} to {self.last}",
            f"columns  {', '.join(self.columns)}",
            f"source   {self.files:,} files of kind {self.kind}, {self.size:,} bytes",
        ]
        return "\n".join([*lines, *(self.report.as_text().splitlines() if self.report.counts else ())])


def read_contents(
    source: str | os.PathLike[str], *, kind: str | None = None, options: Mapping[str, Any] | None = None
) -> Contents:
    """Read `source` whole and tell what it holds; parameters as for `rlwb.market.read.read_bars`."""
    reader = find_reader(source, kind, options)
    files = bar_files(source)[0] if reader is None else reader.files(Path(source))[0]
    report = Report()
    bars = read_bars(source, kind=kind, options=options, report=report)
    stamps = bars["datetime"] if "datetime" in bars else pd.Series([], dtype="datetime64[ns]")
    dated = stamps.dropna() if stamps.dtype.kind == "M" else pd.Series([], dtype="datetime64[ns]")
    return Contents(
        kind=TABLE if reader is None else reader.kind,
        files=len(files),
        size=sum(path.stat().st_size for path in files),
        bars=len(bars),
        instruments=int(bars["instrument"].nunique()),
        days=int(dated.dt.normalize().nunique()),
        first=dated.min().isoformat() if len(dated) else None,
        last=dated.max().isoformat() if len(dated) else None,
        columns=tuple(str(name) for name in bars.columns),
        report=report,
    )
