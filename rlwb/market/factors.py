"""Adjustment factors: what makes prices and volumes of different days comparable across splits and dividends.

A session's adjusted price is its price times its factor, its adjusted volume is its volume over it: the convention of
Qlib's ``$factor``. Panels hold prices and volumes as they were traded, because limits, lots and fees are about those,
and the factor stands beside them, one a session. Only ratios of factors count, not the day that prices are adjusted to.
"""

from __future__ import annotations

import numpy as np

from rlwb.errors import DataError
from rlwb.market.sessions import Sessions

#: How far the factors of one session's bars may lie apart, as a share: they are often stored in single precision.
_ROUNDING = 1e-5


def of_sessions(factor: np.ndarray, row: np.ndarray, names: np.ndarray, dates: np.ndarray) -> np.ndarray:
    """Return the factor of each session, float64 of shape ``(S,)``.

    Parameters
    ----------
    factor
        Of each bar, shape ``(bars,)``, sorted by session.
    row
        The session of each bar, of which every one of ``0..S-1`` has some.
    names, dates
        Instrument and date of the sessions, for messages.

    Raises
    ------
    DataError
        For a session whose bars have no factor above 0, or more than one.
    """
    if not len(row):
        return np.empty(0)
    first = np.flatnonzero(np.append(True, np.diff(row) != 0))
    known = np.where(np.isfinite(factor) & (factor > 0), factor, np.nan)
    low, high = np.fmin.reduceat(known, first), np.fmax.reduceat(known, first)
    lacking = np.isnan(low)
    if lacking.any():
        at = int(np.argmax(lacking))
        raise DataError(
            f"{names[at]} has no factor above 0 on {dates[at]} (the first such session); fill the column "
            "factor, or load the bars without it."
        )
    varying = high > low * (1 + _ROUNDING)
    if varying.any():
        at = int(np.argmax(varying))
        raise DataError(
            f"the factor of {names[at]} changes within {dates[at]}, from {low[at]:g} to {high[at]:g} "
            "(the first such session); it must be one a session, since splits happen at night."
        )
    return low


def price_ratio(sessions: Sessions, before: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return what a price of 1 in the sessions `before` is worth in those of `rows`, float64 of shape ``(n,)``."""
    return np.ones(len(rows)) if sessions.factor is None else sessions.factor[before] / sessions.factor[rows]
