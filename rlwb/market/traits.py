"""Numbers of each session that are held against those of others: how volume runs, how bars join, what repeats."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.market.references import blocks
from rlwb.market.schema import TRADE_PRICES
from rlwb.market.sessions import Sessions

#: Parts of a session whose ranges and volumes make its profile.
PARTS = 5
#: Digits that are left of prices and volumes, as shares of the session's first or largest, before they are compared.
_DIGITS = 7
#: Different values that a session needs at least, of a sample, to be told from another that merely looks like it.
_DISTINCT, _SAMPLE = 8, 64
_SEED = 20240103


def traits_of(panel: Sessions) -> pd.DataFrame:
    """Return a table with one row a session.

    | columns | meaning |
    |---|---|
    | rises, falls, resets | ticks whose volume is above, below the last in a segment; below it at a segment's start |
    | joined, crossed | ticks whose open is nearer to the last close than the close to the last open; the contrary |
    | ranged, unstated | ticks with high above low; ticks with a price and without a volume |
    | price_hash, volume_hash | equal for sessions that are equal up to a factor; 0 for one of too few values |
    | range_0 .., volume_0 .. | logs of the means of fifths of the session, less the mean of these |
    """
    ticks = panel.calendar.num_ticks
    weights = np.random.default_rng(_SEED).integers(1, 2**63 - 1, (len(TRADE_PRICES), ticks), dtype=np.int64) | 1
    rows = np.arange(len(panel))
    begins = np.flatnonzero(np.diff(panel.calendar.segment)) + 1
    parts = [_of_block(panel, part, weights.view(np.uint64), begins) for part in blocks(rows, ticks)]
    return pd.concat(parts or [_of_block(panel, rows, weights.view(np.uint64), begins)], ignore_index=True)


def _of_block(panel: Sessions, rows: np.ndarray, weights: np.ndarray, begins: np.ndarray) -> pd.DataFrame:
    opening, high, low, close = (panel.fields[name][rows] for name in TRADE_PRICES)
    volume = panel.fields["volume"][rows]
    ticks = close.shape[1]
    priced, stated = np.isfinite(close), np.isfinite(volume)
    table: dict[str, np.ndarray] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        step = np.diff(np.nan_to_num(volume), axis=1)
        step[~(stated[:, 1:] & stated[:, :-1])] = 0.0
        at_start = np.zeros(ticks - 1, dtype=bool)
        at_start[begins - 1] = True
        table["rises"] = (step > 0).sum(axis=1)
        table["falls"] = (step[:, ~at_start] < 0).sum(axis=1)
        table["resets"] = (step[:, at_start] < 0).sum(axis=1)
        ahead, behind = np.abs(opening[:, 1:] - close[:, :-1]), np.abs(close[:, 1:] - opening[:, :-1])
        table["joined"], table["crossed"] = (ahead < behind).sum(axis=1), (ahead > behind).sum(axis=1)
        moved = high > low
        table["ranged"] = moved.sum(axis=1)
        table["unstated"] = (priced & ~stated).sum(axis=1)
        span = np.log(high / low)
        base = close[np.arange(len(rows)), np.argmax(priced, axis=1)][:, None]
        largest = np.nanmax(np.where(stated, volume, 0.0), axis=1, initial=0.0)[:, None]
        table["price_hash"] = _hash([values / base for values in (opening, high, low, close)], weights)
        table["volume_hash"] = _hash([volume / largest], weights)
        for name, values in (("range", span), ("volume", np.where(priced, volume, np.nan))):
            level = np.stack(
                [
                    np.nansum(part, axis=1) / np.maximum(np.isfinite(part).sum(axis=1), 1)
                    for part in np.array_split(values, PARTS, axis=1)
                ]
            )
            profile = np.log(np.where(level > 0, level, np.nan))
            profile -= profile.mean(axis=0)
            table |= {f"{name}_{number}": part for number, part in enumerate(profile)}
    return pd.DataFrame(table)


def _hash(shares: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return a number for each row of arrays ``(n, T)`` that is equal for equal rows; 0 for rows of too few values."""
    total, ticks = np.zeros(len(shares[0]), dtype=np.uint64), shares[0].shape[1]
    for values, weight in zip(shares, weights, strict=False):
        whole = np.rint(np.nan_to_num(values, nan=-1.0, posinf=-1.0, neginf=-1.0) * 10**_DIGITS).astype(np.int64)
        total += (whole.view(np.uint64) * weight).sum(axis=1, dtype=np.uint64)
    some = np.sort(shares[-1][:, :: max(1, ticks // _SAMPLE)], axis=1)
    distinct = (np.diff(some, axis=1) > 0).sum(axis=1) + 1
    return np.where(distinct >= min(_DISTINCT, max(4, ticks - 1)), np.maximum(total, 1), 0)
