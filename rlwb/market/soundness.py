"""What bars on the clock show: outliers, jumps, prices that stand still, splits, days that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlwb.market.actions import price_ratio, suspected_splits
from rlwb.market.bars import Bars
from rlwb.market.calendar import Calendar
from rlwb.market.clock import text_of
from rlwb.market.findings import Finding, Report, counted
from rlwb.market.references import Levels
from rlwb.market.sessions import Sessions

#: Log return within a session beyond which a move that stays is told: 10 %.
JUMP = float(np.log(1.1))
#: Move overnight beyond which it is told: 30 %.
OVERNIGHT = 0.3
#: A price is an outlier when it leaves both neighbours by this many robust deviations of the session's returns, and at
#: least by 2 %. The deviation is 1.4826 times the median absolute return, that of a normal law.
OUTLIER_DEVIATIONS = 20.0
OUTLIER_LEAST = float(np.log(1.02))
#: Minutes after which a price that stands still is stale.
STALE_MINUTES = 60.0
_BREAK = float(np.log(8.0))
_STATED = float(np.log(1.2))
_MOST_OTHERS = 0.5


@dataclass(frozen=True)
class SessionTable:
    """One row a session that has bars, those included that are too sparse to keep; arrays of shape ``(sessions,)``.

    Parameters
    ----------
    names, days
        Instrument, and days since 1970.
    length
        Ticks of the session, early closes applied.
    priced, zeros
        Ticks with a price, and those of them with a volume of 0.
    kept
        Whether it is in the panel.
    stamp, source, row
        Its first bar.
    """

    names: np.ndarray
    days: np.ndarray
    length: np.ndarray
    priced: np.ndarray
    zeros: np.ndarray
    kept: np.ndarray
    stamp: np.ndarray
    source: np.ndarray
    row: np.ndarray

    @classmethod
    def join(cls, parts: Sequence[SessionTable]) -> SessionTable:
        """Return the rows of all parts."""
        if not parts:
            return cls(np.empty(0, np.str_), *(np.empty(0, np.int64) for _ in range(8)))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))

    def by_day(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return instruments (I,), days (D,) and `values` as an array of shape ``(I, D)``, NaN without a session."""
        names, row = np.unique(self.names, return_inverse=True)
        days, column = np.unique(self.days, return_inverse=True)
        laid = np.full((len(names), len(days)), np.nan)
        laid[row, column] = values
        return names, days, laid


def inspect_ticks(
    panel: Sessions, bars: Bars, at: np.ndarray, widened: np.ndarray, report: Report, files: Mapping[int, str]
) -> None:
    """Count what the ticks of some sessions show.

    Parameters
    ----------
    panel
        The sessions.
    bars, at
        The bars they were made of, and the index of each tick's bar, int of shape ``(S, T)``; -1 where there is none.
    widened
        Bars whose high or low is not the source's own, bool of shape ``(bars,)``.
    report, files
        Where findings are counted, and the names of sources by number.
    """
    look = _Look(panel, bars, at, report, files)
    look.missing()
    look.zero_volume()
    look.stale()
    look.moves(widened)


class _Look:
    def __init__(self, panel: Sessions, bars: Bars, at: np.ndarray, report: Report, files: Mapping[int, str]) -> None:
        self.panel, self.bars, self.at, self.report, self.files = panel, bars, at, report, files
        self.close, self.volume = panel.fields["close"], panel.fields["volume"]
        self.priced = np.isfinite(self.close)

    def tell(self, kind: str, bar: int, what: str, value: float) -> None:
        self.report.show([self.bars.finding(kind, bar, self.files, what, value)])

    def missing(self) -> None:
        lacking = self.panel.in_session & ~self.priced
        count = lacking.sum(axis=1)
        self.report.count("missing_tick", int(count.sum()))
        calendar = self.panel.calendar
        label = calendar.tick_seconds if calendar.label == "end" else 0
        for row in np.flatnonzero(count)[: max(0, self.report.room("missing_tick"))].tolist():
            date = str(self.panel.dates[row])
            first = text_of(int(calendar.tick_start[np.argmax(lacking[row])]) + label)
            what = f"{counted(int(count[row]), 'ticks')} of the session, this is the first"
            name = str(self.panel.instruments[row])
            self.report.show([Finding("missing_tick", what, name, date, f"{date} {first}", value=float(count[row]))])

    def zero_volume(self) -> None:
        zeros = self.priced & (self.volume == 0)
        count = zeros.sum(axis=1)
        self.report.count("zero_volume", int(count.sum()))
        for row in np.flatnonzero(count)[: max(0, self.report.room("zero_volume"))].tolist():
            what = f"{counted(int(count[row]), 'bars')} of the session, this is the first"
            self.tell("zero_volume", int(self.at[row, np.argmax(zeros[row])]), what, float(count[row]))

    def stale(self) -> None:
        least = max(3, int(np.ceil(STALE_MINUTES / self.panel.calendar.tick_minutes)))
        flat = self.priced & (self.panel.fields["high"] == self.panel.fields["low"])
        same = np.zeros(flat.shape, dtype=bool)
        same[:, 1:] = flat[:, 1:] & flat[:, :-1] & (self.close[:, 1:] == self.close[:, :-1])
        edges = np.diff(np.pad(same, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        row, begin = np.nonzero(edges == 1)
        length = np.nonzero(edges == -1)[1] - begin + 1
        long = np.flatnonzero(length >= least)
        self.report.count("stale", len(long))
        for number in long[: max(0, self.report.room("stale"))].tolist():
            tick = begin[number] - 1
            what = f"{length[number]} bars at {self.close[row[number], tick]:g}, this is the first"
            self.tell("stale", int(self.at[row[number], tick]), what, float(length[number]))

    def moves(self, widened: np.ndarray) -> None:
        """Tell of outliers, and of jumps within sessions."""
        ticks = self.close.shape[1]
        good = np.flatnonzero(self.priced.ravel())
        if len(good) < 3:
            return
        row, close = good // ticks, np.log(self.close.ravel()[good])
        bar = self.at.ravel()[good]
        move = np.diff(close)
        within = np.diff(row) == 0
        one = self.panel.instruments[row[1:]] == self.panel.instruments[row[:-1]]
        usual = pd.Series(np.abs(move[within])).groupby(row[1:][within]).median()
        deviation = np.zeros(len(self.close))
        deviation[usual.index] = 1.4826 * usual.to_numpy()
        far = np.maximum(OUTLIER_DEVIATIONS * deviation, OUTLIER_LEAST)
        into, out = move[:-1], move[1:]
        size = np.minimum(np.abs(into), np.abs(out))
        back = np.where(within[:-1] & within[1:], 0.5, 0.2)  # overnight, prices move and return by themselves
        spike = (size > far[row[1:-1]]) & (into * out < 0) & (np.abs(into + out) < back * size)
        spike &= (within[:-1] | within[1:]) & one[:-1] & one[1:]
        outliers = np.flatnonzero(spike) + 1
        price = np.exp(close)
        self._list("outlier", bar[outliers], into[outliers - 1], "close", "before", price[outliers - 1])
        fields = self.panel.fields
        top, bottom = np.fmax(fields["open"], self.close), np.fmin(fields["open"], self.close)
        for name, body in (("high", top), ("low", bottom)):
            with np.errstate(invalid="ignore", divide="ignore"):
                wick = np.log(fields[name] / body)
            session, tick = np.nonzero(np.abs(wick) > far[:, None])
            own = ~widened[self.at[session, tick]]
            session, tick = session[own], tick[own]
            self._list(
                "outlier", self.at[session, tick], wick[session, tick], name, "open and close", body[session, tick]
            )
        beside = np.zeros(len(close), dtype=bool)
        beside[outliers] = True
        rows = np.flatnonzero((np.abs(move) > JUMP) & within & ~beside[1:] & ~beside[:-1]) + 1
        self._list("jump", bar[rows], move[rows - 1], "close", "before", price[rows - 1])

    def _list(
        self, kind: str, bar: np.ndarray, moves: np.ndarray, name: str, beside: str, reference: np.ndarray
    ) -> None:
        """Count bars whose price `name` moved by a log return from a reference, and list the largest moves."""
        self.report.count(kind, len(bar))
        order = np.argsort(-np.abs(moves), kind="stable")[: max(0, self.report.room(kind))]
        for number in np.sort(order).tolist():
            change, old = float(np.expm1(moves[number])), float(reference[number])
            what = f"{name} {old * (1 + change):g}, {beside} {old:g} ({change:+.1%})"
            self.tell(kind, int(bar[number]), what, change)


def inspect_sessions(
    panel: Sessions, levels: Levels, table: SessionTable, report: Report, files: Mapping[int, str]
) -> None:
    """Count what the sessions of a whole panel show beside each other; fields of the panel are not read.

    Parameters
    ----------
    panel, levels
        The sessions that are kept, and their levels.
    table
        All sessions.
    """
    report.totals.update(instruments=len(panel.index.names), days=len(np.unique(panel.dates)))
    first = np.flatnonzero(table.kept)

    def tell(kind: str, rows: np.ndarray, what: Callable[[int], tuple[str, float]]) -> None:
        """Count the panel's `rows` and list them by the first bar of each; `what` tells of the i-th."""
        report.count(kind, len(rows))
        for index, row in enumerate(rows[: max(0, report.room(kind))].tolist()):
            at = first[row]
            date, stamp = str(panel.dates[row]), str(pd.Timestamp(int(table.stamp[at]), unit="us"))
            place = (
                str(panel.instruments[row]),
                date,
                stamp,
                files.get(int(table.source[at])),
                int(table.row[at]) or None,
            )
            words, value = what(index)
            report.show([Finding(kind, words, *place, value)])

    tell("no_volume", np.flatnonzero(levels.volume == 0), lambda _: ("", np.nan))
    later = np.flatnonzero(panel.previous >= 0)
    before = panel.previous[later]
    worth = price_ratio(panel, before, later)
    close, opening = levels.close[before] * worth, levels.open[later]
    stated, moved = np.log(worth), np.log(opening / (close / worth))
    denied = np.flatnonzero((np.abs(stated) > _STATED) & (np.abs(moved) < np.abs(moved - stated)))
    tell("factor_contradicted", later[denied], lambda i: (f"times {1 / worth[denied[i]]:g}", 1 / worth[denied[i]]))
    splits = suspected_splits(panel, levels)
    rows = panel.rows(splits["instrument"], splits["date"].to_numpy().astype("datetime64[D]"))
    named = list(splits.itertuples())

    def split(index: int) -> tuple[str, float]:
        one = named[index]
        prices = f"{one.close_before:g} to {one.open_after:g}"
        return f"like {one.split}, {prices}, volume times {one.volume_ratio:.3g}", float(one.ratio)

    tell("split_suspected", rows, split)
    change = opening / close - 1
    far = np.flatnonzero((np.abs(change) > OVERNIGHT) & ~np.isin(later, rows))
    tell(
        "price_jump",
        later[far],
        lambda i: (f"{close[far[i]]:g} to {opening[far[i]]:g} ({change[far[i]]:+.1%})", float(change[far[i]])),
    )
    _missing_sessions(table, report)
    _volume_breaks(panel, levels.volume / panel.num_ticks, later, before, report)


def _missing_sessions(table: SessionTable, report: Report) -> None:
    """Tell of days without an instrument, between its first and last, on which most others of then trade."""
    names, days, have = table.by_day(table.priced)
    have = np.nan_to_num(have) > 0
    there = ~np.isnan(table.by_day(table.priced)[2])
    alive = np.logical_or.accumulate(there, axis=1) & np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    common = have.sum(axis=0) >= _MOST_OTHERS * alive.sum(axis=0)
    row, column = np.nonzero(alive & ~there & common[None, :])
    report.count("missing_session", len(row))
    dates = days.astype("datetime64[D]")
    for at in range(min(len(row), max(0, report.room("missing_session")))):
        report.show([Finding("missing_session", "", str(names[row[at]]), str(dates[column[at]]), value=1.0)])


def _volume_breaks(panel: Sessions, mean: np.ndarray, later: np.ndarray, before: np.ndarray, report: Report) -> None:
    """Tell of days on which the median instrument's volume a tick is over 8 times that of its day before, or under."""
    traded = (mean[later] > 0) & (mean[before] > 0)
    ratio = pd.Series(np.log(mean[later[traded]] / mean[before[traded]]))
    groups = ratio.groupby(panel.dates[later[traded]])
    change, count = groups.median(), groups.size()
    for date, value in change[change.abs() > _BREAK].items():
        times = float(np.exp(value))
        what = f"median volume a tick times {times:.3g} over {counted(int(count[date]), 'instruments')}"
        report.add("volume_break", 1, what, date=f"{date:%Y-%m-%d}", value=times)


def coverage(table: SessionTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return instruments (I,), days (D,), the share of ticks with a price, and of those with a volume of 0, (I, D).

    NaN outside an instrument's days, and in the second where there is no price.
    """
    names, days, share = table.by_day(table.priced / table.length)
    with np.errstate(invalid="ignore", divide="ignore"):
        zeros = table.by_day(table.zeros / table.priced)[2]
    there = ~np.isnan(share)
    alive = np.logical_or.accumulate(there, axis=1) & np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    return names, days.astype("datetime64[D]"), np.where(alive & ~there, 0.0, share), zeros


def tick_index(calendar: Calendar, sessions: int, row: np.ndarray, tick: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """Return the index of each tick's bar, int64 of shape ``(sessions, T)``; -1 where there is none."""
    index = np.full((sessions, calendar.num_ticks), -1)
    index[row, tick] = bar
    return index
