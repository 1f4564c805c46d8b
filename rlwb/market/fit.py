"""Whether bars fit their calendar at all: counted over one part of them or many, judged when all were seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.report import Report

if TYPE_CHECKING:
    from rlwb.market.validate import Bars

_MAX_OFF_GRID = 0.2
_NEARLY_ALL = 0.9


class _Tally:
    """How many bars, and the first of them in words."""

    def __init__(self) -> None:
        self.count = 0
        self.example = ""

    def add(self, bars: Bars, mask: np.ndarray, count: int | None = None) -> None:
        if mask.any():
            self.example = self.example or bars.example(int(np.argmax(mask)))
            self.count += int(mask.sum()) if count is None else count


class Fit:
    """What bars show of label, bar length and dates, before what does not fit is dropped.

    Parameters
    ----------
    calendar
        The clock they are laid on.
    """

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._outside = _Tally()
        self._off_grid = _Tally()
        self._bars = 0
        self._sessions = 0
        self._foreign = [_Tally() for _ in calendar.segments]
        self._own = [0 for _ in calendar.segments]
        self._gaps = np.zeros(calendar.num_ticks + 1, dtype=np.int64)

    def see_dates(self, bars: Bars) -> None:
        """Count bars of dates whose holidays the calendar does not know."""
        if self._calendar.covers is not None:
            first, last = np.array(self._calendar.covers, dtype="datetime64[D]").astype(np.int64)
            self._outside.add(bars, (bars.placed.day < first) | (bars.placed.day > last))

    def see_edges(self, bars: Bars) -> None:
        """Count sessions, those with a bar at the edge that the other label would use, and those at their own.

        Whole sessions must come at once.
        """
        calendar, placed = self._calendar, bars.placed
        session = bars.code.astype(np.int64) * 2**32 + placed.day
        self._sessions += len(np.unique(session))
        inside = placed.inside & placed.on_grid
        for index, foreign in enumerate(self._foreign):
            ticks = np.flatnonzero(calendar.segment == index)
            mask = placed.edge & (placed.segment == index)
            foreign.add(bars, mask, len(np.unique(session[mask])))
            own = inside & (placed.tick == (ticks[0] if calendar.label == "start" else ticks[-1]))
            self._own[index] += len(np.unique(session[own]))

    def see_grid(self, bars: Bars, off: np.ndarray) -> None:
        """Count bars, and those between ticks, `off`."""
        self._bars += len(bars)
        self._off_grid.add(bars, off)

    def see_spacing(self, bars: Bars) -> None:
        """Count the ticks from one bar to the next, of sorted bars."""
        gaps = np.diff(bars.placed.tick)
        together = (np.diff(bars.code) == 0) & (np.diff(bars.placed.day) == 0) & (np.diff(bars.placed.segment) == 0)
        self._gaps += np.bincount(gaps[together], minlength=len(self._gaps))

    def judge(self, report: Report) -> bool:
        """Refuse bars that do not fit, report a label that is suspect, and tell whether there are closing auctions.

        There are, when nearly every session has a bar stamped at the close, outside its ticks. The label is suspect
        when nearly every session has a bar at the edge that the other label would use, and hardly any at its own edge
        of the same segment.

        Raises
        ------
        DataError
            For bars of dates that the calendar does not cover, and of another length than its ticks.
        """
        calendar = self._calendar
        if self._outside.count:
            raise DataError(
                f"{self._outside.count:,} bars (first: {self._outside.example}) lie outside "
                f"{' to '.join(calendar.covers or ())}, for which the calendar knows holidays and early closes; leave "
                "them out, or state closed and early_closes yourself."
            )
        if self._off_grid.count > _MAX_OFF_GRID * self._bars:
            raise DataError(
                f"{self._off_grid.count:,} of {self._bars:,} bars lie between ticks of {calendar.tick_minutes} min "
                f"(first: {self._off_grid.example}); set tick_minutes to the bars' own length, or round their stamps."
            )
        self._check_spacing()
        auction = False
        for index, (foreign, own) in enumerate(zip(self._foreign, self._own, strict=True)):
            if not self._sessions or foreign.count < _NEARLY_ALL * self._sessions:
                continue
            auction |= calendar.label == "start" and index == len(self._foreign) - 1
            if own <= (1 - _NEARLY_ALL) * self._sessions:
                other = "end" if calendar.label == "start" else "start"
                report.add("label_suspect", foreign.count, f"{foreign.example}, try label={other!r}")
        return auction

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
