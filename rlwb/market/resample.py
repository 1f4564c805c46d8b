"""From short bars to long ones, within segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.sessions import Sessions


def resample(sessions: Sessions, tick_minutes: float) -> Sessions:
    """Return the same sessions on longer ticks.

    Open is the first valid price of the new tick, close, bid, ask and their sizes the last, high and low the extremes,
    volume the sum of what is known, vwap weighted by volume; a new tick is halted when all its ticks were.
    """
    calendar = dataclasses.replace(sessions.calendar, tick_minutes=tick_minutes)
    ratio = calendar.tick_seconds / sessions.calendar.tick_seconds
    if ratio != round(ratio):
        raise DataError(
            f"ticks of {sessions.calendar.tick_minutes} min cannot be joined to ticks of {tick_minutes} min; "
            "choose a whole multiple."
        )
    count = round(ratio)
    if count == 1:
        return sessions
    halted = None if sessions.halted is None else np.array(_split(sessions.halted, count).all(axis=2))
    return Sessions(
        calendar,
        sessions.instruments,
        sessions.dates,
        -(-_segment_ticks(sessions.calendar, sessions.num_ticks) // count).sum(axis=0),
        aggregate(sessions.fields, count),
        halted=halted,
        factor=sessions.factor,
        report=sessions.report,
    )


def aggregate(fields: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Join every `count` neighbouring ticks of fields of shape ``(S, T)``, giving ``(S, T / count)``."""
    joined = {name: _RULES[name](_split(array, count)) for name, array in fields.items() if name != "vwap"}
    if "vwap" in fields:
        price, weight = _split(fields["vwap"], count), _split(fields["volume"], count)
        weight = np.where(np.isfinite(price) & (weight > 0), weight, 0.0)
        with np.errstate(invalid="ignore"):
            mean = (np.where(weight > 0, price, 0.0) * weight).sum(axis=2) / weight.sum(axis=2)
        joined["vwap"] = np.where(weight.sum(axis=2) > 0, mean, _last(price))
    return joined


def _segment_ticks(calendar: Calendar, num_ticks: np.ndarray) -> np.ndarray:
    """Ticks of each segment that lie before each session's end, ``(segments, S)``."""
    starts = np.searchsorted(calendar.segment, np.arange(len(calendar.segments)))
    lengths = np.bincount(calendar.segment)
    return np.clip(num_ticks[None, :] - starts[:, None], 0, lengths[:, None])


def _split(array: np.ndarray, count: int) -> np.ndarray:
    return array.reshape(len(array), -1, count)


def _first(values: np.ndarray) -> np.ndarray:
    return _pick(values, np.argmax(np.isfinite(values), axis=2))


def _last(values: np.ndarray) -> np.ndarray:
    return _pick(values, values.shape[2] - 1 - np.argmax(np.isfinite(values)[:, :, ::-1], axis=2))


def _pick(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, index[:, :, None], axis=2)[:, :, 0]


def _sum(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values).any(axis=2), np.nansum(values, axis=2), np.nan)


_RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "open": _first,
    "high": lambda values: np.fmax.reduce(values, axis=2),
    "low": lambda values: np.fmin.reduce(values, axis=2),
    "close": _last,
    "volume": _sum,
    "bid": _last,
    "ask": _last,
    "bid_size": _last,
    "ask_size": _last,
}
