"""Whether bars fit their calendar, and when the market closed: counted part by part, decided when all were seen."""

from __future__ import annotations

import numpy as np

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.cleaning import Cleaning
from rlwb.market.clock import text_of
from rlwb.market.findings import Finding, Report

_MAX_OFF_GRID = 0.2
_NEARLY_ALL = 0.9
_SHORTEST = 0.5
_BREADTH = 1 / 3


class _Tally:
    """How many bars, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Finding | None = None

    def add(self, cleaning: Cleaning, mask: np.ndarray, count: int | None = None) -> None:
        if mask.any():
            at = int(np.argmax(mask))
            self.first = self.first or cleaning.bars.finding("label_suspect", at, cleaning.files)
            self.count += int(mask.sum()) if count is None else count

    def __str__(self) -> str:
        return "" if self.first is None else self.first.place()


class CalendarCheck:
    """What all bars together show of label, bar length, dates and early closes.

    Parameters
    ----------
    calendar
        The clock they are laid on.
    """

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._outside, self._off_grid = _Tally(), _Tally()
        self._bars = 0
        self._sessions = 0
        self._foreign = [_Tally() for _ in calendar.segments]
        self._own = [0 for _ in calendar.segments]
        self._gaps = np.zeros(calendar.num_ticks + 1, dtype=np.int64)
        self._days = np.empty(0, dtype=np.int64)
        shape = (0, calendar.num_ticks if calendar.infer_early_close_minutes else 0)
        self._priced = np.empty(shape, dtype=np.int32)  # instruments with a price, whatever the volume
        self._traded = np.empty(shape, dtype=np.int32)

    def drop_misplaced(self, cleaning: Cleaning) -> None:
        """Drop bars of closed days, outside the session, or between ticks, and count what that says.

        Whole sessions must come at once.
        """
        calendar = self._calendar
        if calendar.covers is not None:
            first, last = np.array(calendar.covers, dtype="datetime64[D]").astype(np.int64)
            self._outside.add(cleaning, (cleaning.at.day < first) | (cleaning.at.day > last))
        cleaning.drop("closed_day", ~calendar.is_open(cleaning.at.day.astype("datetime64[D]")))
        self._see_edges(cleaning)
        cleaning.drop("auction", cleaning.at.edge)
        cleaning.drop("off_session", ~cleaning.at.inside)
        off = ~cleaning.at.on_grid
        self._bars += len(off)
        self._off_grid.add(cleaning, off)
        cleaning.drop("off_grid", off)
        at = cleaning.at
        gaps = np.diff(at.tick)
        together = (np.diff(cleaning.bars.code) == 0) & (np.diff(at.day) == 0) & (np.diff(at.segment) == 0)
        self._gaps += np.bincount(gaps[together], minlength=len(self._gaps))

    def see_closes(self, cleaning: Cleaning) -> None:
        """Count in which ticks instruments trade, and drop bars after a close that the calendar states."""
        calendar = self._calendar
        days = np.unique(cleaning.at.day)
        self._add_days(days)
        stated = _stated(days, calendar)
        if stated.any():
            index = np.searchsorted(days, cleaning.at.day)
            ends = calendar.ticks_on(days.astype("datetime64[D]"))
            cleaning.drop("after_early_close", stated[index] & (cleaning.at.tick >= ends[index]))
        if calendar.infer_early_close_minutes and len(cleaning.bars):
            index = np.searchsorted(days, cleaning.at.day)
            rows, ticks = np.searchsorted(self._days, days), calendar.num_ticks
            values = cleaning.bars.values
            priced = np.isfinite(values["close"])
            for total, mask in ((self._priced, priced), (self._traded, priced & (values["volume"] != 0))):
                key = index[mask] * ticks + cleaning.at.tick[mask]
                total[rows] += np.bincount(key, minlength=len(rows) * ticks).reshape(len(rows), ticks).astype(np.int32)

    def validate(self, report: Report) -> tuple[np.ndarray, np.ndarray]:
        """Refuse bars that do not fit; report a suspect label and early closes.

        The label is suspect when nearly every session has a bar at the edge that the other label would use, and hardly
        any at its own edge of the same segment.

        Returns
        -------
        days, ticks : ndarray of int64, of shape (days,)
            The days that were seen, since 1970, sorted, and the ticks of each, early closes applied.

        Raises
        ------
        DataError
            For bars of dates that the calendar does not cover, and of another length than its ticks.
        """
        calendar = self._calendar
        if self._outside.count:
            raise DataError(
                f"{self._outside.count:,} bars (first: {self._outside}) lie outside "
                f"{' to '.join(calendar.covers or ())}, for which the calendar knows holidays and early closes; leave "
                "them out, or state closed and early_closes yourself."
            )
        if self._off_grid.count > _MAX_OFF_GRID * self._bars:
            raise DataError(
                f"{self._off_grid.count:,} of {self._bars:,} bars lie between ticks of {calendar.tick_minutes} min "
                f"(first: {self._off_grid}); set tick_minutes to the bars' own length, or round their stamps."
            )
        self._check_spacing()
        closing_auction = False
        for index, (foreign, own) in enumerate(zip(self._foreign, self._own, strict=True)):
            if not self._sessions or foreign.count < _NEARLY_ALL * self._sessions:
                continue
            closing_auction |= calendar.label == "start" and index == len(self._foreign) - 1
            if own <= (1 - _NEARLY_ALL) * self._sessions:
                other = "end" if calendar.label == "start" else "start"
                report.add("label_suspect", foreign.count, f"{foreign}, try label={other!r}", value=foreign.count)
        return self._days, self._closes(report, closing_auction=closing_auction)

    def _see_edges(self, cleaning: Cleaning) -> None:
        """Count sessions, those with a bar at the edge that the other label would use, and those at their own."""
        calendar, at = self._calendar, cleaning.at
        session = cleaning.bars.code.astype(np.int64) * 2**32 + at.day
        self._sessions += len(np.unique(session))
        inside = at.inside & at.on_grid
        for index, foreign in enumerate(self._foreign):
            ticks = np.flatnonzero(calendar.segment == index)
            mask = at.edge & (at.segment == index)
            foreign.add(cleaning, mask, len(np.unique(session[mask])))
            own = inside & (at.tick == (ticks[0] if calendar.label == "start" else ticks[-1]))
            self._own[index] += len(np.unique(session[own]))

    def _check_spacing(self) -> None:
        total = int(self._gaps.sum())
        if total < 10 or self._gaps[1] > 0.02 * total:
            return
        usual = int(self._gaps.argmax())
        minutes = usual * self._calendar.tick_minutes
        if self._gaps[::usual].sum() > 0.98 * total:
            raise DataError(
                f"the bars are {minutes:g} min apart, the calendar's ticks last {self._calendar.tick_minutes:g} min; "
                f"set tick_minutes={minutes:g}."
            )

    def _closes(self, report: Report, *, closing_auction: bool) -> np.ndarray:
        calendar, dates = self._calendar, self._days.astype("datetime64[D]")
        ends, stated = calendar.ticks_on(dates).astype(np.int64), _stated(self._days, calendar)
        report.add("early_close_stated", int(stated.sum()), date=str(dates[stated][0]) if stated.any() else None)
        if calendar.infer_early_close_minutes and len(dates):
            silent = self._traded.sum(axis=1) == 0  # an index never has volume
            breadth = np.where(silent[:, None], self._priced, self._traded)
            length, trusted = early_lengths(breadth, calendar, closing_auction=closing_auction)
            early = trusted & ~stated
            if early.any():
                first = int(np.argmax(early))
                close = text_of(int(calendar.tick_start[int(length[first]) - 1]) + calendar.tick_seconds)
                report.add("early_close_inferred", int(early.sum()), f"at {close}", date=str(dates[first]))
                ends = np.where(early, length, ends)
        return ends

    def _add_days(self, days: np.ndarray) -> None:
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


def _stated(days: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Tell of which days (since 1970) the calendar states an early close."""
    return np.isin(days.astype("datetime64[D]"), np.array(list(calendar.early_closes), dtype="datetime64[D]"))
