"""A source in chunks of rows, each as plain arrays: its bars with their stamps, and what had to be dropped."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.columns import match_columns
from rlwb.market.dataset.arrow import UnfitError, arrow_batches, codes_of, local_stamps
from rlwb.market.dataset.bars import NUMBERS, Block
from rlwb.market.read import id_of, read_bars
from rlwb.market.readers.registry import TABLE
from rlwb.market.report import Report
from rlwb.market.stamps import MISSING
from rlwb.market.tables import read_header
from rlwb.market.validate import Bars, check_columns

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
    if reading.kind == TABLE:
        try:
            for chunk in _fast(path, reading, calendar, number, skip, label):
                yield chunk
                skip += chunk.rows
            return
        except UnfitError:
            pass
    yield from _slow(path, reading, calendar, number, skip, label)


def _fast(path: Path, reading: Reading, calendar: Calendar, number: int, skip: int, label: str) -> Iterator[Chunk]:
    header = read_header(path)
    found = match_columns(header, reading.columns, path.name)
    only = None if "instrument" in found else id_of(path, reading.instrument_pattern)
    columns = tuple(name for name in (*NUMBERS, "halted") if name in found)
    ignored = [name for name in header if name not in found.values()]
    batches = arrow_batches(path, found, reading.datetime_format, skip)
    for first, table in _regrouped(batches, skip):
        report = Report()
        if first == 0:
            report.add("column_ignored", len(ignored), ", ".join(ignored))
        names = [] if only is None else [only]
        code = np.zeros(table.num_rows, dtype=np.int32) if only is not None else codes_of(table, names)
        stamp, there, fine = local_stamps(table["datetime"], calendar.timezone, reading.source_timezone)
        values = {name: _numbers(table[name]) for name in columns if name != "halted"}
        halted = table["halted"].fill_null(False).to_numpy() if "halted" in columns else None
        row = np.arange(first + 1, first + table.num_rows + 1, dtype=np.int64)
        block = Block(stamp, values, halted, np.full(len(row), number, dtype=np.int32), row)
        yield _cleaned(names, code, block, there, fine, columns, report, label)


def _regrouped(batches: Iterator[pa.Table], first: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables of `CHUNK_ROWS` rows each, but for the last, with the number of the row each begins at."""
    held: list[pa.Table] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= CHUNK_ROWS:
            whole = pa.concat_tables(held)
            yield first, whole.slice(0, CHUNK_ROWS)
            first, held = first + CHUNK_ROWS, [whole.slice(CHUNK_ROWS)]
            count -= CHUNK_ROWS
            del whole
    if count:
        yield first, pa.concat_tables(held)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers if numbers.flags.writeable else numbers.copy()


def _slow(path: Path, reading: Reading, calendar: Calendar, number: int, skip: int, label: str) -> Iterator[Chunk]:
    """Read the whole source as a run does, then yield it in chunks."""
    report = Report()
    frame = read_bars(
        path,
        kind=reading.kind,
        options=reading.options or None,
        columns=reading.columns or None,
        source_timezone=reading.source_timezone,
        instrument_pattern=reading.instrument_pattern,
        datetime_format=reading.datetime_format,
        report=report,
    )
    check_columns(frame, label, report.examples.get("column_ignored", ""))
    try:
        bars = Bars(frame, calendar, report)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    names, columns = [str(name) for name in bars.names], tuple(n for n in (*NUMBERS, "halted") if n in frame.columns)
    numbers = bars.values if bars.factor is None else {**bars.values, "factor": bars.factor}
    known = reading.kind == TABLE
    for first in range(skip, len(frame), CHUNK_ROWS):
        part = slice(first, min(first + CHUNK_ROWS, len(frame)))
        local = bars.local[part]
        there = local != MISSING
        stamp, rest = np.divmod(np.where(there, local, 0), 1000)
        row = np.arange(part.start + 1, part.stop + 1, dtype=np.int64) if known else np.zeros(len(local), np.int64)
        block = Block(
            stamp,
            {name: values[part] for name, values in numbers.items()},
            None if bars.halted is None else bars.halted[part],
            np.full(len(local), number, dtype=np.int32),
            row,
        )
        found = report if first == 0 else Report()
        yield _cleaned(names, bars.code[part], block, there, rest != 0, columns, found, label)


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
