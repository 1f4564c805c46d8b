"""From short bars to long ones, within segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from rlwb.errors import DataError
from rlwb.market.sessions import Sessions


def resample(sessions: Sessions, tick_minutes: float) -> Sessions:
    """Return the same sessions on longer ticks.

    Open is the first valid price of the new tick, close, bid, ask and their sizes the last, high and low the extremes,
    volume the sum of what is known, vwap weighted by volume; a new tick is halted when all its ticks were.
    """
    short = sessions.calendar
    calendar = dataclasses.replace(short, tick_minutes=tick_minutes)
    count, rest = divmod(calendar.tick_seconds, short.tick_seconds)
    if rest:
        raise DataError(
            f"ticks of {short.tick_minutes} min cannot be joined to ticks of {tick_minutes} min; choose a whole "
            "multiple."
        )
    if count == 1:
        return sessions
    halted = None if sessions.halted is None else np.array(_split(sessions.halted, count).all(axis=2))
    # Ticks of each segment that lie before each session's end, (segments, S).
    starts = np.searchsorted(short.segment, np.arange(len(short.segments)))
    ticks = np.clip(sessions.num_ticks - starts[:, None], 0, np.bincount(short.segment)[:, None])
    return Sessions(
        calendar,
        sessions.instruments,
        sessions.dates,
        -(-ticks // count).sum(axis=0),
        aggregate(sessions.fields, count),
        halted=halted,
        factor=sessions.factor,
        report=sessions.report,
    )


def aggregate(fields: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Join every `count` neighbouring ticks of fields of shape ``(S, T)``, giving ``(S, T / count)``."""
    joined = {}
    for name, array in fields.items():
        values = _split(array, count)
        if name in ("high", "low"):
            joined[name] = (np.fmax if name == "high" else np.fmin).reduce(values, axis=2)
        elif name == "volume":
            joined[name] = np.where(np.isfinite(values).any(axis=2), np.nansum(values, axis=2), np.nan)
        elif name == "vwap":
            weight = _split(fields["volume"], count)
            weight = np.where(np.isfinite(values) & (weight > 0), weight, 0.0)
            with np.errstate(invalid="ignore"):
                mean = (np.where(weight > 0, values, 0.0) * weight).sum(axis=2) / weight.sum(axis=2)
            joined[name] = np.where(weight.sum(axis=2) > 0, mean, _first(values[:, :, ::-1]))
        else:
            joined[name] = _first(values if name == "open" else values[:, :, ::-1])
    return joined


def _split(array: np.ndarray, count: int) -> np.ndarray:
    return array.reshape(len(array), -1, count)


def _first(values: np.ndarray) -> np.ndarray:
    """Return the first finite value of each row of shape ``(S, T, count)``, its first value where there is none."""
    return np.take_along_axis(values, np.argmax(np.isfinite(values), axis=2)[:, :, None], axis=2)[:, :, 0]
