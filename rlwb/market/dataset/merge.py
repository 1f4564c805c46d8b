"""Bars in order, each stamp once: what repeats is dropped and what contradicts is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rlwb.market.bars import MAY, MUST, Bars
from rlwb.market.findings import Report

OnConflict = Literal["keep", "replace"]


class Merged(NamedTuple):
    """The outcome of `merge`.

    Parameters
    ----------
    bars
        The bars, sorted by instrument and stamp, each once.
    origin
        Their row numbers in the bars that were given, int64 of shape ``(bars,)``.
    changed
        Whether a bar got an optional value from another of its stamp, bool of shape ``(bars,)``.
    conflicts
        Pairs of bars that contradict each other (`read_conflicts`).
    """

    bars: Bars
    origin: np.ndarray
    changed: np.ndarray
    conflicts: pd.DataFrame


def keys_of(bars: Bars) -> pd.MultiIndex:
    """Return the instrument and stamp of each bar, to find others by."""
    names = pd.Categorical.from_codes(bars.code, categories=pd.Index(bars.names.tolist(), dtype=object))
    return pd.MultiIndex.from_arrays([names, bars.stamp])


def merge(bars: Bars, report: Report, files: Mapping[int, str], on_conflict: OnConflict = "keep") -> Merged:
    """Sort bars by instrument and stamp and keep one of each stamp.

    Of bars from one source the last is kept. From two sources, equal bars are kept once, with every optional value that
    one of them has; of different ones `on_conflict` keeps the first or takes the later.

    Parameters
    ----------
    bars
        In the order of their sources.
    report
        Where everything that is moved or dropped is counted.
    files
        Names of the sources by number.
    """
    order = left = np.arange(len(bars))
    if not bars.is_sorted:
        _count_unsorted(bars, report, files)
        order = np.lexsort((bars.stamp, bars.code))
        bars = bars.take(order)
    changed = np.zeros(len(bars), dtype=bool)
    values = dict(bars.values)
    old = np.flatnonzero(_same_stamp(bars, left) & (np.diff(bars.source) == 0))  # of one source, the last is kept
    same = _equal(values, old, old + 1, strictly=True)
    left = np.delete(left, old)
    found = {"duplicate_identical": [old[same]], "duplicate_conflicting": [old[~same]]}
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
