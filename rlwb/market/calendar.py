"""The session's clock: segments, ticks, days, and what the stamp of a bar names."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rlwb.errors import ConfigError
from rlwb.market.clock import DAY_SECONDS, day_of, seconds_of, text_of, time_at
from rlwb.market.exchange import PRESETS, exchange_settings


@dataclass(frozen=True)
class Calendar:
    """The clock that every session of a market shares.

    A tick is one bar; tick ``t`` of ``0..T-1`` covers ``[tick_start[t], tick_start[t] + tick_seconds)``, local time.

    Parameters
    ----------
    segments
        Opening and closing time of each part of the session, in order, for example
        ``(("09:30", "11:30"), ("13:00", "15:00"))`` for a day with a lunch break. ``"24:00"`` ends a day.
    tick_minutes
        Length of a bar in minutes, from 1/60 (a second) to 60; every segment is a whole number of ticks.
    label
        Whether a bar's stamp names the ``"start"`` or the ``"end"`` of its tick.
    timezone
        Zone of the session (IANA name). Bars with a zone are converted to it and are refused without it;
        bars without a zone are taken as being in it.
    weekdays
        Days with trading, Monday = 0.
    early_closes
        Closing time of shortened days, for example ``{"2025-11-28": "13:00"}``.
    closed
        Dates (ISO) whose bars are rejected: holidays, mock sessions.
    infer_early_close_minutes
        A date on which hardly any instrument trades in the last this many minutes of session time, or more, is taken
        to have closed early (see `rlwb.market.build`). 0 turns the inference off.
    covers
        First and last date for which `closed` and `early_closes` are complete; bars of other dates are refused. None
        where they are complete for all.
    """

    segments: tuple[tuple[str, str], ...]
    tick_minutes: float = 1
    label: Literal["start", "end"] = "start"
    timezone: str | None = None
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4)
    early_closes: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    infer_early_close_minutes: int = 30
    covers: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        try:
            segments = tuple((_time_text(start), _time_text(end)) for start, end in self.segments)
            set_(self, "segments", segments)
            set_(self, "weekdays", tuple(sorted(set(self.weekdays))))
            closes = {str(day_of(day)): _time_text(close) for day, close in dict(self.early_closes).items()}
            set_(self, "early_closes", dict(sorted(closes.items())))
            given: Any = self.closed
            days = [given] if isinstance(given, str) else given
            set_(self, "closed", tuple(sorted(str(day_of(day)) for day in days)))
            if self.covers is not None:
                first, last = self.covers
                set_(self, "covers", (str(day_of(first)), str(day_of(last))))
            _check(self)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the calendar's settings cannot be read ({error}): segments and early_closes are pairs of text, "
                "weekdays and closed are lists, tick_minutes is a number, covers is two dates."
            ) from None

    def __hash__(self) -> int:
        return hash((self.segments, self.tick_minutes, self.label, self.timezone, self.closed))

    @classmethod
    def preset(cls, name: str, **settings: Any) -> Calendar:
        """Return the calendar of a market: ``"cn"``, ``"us"``, ``"in"`` or ``"crypto"``; `settings` override it."""
        if name not in PRESETS:
            raise ConfigError(f"there is no calendar {name!r}; choose one of {', '.join(PRESETS)} or state segments.")
        return cls(**{**PRESETS[name], **settings})

    @classmethod
    def exchange(cls, name: str, **settings: Any) -> Calendar:
        """Return the calendar of an exchange such as ``"XNYS"``; see `rlwb.market.exchange.exchange_settings`."""
        return cls(**exchange_settings(name, **settings))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as values that JSON can hold and `Calendar(**...)` takes."""
        values = asdict(self)
        values["segments"] = [list(segment) for segment in self.segments]
        if self.covers is None:
            del values["covers"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @cached_property
    def tick_seconds(self) -> int:
        """Length of a tick in seconds."""
        return round(self.tick_minutes * 60)

    @cached_property
    def tick_start(self) -> np.ndarray:
        """Seconds since local midnight at which each tick starts, int64 of shape ``(T,)``."""
        return _frozen(np.concatenate([np.arange(*bounds, self.tick_seconds) for bounds in self._bounds]), np.int64)

    @cached_property
    def segment(self) -> np.ndarray:
        """Index of each tick's segment, int32 of shape ``(T,)``."""
        lengths = [(end - start) // self.tick_seconds for start, end in self._bounds]
        return _frozen(np.repeat(np.arange(len(lengths)), lengths), np.int32)

    @cached_property
    def num_ticks(self) -> int:
        """Ticks of a regular session, ``T``."""
        return len(self.tick_start)

    @cached_property
    def close_seconds(self) -> int:
        """Seconds since local midnight at which the regular session ends."""
        return self._bounds[-1][1]

    @cached_property
    def _bounds(self) -> tuple[tuple[int, int], ...]:
        return tuple((int(seconds_of(start)), int(seconds_of(end))) for start, end in self.segments)

    def first_tick(self, time: Any) -> int:
        """Return the first tick that starts at or after the session-local `time`, ``0..T``."""
        return int(self.first_ticks(np.array(seconds_of(time))))

    def end_tick(self, time: Any) -> int:
        """Return how many ticks end at or before the session-local `time`, ``0..T``.

        The window ``[start, end)`` holds the ticks ``first_tick(start) .. end_tick(end) - 1``. In a session that
        runs until midnight, 00:00 is the end of the day.
        """
        seconds = seconds_of(time)
        if seconds == 0 and self.close_seconds == DAY_SECONDS:
            seconds = DAY_SECONDS
        return int(self.end_ticks(np.array(seconds)))

    def first_ticks(self, seconds: np.ndarray) -> np.ndarray:
        """`first_tick` for an array of seconds since local midnight, int64 of the same shape."""
        return np.searchsorted(self.tick_start, seconds, side="left")

    def end_ticks(self, seconds: np.ndarray) -> np.ndarray:
        """`end_tick` for an array of seconds since local midnight (86400 is the end of the day)."""
        return np.searchsorted(self.tick_start + self.tick_seconds, seconds, side="right")

    def seconds_at(self, tick: int) -> int:
        """Return the seconds since local midnight at which `tick` starts; ``tick == T`` gives the close."""
        if not 0 <= tick <= self.num_ticks:
            raise ConfigError(f"tick {tick} is outside 0..{self.num_ticks} of this calendar.")
        return self.close_seconds if tick == self.num_ticks else int(self.tick_start[tick])

    def time_of(self, tick: int) -> dt.time:
        """Return the time of day at which `tick` starts; ``tick == T`` gives the close (00:00 for midnight)."""
        return time_at(self.seconds_at(tick))

    def end_time_of(self, tick: int) -> str:
        """Return ``HH:MM`` at which `tick` ends (24:00 for midnight)."""
        return text_of(int(self.tick_start[tick]) + self.tick_seconds)

    def cells(self, ticks_per_step: int) -> np.ndarray:
        """Return each tick's cell of the step grid, int32 of shape ``(T,)``.

        Cells are numbered through the session, hold up to `ticks_per_step` ticks, are anchored at the start of
        each segment and never span two segments.
        """
        if not isinstance(ticks_per_step, (int, np.integer)) or ticks_per_step < 1:
            raise ConfigError(f"ticks_per_step is {ticks_per_step!r}; a step covers at least 1 tick, a whole number.")
        new = np.zeros(self.num_ticks, dtype=bool)
        for index in range(len(self.segments)):
            ticks = np.flatnonzero(self.segment == index)
            new[ticks[::ticks_per_step]] = True
        return _frozen(np.cumsum(new) - 1, np.int32)

    def ticks_on(self, dates: np.ndarray) -> np.ndarray:
        """Return the stated number of ticks on each date, int32 of the shape of `dates` (early closes applied)."""
        if not self.early_closes:
            return np.full(np.shape(dates), self.num_ticks, dtype=np.int32)
        days, ticks = self._early_ticks
        at = np.minimum(np.searchsorted(days, dates), len(days) - 1)
        return np.where(days[at] == dates, ticks[at], self.num_ticks).astype(np.int32)

    @cached_property
    def _early_ticks(self) -> tuple[np.ndarray, np.ndarray]:
        """Dates that close early, sorted, and their ticks."""
        ends = np.array([seconds_of(close) for close in self.early_closes.values()])
        return np.array(list(self.early_closes), dtype="datetime64[D]"), self.end_ticks(ends)

    def is_open(self, dates: np.ndarray) -> np.ndarray:
        """Tell for each date (datetime64[D]) whether it is a trading weekday that is not in `closed`."""
        weekday = (dates.astype("datetime64[D]").astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
        return np.isin(weekday, self.weekdays) & ~np.isin(dates, np.array(self.closed, dtype="datetime64[D]"))


def _frozen(array: np.ndarray, dtype: Any) -> np.ndarray:
    array = array.astype(dtype)
    array.setflags(write=False)
    return array


def _time_text(time: Any) -> str:
    return time if isinstance(time, str) else text_of(int(seconds_of(time)))


def _check(calendar: Calendar) -> None:
    if calendar.label not in ("start", "end"):
        raise ConfigError(f"label is {calendar.label!r}; it must be 'start' or 'end'.")
    seconds = calendar.tick_minutes * 60
    if not 1 <= seconds <= 3600 or abs(seconds - round(seconds)) > 1e-6:
        raise ConfigError(f"tick_minutes is {calendar.tick_minutes}; a tick is a whole number of seconds up to 60 min.")
    if not calendar.segments:
        raise ConfigError("segments is empty; state at least one opening and closing time.")
    last = 0
    for start, end in calendar.segments:
        begin, finish = seconds_of(start), seconds_of(end)
        if begin < last or finish <= begin:
            raise ConfigError(f"segment {start}-{end} does not follow in time; list segments of one day in order.")
        if (finish - begin) % round(seconds):
            raise ConfigError(f"segment {start}-{end} is not a whole number of ticks of {calendar.tick_minutes} min.")
        last = int(finish)
    if not calendar.weekdays or not set(calendar.weekdays) <= set(range(7)):
        raise ConfigError(f"weekdays is {calendar.weekdays}; give days from 0 (Monday) to 6.")
    if calendar.infer_early_close_minutes < 0:
        raise ConfigError(f"infer_early_close_minutes is {calendar.infer_early_close_minutes}; give 0 or more.")
    if calendar.timezone is not None:
        try:
            zoneinfo.ZoneInfo(calendar.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(f"timezone {calendar.timezone!r} is unknown; give an IANA name such as UTC.") from None
    for day, close in calendar.early_closes.items():
        if calendar.end_tick(close) == 0:
            raise ConfigError(f"the early close {close} of {day} leaves no tick; list the day in closed instead.")
    if calendar.covers is not None and calendar.covers[0] > calendar.covers[1]:
        raise ConfigError(f"covers is {calendar.covers}; give the first date before the last.")
