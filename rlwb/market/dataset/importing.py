"""Files of bars into a data set: each once, in pieces that survive a kill, with everything that is dropped told."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rlwb.errors import ConfigError, DataError
from rlwb.market.bars import bars_of
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.merge import OnConflict
from rlwb.market.dataset.state import (
    BARS,
    CONFLICTS,
    LISTED,
    STATE,
    Imported,
    State,
    is_dataset,
    only_one,
    read_state,
)
from rlwb.market.dataset.writing import Writer
from rlwb.market.findings import Report, counted
from rlwb.market.readers.table import only_instrument
from rlwb.market.source import TABLE, Source, open_source

#: Called with the source's name, the rows of it that were read so far, and all its rows where they are known.
Progress = Callable[[str, int, int | None], None]


@dataclass
class ImportResult:
    """What an import did.

    Parameters
    ----------
    directory
        The data set.
    state
        The data set as it is.
    added, known
        Names of the sources that were read now, and of those whose content was there already.
    rows, bars
        Rows that were read now, and bars that are stored more than before.
    seconds
        How long that took, the hashing included.
    conflicts
        Bars of now that differ from another bar of their stamp.
    report
        What was dropped and repaired now.
    """

    directory: Path
    state: State
    added: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    rows: int = 0
    bars: int = 0
    seconds: float = 0.0
    conflicts: int = 0
    report: Report = field(default_factory=lambda: Report(limit=LISTED))

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
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    source_timezone: str | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    instruments: Sequence[str] | None = None,
    on_conflict: OnConflict = "keep",
    progress: Progress | None = None,
) -> ImportResult:
    """Add bars to the data set in `out`, which is made if it is not there.

    What was imported before, told by content, is passed over. A killed import leaves the data set as it was after its
    last file, and the same call goes on from there, to the same bytes. Prices are stored as they are: what is repaired
    is repaired, and counted, when the data set is loaded.

    Parameters
    ----------
    sources
        Files or folders, as for `rlwb.market.source.open_source`, whose parameters `kind` to `instruments` are.
    calendar
        The clock that the bars are meant for; needed for a new data set. Stamps with a zone are brought to its zone.
    on_conflict
        On conflicting bars with one timestamp from two sources: ``"keep"`` the stored one or ``"replace"`` it. Either
        way both are listed (`rlwb.market.read_conflicts`). Within one source the last row is kept.
    progress
        Called after each piece that was read.

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
    reading: dict[str, Any] = {
        "kind": kind,
        "options": dict(options or {}),
        "columns": dict(columns or {}),
        "source_timezone": source_timezone,
        "instrument_pattern": instrument_pattern,
        "datetime_format": datetime_format,
        "instruments": instruments,
    }
    with only_one(directory):
        writer = Writer(directory, _state_of(directory, calendar), on_conflict)
        before = writer.state.bars
        opened = [open_source(source, **reading) for source in sources]
        if not opened:
            raise DataError("there is nothing to import; name files or folders of bars.")
        for one in opened:
            check_label(one, writer.state.calendar)
        done = ImportResult(directory, writer.state, report=writer.report)
        for one in opened:
            _import(one, {name: value for name, value in reading.items() if value}, writer, done, progress)
        writer.flush()
        done.bars, done.conflicts, done.state = writer.state.bars - before, writer.conflicts, writer.state
    done.seconds = time.monotonic() - begun
    return done


def check_label(source: Source, calendar: Calendar) -> None:
    """Raise `ConfigError` where a reader's stamps do not name what the calendar's label says."""
    if source.label not in (None, calendar.label):
        raise ConfigError(
            f"{source.path} is read as {source.kind}, whose stamps name the {source.label} of a bar, and the "
            f"calendar's label is {calendar.label!r}; set it to {source.label!r}."
        )


def _import(
    source: Source, settings: dict[str, Any], writer: Writer, done: ImportResult, progress: Progress | None
) -> None:
    """Read what is new of one source."""
    for unit in source.units:
        before = _stamps(unit.files)
        number = max((one.number for one in writer.sources), default=0) + 1
        entry = _entry(unit.path, unit.files, source, settings, number)
        known = next((one for one in writer.sources if one.is_same(entry)), None)
        if known is not None and known.complete:
            done.known.append(entry.name)
            continue
        entry, report = known or entry, Report(limit=LISTED)
        total = _rows_of(unit.path)
        row = 0
        for table in replace(source, report=report).batches([unit.path]):
            at = max(0, entry.rows - row)
            while at < table.num_rows:
                piece = table.slice(at, writer.room)
                first = row + at + 1 if source.kind == TABLE else None
                bars = bars_of(
                    piece,
                    writer.state.calendar.timezone,
                    report,
                    source=entry.number,
                    file=entry.name,
                    first=first,
                )
                entry = writer.add(bars, entry, piece.num_rows)
                done.rows += piece.num_rows
                at += piece.num_rows
                if progress is not None:
                    progress(entry.name, entry.rows, total)
            row += table.num_rows
        if _stamps(unit.files) != before:
            raise DataError(f"{unit.path} changed while it was read; import it again, into a new folder.")
        writer.end(entry, report)
        done.added.append(entry.name)


def _entry(path: Path, files: Sequence[Path], source: Source, settings: dict[str, Any], number: int) -> Imported:
    """Return what is known of a source before it is read; takes a pass over its content."""
    known = {**settings, "kind": source.kind}
    only = (
        only_instrument(path, settings.get("columns"), settings.get("instrument_pattern"))
        if known["kind"] == TABLE
        else None
    )
    if only is not None:
        known["instrument"] = only
    size = sum(file.stat().st_size for file in files)
    if list(files) == [path]:
        digest = _sha256(path)
    else:
        lines = [f"{os.path.relpath(file, path)}\0{_sha256(file)}\n" for file in files]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Imported(number, path.name, str(path.absolute()), size, digest, known)


def _stamps(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Return what changes when a file is written: sizes and times."""
    return [((stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows_of(path: Path) -> int | None:
    return int(pq.read_metadata(path).num_rows) if path.suffix.lower() == ".parquet" else None


def _check_place(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise DataError(f"{directory} is a file; name a folder for the data set.")
    if directory.is_dir() and not is_dataset(directory):
        foreign = [entry.name for entry in directory.iterdir() if entry.name not in (".lock", BARS, CONFLICTS)]
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
