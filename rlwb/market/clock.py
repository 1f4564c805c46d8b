"""Times of day as seconds since local midnight, and dates of settings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rlwb.errors import ConfigError

DAY_SECONDS = 86_400
_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})(?:[T ]\d.*)?")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def seconds_of(time: Any) -> float:
    """Return the seconds since local midnight of a time of day.

    Parameters
    ----------
    time
        Text ``"HH:MM"`` or ``"HH:MM:SS"`` (``"24:00"`` is the end of the day), a `datetime.time`, or anything
        with hour, minute, second and microsecond, of which the date is ignored.
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

    Parameters
    ----------
    value
        Text ``YYYY-MM-DD`` or ``YYYYMMDD`` (also as a whole number), with or without a time of day, which is ignored,
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


def text_of(seconds: int) -> str:
    """Return ``HH:MM``, or ``HH:MM:SS`` where seconds matter; the end of the day reads 24:00."""
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}" if seconds % 60 else text
