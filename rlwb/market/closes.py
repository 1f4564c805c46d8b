"""When the market closed on each day: as the calendar states, or as all instruments together show."""

from __future__ import annotations

import numpy as np

from rlwb.market.calendar import Calendar
from rlwb.market.report import Report
from rlwb.market.validate import Bars

_SHORTEST = 0.5
_BREADTH = 1 / 3


class Closes:
    """The days of bars that come in one part or many, and in which ticks instruments trade; then the closes.

    Parameters
    ----------
    calendar
        The clock.
    """

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._days = np.empty(0, dtype=np.int64)
        shape = (0, calendar.num_ticks if calendar.infer_early_close_minutes else 0)
        self._priced = np.empty(shape, dtype=np.int32)  # with a price, whatever the volume
        self._traded = np.empty(shape, dtype=np.int32)

    def see(self, bars: Bars) -> None:
        """Count sorted bars, and drop those after a close that the calendar states."""
        days, index = np.unique(bars.placed.day, return_inverse=True)
        self._add(days)
        stated = _stated(days, self._calendar)
        if stated.any():
            ends = self._calendar.ticks_on(days.astype("datetime64[D]"))
            bars.drop("after_early_close", stated[index] & (bars.placed.tick >= ends[index]))
            index = np.searchsorted(days, bars.placed.day)
        if self._calendar.infer_early_close_minutes and len(bars):
            rows, ticks = np.searchsorted(self._days, days), self._calendar.num_ticks
            priced = np.isfinite(bars.values["close"])
            for total, mask in ((self._priced, priced), (self._traded, priced & (bars.values["volume"] != 0))):
                total[rows] += _breadth(index[mask], bars.placed.tick[mask], len(rows), ticks)

    def ends(self, report: Report, *, closing_auction: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the days that were seen, int64 since 1970, sorted, and the ticks of each; both of shape ``(days,)``.

        Parameters
        ----------
        report
            Where early closes are counted.
        closing_auction
            See `early_lengths`.
        """
        calendar, dates = self._calendar, self._days.astype("datetime64[D]")
        ends, stated = calendar.ticks_on(dates), _stated(self._days, calendar)
        if stated.any():
            report.add("early_close_stated", int(stated.sum()), str(dates[stated][0]))
        if calendar.infer_early_close_minutes and len(dates):
            silent = self._traded.sum(axis=1) == 0  # an index never has volume
            breadth = np.where(silent[:, None], self._priced, self._traded)
            length, trusted = early_lengths(breadth, calendar, closing_auction=closing_auction)
            early = trusted & ~stated
            if early.any():
                first = int(np.argmax(early))
                example = f"{dates[first]} at {calendar.end_time_of(int(length[first]) - 1)}"
                report.add("early_close_inferred", int(early.sum()), example)
                ends = np.where(early, length, ends)
        return self._days, ends

    def _add(self, days: np.ndarray) -> None:
        if np.isin(days, self._days).all():
            return
        both = np.union1d(self._days, days)
        rows = np.searchsorted(both, self._days)
        for name in ("_priced", "_traded"):
            old = getattr(self, name)
            new = np.zeros((len(both), old.shape[1]), dtype=np.int32)
            new[rows] = old
            setattr(self, name, new)
        self._days = both


def early_lengths(
    breadth: np.ndarray, calendar: Calendar, *, closing_auction: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each day the ticks until the market fell silent, and whether that is an early close; both ``(days,)``.

    A tick counts when at least a third of the number of instruments that usually trade in a tick of that day trade in
    it, so that a few late prints do not keep a closed market open.

    Parameters
    ----------
    breadth
        How many instruments trade in each tick, of shape ``(days, T)``.
    closing_auction
        Whether nearly every session has a bar stamped at the close, outside its ticks.
    """
    ticks = calendar.num_ticks
    usual = np.median(breadth[:, : max(1, ticks // 2)], axis=1)
    printed = breadth >= np.maximum(1, _BREADTH * usual)[:, None]
    length = np.where(printed.any(axis=1), ticks - np.argmax(printed[:, ::-1], axis=1), ticks)
    lost = (ticks - length) * calendar.tick_minutes
    trusted = (lost > 0) & (lost >= calendar.infer_early_close_minutes)
    if closing_auction:  # the last bar of a short day is its auction, which regular days keep outside the session
        length = np.where(trusted, length - 1, length)
    trusted &= (length >= _SHORTEST * ticks) & (printed.sum(axis=1) >= _SHORTEST * length)
    return length, trusted


def _breadth(index: np.ndarray, tick: np.ndarray, days: int, ticks: int) -> np.ndarray:
    """Return how many bars each day and tick has, int32 of shape ``(days, ticks)``."""
    return np.bincount(index * ticks + tick, minlength=days * ticks).reshape(days, ticks).astype(np.int32)


def _stated(days: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Tell of which days (since 1970) the calendar states an early close."""
    return np.isin(days.astype("datetime64[D]"), np.array(list(calendar.early_closes), dtype="datetime64[D]"))
