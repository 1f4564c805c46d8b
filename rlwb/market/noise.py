"""The noise twin of a market: the same bars with returns of random sign, in which nothing can be learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlwb.market.sessions import Sessions

#: Fields that change places where a bar is turned upside down.
_SWAPPED = {"high": "low", "low": "high", "bid": "ask", "ask": "bid", "bid_size": "ask_size", "ask_size": "bid_size"}
_PRICES = ("open", "high", "low", "close", "bid", "ask", "vwap")

#: Price of a bar over the close before it from which on the bar keeps its sign; at 2 its mirror image would be 0.
_FARTHEST = 1.9


def random_signs(sessions: Sessions, seed: int) -> Sessions:
    """Return the market with every bar's returns turned by a random sign, the same for all instruments.

    Prices of a bar are taken as returns over the last close before it, overnight too, and multiplied by +1 or -1 with
    equal chance. Each date has signs of its own out of (seed, date). Whatever is known before a bar, the mean of its
    returns is 0: prices are a martingale, and no policy that knows no future can gain on average, not by drift either.
    What does not depend on signs stays as it was: the size of every return, so volatility, its clusters, its shape over
    the day and its tails; how instruments move together; volumes, spreads, missing and halted bars, and the calendar.

    Parameters
    ----------
    sessions
        Any market; what is compared across sessions goes by its factors, where it has any.
    seed
        Seed of the signs.

    Notes
    -----
    A bar in which a price nearly doubles keeps its sign, because a price cannot fall by as much.

    References
    ----------
    J. H. Kim, "Wild bootstrapping variance ratio tests", Economics Letters 92 (2006), draws returns under the
    hypothesis of a martingale in this way, for any form of changing volatility.
    """
    ticks = sessions.calendar.num_ticks
    days, day = np.unique(sessions.dates, return_inverse=True)
    drawn = [np.random.default_rng([seed, number]) for number in days.astype(np.int64).tolist()]
    signs = np.array([2.0 * rng.integers(0, 2, ticks) - 1.0 for rng in drawn]).reshape(len(days), ticks)[day]
    factor = np.ones(len(sessions)) if sessions.factor is None else sessions.factor
    prices = {name: sessions.fields[name] * factor[:, None] for name in _PRICES if name in sessions.fields}
    before, turned = np.empty_like(signs), np.empty_like(signs)
    for first, stop in zip(sessions.index.first, sessions.index.stop, strict=True):
        rows = slice(first, stop)
        own = np.stack([values[rows].ravel() for values in prices.values()])
        before[rows] = _last_known(prices["close"][rows].ravel(), own).reshape(-1, ticks)
        with np.errstate(invalid="ignore"):
            far = np.nanmax(np.where(np.isfinite(own), own, 0.0), axis=0).reshape(-1, ticks) > _FARTHEST * before[rows]
        signs[rows] = np.where(far, 1.0, signs[rows])
        steps = 1.0 + signs[rows] * (prices["close"][rows] / before[rows] - 1.0)
        path = np.cumprod(np.where(np.isfinite(steps), steps, 1.0).ravel())
        start = before[rows].ravel()
        level = np.concatenate([[1.0], path[:-1]]) * (
            start[np.isfinite(start)][:1] if np.isfinite(start).any() else 1.0
        )
        turned[rows] = level.reshape(-1, ticks)
    fields = dict(sessions.fields)
    is_turned = signs < 0
    for name, values in sessions.fields.items():
        if name in _SWAPPED and _SWAPPED[name] in fields:
            values = np.where(is_turned, sessions.fields[_SWAPPED[name]], values)
        if name in prices:
            adjusted = values * factor[:, None]
            values = turned * (1.0 + signs * (adjusted / before - 1.0)) / factor[:, None]
        fields[name] = values
    return replace(sessions, fields=fields, directory=None)


def _last_known(close: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """Return the last close before each bar, float64 of shape (N,); before the first, the first price that is known."""
    known = np.isfinite(close)
    at = np.maximum.accumulate(np.where(known, np.arange(len(close)), -1))
    before = np.concatenate([[-1], at[:-1]])
    first = prices[:, np.isfinite(prices).any(axis=0)][:, :1].ravel()
    start = first[np.isfinite(first)][:1] if np.isfinite(first).any() else np.array([np.nan])
    return np.where(before >= 0, close[before], start[0])
