"""A data set's bars, back out of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.clock import day_of
from rlwb.market.dataset.bars import MUST, NUMBERS, Block, join
from rlwb.market.dataset.journal import is_pending
from rlwb.market.dataset.layout import BARS, PART, STATE, list_instruments, list_months, month_names
from rlwb.market.dataset.partition import read_partition
from rlwb.market.dataset.state import State, read_state
from rlwb.market.report import Report
from rlwb.market.source import check_found

#: Bars that are laid out at a time; they take some 0.3 GB on the way.
PART_BARS = 1 << 20
_DAY = 86_400_000_000


def open_dataset(directory: str | os.PathLike[str]) -> State:
    """Return the state of a data set that is whole.

    Raises
    ------
    DataError
        While it is written, and after an import that was cut short: part of a file looks like all of it.
    """
    path = Path(directory)
    state = read_state(path)
    again = f"rlwb data import {state.incomplete.path} --out {path}" if state.incomplete else "the same import again"
    if state.incomplete is not None or is_pending(path):
        raise DataError(f"the import into {path} is under way or was cut short; finish it with {again}.")
    return state


class Selection:
    """Bars of a data set that is whole, read once or several times; stamps without a zone.

    Parameters
    ----------
    directory
        The data set.
    instruments
        Ids to keep; None keeps all.
    start, end
        First and last date to keep, both included.

    Raises
    ------
    DataError
        While the data set is written to, where it lacks an instrument that is asked for, and, at the end of a pass
        over it, where it was written to meanwhile and where bars are gone.
    """

    def __init__(self, directory: Path, instruments: Collection[str] | None, start: Any, end: Any) -> None:
        self._directory = directory
        self._instruments = None if instruments is None else set(instruments)
        self._start = None if start is None else day_of(start)
        self._end = None if end is None else day_of(end)
        self._state = open_dataset(directory)
        if self._instruments is not None:
            check_found(self._instruments, list_instruments(directory), directory)

    def tell(self, report: Report) -> None:
        """Add what the imports dropped and repaired; of all the data set, whatever is selected."""
        found = self._state.report()
        for reason, count in found.counts.items():
            report.add(reason, count, found.examples[reason])
        if self._is_whole:  # so that the bars read are all that were imported
            dropped = sum(source.rows for source in self._state.sources) - self._state.bars
            report.totals["bars_read"] = report.totals.get("bars_read", 0) + dropped

    def whole(self) -> pd.DataFrame:
        """Return all bars as the canonical frame (`rlwb.market.read.read_bars`)."""
        months = groupby(self.blocks(), key=lambda named: named[0])
        # Joined by instrument, which lets the buffers of the files go.
        return self._frame([(name, join([block for _, block in group])) for name, group in months])

    def frames(self, calendar: Calendar) -> Iterator[pd.DataFrame]:
        """Yield the bars in frames of whole sessions of `calendar`, of about `PART_BARS`, or a month's if more."""
        label = calendar.tick_seconds * 1_000_000 if calendar.label == "end" else 0
        held: list[tuple[str, Block]] = []
        count = 0
        for name, block in self.blocks():
            held.append((name, block))
            count += len(block)
            if count >= PART_BARS:
                last = join([block for own, block in held if own == name])
                day = (last.stamp - label) // _DAY  # the latest may go on in the next partition
                cut = int(np.searchsorted(day, day[-1]))
                held = [(own, block) for own, block in held if own != name]
                held += [(name, last.take(slice(0, cut)))] if cut else []
                if held:
                    yield self._frame(held)
                held, count = [(name, last.take(slice(cut, None)))], len(last) - cut
        if held:
            yield self._frame(held)

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """Yield the bars by instrument and month."""
        first = None if self._start is None else self._start.astype("datetime64[us]").astype(np.int64)
        last = None if self._end is None else (self._end + 1).astype("datetime64[us]").astype(np.int64)
        months = ("" if self._start is None else str(self._start)[:7], "~" if self._end is None else str(self._end)[:7])
        there = 0
        for name, folder in list_instruments(self._directory).items():
            if self._instruments is not None and name not in self._instruments:
                continue
            for block in _partitions(folder, self._state.columns, *months):
                begin = 0 if first is None else int(np.searchsorted(block.stamp, first))
                stop = len(block) if last is None else int(np.searchsorted(block.stamp, last))
                if begin < stop:
                    there += stop - begin
                    yield name, block.take(slice(begin, stop))
        if read_state(self._directory) != self._state or is_pending(self._directory):
            raise DataError(f"bars were imported into {self._directory} while it was read; read it again.")
        if self._is_whole and there != self._state.bars:
            raise DataError(lacking(self._directory, self._state, there))

    def _frame(self, blocks: Iterable[tuple[str, Block]]) -> pd.DataFrame:
        named = list(blocks)
        names, parts = list(dict.fromkeys(name for name, _ in named)), [block for _, block in named]
        codes = {name: code for code, name in enumerate(names)}
        columns = self._state.columns or MUST
        lengths = [len(part) for part in parts]
        frame = pd.DataFrame(
            {
                "instrument": pd.Categorical.from_codes(
                    np.repeat([codes[name] for name, _ in named], lengths).astype(np.int32),
                    categories=pd.Index(names, dtype=object),
                ),
                "datetime": _joined([part.stamp for part in parts], np.int64)
                .view("datetime64[us]")
                .astype("datetime64[ns]"),
                **{
                    name: _joined([part.values[name] for part in parts], np.float64)
                    for name in NUMBERS
                    if name in columns
                },
            }
        )
        if "halted" in columns:
            halts = [np.zeros(len(part), dtype=bool) if part.halted is None else part.halted for part in parts]
            frame["halted"] = _joined(halts, np.bool_)
        return frame

    @property
    def _is_whole(self) -> bool:
        return self._instruments is None and self._start is None and self._end is None


def read_instrument(folder: Path, columns: Collection[str]) -> Block | None:
    """Return the bars of one instrument's folder; None without any."""
    parts = list(_partitions(folder, columns))
    return join(parts) if parts else None


def lacking(directory: Path, state: State, there: int) -> str:
    """Say that the partitions hold `there` bars, and not as many as were stored."""
    return (
        f"{directory} holds {there:,} bars, and {state.bars:,} were stored: partitions were taken away or put in; "
        "import the sources into a new folder."
    )


def dataset_stamp(directory: Path) -> Iterator[str]:
    """Yield what changes when any of the data set's files does: the state, and names, sizes and times of the rest."""
    yield (directory / STATE).read_text(encoding="utf-8")
    for folder in list_instruments(directory).values():
        for month in month_names(folder):
            path = f"{BARS}/{folder.name}/{month}/{PART}"
            try:
                stat = os.stat(f"{directory}/{path}")  # noqa: PTH116 - text is quicker, and they are many
            except FileNotFoundError:
                raise DataError(f"{directory}/{path} is missing; import its sources into a new folder.") from None
            yield f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}"


def _partitions(folder: Path, columns: Collection[str], first: str = "", last: str = "~") -> Iterator[Block]:
    """Yield the partitions of an instrument's folder, the months from `first` to `last`."""
    names = sorted(columns)
    return (read_partition(path, names) for month, path in list_months(folder).items() if first <= month <= last)


def _joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
