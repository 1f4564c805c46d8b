"""Dates and times of orders, in every form that a table may hold them."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.market import Calendar
from rlwb.market.clock import DAY_SECONDS

_DAY = pd.Timedelta(days=1)
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
_OFFSET = r"\s*(?:Z|[+-]\d{2}(?::?\d{2})?)$"
# The year comes first: 01/03/2024 is two different days.
_DATE = r"(?:\d{8}|\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2})"
_STAMP = rf"{_DATE}(?:[T ]{_CLOCK}(?:\s*(?:Z|[+-]\d{{2}}(?::?\d{{2}})?))?)?"


class _Moments(NamedTuple):
    """Moments of a column, each with the column's index."""

    text: pd.Series  # as text, "" where there is none
    wall: pd.Series  # as written, without the zone; NaT where it cannot be read
    local: pd.Series  # in the session's zone
    aware: pd.Series  # bool: a zone was given


def order_dates(frame: pd.DataFrame, calendar: Calendar, source: str) -> pd.Series:
    """Return each order's date, datetime64[ns]: from ``date``, or from ``start`` where there is no date."""
    name = "date" if "date" in frame else "start"
    moments = _moments(frame[name], calendar, name, source)
    _refuse(moments.local.isna(), frame[name], source, name, "is not a date; write 2024-03-01.")
    if name == "date":
        midnight = moments.aware & (moments.wall == moments.wall.dt.normalize())
        moved = midnight & (moments.local.dt.normalize() != moments.wall)
        _refuse(
            moved,
            frame[name],
            source,
            name,
            f"is midnight there and another day in {calendar.timezone}; write the date without a zone.",
        )
    return moments.local.dt.normalize()


def order_stamps(values: pd.Series, dates: pd.Series, calendar: Calendar, name: str, source: str) -> pd.Series:
    """Return starts or ends (`name`) as session-local stamps on the orders' dates, NaT where there is none.

    A time alone lies on the order's date. The end of the day is 24:00, in a session that runs until midnight also
    00:00, or midnight of the next date.
    """
    moments = _moments(values, calendar, name, source)
    text, stamps = moments.text, moments.local
    clock = text.str.fullmatch(_CLOCK)
    if clock.any():
        days = dates.dt.strftime("%Y-%m-%d ")
        stamps = stamps.where(~clock, pd.to_datetime((days + text).where(clock), errors="coerce", format="mixed"))
        if name == "end":
            ends_day = text.str.fullmatch(r"24:00(?::00)?")
            if calendar.close_seconds == DAY_SECONDS:
                ends_day |= text.str.fullmatch(r"0?0:00(?::00)?")
            stamps = stamps.where(~ends_day, dates + _DAY)
    _refuse(stamps.isna() & (text != ""), values, source, name, "is not a time; write 10:30 or 2024-03-01 10:30.")
    # A close at midnight lies on the next day's date but ends this session.
    other = stamps.notna() & (stamps.dt.normalize() != dates) & (stamps != dates + _DAY)
    if other.any():
        row = int(np.flatnonzero(other)[0])
        raise OrderError(
            f"{source}, row {row}: {name} {stamps.iloc[row]} is not on the order's date {dates.iloc[row]:%Y-%m-%d}; "
            "an order lives within one session."
        )
    return stamps.astype("datetime64[ns]")


def _refuse(mask: pd.Series, values: pd.Series, source: str, name: str, why: str) -> None:
    if mask.any():
        row = int(np.flatnonzero(mask)[0])
        raise OrderError(f"{source}, row {row}: {name} {_text(values.astype(object).iloc[row])!r} {why}")


def _moments(values: pd.Series, calendar: Calendar, name: str, source: str) -> _Moments:
    zone = getattr(values.dtype, "tz", None)
    if isinstance(values.dtype, pd.DatetimeTZDtype) or (
        isinstance(values.dtype, np.dtype) and values.dtype.kind == "M"
    ):
        given = values.notna()
        text = given.map({True: "a stamp", False: ""})
        wall = _nanoseconds(values.dt.tz_localize(None) if zone is not None else values)
        aware = given & (zone is not None)
        local = _local(values, calendar, name, source) if aware.any() else wall
        return _Moments(text, wall, _nanoseconds(local), aware)
    text = pd.Series([_text(value) for value in values.astype(object)], index=values.index, dtype=object)
    readable = text.str.fullmatch(_STAMP)
    aware = readable & text.str.contains(rf":\d{{2}}.*{_OFFSET}", regex=True)
    bare = text.where(readable)
    wall = pd.to_datetime(bare.where(~aware, text.str.replace(_OFFSET, "", regex=True)), **_PARSE)
    local = wall
    if aware.any():
        moved = _local(pd.to_datetime(bare.where(aware), utc=True, **_PARSE), calendar, name, source)
        local = wall.where(~aware, moved)
    return _Moments(text, _nanoseconds(wall), _nanoseconds(local), aware)


_PARSE: dict[str, Any] = {"errors": "coerce", "format": "mixed"}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, (dt.datetime, np.datetime64)):
        return pd.Timestamp(value).isoformat(sep=" ")
    if isinstance(value, float) and value.is_integer():  # 20240301.0: whole numbers beside missing ones
        return str(int(value))
    return str(value)


def _local(values: pd.Series, calendar: Calendar, name: str, source: str) -> pd.Series:
    if calendar.timezone is None:
        raise OrderError(
            f"{source}: {name} carries the time zone {values.dt.tz} but the calendar names none; "
            "set the calendar's timezone."
        )
    return values.dt.tz_convert(calendar.timezone).dt.tz_localize(None)


def _nanoseconds(stamps: pd.Series) -> pd.Series:
    """Return stamps as datetime64[ns]; what lies outside its years becomes NaT."""
    if stamps.dtype == "datetime64[ns]":
        return stamps
    return stamps.where((stamps > pd.Timestamp.min) & (stamps < pd.Timestamp.max)).astype("datetime64[ns]")
