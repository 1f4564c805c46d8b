"""Detection of wrong clocks: sessions whose bars do not lie where the calendar says, told by all bars of their days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.market.bars import DAY
from rlwb.market.calendar import DAY_SECONDS, Calendar, date_text
from rlwb.market.findings import Report, counted
from rlwb.market.stretches import tell_sessions

if TYPE_CHECKING:
    from rlwb.market.cleaning import Cleaning

#: Bars of a day are counted by the minute.
_SLOTS = DAY_SECONDS // 60
#: Minutes by which a clock may be wrong: it is set by hand, or is that of another zone.
_EVERY, _MOST = 5, 13 * 60
#: Share of the bars outside the session that a shift must bring inside, and of all bars that are inside then.
_EXPLAINED, _INSIDE = 0.8, 0.9
#: Share of the session below which bars are too few to be one.
_TOO_FEW = 0.05
#: Share of bars by which two shifts may differ and be as good as each other.
_ALIKE = 0.005
#: How full the hours outside must be, beside the session itself; a few late prints are no session.
_AS_FULL = 0.5
#: Chance from which on the hours that a shift leaves empty are empty by accident, and the fullest a session counts as.
_ACCIDENT, _FULLEST = 1e-4, 0.99
#: Share of all bars that lie outside on days whose session lacks bars, from which on it is a fault.
_SMALL = 0.02
#: Share of the volume of a day's fuller bars (a quarter has more) below which a bar is none of the session's: before
#: and after hours little is traded, and a session that is moved takes its volume along.
_THIN = 0.05
#: A session with this share of the bars that its instrument usually has lacks none.
_WHOLE = 0.8


class ClockCheck:
    """The fit of sessions to the hours of a calendar: seen in parts, decided at last.

    A session that is late by an hour has an hour of bars after the close and lacks the first. So a shift is told when
    it brings nearly all bars that lie outside into the session, and leaves empty what is never empty by accident. It is
    looked for in each session, in all of a day, and in all of an instrument. Where a day has more bars than the session
    (trading before and after hours), its busiest count.
    """

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._open = np.zeros(_SLOTS, dtype=bool)
        for begin, end in calendar.bounds:
            self._open[begin // 60 : -(-end // 60)] = True
        by_hand = np.arange(-_MOST, _MOST + 1, _EVERY)
        by_hand = by_hand[(by_hand == 0) | (np.abs(by_hand) * 60 >= calendar.tick_seconds)]
        #: Minutes that bars may be late, early ones negative: none, then round ones before others, the fewest first.
        roughness = (by_hand % 60 != 0) + (by_hand % 30 != 0).astype(int) + (by_hand % 15 != 0)
        self._shifts = by_hand[np.lexsort((np.abs(by_hand), np.where(by_hand == 0, -1, roughness)))]
        left = [(self._open & ~np.roll(self._open, shift)).sum() for shift in self._shifts.tolist()]
        #: Ticks of the session that each shift leaves empty.
        self._left = np.array(left) * 60 / calendar.tick_seconds
        self._by_day: dict[int, np.ndarray] = {}
        self._by_name: dict[str, np.ndarray] = {}
        self._parts: list[tuple[np.ndarray, ...]] = []
        #: Instrument and day (since 1970) of each session that is early or late.
        self.shifted: set[tuple[str, int]] = set()

    def see(self, cleaning: Cleaning) -> np.ndarray:
        """Count the bars of some sessions; return of each bar by how many minutes its session is late, int ``(bars,)``.

        They are all that lie on open days, sorted by instrument and stamp.
        """
        bars, at = cleaning.bars, cleaning.at
        if not len(bars):
            return np.zeros(0, dtype=np.int64)
        begins = np.append(True, (np.diff(bars.code) != 0) | (np.diff(at.day) != 0))
        first, session = np.flatnonzero(begins), np.cumsum(begins) - 1
        count = np.diff(np.append(first, len(bars)))
        length = self._calendar.tick_seconds * 1_000_000 if self._calendar.label == "end" else 0
        slot = (bars.stamp - length) % DAY // 60_000_000
        away = np.bincount(session, ~at.inside & ~at.edge, len(first))
        active = self._active(session, count, bars.values["volume"], away)
        outside = active & ~at.inside & ~at.edge
        suspect = np.flatnonzero(np.bincount(session[outside], minlength=len(first)))
        late = np.zeros(len(first), dtype=np.int64)
        if not self._open.all():
            self._add(bars.names, bars.code, at.day, slot, active)
            number = np.full(len(first), -1)
            number[suspect] = np.arange(len(suspect))
            mine = active & (number[session] >= 0)
            histogram = _histogram(number[session[mine]], slot[mine], len(suspect))
            late[suspect] = self._late(histogram, np.ones(len(suspect)))
        inside = np.bincount(session, at.inside, len(first))
        self._parts.append((bars.names[bars.code[first]].astype(object), at.day[first], late, count, inside, away))
        return late[session]

    def conclude(self, report: Report) -> np.ndarray:
        """Tell of clocks that are wrong and of instruments outside the session; return the days that are shifted.

        `shifted` has the sessions, then.
        """
        if not self._parts:
            return np.zeros(0, dtype=np.int64)
        names, days, late, count, inside, away = map(np.concatenate, zip(*self._parts, strict=True))
        order = np.lexsort((days, names.astype(str)))
        names, days, late, count, inside, away = (
            part[order] for part in (names.astype(str), days, late, count, inside, away)
        )
        shifted = np.zeros(0, dtype=np.int64)
        for by, keys in ((self._by_day, days), (self._by_name, names)):
            if by and not self._open.all():
                pool = np.array(sorted(by))
                size = np.bincount(np.searchsorted(pool, keys), minlength=len(pool))
                found = self._late(np.stack([by[key] for key in pool.tolist()]), size)
                of = found[np.searchsorted(pool, keys)]
                near = (late == 0) | (np.abs(late - of) <= 60)  # what all together say is surer
                late = np.where(near & (of != 0), of, late)
                if by is self._by_day:
                    shifted = pool[found != 0]
        tell_sessions(report, "clock_shifted", late != 0, names, days, late, _in_words, late)
        self._tell_instruments(report, names, days, count, inside)
        self.shifted = set(zip(names[late != 0].tolist(), days[late != 0].tolist(), strict=True))
        usual = _medians(names, inside)
        lacking = (late == 0) & (inside < _WHOLE * usual) | (inside == 0)
        if away[lacking].sum() > _SMALL * count.sum():
            share = away[lacking].sum() / count.sum()
            worst = int(np.argmax(np.where(lacking, away, 0)))
            what = f"{share:.1%} of all bars, most on this day ({counted(int(away[worst]), 'bars')})"
            date = date_text(days[worst])
            report.add("off_session_many", int(away[lacking].sum()), what, instrument=str(names[worst]), date=date)
        return shifted

    def _tell_instruments(
        self, report: Report, names: np.ndarray, days: np.ndarray, count: np.ndarray, inside: np.ndarray
    ) -> None:
        """Tell of instruments with one bar a day, and of those without a bar inside the session."""
        first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        sessions = np.diff(np.append(first, len(names)))
        bars, within, most = (
            np.add.reduceat(count, first),
            np.add.reduceat(inside, first),
            np.maximum.reduceat(count, first),
        )
        daily = (most == 1) & (sessions > 1) & (self._calendar.num_ticks > 1)
        for at in np.flatnonzero(daily | (within == 0)).tolist():
            name, row = str(names[first[at]]), first[at]
            begin, end = (date_text(day) for day in (days[row], days[row + sessions[at] - 1]))
            kind, what = "instrument_outside", f"no bar of {name} lies inside the session"
            if daily[at]:
                kind, what = "daily_bars", f"one bar on each of {counted(int(sessions[at]), 'days')}"
            last = end if end != begin else None
            report.add(kind, 1, what, instrument=name, date=begin, last=last, value=float(bars[at]))

    def _active(self, session: np.ndarray, count: np.ndarray, volume: np.ndarray, away: np.ndarray) -> np.ndarray:
        """Tell of each bar whether it is among the busiest of its day, as many as the session has ticks.

        Those of sessions with bars `away` from the hours, ``(sessions,)``, must not be thin either.
        """
        active, traded = np.ones(len(session), dtype=bool), np.nan_to_num(volume)
        some = np.flatnonzero(away[session] > 0)
        if len(some):
            order = some[np.lexsort((traded[some], session[some]))]
            left = count[away > 0]
            fuller = traded[order[np.cumsum(left) - 1 - left // 4]]
            active[some] = traded[some] >= _THIN * np.repeat(fuller, left)
        most = self._calendar.num_ticks
        many = np.flatnonzero((count > 1.05 * most + 1)[session])
        if len(many):
            order = many[np.lexsort((-np.nan_to_num(volume[many], nan=-1.0), session[many]))]
            begins = np.append(True, np.diff(session[order]) != 0)
            rank = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
            active[order[rank >= most]] = False
        return active

    def _add(self, names: np.ndarray, code: np.ndarray, day: np.ndarray, slot: np.ndarray, active: np.ndarray) -> None:
        """Add active bars to the counts of their days and instruments."""
        days, at = np.unique(day, return_inverse=True)
        pools: tuple[tuple[dict[Any, np.ndarray], list[Any], np.ndarray], ...] = (
            (self._by_day, days.tolist(), at),
            (self._by_name, names.tolist(), code),
        )
        for by, keys, number in pools:
            for key, row in zip(keys, _histogram(number[active], slot[active], len(keys)), strict=True):
                by[key] = by[key] + row if key in by else row

    def _late(self, bars: np.ndarray, sessions: np.ndarray) -> np.ndarray:
        """Return by how many minutes bars are late, int ``(n,)``; 0 where they are not, or it cannot be told.

        `bars` are counts by the minute of the day, ``(n, 1440)``, of so many `sessions`, ``(n,)``.
        """
        if not len(bars):
            return np.zeros(0, dtype=np.int64)
        total = bars.sum(axis=1)
        before = np.concatenate([np.zeros((len(bars), 1), dtype=bars.dtype), np.cumsum(bars, axis=1)], axis=1)

        def until(slot: np.ndarray) -> np.ndarray:
            days, rest = np.divmod(slot, _SLOTS)
            return before[:, rest] + days * total[:, None]

        within = np.zeros((len(bars), len(self._shifts)), dtype=np.int64)
        edges = np.flatnonzero(np.diff(np.pad(self._open.astype(np.int8), 1))).reshape(-1, 2)
        for begin, end in edges.tolist():
            within += until(end + self._shifts) - until(begin + self._shifts)
        best = (within >= within.max(axis=1, keepdims=True) - _ALIKE * total[:, None]).argmax(axis=1)
        rows = np.arange(len(bars))
        inside, gain = within[rows, best], within[rows, best] - within[:, 0]
        full = inside / (self._calendar.num_ticks * np.maximum(sessions, 1))
        ticks = self._left[best] * sessions
        with np.errstate(divide="ignore"):
            chance = ticks * np.log(1 - np.minimum(full, _FULLEST))
        told = (best > 0) & (inside >= _INSIDE * total) & (full >= _TOO_FEW)
        told &= gain >= _EXPLAINED * (total - within[:, 0])
        told &= (gain >= _AS_FULL * ticks * np.minimum(full, 1)) & (chance <= np.log(_ACCIDENT))
        return np.where(told, self._shifts[best], 0)


def _histogram(number: np.ndarray, slot: np.ndarray, rows: int) -> np.ndarray:
    """Return how many bars each of `rows` has in each minute of the day, int ``(rows, 1440)``."""
    return np.bincount(number * _SLOTS + slot, minlength=rows * _SLOTS).reshape(rows, _SLOTS)


def _medians(names: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return of each session the median of its instrument's, ``(S,)``; sorted by instrument."""
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    groups = np.split(values, first[1:])
    return np.repeat([np.median(group) for group in groups], [len(group) for group in groups])


def _in_words(late: object) -> str:
    """Return a shift in words: ``about 60 minutes late``."""
    minutes = int(late)  # type: ignore[call-overload]
    size = abs(minutes)
    hours = f" ({size / 60:g} hours)" if size >= 120 else ""
    return f"shifted by about {size} minutes{hours}, stamps are {'late' if minutes > 0 else 'early'}"
