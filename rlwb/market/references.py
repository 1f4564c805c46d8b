"""Numbers of each session that its features refer to, found in one pass over blocks of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rlwb.market.sessions import Sessions

#: Bars (sessions times ticks) that are worked on at once, so that a temporary array takes 2 MiB, whatever the panel.
BLOCK_BARS = 1 << 18
_ANCHORS = ("open", "close", "vwap", "bid", "ask", "high", "low")


def blocks(rows: np.ndarray, ticks: int) -> Iterator[np.ndarray]:
    """Cut `rows` into pieces of at most `BLOCK_BARS` bars, and of at least one session."""
    size = max(1, BLOCK_BARS // ticks)
    return (rows[low : low + size] for low in range(0, len(rows), size))


class References:
    """What earlier sessions of a panel say of each one; each array is found when it is first asked for."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    @cached_property
    def days(self) -> np.ndarray:
        """The days of the panel, the dates on which any instrument has a session, sorted; datetime64[D]."""
        return np.unique(self.sessions.dates)

    @cached_property
    def day(self) -> np.ndarray:
        """The number of each session's date among `days`, int64 of shape ``(S,)``."""
        return np.searchsorted(self.days, self.sessions.dates)

    def of_day(self, day: int) -> np.ndarray:
        """Return the rows of all sessions of the date with that number, in the panel's order."""
        order, start = self._by_day
        return order[start[day] : start[day + 1]]

    @cached_property
    def _by_day(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.day, kind="stable")
        return order, np.searchsorted(self.day[order], np.arange(len(self.days) + 1))

    @cached_property
    def previous_close(self) -> np.ndarray:
        """`previous_close` of the panel."""
        return previous_close(self.sessions)

    @cached_property
    def price(self) -> np.ndarray:
        """The last valid close of the instrument's earlier sessions, float64 of shape ``(S,)``.

        Where there is none, the first valid price of the session itself; NaN where there is no price at all.
        """
        reference = self.previous_close.copy()
        unknown = np.flatnonzero(~np.isfinite(reference))
        reference[unknown] = first_price(self.sessions, unknown)
        return reference

    @cached_property
    def volume(self) -> np.ndarray:
        """Mean tick volume of the instrument's last earlier session that traded, float64 of shape ``(S,)``, or NaN.

        In shares of today, where the sessions have factors.
        """
        return _earlier(self.sessions, _mean_volume(self.sessions), shares=True)


class Levels(NamedTuple):
    """What each session's prices and volumes come to; float64 of shape ``(S,)`` each, NaN where it has none."""

    open: np.ndarray  # first valid open or close
    close: np.ndarray  # last valid close
    volume: np.ndarray  # of all ticks, 0 where none is stated
    tick_volume: np.ndarray  # mean of the ticks that state one; NaN where it is 0
    range: np.ndarray  # mean log of high over low of the ticks that have both; NaN where it is 0


def levels_of(sessions: Sessions) -> Levels:
    """Return the levels of a panel."""
    return Levels(
        first_price(sessions, np.arange(len(sessions)), ("open", "close")),
        _by_block(last_valid, sessions.fields["close"]),
        _by_block(lambda volume: np.nansum(volume, axis=1), sessions.fields["volume"]),
        _mean_volume(sessions),
        _by_block(_mean_range, sessions.fields["high"], sessions.fields["low"]),
    )


def previous_close(sessions: Sessions) -> np.ndarray:
    """Return the last valid close before each session, float64 of shape ``(S,)``; NaN where there is none.

    Where the sessions have factors, it is what that close is worth in prices of today.
    """
    return _earlier(sessions, _by_block(last_valid, sessions.fields["close"]))


def _by_block(function: Callable[..., np.ndarray], *fields: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return `function` of fields (S, T), which gives one number a row, of all or some rows, block by block."""
    every = np.arange(len(fields[0])) if rows is None else rows
    parts = [function(*(field[part] for field in fields)) for part in blocks(every, fields[0].shape[1])]
    return np.concatenate([np.empty(0), *parts])


def last_valid(close: np.ndarray) -> np.ndarray:
    """Return the last price of each row of ``(n, T)``, shape ``(n,)``; NaN where there is none."""
    valid = np.isfinite(close) & (close > 0)
    last = close.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
    return np.where(valid.any(axis=1), close[np.arange(len(close)), last], np.nan)


def first_valid(price: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Return the first price of each row ``(n, T)``, shape ``(n,)``: in each tick, the first field that has one counts.

    NaN where there is none.
    """
    for other in others:
        price = np.where(np.isfinite(price), price, other)
    return price[np.arange(len(price)), np.argmax(np.isfinite(price), axis=1)]


def first_price(sessions: Sessions, rows: np.ndarray, names: tuple[str, ...] = _ANCHORS) -> np.ndarray:
    """Return the first price of the sessions `rows`, in each tick the first of `names` that has one; NaN without."""
    return _by_block(first_valid, *(sessions.fields[name] for name in names if name in sessions.fields), rows=rows)


def _mean_volume(sessions: Sessions) -> np.ndarray:
    """Return each session's mean volume of the ticks that state one; NaN where it is 0."""

    def mean(volume: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            value = np.nansum(volume, axis=1) / np.isfinite(volume).sum(axis=1)
        return np.where(value > 0, value, np.nan)

    return _by_block(mean, sessions.fields["volume"])


def _mean_range(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return each row's mean log of high over low; NaN where it is 0."""
    with np.errstate(invalid="ignore"):
        span = np.log(high / low)
        value = np.nansum(span, axis=1) / np.isfinite(span).sum(axis=1)
    return np.where(value > 0, value, np.nan)


def _earlier(sessions: Sessions, values: np.ndarray, *, shares: bool = False) -> np.ndarray:
    """Return for each session the last finite one of `values` (S,), prices or shares, of the instrument's earlier."""
    rows = np.arange(len(values))
    known = np.maximum.accumulate(np.where(np.isfinite(values), rows, -1))
    before = np.concatenate([[-1], known[:-1]]).astype(np.int64) if len(rows) else rows
    earlier = np.where(before >= sessions.first, values[before], np.nan)
    if sessions.factor is not None:
        ratio = sessions.factor[before] / sessions.factor
        earlier = earlier / ratio if shares else earlier * ratio
    return earlier
