"""The session's clock: segments, ticks, days, and what the stamp of a bar names; dates and times of day of settings."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError
from rlwb.values import shown

DAY_SECONDS = 86_400
#: Dates beyond all that nanoseconds reach.
_EARLIEST, _LATEST = np.datetime64("1677-01-01"), np.datetime64("2263-01-01")
_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})(?:[T ]\d.*)?")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")

PRESETS: dict[str, dict[str, Any]] = {
    "cn": {"segments": (("09:30", "11:30"), ("13:00", "15:00")), "timezone": "Asia/Shanghai"},
    "us": {"segments": (("09:30", "16:00"),), "timezone": "America/New_York"},
    "in": {"segments": (("09:15", "15:30"),), "timezone": "Asia/Kolkata"},
    "crypto": {
        "segments": (("00:00", "24:00"),),
        "timezone": "UTC",
        "weekdays": (0, 1, 2, 3, 4, 5, 6),
        "infer_early_close_minutes": 0,
    },
}
#: Dates that an exchange's calendar speaks for, as far as the package knows; fixed, so that a run tomorrow has today's.
_FIRST, _LAST = pd.Timestamp("2000-01-01"), pd.Timestamp("2030-12-31")


def seconds_of(time: Any) -> float:
    """Return the seconds since local midnight of a time of day.

    It is text ``"HH:MM"`` or ``"HH:MM:SS"`` (``"24:00"`` is the end of the day), a `datetime.time`, or anything with
    hour, minute, second and microsecond, of which the date is ignored.
    """
    if isinstance(time, str):
        match = _TIME.fullmatch(time.strip())
        if match is None:
            raise ConfigError(f"the time {time!r} is not of the form HH:MM or HH:MM:SS; write for example '09:30'.")
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        total = hours * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or total > DAY_SECONDS:
            raise ConfigError(f"the time {time!r} does not exist; times run from 00:00 to 24:00.")
        return total
    if not hasattr(time, "hour"):
        raise ConfigError(f"{time!r} is not a time of day; write it as quoted text, for example '11:30'.")
    whole: float = time.hour * 3600 + time.minute * 60 + time.second
    return whole + time.microsecond / 1e6 if time.microsecond else whole


def day_of(value: Any) -> np.datetime64:
    """Return a date of a setting, datetime64[D].

    It is text ``YYYY-MM-DD`` or ``YYYYMMDD`` (also as a whole number), with or without a time of day, which is ignored,
    or a date or stamp.
    """
    text = value.isoformat() if hasattr(value, "isoformat") else str(value).strip()
    match = _DATE.fullmatch(text)
    try:
        if match is None or isinstance(value, float):
            raise ValueError
        return np.datetime64("-".join(match.groups()), "D")
    except ValueError:
        raise ConfigError(f"the date {value!r} is not of the form YYYY-MM-DD, for example '2025-11-28'.") from None


def span_of(start: Any, end: Any) -> tuple[np.datetime64, np.datetime64]:
    """Return the first and last date of settings of which each may be None: no bound; datetime64[D]."""
    first = _EARLIEST if start is None else day_of(start)
    last = _LATEST if end is None else day_of(end)
    if start is not None and end is not None and first > last:
        raise ConfigError(f"start {start} is after end {end}; give the first date first.")
    return first, last


def date_text(day: int) -> str:
    """Return a day, counted since 1970, as ``YYYY-MM-DD``."""
    return str(np.datetime64(int(day), "D"))


def text_of(seconds: int) -> str:
    """Return ``HH:MM``, or ``HH:MM:SS`` where seconds matter; the end of the day reads 24:00."""
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}" if seconds % 60 else text


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
        closed: Any = self.closed
        try:
            closes = {str(day_of(day)): _time_text(close) for day, close in dict(self.early_closes).items()}
            days = [closed] if isinstance(closed, str) else closed
            first, last = self.covers or (None, None)
            clean: dict[str, Any] = {
                "segments": tuple((_time_text(start), _time_text(end)) for start, end in self.segments),
                "weekdays": tuple(sorted(set(self.weekdays))),
                "early_closes": dict(sorted(closes.items())),
                "closed": tuple(sorted(str(day_of(day)) for day in days)),
                "covers": None if self.covers is None else (str(day_of(first)), str(day_of(last))),
            }
            for name, value in clean.items():
                object.__setattr__(self, name, value)
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
            raise ConfigError(
                f"there is no calendar {shown(name)}; choose one of {', '.join(PRESETS)} or state segments."
            )
        return cls(**{**PRESETS[name], **settings})

    @classmethod
    def exchange(cls, name: str, **settings: Any) -> Calendar:
        """Return hours, holidays and early closes of an exchange, from the package exchange_calendars.

        The segments are today's regular hours. A date on which it closed earlier (a half day, or the hours of former
        years) is an early close; one on which it opened later lacks its first bars. Nothing is inferred from silence
        unless `settings` say so.

        Parameters
        ----------
        name
            Market identifier code (ISO 10383), such as XNYS, XSHG or XLON, or another name that the package knows.
        settings
            Other fields. Dates in `closed` and `early_closes` are added to those of the exchange.

        Raises
        ------
        ConfigError
            When the package is missing, does not know the name, or knows it as a market whose sessions span midnight.
        """
        facts, closed = _exchange(name), settings.pop("closed", ())
        closed = (*facts["closed"], *((closed,) if isinstance(closed, str) else closed))
        early = {**facts["early_closes"], **settings.pop("early_closes", {})}
        return cls(**{"infer_early_close_minutes": 0, **facts, **settings, "closed": closed, "early_closes": early})

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
        return _frozen(np.concatenate([np.arange(*edges, self.tick_seconds) for edges in self.bounds]), np.int64)

    @cached_property
    def segment(self) -> np.ndarray:
        """Index of each tick's segment, int32 of shape ``(T,)``."""
        lengths = [(end - start) // self.tick_seconds for start, end in self.bounds]
        return _frozen(np.repeat(np.arange(len(lengths)), lengths), np.int32)

    @cached_property
    def num_ticks(self) -> int:
        """Ticks of a regular session, ``T``."""
        return len(self.tick_start)

    @cached_property
    def close_seconds(self) -> int:
        """Seconds since local midnight at which the regular session ends."""
        return self.bounds[-1][1]

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Seconds since local midnight at which each segment opens and closes."""
        return [(int(seconds_of(start)), int(seconds_of(end))) for start, end in self.segments]

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
        return (dt.datetime.min + dt.timedelta(seconds=self.seconds_at(tick))).time()

    def cells(self, ticks_per_step: int) -> np.ndarray:
        """Return each tick's cell of the step grid, int32 of shape ``(T,)``.

        Cells are numbered through the session, hold up to `ticks_per_step` ticks, are anchored at the start of
        each segment and never span two segments.
        """
        if not isinstance(ticks_per_step, (int, np.integer)) or ticks_per_step < 1:
            raise ConfigError(f"ticks_per_step is {ticks_per_step!r}; a step covers at least 1 tick, a whole number.")
        first = np.searchsorted(self.segment, self.segment)  # tick of the same segment
        new = (np.arange(self.num_ticks) - first) % ticks_per_step == 0
        return _frozen(np.cumsum(new) - 1, np.int32)

    def ticks_on(self, dates: np.ndarray) -> np.ndarray:
        """Return the stated number of ticks on each of `dates` ``(n,)``, int32 (early closes applied)."""
        early = {day: self.end_tick(close) for day, close in self.early_closes.items()}
        stated = pd.Series(early.values(), pd.DatetimeIndex(list(early)), dtype=np.int32)
        return stated.reindex(pd.DatetimeIndex(dates), fill_value=self.num_ticks).to_numpy()

    def is_open(self, dates: np.ndarray) -> np.ndarray:
        """Tell for each date (datetime64[D]) whether it is a trading weekday that is not in `closed`."""
        open_days, closed = np.isin(range(7), self.weekdays), np.array(self.closed, dtype="datetime64[D]")
        return np.is_busday(dates, weekmask=open_days, holidays=closed)


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
    for (start, end), (begin, finish) in zip(calendar.segments, calendar.bounds, strict=True):
        if begin < last or finish <= begin:
            raise ConfigError(f"segment {start}-{end} does not follow in time; list segments of one day in order.")
        if (finish - begin) % calendar.tick_seconds:
            raise ConfigError(f"segment {start}-{end} is not a whole number of ticks of {calendar.tick_minutes} min.")
        last = finish
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


@cache
def _exchange(name: str) -> dict[str, Any]:
    """Return what the package says of an exchange, as settings of `Calendar`."""
    calendar = _from_package(name)
    opens, closes = calendar.open_times[-1][1], calendar.close_times[-1][1]
    if calendar.open_offset or calendar.close_offset > (closes == dt.time()):
        raise ConfigError(
            f"sessions of {name} run through midnight, and one of rlwb's lies within a day; state segments instead for "
            "the hours to use."
        )
    regular = int(seconds_of(closes)) + DAY_SECONDS * calendar.close_offset
    edges = [opens, text_of(regular)]
    if calendar.break_start_times:
        edges[1:1] = [calendar.break_start_times[-1][1], calendar.break_end_times[-1][1]]
    zone, ends = calendar.tz.key, calendar.schedule["close"]
    days = pd.DatetimeIndex(ends.index)
    seconds = (ends.dt.tz_convert(zone).dt.tz_localize(None) - days).dt.total_seconds().astype(int)
    weekdays = sorted(set(days.dayofweek))
    usual = pd.date_range(days[0], days[-1])
    closed = usual[usual.dayofweek.isin(weekdays)].difference(days)
    return {
        "segments": tuple(zip(edges[::2], edges[1::2], strict=True)),
        "timezone": zone,
        "weekdays": tuple(weekdays),
        "early_closes": {str(day.date()): text_of(end) for day, end in seconds[seconds < regular].items()},
        "closed": tuple(closed.strftime("%Y-%m-%d")),
        "covers": (str(days[0].date()), str(days[-1].date())),
    }


def _from_package(name: str) -> Any:
    """Return the package's calendar, from `_FIRST` to `_LAST` as far as it knows."""
    presets = f"(The presets are {', '.join(PRESETS)}.)"
    try:
        import exchange_calendars
    except ImportError:
        raise ConfigError(
            f"the calendar of {name} comes from exchange_calendars, which is not installed; pip install "
            f"'rlwb[calendars]' brings it, or state segments, timezone, closed and early_closes. {presets}"
        ) from None
    names = exchange_calendars.get_calendar_names(include_aliases=True)
    if name not in names:
        near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "give its code, such as XNYS, XSHG or XLON."
        raise ConfigError(f"exchange_calendars has no exchange {name!r}; {hint} {presets}")
    try:
        return exchange_calendars.get_calendar(name, start=_FIRST, end=_LAST)
    except ValueError:  # it does not know so much
        kind = type(exchange_calendars.get_calendar(name))
        first, last = kind.bound_min() or _FIRST, kind.bound_max() or _LAST
        return exchange_calendars.get_calendar(name, start=max(_FIRST, first), end=min(_LAST, last))
