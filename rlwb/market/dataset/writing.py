"""Bars into the files of a data set: merged with what is stored, each file whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rlwb.files import atomic_path, write_json
from rlwb.market.bars import Bars, join
from rlwb.market.dataset.merge import OnConflict, keys_of, merge
from rlwb.market.dataset.state import BARS, CONFLICTS, LISTED, STATE, Imported, State
from rlwb.market.dataset.stored import overlapping, read_groups, write_file
from rlwb.market.findings import Report

#: Rows of sources that are put together in one file.
BATCH_ROWS = 1 << 20


class Writer:
    """Collects bars and writes them as files of `BATCH_ROWS` rows, each with the state that names it."""

    def __init__(self, directory: Path, state: State, on_conflict: OnConflict) -> None:
        self.directory = directory
        self.state = state
        self.report = Report(limit=LISTED)
        self.conflicts = 0
        self._on_conflict = on_conflict
        self._held: list[Bars] = []
        self._rows = 0
        self._pending = state
        self._found = Report(limit=LISTED)
        for folder, known in ((BARS, state.files), (CONFLICTS, state.conflicts)):
            (directory / folder).mkdir(exist_ok=True)
            for path in (directory / folder).iterdir():
                if path.name not in known:  # what a killed import left
                    path.unlink()

    @property
    def sources(self) -> tuple[Imported, ...]:
        """All sources, those included that are not written yet."""
        return self._pending.sources

    @property
    def room(self) -> int:
        """How many rows the next file still takes."""
        return BATCH_ROWS - self._rows

    def add(self, bars: Bars, source: Imported, rows: int) -> Imported:
        """Take bars of a source, of `rows` rows; return the source as far as it is read."""
        self._held.append(bars)
        self._rows += rows
        source = replace(source, rows=source.rows + rows)
        columns = {*self._pending.columns, *bars.values, *(() if bars.halted is None else ("halted",))}
        self._pending = replace(self._pending.with_source(source), columns=tuple(sorted(columns)))
        if not self.room:
            self.flush()
        return source

    def end(self, source: Imported, report: Report) -> None:
        """Note that a source was read to its end, and what its reader found."""
        self._pending = self._pending.with_source(replace(source, complete=True))
        self._found = self._found.merge(report)

    def flush(self) -> None:
        """Write what was collected, then the state."""
        if self._pending == self.state:
            return
        files, conflicts = dict(self.state.files), dict(self.state.conflicts)
        gone: list[str] = []
        if self._held:
            bars, told, stays = self._settle(join(self._held))
            self._held, self._rows = [], 0
            gone = list(stays)
            for part in (bars, *stays.values()):
                if len(part):
                    name = _next_name(files, conflicts)
                    with atomic_path(self.directory / BARS / name) as path:
                        write_file(path, part)
                    files[name] = len(part)
            if len(told):
                name = _next_name(files, conflicts)
                with atomic_path(self.directory / CONFLICTS / name) as path:
                    told.to_parquet(path, index=False)
                conflicts[name] = len(told)
                self.conflicts += len(told)
        files = {name: count for name, count in files.items() if name not in gone}
        report = self.state.report.merge(self._found)
        self.report.absorb(self._found)
        self.state = self._pending = replace(self._pending, files=files, conflicts=conflicts, report=report)
        self._found = Report(limit=LISTED)
        write_json(self.directory / BARS / STATE, self.state.as_dict())  # where a kill leaves nothing behind
        (self.directory / BARS / STATE).replace(self.directory / STATE)
        for name in gone:
            (self.directory / BARS / name).unlink()

    def _settle(self, new: Bars) -> tuple[Bars, pd.DataFrame, dict[str, Bars]]:
        """Merge new bars with those that are stored under the same stamps.

        Returns the bars to write, the conflicts, and of each file that loses bars those that stay.
        """
        names = {source.number: source.name for source in self._pending.sources}
        alone = merge(new, self._found, names, self._on_conflict)
        same = self._stored_under(alone.bars)
        if not same:
            return alone.bars, alone.conflicts, {}
        old = join(list(same.values()))
        both = merge(join([old, alone.bars]), self._found, names, self._on_conflict)
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
                whole = join([Bars.from_table(table) for _, table in read_groups(self.directory / BARS / name)])
                leaving[name] = whole.take(keys_of(left).get_indexer(keys_of(whole)) < 0)
        return both.bars.take(~is_old | both.changed), told, leaving

    def _stored_under(self, bars: Bars) -> dict[str, Bars]:
        """Return the stored bars that have instrument and stamp of one of `bars`, by the file that they are in."""
        if not len(bars):
            return {}
        keys, span = keys_of(bars), (int(bars.stamp.min()), int(bars.stamp.max()))
        found = {}
        for name in self.state.files:
            groups = overlapping(self.directory / BARS / name, bars.names, *span)
            same = [group.take(keys.get_indexer(keys_of(group)) >= 0) for group in groups]
            if any(map(len, same)):
                found[name] = join(same)
        return found


def _next_name(*taken: Mapping[str, int]) -> str:
    """Return the name of the next file, by numbers that are never used twice."""
    return f"{max((int(name.partition('.')[0]) for names in taken for name in names), default=0) + 1:06d}.parquet"
