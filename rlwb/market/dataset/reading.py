"""A data set's bars, back out of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.clock import day_of
from rlwb.market.dataset.bars import MUST, NUMBERS, Block, join
from rlwb.market.dataset.journal import is_pending
from rlwb.market.dataset.layout import STATE, list_instruments, list_months
from rlwb.market.dataset.partition import read_partition
from rlwb.market.dataset.state import State, read_state
from rlwb.market.report import Report


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


def read_dataset(
    directory: Path, instruments: Collection[str] | None, start: Any, end: Any, report: Report
) -> pd.DataFrame:
    """Return a data set's bars as the canonical frame (`rlwb.market.readers.frames.join_bars`), stamps without a zone.

    Parameters
    ----------
    instruments
        Ids to keep; None keeps all.
    start, end
        First and last date to keep, both included.
    report
        Where what the imports dropped and repaired is added; of all the data set, whatever is selected.
    """
    state = open_dataset(directory)
    blocks = dict(_blocks(directory, state, instruments, start, end))
    if read_state(directory) != state or is_pending(directory):
        raise DataError(f"bars were imported into {directory} while it was read; read it again.")
    found = state.report()
    for reason, count in found.counts.items():
        report.add(reason, count, found.examples[reason])
    if instruments is None and start is None and end is None:  # so that the bars read are all that were imported
        there = sum(len(block) for block in blocks.values())
        if there != state.bars:
            raise DataError(lacking(directory, state, there))
        dropped = sum(source.rows for source in state.sources) - there
        report.totals["bars_read"] = report.totals.get("bars_read", 0) + dropped
    names, parts = list(blocks), list(blocks.values())
    columns = state.columns or MUST
    lengths = [len(part) for part in parts]
    frame = pd.DataFrame(
        {
            "instrument": pd.Categorical.from_codes(
                np.repeat(np.arange(len(names)), lengths), categories=pd.Index(names, dtype=object)
            ),
            "datetime": _joined([part.stamp for part in parts], np.int64)
            .view("datetime64[us]")
            .astype("datetime64[ns]"),
            **{name: _joined([part.values[name] for part in parts], np.float64) for name in NUMBERS if name in columns},
        }
    )
    if "halted" in columns:
        halts = [np.zeros(len(part), dtype=bool) if part.halted is None else part.halted for part in parts]
        frame["halted"] = _joined(halts, np.bool_)
    return frame


def read_instrument(folder: Path, columns: Collection[str], first: str = "", last: str = "~") -> Block | None:
    """Return the bars of one instrument's folder, the months from `first` to `last`; None without any."""
    months = [path for month, path in list_months(folder).items() if first <= month <= last]
    parts = [read_partition(path, sorted(columns)) for path in months]
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
        for path in list_months(folder).values():
            try:
                stat = path.stat()
            except FileNotFoundError:
                raise DataError(f"{path} is missing; import its sources into a new folder.") from None
            yield f"{path.relative_to(directory)}\0{stat.st_size}\0{stat.st_mtime_ns}"


def _blocks(
    directory: Path, state: State, instruments: Collection[str] | None, start: Any, end: Any
) -> Iterator[tuple[str, Block]]:
    first = None if start is None else day_of(start).astype("datetime64[us]").astype(np.int64)
    last = None if end is None else (day_of(end) + 1).astype("datetime64[us]").astype(np.int64)
    months = ("" if start is None else str(day_of(start))[:7], "~" if end is None else str(day_of(end))[:7])
    for name, folder in list_instruments(directory).items():
        if instruments is not None and name not in instruments:
            continue
        block = read_instrument(folder, state.columns, *months)
        if block is not None and (first is not None or last is not None):
            begin = 0 if first is None else int(np.searchsorted(block.stamp, first))
            stop = len(block) if last is None else int(np.searchsorted(block.stamp, last))
            block = block.take(slice(begin, stop))
        if block is not None and len(block):
            yield name, block


def _joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
