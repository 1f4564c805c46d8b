"""Files of bars into a data set: each once, in pieces that survive a kill, with everything that is dropped told."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from rlwb.errors import ConfigError, DataError
from rlwb.files import atomic_path, is_temporary, locked, new_folders, temporary_folder, write_json
from rlwb.market.bars import Bars, OnConflict, bars_of, join, keys_of, merge
from rlwb.market.calendar import Calendar
from rlwb.market.cleaning import place, rounded
from rlwb.market.dataset.state import (
    BARS,
    CONFLICTS,
    LISTED,
    STATE,
    Imported,
    State,
    is_dataset,
    read_state,
)
from rlwb.market.dataset.stored import overlapping, read_groups, write_file
from rlwb.market.findings import Report, counted
from rlwb.market.readers.base import TABLE
from rlwb.market.readers.content import digest_of
from rlwb.market.readers.table import only_instrument
from rlwb.market.source import Reading, Source, Unit, check_found, open_source

#: Called with the source's name, the rows of it that were read so far, and all its rows where they are known.
Progress = Callable[[str, int, int | None], None]
#: Rows of sources that are put together in one file.
BATCH_ROWS = 1 << 20
#: One bar of so many is looked at first, for whether an instrument has any in the session.
_GLANCE = 16
_LOCK = ".lock"
_NAME = re.compile(r"\d{6,}\.parquet")  # of a file of bars or conflicts; see `_next_name`


@dataclass
class ImportResult:
    """The result of an import: the data set, the sources it read or knew already, and their bars."""

    directory: Path
    state: State  # the data set as it is
    added: list[str] = field(default_factory=list)  # names of the sources that were read now
    known: list[str] = field(default_factory=list)  # of those whose content was there already
    rows: int = 0  # that were read now
    bars: int = 0  # that are stored more than before
    seconds: float = 0.0  # that this took, the hashing included
    conflicts: int = 0  # bars of now that differ from another bar of their stamp
    report: Report = field(default_factory=lambda: Report(limit=LISTED))  # of now

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold."""
        state = self.state.as_dict()
        return {**vars(self), "directory": str(self.directory), "state": state, "report": self.report.as_dict()}

    def as_text(self) -> str:
        """Return the figures as lines for people."""
        rate = f", {self.rows / self.seconds:,.0f} rows/s" if self.rows else ""
        read = f"{counted(self.rows, 'rows')} of {counted(len(self.added), 'sources')} read"
        lines = [f"{read}, {counted(self.bars, 'bars')} added to {self.directory}{rate}"]
        if self.known:
            known = counted(len(self.known), "sources")
            lines.append(f"imported before and unchanged: {known}, first: {self.known[0]}")
        lines += self.report.as_text().splitlines() if self.report.counts else []
        if self.conflicts:
            lines.append(f"{counted(self.conflicts, 'conflicts')} listed in {self.directory / CONFLICTS}")
        if self.state.incomplete is not None:
            lines.append(f"{self.state.incomplete.path} was imported in part; import it again to complete it")
        return "\n".join(lines)


def import_bars(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    calendar: Calendar | None = None,
    instruments: Sequence[str] | None = None,
    on_conflict: OnConflict = "keep",
    progress: Progress | None = None,
    **reading: Unpack[Reading],
) -> ImportResult:
    """Add bars to the data set in `out`, which is made if it is not there.

    What was imported before, told by content, is passed over. A killed import leaves the data set as it was after its
    last file, and the same call goes on from there, to the same bytes. Prices are stored as they are: what is repaired
    is repaired, and counted, when the data set is loaded.

    Parameters
    ----------
    sources
        Files or folders of what one of the readers reads.
    calendar
        The clock that the bars are meant for; needed for a new data set. Stamps with a zone are brought to its zone.
    instruments
        Ids to keep, as text; one that a source lacks is a `DataError`.
    on_conflict
        On conflicting bars with one timestamp from two sources: ``"keep"`` the stored one or ``"replace"`` it. Either
        way both are listed (`rlwb.market.read_conflicts`). Within one source the last row is kept.
    progress
        Called after each piece that was read.
    reading
        See `rlwb.market.source.Reading`.

    Raises
    ------
    ConfigError
        Without a calendar where one is needed, or with another than the data set's.
    DataError
        Where a source cannot be read; sources before it stay imported.
    """
    if on_conflict not in ("keep", "replace"):
        raise ConfigError(f"on_conflict is {on_conflict!r}; choose keep or replace.")
    begun, directory = time.monotonic(), Path(out)
    _check_place(directory)
    with _held(directory):
        importing = _Importing(directory, _state_of(directory, calendar), on_conflict, progress)
        opened = [open_source(source, instruments=instruments, **reading) for source in sources]
        if not opened:
            raise DataError("there is nothing to import; name files or folders of bars.")
        label = importing.state.calendar.label
        for one in opened:
            own = one.reader.label
            if own not in (None, label):
                raise ConfigError(
                    f"{one.path} is read as {one.kind}, whose stamps name the {own} of a bar, and the calendar's label "
                    f"is {label!r}; set it to {own!r}."
                )
        tolerance = reading.get("round_seconds") or 0.0
        if not 0 <= tolerance <= importing.state.calendar.tick_seconds / 2:
            raise ConfigError(
                f"round_seconds is {tolerance:g}; give 0 to half a tick, "
                f"{importing.state.calendar.tick_seconds / 2:g} seconds."
            )
        settings = {name: value for name, value in {**reading, "instruments": instruments}.items() if value}
        for one in opened:
            importing.read(one, settings)
        if importing.state.rows == 0:
            raise DataError(f"{opened[0].path} holds no bars: a header, and no rows below it. Export the bars again.")
        importing.flush()
    importing.tell_outside()
    importing.done.seconds = time.monotonic() - begun
    return importing.done


@contextmanager
def imported(source: str | os.PathLike[str], **how: Any) -> Iterator[ImportResult]:
    """Import a source into a data set that goes afterwards; `how` are keywords of `import_bars`."""
    with temporary_folder(tempfile.gettempdir(), "rlwb-import") as folder:
        yield import_bars([source], folder / "set", **how)


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Let one process at a time write to a data set; what becomes none leaves nothing."""
    with ExitStack() as held:
        try:
            held.enter_context(new_folders(directory))
            held.enter_context(locked(directory / _LOCK))
        except BlockingIOError:
            raise DataError(f"another import writes to {directory}; wait until it is done.") from None
        except OSError as error:
            raise DataError(f"{directory} cannot be written to ({error.strerror}); choose another folder.") from None
        try:
            yield
        except BaseException:
            if not is_dataset(directory):
                for folder in (directory / BARS, directory / CONFLICTS):
                    shutil.rmtree(folder, ignore_errors=True)
                (directory / _LOCK).unlink(missing_ok=True)
            raise


class _Importing:
    """Reads sources, merges their bars with what is stored, and writes files of `BATCH_ROWS` rows.

    With each file goes the state that names it, so that a kill loses what was read since and nothing else.
    """

    def __init__(self, directory: Path, state: State, on_conflict: OnConflict, progress: Progress | None) -> None:
        self.done = ImportResult(directory, state)
        self.state = state  # with what is not written yet; `done` has what is
        self._directory, self._on_conflict, self._progress = directory, on_conflict, progress
        self._held: list[Bars] = []
        # Instruments with a bar in the session, and without so far.
        self._inside, self._outside = set[str](), set[str]()
        self._rows, self._found = 0, Report(limit=LISTED)
        for folder, known in ((BARS, state.files), (CONFLICTS, state.conflicts)):
            (directory / folder).mkdir(exist_ok=True)
            for path in (directory / folder).iterdir():
                own = _NAME.fullmatch(path.name) or is_temporary(path.name)
                if own and path.name not in known:  # what a killed import left
                    path.unlink()

    def read(self, source: Source, settings: dict[str, Any]) -> None:
        """Read what is new of one source."""
        before_it = len(self.done.known)
        for unit in source.units:
            before = _stamps(unit.files)
            entry = self._entry(unit, source, settings)
            if entry.complete:
                self.done.known.append(unit.path.name)
                continue
            report, tolerance = Report(limit=LISTED), settings.get("round_seconds")
            total = pq.read_metadata(unit.path).num_rows if unit.path.suffix.lower() == ".parquet" else None
            row = 0
            for table in replace(source, report=report).batches([unit.path]):
                at = max(0, entry.rows - row)
                while at < table.num_rows:
                    piece = table.slice(at, BATCH_ROWS - self._rows)
                    first = row + at + 1 if source.kind == TABLE else None
                    zone = self.state.calendar.timezone
                    bars = bars_of(piece, zone, report, source=entry.number, file=entry.name, first=first)
                    if tolerance is not None:
                        names = {entry.number: entry.name}
                        bars = rounded(bars, self.state.calendar, tolerance, report, names)
                    entry = replace(entry, rows=entry.rows + piece.num_rows)
                    self._held.append(bars)
                    self._rows += piece.num_rows
                    self.done.rows += piece.num_rows
                    halted = () if bars.halted is None else ("halted",)
                    columns = tuple(sorted({*self.state.columns, *bars.values, *halted}))
                    self.state = replace(self.state.with_source(entry), columns=columns)
                    if self._rows == BATCH_ROWS:
                        self.flush()
                    at += piece.num_rows
                    if self._progress is not None:
                        self._progress(entry.name, entry.rows, total)
                row += table.num_rows
            if _stamps(unit.files) != before:
                raise DataError(f"{unit.path} changed while it was read; import it again, into a new folder.")
            self.state = self.state.with_source(replace(entry, complete=True))
            self._found.absorb(report)
            self.done.added.append(entry.name)
        if source.instruments is not None and len(self.done.known) == before_it:
            check_found(source.instruments, source.seen, source.path)

    def flush(self) -> None:
        """Write what was collected, then the state."""
        if self.state == self.done.state:
            return
        files, conflicts = dict(self.state.files), dict(self.state.conflicts)
        losing: list[str] = []
        if self._held:
            held = join(self._held)
            self._see_hours(held)
            bars, told, stays = self._settle(held)
            self._held, self._rows, losing = [], 0, list(stays)
            for part in (bars, *stays.values()):
                if len(part):
                    name = _next_name(files, conflicts)
                    with atomic_path(self._directory / BARS / name) as path:
                        write_file(path, part)
                    files[name] = len(part)
            if len(told):
                name = _next_name(files, conflicts)
                with atomic_path(self._directory / CONFLICTS / name) as path:
                    told.to_parquet(path, index=False)
                conflicts[name] = len(told)
                self.done.conflicts += len(told)
        files = {name: count for name, count in files.items() if name not in losing}
        report = self.state.report.merge(self._found)
        self.done.report.absorb(self._found)
        self._found = Report(limit=LISTED)
        self.state = replace(self.state, files=files, conflicts=conflicts, report=report)
        write_json(self._directory / BARS / STATE, self.state.as_dict())  # where a kill leaves nothing behind
        (self._directory / BARS / STATE).replace(self._directory / STATE)
        self.done.bars += self.state.bars - self.done.state.bars
        self.done.state = self.state
        for name in losing:
            (self._directory / BARS / name).unlink()

    def tell_outside(self) -> None:
        """Tell of instruments of which no bar that was read now lies inside the session (daily bars, another zone)."""
        for name in sorted(self._outside - self._inside):
            what = f"no bar of {name} lies inside the session"
            self.done.report.add("instrument_outside", 1, what, instrument=name)

    def _see_hours(self, bars: Bars) -> None:
        """Note of which instruments there is a bar in the session; of nearly all of them a few bars show it."""
        new = ~np.isin(bars.names, list(self._inside))
        for every in (_GLANCE, 1):
            rows = np.flatnonzero(new[bars.code])[::every]
            at = place(bars.stamp[rows], self.state.calendar)
            inside = np.unique(bars.code[rows[at.inside | at.edge]])
            self._inside.update(bars.names[inside].tolist())
            new[inside] = False
            if not new.any():
                return
        self._outside.update(bars.names[new].tolist())

    def _entry(self, unit: Unit, source: Source, settings: dict[str, Any]) -> Imported:
        """Return what is known of a source, from an earlier import or new; takes a pass over its content."""
        path, known = unit.path, {**settings, "kind": source.kind}
        if source.kind == TABLE:
            only = only_instrument(path, settings.get("columns"), settings.get("instrument_pattern"))
            known |= {} if only is None else {"instrument": only}
        if unit.files == (path,):
            digest = digest_of(path)
        else:
            lines = [f"{os.path.relpath(file, path)}\0{digest_of(file)}\n" for file in unit.files]
            digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        for one in self.state.sources:
            if (one.sha256, one.settings) == (digest, known):
                return one
        number = max((one.number for one in self.state.sources), default=0) + 1
        size = sum(file.stat().st_size for file in unit.files)
        return Imported(number, path.name, str(path.absolute()), size, digest, known)

    def _settle(self, new: Bars) -> tuple[Bars, pd.DataFrame, dict[str, Bars]]:
        """Merge new bars with those that are stored under the same stamps.

        Returns the bars to write, the conflicts, and of each file that loses bars those that stay.
        """
        names = {source.number: source.name for source in self.state.sources}
        zone = self.state.calendar.timezone
        alone = merge(new, self._found, names, self._on_conflict, zone)
        same = self._stored_under(alone.bars)
        if not same:
            return alone.bars, alone.conflicts, {}
        old = join(list(same.values()))
        both = merge(join([old, alone.bars]), self._found, names, self._on_conflict, zone)
        is_old = both.origin < len(old)
        stays = np.zeros(len(old), dtype=bool)
        stays[both.origin[is_old & ~both.changed]] = True
        told = pd.concat([alone.conflicts, both.conflicts], ignore_index=True)
        leaving: dict[str, Bars] = {}
        end = 0
        for name, mine in same.items():
            begin, end = end, end + len(mine)
            left = mine.take(~stays[begin:end])
            if len(left):
                whole = join([Bars.from_table(table) for _, table in read_groups(self._directory / BARS / name)])
                leaving[name] = whole.take(keys_of(left).get_indexer(keys_of(whole)) < 0)
        return both.bars.take(~is_old | both.changed), told, leaving

    def _stored_under(self, bars: Bars) -> dict[str, Bars]:
        """Return the stored bars that have instrument and stamp of one of `bars`, by the file that they are in."""
        if not len(bars):
            return {}
        keys, span = keys_of(bars), (int(bars.stamp.min()), int(bars.stamp.max()))
        found = {}
        for name in self.done.state.files:
            groups = overlapping(self._directory / BARS / name, bars.names, *span)
            same = [group.take(keys.get_indexer(keys_of(group)) >= 0) for group in groups]
            if any(map(len, same)):
                found[name] = join(same)
        return found


def _next_name(*taken: Mapping[str, int]) -> str:
    """Return the name of the next file, by numbers that are never used twice."""
    return f"{max((int(name.partition('.')[0]) for names in taken for name in names), default=0) + 1:06d}.parquet"


@contextmanager
def bar_progress(*, bar: bool, echo: Callable[[str], None], every: float = 10.0) -> Iterator[Progress]:
    """Yield what takes the calls of `import_bars` and `check_bars`: a `bar`, or a line `every` so many seconds."""
    drawn, current, before, said = tqdm(disable=True), "", 0, time.monotonic()

    def take(name: str, rows: int, total: int | None) -> None:
        nonlocal drawn, current, before, said
        if name != current:
            drawn.close()
            drawn = tqdm(total=total, desc=name, unit=" bars", unit_scale=True, disable=not bar)
            current, before = name, 0
        now = time.monotonic()
        drawn.update(rows - drawn.n)
        if not bar and now - said >= every:
            of = "" if total is None else f" of {total:,}"
            echo(f"{name}: {rows:,}{of} bars, {(rows - before) / (now - said):,.0f} bars/s")
            before, said = rows, now

    try:
        yield take
    finally:
        drawn.close()


def _stamps(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Return what changes when a file is written: sizes and times."""
    return [((stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]


def _check_place(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise DataError(f"{directory} is a file; name a folder for the data set.")
    if directory.is_dir() and not is_dataset(directory):
        names = sorted(entry.name for entry in directory.iterdir())
        own = (_LOCK, BARS, CONFLICTS) if _LOCK in names else ()  # a killed import has left its lock file
        foreign = [name for name in names if name not in own]
        if foreign:
            raise DataError(f"{directory} holds {foreign[0]} and no {STATE}; choose an empty folder for the data set.")


def _state_of(directory: Path, calendar: Calendar | None) -> State:
    if not is_dataset(directory):
        if calendar is None:
            raise ConfigError(
                f"{directory} is a new data set, which needs a calendar; name one by --calendar (calendar= in Python)."
            )
        return State(calendar)
    state = read_state(directory)
    if calendar is not None and calendar != state.calendar:
        old, new = state.calendar.as_dict(), calendar.as_dict()
        name = next(name for name in old if old[name] != new[name])
        raise ConfigError(
            f"the calendar of {directory} has {name} {old[name]!r}, not {new[name]!r}; leave the calendar out, or "
            "import into another folder."
        )
    return state
