"""Splits and dividends: factors that the bars state, and splits that they show and nobody stated.

A session's adjusted price is its price times its factor, its adjusted volume is its volume over it: the convention of
Qlib's ``$factor``. Panels hold prices and volumes as they were traded, because limits, lots and fees are about those,
and the factor stands beside them, one a session. Only ratios of factors count, not the day that prices are adjusted to.

Splits that nobody stated are found and told, never adjusted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.findings import KINDS
from rlwb.market.references import Levels, levels_of
from rlwb.market.sessions import Sessions

#: How far the factors of one session's bars may lie apart, as a share: they are often stored in single precision.
_ROUNDING = 1e-5
_WHOLE = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 100)
#: Shares that so many become, as (new, old); shares are also joined, but hardly ever by a fraction.
RATIOS = sorted(
    ((5, 4), (4, 3), (3, 2), (5, 3), (5, 2), *((n, 1) for n in _WHOLE), *((1, n) for n in _WHOLE)),
    key=lambda ratio: ratio[0] / ratio[1],
)
#: How far the overnight move may lie from the ratio, as a share: prices also move by themselves.
_PRICE_TOLERANCE = 0.04
#: How far turnover in money may lie from the usual, as a factor: a split leaves it as it is, news does not.
_TURNOVER_TOLERANCE = 3.0
#: How much wider than usual the ranges of bars may be, as a factor: on news they widen, after a split they do not.
_RANGE_TOLERANCE = 2.0
#: Earlier sessions that make the usual volume and range.
_USUAL_SESSIONS = 5
COLUMNS = ("instrument", "date", "previous_date", "split", "ratio", "close_before", "open_after", "volume_ratio")


def session_factors(factor: np.ndarray, row: np.ndarray, names: np.ndarray, dates: np.ndarray) -> np.ndarray:
    """Return the factor of each session, float64 of shape ``(S,)``, out of that of each bar.

    Bars are sorted by session, `row` of shape ``(bars,)``, and each session has some. One whose bars have no factor
    above 0, or more than one, is a `DataError` by its name and date.
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


def suspected_splits(sessions: Sessions, levels: Levels | None = None) -> pd.DataFrame:
    """Return the sessions that open as after a split, a bonus issue or a joining of shares.

    A session is listed when its first price is within 4 % of the last close divided by a ratio of small whole numbers
    (`RATIOS`), its volume a tick, over the median of up to five sessions before, lies nearer to that ratio than to no
    change and within a factor of 3 of it, and the ranges of its bars are less than twice the usual. So a price that
    halves on news, with many times the usual turnover or wide bars, is not listed, nor is anything that has no volume,
    nor what is explained by factors, where the sessions have them.

    Returns
    -------
    pandas.DataFrame
        One row a split, sorted by instrument and date: instrument, date, previous_date, split (text, new:old shares),
        ratio (shares that one became), close_before, open_after (prices of the bars), volume_ratio.
    """
    levels = levels_of(sessions) if levels is None else levels
    later = np.flatnonzero(sessions.previous >= 0)
    before = sessions.previous[later]
    close, opening = levels.close[before], levels.open[later]
    volume = levels.tick_volume if sessions.factor is None else levels.tick_volume / sessions.factor
    ratios = np.array([new / old for new, old in RATIOS])
    with np.errstate(invalid="ignore", divide="ignore"):
        fall = np.log(close * price_ratio(sessions, before, later) / opening)
        steps = np.log(ratios)
        nearest = np.searchsorted((steps[1:] + steps[:-1]) / 2, fall)
        close_to = np.abs(fall - steps[nearest]) <= np.log1p(_PRICE_TOLERANCE)
        grown = volume[later] / usual_of(volume, later, sessions.first[later])
        turnover = np.abs(np.log(grown / ratios[nearest]))
        wider = levels.range[later] / usual_of(levels.range, later, sessions.first[later])
        inverse = (turnover < np.abs(np.log(grown))) & (turnover <= np.log(_TURNOVER_TOLERANCE))
    found = close_to & inverse & ~(wider > _RANGE_TOLERANCE)
    rows = later[found]
    values = (
        sessions.instruments[rows].astype(object),
        sessions.dates[rows].astype("datetime64[s]"),
        sessions.dates[before[found]].astype("datetime64[s]"),
        [f"{RATIOS[number][0]}:{RATIOS[number][1]}" for number in nearest[found].tolist()],
        ratios[nearest[found]],
        close[found],
        opening[found],
        grown[found],
    )
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))


def describe_splits(table: pd.DataFrame) -> str:
    """Return the rows of `suspected_splits` in words, with what to do about them; one line a split."""
    if table.empty:
        return "no split is suspected"
    lines = [
        f"{row.instrument} {row.date:%Y-%m-%d}: like a split {row.split}, the price goes from {row.close_before:g} to "
        f"{row.open_after:g} and the volume a tick times {row.volume_ratio:.3g}"
        for row in table.itertuples()
    ]
    return "\n".join([*lines, KINDS["split_suspected"].advice + "."])


def usual_of(volume: np.ndarray, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the median of up to `_USUAL_SESSIONS` sessions of the instrument before each of `rows`."""
    before = rows[:, None] - np.arange(1, _USUAL_SESSIONS + 1)[None, :]
    values = np.where(before >= first[:, None], volume[np.maximum(before, 0)], np.nan)
    values = np.sort(values, axis=1)  # NaN comes last
    count = np.isfinite(values).sum(axis=1)
    index = np.arange(len(rows))
    return (values[index, np.maximum(count - 1, 0) // 2] + values[index, count // 2]) / 2
