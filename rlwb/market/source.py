"""A source of bars: its files, and its bars as a stream of tables with the schema's columns and types."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import span_of
from rlwb.market.findings import Report
from rlwb.market.readers.base import TABLE, Reader, canonical, check_options, find_reader, in_zone, known_to, recognise
from rlwb.market.readers.content import one_line

_OF_TABLES = ("columns", "instrument_pattern", "datetime_format")


class Unit(NamedTuple):
    """A file, or a whole source, that can be read by itself, and all files that its bars depend on."""

    path: Path
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Source:
    """Bars in files, as they are; made by `open_source`, which says what the fields mean."""

    path: Path
    reader: Reader
    options: Mapping[str, Any] = field(default_factory=dict)
    instruments: frozenset[str] | None = None
    timezone: str | None = None
    report: Report = field(default_factory=Report)
    seen: set[str] = field(default_factory=set)  # instruments of what was read, those that were not asked for too

    @property
    def kind(self) -> str:
        """The reader's name, ``"table"`` for Parquet and CSV."""
        return self.reader.name

    @cached_property
    def files(self) -> list[Path]:
        """The files that the bars depend on, sorted."""
        return self.reader.files(self.path, **known_to(self.reader.files, self.options))

    @property
    def units(self) -> list[Unit]:
        """The parts that can be read by themselves: each file, or the source as a whole."""
        if self.reader.by_file:
            return [Unit(path, (path,)) for path in self.files if self.reader.recognises(path)]
        return [Unit(self.path, tuple(self.files))]

    @property
    def ignored(self) -> list[str]:
        """Files and folders below the source that its bars do not depend on, sorted; of such a folder only itself."""
        files = set(self.files)
        above = {parent for path in files for parent in path.parents}

        def beside(folder: Path) -> Iterator[str]:
            for entry in folder.iterdir():
                if entry in above:
                    yield from beside(entry)
                elif entry not in files:
                    yield str(entry.relative_to(self.path))

        return [] if self.path.is_file() else sorted(beside(self.path))

    def batches(self, paths: Iterable[Path] | None = None) -> Iterator[pa.Table]:
        """Yield the bars of `paths` (of `units`; all by default), a part of a file at a time, in order.

        Tables have instrument (text), datetime (timestamp[ns], all without a zone or all with the same), open, high,
        low, close, volume and those of the schema's others that the source has (float64; null or NaN is missing; halted
        bool, none missing). Of a table each row of the file is a row. Where all are read, files that are ignored are
        counted, and an instrument that was asked for and is not there is a `DataError` after all bars. One names the
        file and, where there is one, the row.
        """
        whole = paths is None
        if paths is None:
            ignored = self.ignored
            self.report.add("file_ignored", len(ignored), ", ".join(ignored[:5]))
            paths = [unit.path for unit in self.units]
        wanted = None if self.instruments is None else _Wanted(self.instruments, self.seen)
        kind: pa.DataType | None = None
        for path in paths:
            for table in self._read(path, wanted):
                bars = table if wanted is None else wanted.pick(table)
                stamps = bars["datetime"]
                if stamps.null_count == len(stamps):  # whose zone says nothing
                    stamps = pa.nulls(len(stamps), kind or stamps.type)
                elif kind is not None and (kind.tz is None) != (stamps.type.tz is None):
                    raise DataError(f"{self.path} has stamps with a zone and some without; write all of them one way.")
                else:
                    kind = kind or stamps.type
                yield bars.set_column(1, "datetime", stamps.cast(kind or stamps.type))
        if wanted is not None and whole:
            check_found(wanted, self.seen, self.path)

    def _read(self, path: Path, wanted: frozenset[str] | None) -> Iterator[pa.Table]:
        passed = known_to(self.reader.function, {"instruments": wanted, "report": self.report})
        try:
            for table in self.reader(path, **self.options, **passed):
                bars = canonical(table, str(path))
                zone = bars["datetime"].type.tz
                if self.timezone is not None and zone is not None:
                    raise DataError(f"{path}: the stamps carry a zone ({zone}) already; leave source_timezone out.")
                if self.timezone is not None:
                    bars = bars.set_column(1, "datetime", in_zone(bars["datetime"], self.timezone))
                yield bars
        except (OSError, MemoryError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read ({one_line(error)}); check its files and their rights.") from None


class Reading(TypedDict, total=False):
    """Keywords of every function that reads a source: how its files are read.

    Parameters
    ----------
    kind
        The reader: a built-in's name, one of an installed package (entry point of the group ``rlwb.readers``),
        ``package.module:Name`` or ``file.py:Name``. Without it, the names of files and folders say.
    options
        Options of the reader, by name.
    columns, instrument_pattern, datetime_format
        Options of the reader of Parquet and CSV (`rlwb.market.readers.table.read_table`).
    source_timezone
        Zone of stamps that carry no offset, where it is not the session's: ``"UTC"`` for many vendors. A local time
        that the zone skips or repeats becomes missing.
    round_seconds
        Stamps that lie at most this many seconds from an edge of a tick are moved onto it, and counted. It needs the
        ticks of a calendar, so it has a meaning for import, check and `load_sessions`.
    """

    kind: str | None
    options: Mapping[str, Any] | None
    columns: Mapping[str, str] | None
    instrument_pattern: str | None
    datetime_format: str | None
    source_timezone: str | None
    round_seconds: float | None


def open_source(
    path: str | os.PathLike[str],
    *,
    instruments: Sequence[str] | None = None,
    report: Report | None = None,
    **reading: Unpack[Reading],
) -> Source:
    """Return a source of bars, of which nothing is read yet.

    Parameters
    ----------
    path
        A file or folder of what one of the readers reads: Parquet, CSV, a Qlib directory … (docs/readers).
    instruments
        Ids to keep, as text; one that the source lacks is a `DataError`.
    report
        Where what is ignored, dropped or changed is counted.
    reading
        See `Reading`.

    Raises
    ------
    ConfigError
        For a reader or an option that does not exist, or an option of another type.
    DataError
        Where there is no such file or folder, and where two readers recognise it.
    """
    unknown = next((name for name in reading if name not in Reading.__annotations__), None)
    if unknown is not None:
        raise TypeError(f"there is no keyword {unknown!r}; those of reading are {', '.join(Reading.__annotations__)}.")
    place, kind = Path(path), reading.get("kind")
    if not place.exists():
        raise DataError(f"there is no file or folder {place}; check the path of the bars.")
    found = find_reader(kind) if kind else recognise(place)
    given = {name: value for name, value in reading.items() if name in _OF_TABLES and value}
    if found.name != TABLE:
        refuse_unused(given, f"{place} is read as {found.name}")
    together = {**(reading.get("options") or {}), **given}
    check_options(found, kind or found.name, together)
    return Source(place, found, together, names_of(instruments), reading.get("source_timezone"), report or Report())


def refuse_unused(given: Mapping[str, object], where: str) -> None:
    """Raise `ConfigError` for the first of the keywords `given` that has a value; `where` says why it is no use."""
    unused = next((name for name, value in given.items() if value), None)
    if unused is not None:
        raise ConfigError(f"{where}, where {unused} has no effect; drop it.")


def check_found(wanted: Iterable[str], present: Collection[str], source: str | os.PathLike[str]) -> None:
    """Raise `DataError` that names the instruments of `wanted` which `source` lacks."""
    missing = sorted(set(wanted) - set(present))
    if missing:
        near = difflib.get_close_matches(missing[0], sorted(map(str, present)), n=1, cutoff=0.0)
        hint = f"; the nearest of its {len(present)} names is {near[0]}" if near else ""
        raise DataError(f"{source} has no instrument {', '.join(missing)}{hint}.")


def check_between(
    days: np.ndarray, start: Any, end: Any, source: str | os.PathLike[str], instruments: Collection[str] | None = None
) -> np.ndarray:
    """Return which of `days`, datetime64[D], lie from `start` to `end`, both included; none of some is a `DataError`.

    It names the dates asked for, those that are there, the `source`, and the `instruments` that were asked for.
    """
    first, last = span_of(start, end)
    within: np.ndarray = (days >= first) & (days <= last)
    if len(days) and not within.any():
        asked = " ".join(f"{word} {day}" for word, day in (("from", start), ("to", end)) if day is not None)
        of = "" if instruments is None else f" of {', '.join(sorted(instruments)[:5])}"
        raise DataError(
            f"{source} has no bars{of} {asked}; its bars are of {days.min()} to {days.max()}. Correct start and end."
        )
    return within


class _Wanted(frozenset[str]):
    """Ids to keep, which remember what there is: what they were asked for, and what they were picked from."""

    seen: set[str]

    def __new__(cls, names: Iterable[str], seen: set[str]) -> _Wanted:
        wanted = super().__new__(cls, names)
        wanted.seen = seen
        return wanted

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def pick(self, table: pa.Table) -> pa.Table:
        self.seen.update(pc.unique(table["instrument"]).drop_null().to_pylist())
        return table.filter(pc.is_in(table["instrument"], pa.array(sorted(self), pa.string())))


def names_of(instruments: Sequence[str] | None) -> frozenset[str] | None:
    """Return the ids of a setting, one or several; what is no text is a `ConfigError`."""
    if instruments is None:
        return None
    names = [instruments] if isinstance(instruments, str) else list(instruments)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"instrument {name!r} is not text; quote it, so that '000001' keeps its zeros.")
    if not names:
        raise ConfigError("instruments is an empty list; leave it out to keep all.")
    return frozenset(names)
