"""The bars of a data set, back out of it: some sessions at a time, sorted, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import DataError
from rlwb.market.bars import DAY, Bars, join
from rlwb.market.calendar import Calendar, span_of
from rlwb.market.dataset.state import BARS, STATE, read_state
from rlwb.market.findings import Report
from rlwb.market.readers.content import one_line
from rlwb.market.source import check_between, check_found, names_of

#: Bars that are laid out at a time; they take some 0.3 GB on the way.
PART_BARS = 1 << 20
#: Rows that are read of a file at least; small, because a part takes a few of each of many files.
_GROUP_ROWS = 1 << 14
_DELTA = {"datetime": "DELTA_BINARY_PACKED", "row": "DELTA_BINARY_PACKED"}


class Stored:
    """Bars of a data set, of which nothing is read yet.

    They are those of `instruments` and of sessions from `start` to `end`, both included, where these are given, less
    the files that `leave_out` names. A data set that is not finished is a `DataError`, unless `unfinished` are allowed.
    Refusals name `source` where that is what was imported into it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        instruments: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        leave_out: Sequence[str] = (),
        unfinished: bool = False,
        source: Path | None = None,
    ) -> None:
        self.directory, self._source = directory, source or directory
        self.state = read_state(directory)
        late = self.state.incomplete
        if late is not None and not unfinished:
            raise DataError(
                f"the import into {directory} is under way or was cut short; finish it with rlwb data import "
                f"{late.path} --out {directory}."
            )
        self.files = [name for name in self.state.files if name not in leave_out]
        self.is_whole = instruments is None and start is None and end is None
        self._wanted = names_of(instruments)
        self._span = start, end
        span_of(start, end)
        self._before = (directory / STATE).read_bytes()

    def parts(self, calendar: Calendar | None = None) -> Iterator[Bars]:
        """Yield whole sessions, sorted, of about `PART_BARS`; an instrument is in one part unless it is larger."""
        calendar = calendar or self.state.calendar
        shift = calendar.tick_seconds * 1_000_000 if calendar.label == "end" else 0
        for pieces in self._plan(shift):
            yield self._read(pieces)
        if (self.directory / STATE).read_bytes() != self._before:
            raise DataError(f"bars were imported into {self.directory} while it was read; read it again.")

    def frame(self) -> pd.DataFrame:
        """Return all bars in the schema's columns: instrument (category of text), datetime, and numbers."""
        bars = join(list(self.parts()))
        names = pd.Index(bars.names.tolist(), dtype=object)
        columns = {
            "instrument": pd.Categorical.from_codes(bars.code.astype(np.int32), categories=names),
            "datetime": bars.stamp.view("datetime64[us]").astype("datetime64[ns]"),
            **bars.values,
        }
        return pd.DataFrame(columns if bars.halted is None else {**columns, "halted": bars.halted})

    def told(self) -> Report:
        """Return what the imports found, with the number of rows that they dropped; of a selection nothing."""
        report = Report()
        report.absorb(self.state.report)
        report.total("bars_read", self.state.rows - self.state.bars if self.is_whole else 0)
        return report

    def damage(self) -> dict[str, str]:
        """Read everything; return what is wrong with files that cannot be read, by their names."""
        found = {}
        for name in self.files:
            try:
                for _ in read_groups(self._path(name)):
                    pass
            except DataError as error:
                found[name] = str(error)
        return found

    def _path(self, name: str) -> Path:
        return self.directory / BARS / name

    def _plan(self, shift: int) -> Iterator[pd.DataFrame]:
        """Yield where the sessions of each part lie: instrument, day, file (number), first (row of it), and bars."""
        found = []
        for number, name in enumerate(self.files):
            for first, table in read_groups(self._path(name), ["instrument", "datetime"]):
                text = table["instrument"].combine_chunks()
                day = (table["datetime"].to_numpy().view(np.int64) - shift) // DAY
                code = text.indices.to_numpy()
                begins = np.flatnonzero(np.append(True, (np.diff(code) != 0) | (np.diff(day) != 0)))
                names = text.dictionary.to_numpy(zero_copy_only=False)[code[begins]]
                bars = np.diff(np.append(begins, len(code)))
                columns = {"instrument": names, "day": day[begins], "file": number, "first": first + begins}
                found.append(pd.DataFrame({**columns, "bars": bars}))
        if not found:
            return
        plan = pd.concat(found, ignore_index=True).astype({"instrument": "category"})
        if self._wanted is not None:
            check_found(self._wanted, plan["instrument"].cat.categories.tolist(), self._source)
            plan = plan[plan["instrument"].isin(self._wanted)]
        days = plan["day"].to_numpy().astype("datetime64[D]")
        plan = plan[check_between(days, *self._span, self._source, self._wanted)]
        plan = plan.sort_values(["instrument", "day", "file"])
        for _, pieces in plan.groupby(_part_of(plan)):
            yield pieces

    def _read(self, pieces: pd.DataFrame) -> Bars:
        parts = []
        columns = ["instrument", "datetime", *self.state.columns, "source", "row"]
        for number, mine in pieces.groupby("file"):
            begin, count = mine["first"].to_numpy(), mine["bars"].to_numpy()
            span = int(begin.min()), int((begin + count).max())
            groups = list(read_groups(self._path(self.files[number]), columns, partial(_holds, *span)))
            rows = np.repeat(begin - groups[0][0] - np.cumsum(count) + count, count) + np.arange(count.sum())
            bars = Bars.from_table(pa.concat_tables([table for _, table in groups]), self.state.columns)
            parts.append(bars if len(rows) == len(bars) else bars.take(rows))
        return join(parts).arrange()


def _part_of(plan: pd.DataFrame) -> np.ndarray:
    """Return the number of each piece's part: whole sessions, and whole instruments as far as they fit."""
    sessions = plan.groupby(["instrument", "day"], observed=True)["bars"].agg(["sum", "size"])
    parts: list[int] = []
    part = held = 0
    for _, sizes in sessions["sum"].groupby(level="instrument", observed=True):
        if held and held + sizes.sum() > PART_BARS:
            part, held = part + 1, 0
        for size in sizes.tolist():
            if held and held + size > PART_BARS:
                part, held = part + 1, 0
            held += size
            parts.append(part)
    return np.repeat(parts, sessions["size"])


def write_file(path: Path, bars: Bars) -> None:
    """Write sorted bars to `path`, with a checksum a page."""
    pq.write_table(
        bars.as_table(),
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=_GROUP_ROWS,
        use_dictionary=["instrument", "source"],
        column_encoding=_DELTA,
        write_statistics=["instrument", "datetime"],
        write_page_checksum=True,
    )


def read_groups(
    path: Path, columns: list[str] | None = None, wanted: Callable[[int, pq.RowGroupMetaData], bool] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the row groups of a file of bars that `wanted` takes (first row, metadata), each with its first row.

    A file that is missing or damaged is a `DataError`.
    """
    try:
        with pq.ParquetFile(
            path, pre_buffer=False, page_checksum_verification=True, read_dictionary=["instrument"]
        ) as file:
            first = 0
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if wanted is None or wanted(first, group):
                    yield first, file.read_row_group(number, columns=columns, use_threads=False)
                first += group.num_rows
    except FileNotFoundError:
        raise DataError(f"{path} is missing; import its sources into a new folder.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({one_line(error)}); import its sources into a new folder.") from None


def _holds(low: int, high: int, first: int, group: pq.RowGroupMetaData) -> bool:
    """Tell whether a group that begins with row `first` holds rows from `low` up to, not including, `high`."""
    return first < high and first + int(group.num_rows) > low


def overlapping(path: Path, names: np.ndarray, first: int, last: int) -> Iterator[Bars]:
    """Yield the row groups of a file that may hold bars of `names` (sorted) from stamp `first` to `last`."""

    def may_hold(_: int, group: pq.RowGroupMetaData) -> bool:
        text, stamp = (group.column(index).statistics for index in range(2))
        low, high = (int(np.datetime64(value, "us").astype(np.int64)) for value in (stamp.min, stamp.max))
        at = np.searchsorted(names, text.min)
        return bool(at < len(names) and names[at] <= text.max and low <= last and high >= first)

    return (Bars.from_table(table) for _, table in read_groups(path, wanted=may_hold))
