"""A source in chunks of rows, each as plain arrays: its bars with their stamps, and what had to be dropped."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.bars import NUMBERS, Block
from rlwb.market.report import Report
from rlwb.market.source import TABLE, Source, open_source

#: Rows that are read at a time, some 60 MB; larger arrays would come from the system anew each time.
CHUNK_ROWS = 1 << 20
_EARLIEST, _LATEST = (int(stamp.value) // 1000 for stamp in (pd.Timestamp.min, pd.Timestamp.max))


@dataclass(frozen=True)
class Reading:
    """How sources are read; parameters as for `rlwb.market.read.read_bars`."""

    kind: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    source_timezone: str | None = None
    instrument_pattern: str | None = None
    datetime_format: str | None = None

    def open(self, path: Path, report: Report | None = None) -> Source:
        """Return the source of bars at `path`."""
        return open_source(
            path,
            self.kind,
            self.options,
            columns=self.columns,
            source_timezone=self.source_timezone,
            instrument_pattern=self.instrument_pattern,
            datetime_format=self.datetime_format,
            report=report,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Chunk:
    """Bars of consecutive rows, in the order of the source.

    Parameters
    ----------
    names
        Instruments, text.
    code
        Each bar's instrument as a number into `names`, int of shape ``(bars,)``.
    block
        The bars.
    rows
        Rows that they were taken from, those that are dropped included.
    columns
        Columns of the schema that the source has, beside instrument and datetime.
    report
        What was dropped.
    """

    names: list[str]
    code: np.ndarray
    block: Block
    rows: int
    columns: tuple[str, ...]
    report: Report


def read_chunks(
    path: Path, reading: Reading, calendar: Calendar, number: int, skip: int = 0, *, label: str | None = None
) -> Generator[Chunk]:
    """Yield the chunks of a source from row `skip` on, which must be where a chunk begins.

    Parameters
    ----------
    number
        The source's number, for the bars.
    label
        The source's name in reports; that of the file without it.
    """
    label = label or path.name
    report = Report()
    source = reading.open(path, report)
    names: list[str] = []
    for first, table in _regrouped(source.batches([path]), skip):
        code = codes_of(table, names)
        stamp, there, fine = local_stamps(table["datetime"], calendar, str(path))
        columns = tuple(name for name in (*NUMBERS, "halted") if name in table.column_names)
        values = {name: np.array(table[name].to_numpy()) for name in columns if name != "halted"}
        halted = table["halted"].fill_null(False).to_numpy() if "halted" in columns else None
        row = np.arange(first + 1, first + table.num_rows + 1, dtype=np.int64)
        row = row if source.kind == TABLE else np.zeros_like(row)
        block = Block(stamp, values, halted, np.full(len(row), number, dtype=np.int32), row)
        found = report.merge(Report())
        report.counts.clear()
        report.listed.clear()
        yield _cleaned(list(names), code, block, there, fine, columns, found, label)


def _regrouped(batches: Iterator[pa.Table], skip: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables of `CHUNK_ROWS` rows each, but for the last, with the number of the row each begins at."""
    held: list[pa.Table] = []
    first, passed, count = skip, 0, 0
    for whole in batches:
        batch = whole.slice(min(max(0, skip - passed), whole.num_rows))
        passed += whole.num_rows
        held.append(batch)
        count += batch.num_rows
        while count >= CHUNK_ROWS:
            joined = pa.concat_tables(held, promote_options="default")
            yield first, joined.slice(0, CHUNK_ROWS)
            first, held = first + CHUNK_ROWS, [joined.slice(CHUNK_ROWS)]
            count -= CHUNK_ROWS
            del joined
    if count:
        yield first, pa.concat_tables(held, promote_options="default")


def codes_of(table: pa.Table, names: list[str]) -> np.ndarray:
    """Return each row's instrument as a number into `names`, which grows by new ones; -1 where there is none."""
    known = {name: code for code, name in enumerate(names)}
    pieces = []
    for piece in table["instrument"].chunks:
        array = piece.dictionary_encode()
        own = array.dictionary.to_pylist()
        for name in own:
            if name and name not in known:
                known[name] = len(names)
                names.append(name)
        rank = np.array([known.get(name, -1) if name else -1 for name in own] + [-1], dtype=np.int32)
        pieces.append(rank[array.indices.fill_null(len(own)).to_numpy()])
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int32)


def local_stamps(column: pa.ChunkedArray, calendar: Calendar, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return session-local stamps in microseconds, which of them are there, and which are finer than that; ``(n,)``."""
    if column.type.tz is not None:
        if calendar.timezone is None:
            raise DataError(
                f"{where}: the bars are stamped in the zone {column.type.tz} and the calendar has none; set "
                "Calendar.timezone to the exchange's zone, for example America/New_York."
            )
        column = pc.local_timestamp(column.cast(pa.timestamp("ns", calendar.timezone)))
    there = column.is_valid().to_numpy()
    whole, rest = np.divmod(column.cast(pa.int64()).fill_null(0).to_numpy(), 1000)
    return whole, there, rest != 0


def _cleaned(
    names: list[str],
    code: np.ndarray,
    block: Block,
    there: np.ndarray,
    fine: np.ndarray,
    columns: tuple[str, ...],
    report: Report,
    label: str,
) -> Chunk:
    """Return the bars that have an instrument and a stamp."""
    rows = len(block)
    there = there & (block.stamp > _EARLIEST) & (block.stamp < _LATEST)
    lacking = {"instrument_missing": code < 0, "datetime_missing": ~there, "off_grid": fine}
    keep = np.ones(rows, dtype=bool)
    for reason, mask in lacking.items():
        mask = mask & keep
        if mask.any():
            first = int(np.argmax(mask))
            name = names[code[first]] if code[first] >= 0 else "no instrument"
            report.add(reason, int(mask.sum()), f"{name}, {label} row {block.row[first] or 'unknown'}")
            keep &= ~mask
    if not keep.all():
        index = np.flatnonzero(keep)
        code, block = code[index], block.take(index)
    return Chunk(names, code, block, rows, columns, report)
