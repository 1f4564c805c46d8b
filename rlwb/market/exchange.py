"""Hours, holidays and early closes of an exchange, from the package exchange_calendars."""

from __future__ import annotations

import datetime as dt
import difflib
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError
from rlwb.market.clock import DAY_SECONDS, seconds_of, text_of

#: Dates that a calendar speaks for, as far as the package knows; fixed, so that a run tomorrow has today's calendar.
_FIRST, _LAST = pd.Timestamp("2000-01-01"), pd.Timestamp("2030-12-31")

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


class Facts(NamedTuple):
    """What the package says of an exchange, as settings of `Calendar`."""

    segments: tuple[tuple[Any, Any], ...]
    timezone: str
    weekdays: tuple[int, ...]
    early_closes: dict[str, str]
    closed: tuple[str, ...]
    covers: tuple[str, str]


def exchange_settings(name: str, **settings: Any) -> dict[str, Any]:
    """Return the settings of an exchange's calendar, for `rlwb.market.Calendar`.

    The segments are today's regular hours. A date on which it closed earlier (a half day, or the hours of former years)
    is an early close; one on which it opened later lacks its first bars. Nothing is inferred from silence unless
    `settings` say so.

    Parameters
    ----------
    name
        Its market identifier code (ISO 10383), such as XNYS, XSHG or XLON, or another name that the package knows.
    settings
        Other settings of `Calendar`. Dates in `closed` and `early_closes` are added to those of the exchange.

    Raises
    ------
    ConfigError
        When the package is missing, does not know the name, or knows it as a market whose sessions span midnight.
    """
    facts = _facts(name)
    given: dict[str, Any] = {"infer_early_close_minutes": 0, **facts._asdict(), **settings}
    closed = settings.get("closed", ())
    given["closed"] = (*facts.closed, *((closed,) if isinstance(closed, str) else closed))
    given["early_closes"] = {**facts.early_closes, **settings.get("early_closes", {})}
    return given


@cache
def _facts(name: str) -> Facts:
    calendar = _from_package(name)
    opens, closes = calendar.open_times[-1][1], calendar.close_times[-1][1]
    if calendar.open_offset or calendar.close_offset > (closes == dt.time()):
        raise ConfigError(
            f"sessions of {name} run through midnight, and one of rlwb's lies within a day; state segments instead for "
            "the hours to use."
        )
    close = text_of(int(seconds_of(closes)) + DAY_SECONDS * calendar.close_offset)
    pause = [times[-1][1] if times else None for times in (calendar.break_start_times, calendar.break_end_times)]
    segments = ((opens, pause[0]), (pause[1], close)) if pause[0] is not None else ((opens, close),)

    days = calendar.schedule.index.to_numpy().astype("datetime64[D]")
    every = np.arange(days[0], days[-1] + 1)
    weekday = (every.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    open_ = np.isin(every, days)
    weekdays = np.unique(weekday[open_])
    zone = calendar.tz.key
    ended = calendar.schedule["close"].dt.tz_convert(zone).dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    seconds = (ended - days).astype(np.int64)
    early = seconds < seconds_of(close)
    return Facts(
        segments,
        zone,
        tuple(weekdays.tolist()),
        {str(day): text_of(end) for day, end in zip(days[early], seconds[early].tolist(), strict=True)},
        tuple(every[np.isin(weekday, weekdays) & ~open_].astype(str).tolist()),
        (str(days[0]), str(days[-1])),
    )


def _from_package(name: str) -> Any:
    """Return the package's calendar, from `_FIRST` to `_LAST` as far as it knows."""
    try:
        import exchange_calendars
    except ImportError:
        raise ConfigError(
            f"the calendar of {name} comes from exchange_calendars, which is not installed; pip install "
            "'rlwb[calendars]' brings it, or state segments, timezone, closed and early_closes. (The presets are "
            f"{', '.join(PRESETS)}.)"
        ) from None
    names = exchange_calendars.get_calendar_names(include_aliases=True)
    if name not in names:
        near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "give its code, such as XNYS, XSHG or XLON."
        raise ConfigError(
            f"exchange_calendars has no exchange {name!r}; {hint} (The presets are {', '.join(PRESETS)}.)"
        )
    try:
        return exchange_calendars.get_calendar(name, start=_FIRST, end=_LAST)
    except ValueError:  # it does not know so much
        kind = type(exchange_calendars.get_calendar(name))
        first, last = kind.bound_min(), kind.bound_max()
        bounds = {"start": max(_FIRST, first or _FIRST), "end": min(_LAST, last or _LAST)}
        return exchange_calendars.get_calendar(name, **bounds)
