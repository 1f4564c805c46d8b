"""Files of bars into a data set: each once, in pieces that survive a kill, with everything that is dropped told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.dataset import journal
from rlwb.market.dataset.chunks import Chunk, Reading, read_chunks
from rlwb.market.dataset.conflicts import write_conflicts
from rlwb.market.dataset.layout import CONFLICTS, STATE, is_dataset, part_path
from rlwb.market.dataset.merge import Conflicts, Merged, Piece, merge_blocks, split_chunk
from rlwb.market.dataset.partition import read_partition, write_partition
from rlwb.market.dataset.state import OnConflict, Source, State, read_state
from rlwb.market.dataset.units import Unit, find_units
from rlwb.market.report import Report, counted
from rlwb.market.source import TABLE

#: Called with the source's name, the rows of it that were read so far, and all its rows where they are known.
Progress = Callable[[str, int, int | None], None]
#: Rows of sources that are put together before they are written.
BATCH_ROWS = 1 << 21
_THREADS = 2


@dataclass
class Imported:
    """What an import did.

    Parameters
    ----------
    directory
        The data set.
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
    state
        The data set as it is.
    """

    directory: Path
    state: State
    added: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    rows: int = 0
    bars: int = 0
    seconds: float = 0.0
    conflicts: int = 0
    report: Report = field(default_factory=Report)

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
    on_conflict: OnConflict = "keep",
    progress: Progress | None = None,
) -> Imported:
    """Add bars to the data set in `out`, which is made if it is not there.

    What was imported before, told by content, is passed over. A killed import leaves the data set as it was after its
    last commit, and the same call goes on from there, to the same bytes. Prices are stored as they are: what is
    repaired is repaired, and counted, when the data set is loaded.

    Parameters
    ----------
    sources
        Files or folders, as for `rlwb.market.read.read_bars`, whose parameters `kind` to `datetime_format` are.
    calendar
        The clock that the bars are meant for; needed for a new data set. Stamps with a zone are brought to its zone.
    on_conflict
        Of bars from two sources with one instrument and stamp and different values, ``"keep"`` keeps what is stored,
        ``"replace"`` takes the later source's. Either way both are listed (`rlwb.market.dataset.conflicts`). Within
        one source the last row is kept, as in a run.
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
    begun = time.monotonic()
    directory = Path(out)
    _check_place(directory)
    reading = Reading(
        kind, dict(options or {}), dict(columns or {}), source_timezone, instrument_pattern, datetime_format
    )
    with journal.only_one(directory):
        journal.recover(directory)
        state = _state_of(directory, calendar)
        units = find_units(sources, reading, state.calendar)
        writer = _Writer(directory, state, on_conflict)
        done = Imported(directory, state)
        with closing(_chunks(units, writer, done, progress)) as chunks, ThreadPoolExecutor(_THREADS) as pool:
            for source, chunk in chunks:
                writer.add(source, chunk, pool)
            writer.flush(pool)
        done.bars = writer.state.bars - state.bars
        done.conflicts, done.report, done.state = writer.conflicts, writer.report, writer.state
    done.seconds = time.monotonic() - begun
    return done


class _Writer:
    """Collects pieces and merges them into their partitions, so many at a time that the rewriting pays."""

    def __init__(self, directory: Path, state: State, on_conflict: OnConflict) -> None:
        self.state = state
        self.report = Report()
        self.conflicts = 0
        self._directory = directory
        self._on_conflict = on_conflict
        self._pieces: dict[str, list[tuple[int, Piece]]] = {}
        self._told: list[tuple[str, list[Conflicts]]] = []
        self._sources = {source.number: source for source in state.sources}
        self._rows = 0

    def add(self, source: Source, chunk: Chunk | None, pool: ThreadPoolExecutor) -> None:
        """Take a chunk of a source, or its end."""
        if chunk is None:
            found = self._sources.get(source.number, source)
            self._sources[source.number] = replace(found, complete=True, last={})
            return
        if self._rows and self._rows + chunk.rows > BATCH_ROWS:
            self.flush(pool)
        old = self._sources.get(source.number, source)
        last = dict(old.last)
        pieces, report, conflicts = split_chunk(chunk, last, source.name)
        report = chunk.report.merge(report)
        self._sources[source.number] = replace(
            old, rows=old.rows + chunk.rows, columns=chunk.columns, last=last, report=old.report.merge(report)
        )
        self.report = self.report.merge(report)
        if conflicts:
            self._told.append((f"{CONFLICTS}/{source.number:04d}-{old.rows + 1:09d}-within.parquet", conflicts))
        for piece in pieces:
            self._pieces.setdefault(part_path(piece.instrument, piece.month), []).append((source.number, piece))
        self._rows += chunk.rows

    def flush(self, pool: ThreadPoolExecutor) -> None:
        """Write what was collected and commit it."""
        sources = tuple(self._sources[number] for number in sorted(self._sources))
        if sources == self.state.sources:
            return
        record = journal.Journal(self._directory)
        record.begin()
        columns = sorted({name for source in sources for name in source.columns})
        merging: list[tuple[str, Future[list[tuple[int, int, Merged]]]]] = [
            (target, pool.submit(self._merge, target, record.stage(target), pieces, columns))
            for target, pieces in self._pieces.items()
        ]
        bars = self.state.bars
        told: dict[int, list[Conflicts]] = {}
        for _, future in merging:
            for number, added, merged in future.result():
                source = self._sources[number]
                self._sources[number] = replace(
                    source, bars=source.bars + added, report=source.report.merge(merged.report)
                )
                self.report = self.report.merge(merged.report)
                bars += added
                told.setdefault(number, []).extend(merged.conflicts)
        for number, conflicts in told.items():
            name = f"{CONFLICTS}/{number:04d}-{self._sources[number].rows:09d}.parquet"
            self._told += [(name, conflicts)] if conflicts else []
        for target, conflicts in self._told:
            self.conflicts += write_conflicts(record.stage(target), conflicts)
        sources = tuple(self._sources[number] for number in sorted(self._sources))
        self.state = replace(self.state, sources=sources, bars=bars)
        record.commit(self.state.as_dict())
        self._pieces, self._told, self._rows = {}, [], 0

    def _merge(
        self, target: str, staged: Path, pieces: list[tuple[int, Piece]], columns: list[str]
    ) -> list[tuple[int, int, Merged]]:
        """Write one partition to `staged`; return for each source its number, the bars it adds, and what was told."""
        path = self._directory / target
        done: list[tuple[int, int, Merged]] = []
        block = read_partition(path, columns) if path.exists() else None
        for number, piece in pieces:
            before = 0 if block is None else len(block)
            if block is None:
                merged = Merged(piece.block)
            else:
                name = self._sources[number].name
                merged = merge_blocks(block, piece.block, piece.instrument, self._on_conflict, name)
            block = merged.block
            done.append((number, len(block) - before, Merged(block.take(slice(0, 0)), merged.report, merged.conflicts)))
        assert block is not None
        write_partition(staged, block, pieces[0][1].instrument, pieces[0][1].month)
        return done


def _chunks(
    units: list[Unit], writer: _Writer, done: Imported, progress: Progress | None
) -> Generator[tuple[Source, Chunk | None]]:
    """Yield the chunks of all sources that are not known, read one ahead, and after those of each one None."""
    known = list(writer.state.sources)
    calendar = writer.state.calendar
    for unit in units:
        before = unit.stamp()
        source = unit.source(max((one.number for one in known), default=0) + 1)
        found = next((one for one in known if one.is_same(source)), None)
        if found is not None and found.complete:
            done.known.append(source.name)
            continue
        if found is not None:
            source = found
            known.remove(found)
        total, rows = _rows_of(unit), source.rows
        with closing(read_chunks(unit.path, unit.reading, calendar, source.number, rows, label=source.name)) as chunks:
            for chunk in _one_ahead(chunks):
                yield source, chunk
                rows += chunk.rows
                done.rows += chunk.rows
                if progress is not None:
                    progress(source.name, rows, total)
        if unit.stamp() != before:
            raise DataError(f"{unit.path} changed while it was read; import it again, into a new folder.")
        yield source, None
        known.append(replace(source, complete=True))
        done.added.append(source.name)


def _one_ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, chunks, None)
        while (chunk := future.result()) is not None:
            future = pool.submit(next, chunks, None)
            yield chunk


def _rows_of(unit: Unit) -> int | None:
    if unit.reading.kind == TABLE and unit.path.suffix.lower() == ".parquet":
        return int(pq.read_metadata(unit.path).num_rows)
    return None


def _check_place(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise DataError(f"{directory} is a file; name a folder for the data set.")
    if directory.is_dir() and not is_dataset(directory) and not journal.is_pending(directory):
        foreign = [entry.name for entry in directory.iterdir() if entry.name not in (".lock", ".import")]
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
