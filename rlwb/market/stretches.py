"""Findings about whole sessions, told once for all that lie in a row or on one day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from rlwb.market.calendar import date_text
from rlwb.market.findings import Finding, Report, counted

#: Share of a day's instruments from which on a finding is told of the day and not of each of them.
_ALL = 0.9


class Stretch(NamedTuple):
    """Sessions in a row that a finding is about."""

    instrument: str | None  # None where they are those of nearly all instruments
    first: str
    last: str
    sessions: int
    instruments: int  # of them, counted


def tell_sessions(
    report: Report,
    kind: str,
    flagged: np.ndarray,
    names: np.ndarray,
    days: np.ndarray,
    labels: np.ndarray,
    describe: Callable[[object], str],
    values: np.ndarray | None = None,
) -> None:
    """Count a finding for each flagged session, and list one for those of a label that lie in a row.

    Parameters
    ----------
    flagged
        Which of all sessions it is about, bool of shape ``(S,)``.
    names, days
        Instrument (text) and day (since 1970) of all sessions, ``(S,)`` each, sorted by both.
    labels
        What is wrong, ``(S,)``: sessions with different ones are told apart. `describe` puts one into words.
    values
        The number that each session's finding is about, ``(S,)``; a stretch has that of its first.
    """
    report.count(kind, int(flagged.sum()))
    if not flagged.any():
        return
    of = np.flatnonzero(flagged)
    number = np.concatenate([[0], np.cumsum(names[1:] != names[:-1])])
    own = np.arange(len(names)) - np.searchsorted(number, number)  # each session's number among its instrument's
    common = np.unique(days)
    table = pd.DataFrame(
        {"row": of, "name": names[of], "day": days[of], "label": labels[of], "own": own[of], "code": number[of]}
    )
    present = pd.Series(days).value_counts()
    together = table.groupby(["day", "label"])["row"].transform("size").to_numpy()
    total = present.reindex(table["day"]).to_numpy()
    whole = (together >= _ALL * total) & (total > 1)
    found: list[tuple[int, Finding]] = []
    for stretch, row, label in _stretches(table, whole, common):
        last = None if stretch.last == stretch.first else stretch.last
        about = [f"all {counted(stretch.instruments, 'instruments')}"] if stretch.instrument is None else []
        about += [counted(stretch.sessions, "sessions")] if stretch.sessions > 1 else []
        what = describe(label) + (f" ({', '.join(about)})" if about else "")
        value = float("nan") if values is None else float(values[row])
        found.append((row, Finding(kind, what, stretch.instrument, stretch.first, value=value, last=last)))
    found.sort(key=lambda one: (one[1].instrument is not None, one[0]))
    report.show(finding for _, finding in found)


def _stretches(table: pd.DataFrame, whole: np.ndarray, common: np.ndarray) -> Iterator[tuple[Stretch, int, object]]:
    """Yield the stretches of flagged sessions, each with the row of its first session and its label."""
    days = table[whole]
    for label, of in days.groupby("label", sort=False):
        per_day = of.groupby("day")
        seen = np.array(sorted(per_day.groups))
        for run in np.split(seen, np.flatnonzero(np.diff(np.searchsorted(common, seen)) != 1) + 1):
            mine = of[of["day"].isin(run)]
            first, last = (date_text(day) for day in (run[0], run[-1]))
            yield Stretch(None, first, last, len(mine), mine["name"].nunique()), int(mine["row"].iloc[0]), label
    for (_, label), of in table[~whole].groupby(["code", "label"], sort=False):
        rows = of.to_dict("list")
        for run in np.split(np.arange(len(of)), np.flatnonzero(np.diff(of["own"].to_numpy()) != 1) + 1):
            first, last = (date_text(rows["day"][at]) for at in (run[0], run[-1]))
            yield Stretch(str(rows["name"][run[0]]), first, last, len(run), 1), int(rows["row"][run[0]]), label
