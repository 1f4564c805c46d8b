"""Numbers of each session that its features refer to, found in one pass over blocks of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
    """What earlier sessions say of each one; each array is found when it is first asked for.

    Parameters
    ----------
    sessions
        The panel.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

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
        reference[unknown] = first_price(self.sessions, unknown, _ANCHORS)
        return reference

    @cached_property
    def volume(self) -> np.ndarray:
        """Mean tick volume of the instrument's last earlier session that traded, float64 of shape ``(S,)``, or NaN.

        In shares of today, where the sessions have factors.
        """
        return _earlier(self.sessions, tick_volume(self.sessions), shares=True)


@dataclass(frozen=True)
class Levels:
    """Where each session opened, closed, and how much was traded; float64 of shape ``(S,)`` each.

    Parameters
    ----------
    open, close
        `first_price` and `last_close`.
    volume, tick_volume
        `total_volume` and `tick_volume`.
    """

    open: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    tick_volume: np.ndarray

    @classmethod
    def of(cls, sessions: Sessions) -> Levels:
        """Return the levels of a panel."""
        opened = first_price(sessions, np.arange(len(sessions)))
        return cls(opened, last_close(sessions), total_volume(sessions), tick_volume(sessions))

    @classmethod
    def join(cls, parts: Sequence[Levels]) -> Levels:
        """Return the levels of a panel from those of its parts, of which there is at least one."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))


def previous_close(sessions: Sessions) -> np.ndarray:
    """Return the last valid close before each session, float64 of shape ``(S,)``; NaN where there is none.

    Where the sessions have factors, it is what that close is worth in prices of today.
    """
    return _earlier(sessions, last_close(sessions))


def last_close(sessions: Sessions) -> np.ndarray:
    """Return each session's last valid close, float64 of shape ``(S,)``; NaN where it has none."""
    return _by_session(sessions.fields["close"], _last_above_zero)


def first_price(sessions: Sessions, rows: np.ndarray, names: tuple[str, ...] = ("open", "close")) -> np.ndarray:
    """Return the first valid price of the sessions in `rows`, float64 of shape ``(n,)``; NaN where there is none.

    In each tick, the first of the fields `names` that is there and has a value counts.
    """
    fields, ticks = sessions.fields, sessions.calendar.num_ticks
    out, filled = np.full(len(rows), np.nan), 0
    for part in blocks(rows, ticks):
        anchors = np.full((len(part), ticks), np.nan)
        for name in names:
            if name in fields:
                anchors = np.where(np.isfinite(anchors), anchors, fields[name][part])
        first = np.argmax(np.isfinite(anchors), axis=1)
        out[filled : filled + len(part)] = anchors[np.arange(len(part)), first]
        filled += len(part)
    return out


def tick_volume(sessions: Sessions) -> np.ndarray:
    """Return each session's mean volume of the ticks that state one, float64 of shape ``(S,)``; NaN where it is 0."""
    return _by_session(sessions.fields["volume"], _mean_above_zero)


def total_volume(sessions: Sessions) -> np.ndarray:
    """Return each session's volume, float64 of shape ``(S,)``; 0 where none is stated."""
    return _by_session(sessions.fields["volume"], lambda values: np.nansum(values, axis=1))


def _by_session(values: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return `function` of all rows of `values` (S, T), which gives one number a row, block by block."""
    out, size = np.empty(len(values)), max(1, BLOCK_BARS // max(1, values.shape[1]))
    for low in range(0, len(values), size):
        out[low : low + size] = function(values[low : low + size])
    return out


def _last_above_zero(values: np.ndarray) -> np.ndarray:
    valid = np.isfinite(values) & (values > 0)
    last = values.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
    return np.where(valid.any(axis=1), values[np.arange(len(values)), last], np.nan)


def _mean_above_zero(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        mean = np.nansum(values, axis=1) / np.isfinite(values).sum(axis=1)
    return np.where(mean > 0, mean, np.nan)


def _earlier(sessions: Sessions, values: np.ndarray, *, shares: bool = False) -> np.ndarray:
    """Return for each session the last finite one of `values` (S,) among the instrument's earlier sessions.

    The values are prices, or numbers of shares.
    """
    rows = np.arange(len(values))
    known = np.maximum.accumulate(np.where(np.isfinite(values), rows, -1))
    before = np.concatenate([[-1], known[:-1]]).astype(np.int64) if len(rows) else rows
    earlier = np.where(before >= sessions.first, values[before], np.nan)
    if sessions.factor is not None:
        ratio = sessions.factor[before] / sessions.factor
        earlier = earlier / ratio if shares else earlier * ratio
    return earlier
