"""Bars as arrays, on their way from a source through a data set into a panel: made, joined, each stamp kept once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import DataError
from rlwb.market.findings import Finding, Report
from rlwb.market.readers.base import canonical
from rlwb.market.readers.content import parse_stamps
from rlwb.market.schema import COLUMNS, FIELDS, QUOTES, REQUIRED, lacking

MUST = REQUIRED[2:]
#: All columns that are numbers.
NUMBERS = (*FIELDS, "factor")
MAY = tuple(name for name in NUMBERS if name not in MUST)
DAY = 86_400_000_000
#: Columns of `Bars` that are always there.
_PLAIN = ("code", "stamp", "source", "row")
#: Stamps in microseconds that nanoseconds reach, as pandas has them.
_EARLIEST, _LATEST = (int(stamp.value) // 1000 for stamp in (pd.Timestamp.min, pd.Timestamp.max))

OnConflict = Literal["keep", "replace"]


@dataclass(frozen=True)
class Bars:
    """Bars of several instruments; all arrays of shape ``(bars,)`` but `names`."""

    names: np.ndarray  # the instruments, sorted text
    code: np.ndarray  # each bar's instrument as a number into `names`, int64
    stamp: np.ndarray  # session-local, in microseconds since 1970, int64
    values: Mapping[str, np.ndarray]  # float64 by name, those of `NUMBERS`; NaN is missing
    halted: np.ndarray | None  # bool; None where the source does not say
    source: np.ndarray  # number of the source that each bar came from, int32
    row: np.ndarray  # its row there, counted from 1, int64; 0 = unknown

    def __len__(self) -> int:
        return len(self.stamp)

    @property
    def priced(self) -> np.ndarray:
        """Whether each bar has a price that orders can be filled at: a close, or a bid and an ask."""
        quoted = [np.isfinite(self.values[name]) for name in QUOTES if name in self.values]
        both = quoted[0] & quoted[1] if len(quoted) == 2 else np.zeros(len(self), dtype=bool)
        return np.isfinite(self.values["close"]) | both

    def take(self, index: np.ndarray | slice) -> Bars:
        """Return the bars of `index` (row numbers, a mask or a slice), in that order."""
        plain = {name: getattr(self, name)[index] for name in _PLAIN}
        halted = None if self.halted is None else self.halted[index]
        return replace(self, **plain, halted=halted, values={name: self.values[name][index] for name in self.values})

    @property
    def is_sorted(self) -> bool:
        """Whether the bars are sorted by instrument and stamp."""
        step = np.diff(self.code)
        return not ((step < 0) | ((step == 0) & (np.diff(self.stamp) < 0))).any()

    def arrange(self) -> Bars:
        """Return the bars sorted by instrument and stamp; those of one stamp stay in their order."""
        return self if self.is_sorted else self.take(np.lexsort((self.stamp, self.code)))

    def finding(self, kind: str, at: int, files: Mapping[int, str], what: str = "", value: float = np.nan) -> Finding:
        """Return a finding about the bar `at`; `files` are the names of sources by number."""
        name, stamp = str(self.names[self.code[at]]), str(pd.Timestamp(int(self.stamp[at]), unit="us"))
        file, row = files.get(int(self.source[at])), int(self.row[at]) or None
        return Finding(kind, what, name, stamp[:10], stamp, file, row, float(value))

    def as_table(self) -> pa.Table:
        """Return the bars with every column of the schema, `source` and `row`; null where they are missing."""
        names, values = pa.array(self.names.tolist(), pa.string()), self.values
        lacking = pa.nulls(len(self), pa.float64())
        return pa.table(
            {
                "instrument": pa.DictionaryArray.from_arrays(pa.array(self.code.astype(np.int32)), names),
                "datetime": pa.array(self.stamp.view("datetime64[us]")),
                **{name: pa.array(values[name], from_pandas=True) if name in values else lacking for name in NUMBERS},
                "halted": pa.nulls(len(self), pa.bool_()) if self.halted is None else pa.array(self.halted),
                "source": pa.array(self.source),
                "row": pa.array(self.row, mask=self.row == 0),
            }
        )

    @classmethod
    def from_table(cls, table: pa.Table, columns: Iterable[str] | None = None) -> Bars:
        """Return the bars of a table that `as_table` made; with the values of `columns`, else with all."""
        names, code = _codes(table["instrument"])
        halted = table["halted"] if "halted" in table.column_names else None
        wanted = set(NUMBERS if columns is None else columns)
        return cls(
            names,
            code,
            table["datetime"].to_numpy().astype("datetime64[us]", copy=False).view(np.int64),
            {name: table[name].to_numpy() for name in NUMBERS if name in wanted and name in table.column_names},
            None if halted is None or halted.null_count == len(halted) else pc.fill_null(halted, False).to_numpy(),
            table["source"].to_numpy(),
            pc.fill_null(table["row"], 0).to_numpy(),
        )


def join(parts: Sequence[Bars]) -> Bars:
    """Return the bars of all parts, one after the other; what one of them lacks is missing."""
    if not parts:
        none = np.empty(0, np.int64)
        return Bars(
            np.empty(0, np.str_), none, none, dict.fromkeys(MUST, np.empty(0)), None, none.astype(np.int32), none
        )
    if len(parts) == 1:
        return parts[0]
    names = np.unique(np.concatenate([part.names for part in parts]))
    plain = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _PLAIN}
    plain["code"] = np.concatenate([np.searchsorted(names, part.names)[part.code] for part in parts])
    values = {
        name: np.concatenate([part.values.get(name, np.broadcast_to(np.nan, len(part))) for part in parts])
        for name in NUMBERS
        if any(name in part.values for part in parts)
    }
    halts = [np.zeros(len(part), dtype=bool) if part.halted is None else part.halted for part in parts]
    halted = np.concatenate(halts) if any(part.halted is not None for part in parts) else None
    return Bars(names, values=values, halted=halted, **plain)


class Merged(NamedTuple):
    """The outcome of `merge`; arrays of shape ``(bars,)``."""

    bars: Bars  # sorted by instrument and stamp, each once
    origin: np.ndarray  # their row numbers in the bars that were given, int64
    changed: np.ndarray  # whether a bar got an optional value from another of its stamp
    conflicts: pd.DataFrame  # pairs of bars that contradict each other (`read_conflicts`)


def keys_of(bars: Bars) -> pd.MultiIndex:
    """Return the instrument and stamp of each bar, to find others by."""
    names = pd.Categorical.from_codes(bars.code, categories=pd.Index(bars.names.tolist(), dtype=object))
    return pd.MultiIndex.from_arrays([names, bars.stamp])


def merge(
    bars: Bars, report: Report, files: Mapping[int, str], on_conflict: OnConflict = "keep", zone: str | None = None
) -> Merged:
    """Sort bars by instrument and stamp and keep one of each stamp.

    Of bars from one source the last is kept. From two sources, equal bars are kept once, with every optional value that
    one of them has; of different ones `on_conflict` keeps the first or takes the later. `bars` come in the order of
    their sources, whose names by number are `files`; `report` counts everything that is moved or dropped, an hour that
    the clocks of `zone` show twice by a kind of its own.
    """
    order = left = np.arange(len(bars))
    if not bars.is_sorted:
        _count_unsorted(bars, report, files)
        order = np.lexsort((bars.stamp, bars.code))
        bars = bars.take(order)
    changed = np.zeros(len(bars), dtype=bool)
    values = dict(bars.values)
    old = np.flatnonzero(_same_stamp(bars, left) & (np.diff(bars.source) == 0))  # of one source, the last is kept
    left = np.delete(left, old)
    twice = _shown_twice(bars.stamp[old], zone)
    found = {"hour_repeated": [old[twice]]}
    old = old[~twice]
    same = _equal(values, old, old + 1, strictly=True)
    found |= {"duplicate_identical": [old[same]], "duplicate_conflicting": [old[~same]]}
    found |= {"overlap_identical": [], "overlap_conflicting": []}
    pairs = [(left[np.searchsorted(left, old[~same])], old[~same])]
    while (repeated := _same_stamp(bars, left)).any():  # of several sources, the first and the second until one is left
        first = np.flatnonzero(repeated & ~np.append(False, repeated[:-1]))
        old, later = left[first], left[first + 1]
        same = _equal(values, old, later, strictly=False)
        found["overlap_identical"].append(later[same])
        found["overlap_conflicting"].append(later[~same])
        takes = ~same & (on_conflict == "replace")
        kept, other = np.where(takes, later, old), np.where(takes, old, later)
        pairs.append((kept[~same], other[~same]))
        for name in set(MAY) & set(values):
            column = values[name] = values[name].copy()
            filled = same & np.isnan(column[old]) & ~np.isnan(column[later])
            column[old[filled]] = column[later[filled]]
            changed[old[filled]] = True
        left = np.delete(left, np.where(takes, first, first + 1))
    for kind, rows in found.items():
        at = np.sort(np.concatenate([left[:0], *rows]))
        report.tell(kind, at, partial(bars.finding, kind, files=files))
    kept, other = (np.concatenate(side) for side in zip(*pairs, strict=True))
    final = replace(bars, values=values)
    final = final if len(left) == len(final) else final.take(left)
    return Merged(final, order[left], changed[left], _conflict_table(bars, kept, other))


def _shown_twice(stamp: np.ndarray, zone: str | None) -> np.ndarray:
    """Tell of local stamps (microseconds) whether the clocks of a zone show them twice."""
    if zone is None or not len(stamp):
        return np.zeros(len(stamp), dtype=bool)
    local = pa.array(stamp.view("datetime64[us]"))
    early, late = (
        pc.assume_timezone(local, zone, ambiguous=way, nonexistent="earliest") for way in ("earliest", "latest")
    )
    return pc.not_equal(early, late).to_numpy(zero_copy_only=False)


def _same_stamp(bars: Bars, rows: np.ndarray) -> np.ndarray:
    """Tell of each of `rows` but the last whether the next has its instrument and stamp."""
    return (np.diff(bars.code[rows]) == 0) & (np.diff(bars.stamp[rows]) == 0)


def _count_unsorted(bars: Bars, report: Report, files: Mapping[int, str]) -> None:
    """Count the bars that are earlier than the one before them of their source and instrument."""
    code = bars.code
    by_name = np.argsort(code, kind="stable") if (np.diff(code) < 0).any() else np.arange(len(code))
    back = (np.diff(bars.stamp[by_name]) < 0) & (np.diff(code[by_name]) == 0) & (np.diff(bars.source[by_name]) == 0)
    if back.any():
        report.tell("unsorted", np.sort(by_name[1:][back]), partial(bars.finding, "unsorted", files=files))


def _conflict_table(bars: Bars, kept: np.ndarray, other: np.ndarray) -> pd.DataFrame:
    """Return pairs of bars, one row a pair: instrument, datetime, and of each side source, row and the prices."""
    rank = np.argsort(kept, kind="stable")
    sides = {"kept": kept[rank], "other": other[rank]}
    columns: dict[str, object] = {
        "instrument": bars.names[bars.code[sides["kept"]]].astype(object),
        "datetime": bars.stamp[sides["kept"]].view("datetime64[us]"),
    }
    for side, rows in sides.items():
        columns |= {f"{side}_source": bars.source[rows], f"{side}_row": bars.row[rows]}
        columns |= {f"{side}_{name}": bars.values[name][rows] for name in MUST}
    return pd.DataFrame(columns)


def _equal(values: Mapping[str, np.ndarray], left: np.ndarray, right: np.ndarray, *, strictly: bool) -> np.ndarray:
    """Tell of pairs of bars whether they are equal; unless strictly, a missing optional value contradicts nothing."""
    same = np.ones(len(left), dtype=bool)
    for name, column in values.items():
        one, two = column[left], column[right]
        either = name in MAY and not strictly
        lacking = np.isnan(one) | np.isnan(two) if either else np.isnan(one) & np.isnan(two)
        same &= (one == two) | lacking
    return same


def bars_of(
    table: pa.Table, zone: str | None, report: Report, *, source: int = 0, file: str = "", first: int | None = None
) -> Bars:
    """Return the bars of a source's table (`rlwb.market.source`) that have an instrument and a stamp.

    Parameters
    ----------
    table
        Columns of the schema; stamps of any unit, local or with a zone, which are brought to `zone`, the session's.
    report
        Where bars without instrument or stamp, and stamps finer than a microsecond, are counted.
    source, file, first
        Number and name of the source, and its row, counted from 1, that the table begins with; None where rows are not
        known.
    """
    names, code = _codes(table["instrument"])
    stamp, there, fine = _local(table["datetime"], zone)
    there &= (stamp > _EARLIEST) & (stamp < _LATEST)
    row = np.zeros(len(stamp), np.int64) if first is None else np.arange(first, first + len(stamp))
    numbers = [name for name in NUMBERS if name in table.column_names]
    values = {name: table[name].cast(pa.float64(), safe=False).to_numpy() for name in numbers}
    halted = None
    if "halted" in table.column_names:
        halted = pc.fill_null(table["halted"], False).to_numpy(zero_copy_only=False)
    bars = Bars(names, code, stamp, values, halted, np.full(len(stamp), source, dtype=np.int32), row)
    keep = np.ones(len(stamp), dtype=bool)
    for kind, mask in (("instrument_missing", code < 0), ("datetime_missing", ~there), ("off_grid", fine)):
        rows = np.flatnonzero(mask & keep)
        if len(rows):
            at = rows[0]
            name = str(names[code[at]]) if code[at] >= 0 else None
            report.add(kind, len(rows), instrument=name, file=file or None, row=int(row[at]) or None)
            keep[rows] = False
    return bars if keep.all() else bars.take(np.flatnonzero(keep))


def table_of(frame: pd.DataFrame, report: Report) -> pa.Table:
    """Return a frame of bars in the schema as a table; columns that are not of the schema are counted.

    Raises
    ------
    DataError
        For a column that is required and absent, there twice, or of another type.
    """
    names = [str(name) for name in frame.columns]
    missing = lacking(names)
    if missing:
        raise DataError(f"the bars lack the columns {', '.join(missing)}; they have {', '.join(names)}.")
    extra = [name for name in names if name not in COLUMNS]
    report.add("column_ignored", len(extra), ", ".join(extra))
    try:
        table = pa.Table.from_pandas(frame.drop(columns=extra), preserve_index=False)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise DataError(f"the bars cannot be read ({'; '.join(map(str, error.args))}); correct the column.") from None
    at = table.column_names.index("datetime")
    if pa.types.is_string(table["datetime"].type) or pa.types.is_large_string(table["datetime"].type):
        table = table.set_column(at, "datetime", parse_stamps(table["datetime"], "column datetime"))
    return canonical(table, "the bars", 1)


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted names and each row's number among them, -1 where there is none."""
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    found = np.array(whole.dictionary.fill_null("").to_pylist(), dtype=np.str_)
    names = np.unique(found)
    rank = np.append(np.searchsorted(names, found), -1)
    if len(names) and names[0] == "":
        rank, names = np.maximum(rank - 1, -1), names[1:]
    return names, rank[pc.fill_null(whole.indices, len(found)).to_numpy()]


def _local(column: pa.ChunkedArray, zone: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return local stamps in microseconds, which of them are there, and which are finer than that."""
    if column.type.tz is not None:
        if zone is None:
            raise DataError(
                f"the bars are stamped in the zone {column.type.tz} and the calendar has none (orders are local "
                "wall-clock time); set Calendar.timezone to the exchange's zone, for example America/New_York."
            )
        column = pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    there = column.is_valid().to_numpy(zero_copy_only=False)
    number = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    if column.type.unit == "ns":
        whole, rest = np.divmod(number, 1000)
        return whole, there, rest != 0
    reach = {"s": 1_000_000, "ms": 1000, "us": 1}[column.type.unit]
    there &= np.abs(number) <= _LATEST // reach
    return np.where(there, number, 0) * reach, there, np.zeros(len(number), dtype=bool)
