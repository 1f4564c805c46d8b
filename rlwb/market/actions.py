"""Splits that the bars show and nobody stated: found and told, never adjusted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.market.factors import price_ratio
from rlwb.market.findings import KINDS
from rlwb.market.references import Levels, levels_of
from rlwb.market.sessions import Sessions

_WHOLE = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 100)
#: Shares that so many become, as (new, old); shares are also joined, but hardly ever by a fraction.
RATIOS = ((5, 4), (4, 3), (3, 2), (5, 3), (5, 2), *((n, 1) for n in _WHOLE), *((1, n) for n in _WHOLE))
#: How far the overnight move may lie from the ratio, as a share: prices also move by themselves.
_PRICE_TOLERANCE = 0.04
#: How far turnover in money may lie from the usual, as a factor: a split leaves it as it is, news does not.
_TURNOVER_TOLERANCE = 3.0
#: Earlier sessions that make the usual volume.
_USUAL_SESSIONS = 5
#: Overnight moves that are compared with all ratios at once.
_BLOCK = 1 << 14
COLUMNS = ("instrument", "date", "previous_date", "split", "ratio", "close_before", "open_after", "volume_ratio")


def suspected_splits(sessions: Sessions, levels: Levels | None = None) -> pd.DataFrame:
    """Return the sessions that open as after a split, a bonus issue or a joining of shares.

    A session is listed when its first price is within 4 % of the last close divided by a ratio of small whole numbers
    (`RATIOS`), and its volume a tick, over the median of up to five sessions before, lies nearer to that ratio than to
    no change and within a factor of 3 of it. So a price that halves on news, with many times the usual turnover, is not
    listed, nor is anything that has no volume, nor what is explained by factors, where the sessions have them.

    Parameters
    ----------
    sessions
        The panel.
    levels
        Its levels, where they were found before.

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
        nearest, distance = _nearest(fall, np.log(ratios))
        close_to = distance <= np.log1p(_PRICE_TOLERANCE)
        grown = volume[later] / _usual(volume, later, sessions.first[later])
        turnover = np.abs(np.log(grown / ratios[nearest]))
        inverse = (turnover < np.abs(np.log(grown))) & (turnover <= np.log(_TURNOVER_TOLERANCE))
    found = close_to & inverse
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


def _nearest(values: np.ndarray, choices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of `choices` is nearest to each value, and how far it is; some values at a time."""
    index, distance = np.zeros(len(values), dtype=np.int64), np.empty(len(values))
    for low in range(0, len(values), _BLOCK):
        part = slice(low, low + _BLOCK)
        away = np.abs(values[part, None] - choices[None, :])
        index[part] = np.argmin(np.where(np.isfinite(away), away, np.inf), axis=1)
        distance[part] = away[np.arange(len(away)), index[part]]
    return index, distance


def _usual(volume: np.ndarray, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the median volume of up to `_USUAL_SESSIONS` sessions of the instrument before each of `rows`."""
    before = rows[:, None] - np.arange(1, _USUAL_SESSIONS + 1)[None, :]
    values = np.where(before >= first[:, None], volume[np.maximum(before, 0)], np.nan)
    values = np.sort(values, axis=1)  # NaN comes last
    count = np.isfinite(values).sum(axis=1)
    index = np.arange(len(rows))
    return (values[index, np.maximum(count - 1, 0) // 2] + values[index, count // 2]) / 2
