"""A market small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.market import Calendar, Sessions


def small_market(prices: Any, volumes: Any = 1000.0) -> Sessions:
    """Return a market of one instrument, ``TOY``, with these closes, in bars of five minutes from 10:00.

    Days are consecutive, from 2024-01-02. A bar opens at the close before it, the first one at its own close.

    Parameters
    ----------
    prices : float of shape (T,) or (days, T)
        The closes of a day, or of each day.
    volumes : float of the same shape, or one number
        Shares that everyone trades in a bar.

    Raises
    ------
    DataError
        For prices of another shape, or more than 168 of a day.
    """
    close = np.atleast_2d(np.asarray(prices, dtype=np.float64))
    if close.ndim != 2 or not 0 < close.shape[1] <= 168:
        raise DataError(f"The prices have the shape {np.shape(prices)}; give one to 168 for a day, or a row a day.")
    days, ticks = close.shape
    end = 600 + 5 * ticks
    calendar = Calendar(segments=(("10:00", f"{end // 60:02}:{end % 60:02}"),), tick_minutes=5)
    opening = np.concatenate([close[:, :1], close[:, :-1]], axis=1)
    fields = {"open": opening, "high": np.maximum(opening, close), "low": np.minimum(opening, close), "close": close}
    fields["volume"] = np.broadcast_to(np.asarray(volumes, dtype=np.float64), close.shape).copy()
    dates = np.datetime64("2024-01-02") + np.arange(days)
    return Sessions(calendar, np.repeat("TOY", days), dates, np.repeat(np.int32(ticks), days), fields)
