"""Small bars for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.market import Calendar, Sessions
from rlwb.market.catalogue import Block
from rlwb.market.feature_registry import find_feature
from rlwb.market.references import References


def day_bars(
    calendar: Calendar,
    date: str = "2024-01-03",
    instrument: str = "AAA",
    close: Sequence[float] | float = 10.0,
    volume: Sequence[float] | float = 1000.0,
    ticks: Any = None,
) -> pd.DataFrame:
    """Return the bars of one day at `ticks` (all by default), open = high = low = close, stamped as the label says."""
    ticks = np.arange(calendar.num_ticks) if ticks is None else np.asarray(ticks)
    seconds = calendar.tick_start[ticks] + (calendar.tick_seconds if calendar.label == "end" else 0)
    price = np.broadcast_to(np.asarray(close, dtype=float), ticks.shape).copy()
    return pd.DataFrame(
        {
            "instrument": instrument,
            "datetime": pd.Timestamp(date) + pd.to_timedelta(seconds, unit="s"),
            "open": price,
            "high": price,
            "low": price,
            "close": price,
            "volume": np.broadcast_to(np.asarray(volume, dtype=float), ticks.shape).copy(),
        }
    )


def random_bars(
    calendar: Calendar, instruments: Sequence[str], dates: Sequence[str], seed: int = 0, keep: float = 1.0
) -> pd.DataFrame:
    """Return random but sound bars, of which a share `keep` is there."""
    rng = np.random.default_rng(seed)
    days = []
    for instrument in instruments:
        for date in dates:
            bars = day_bars(calendar, date, instrument)
            path = 20 * np.exp(np.cumsum(rng.normal(0, 1e-3, (len(bars), 4)).ravel()).reshape(len(bars), 4))
            bars["open"], bars["close"] = path[:, 0], path[:, 3]
            bars["high"], bars["low"] = path.max(axis=1), path.min(axis=1)
            bars["volume"] = rng.integers(0, 5000, len(bars)).astype(float)
            days.append(bars[rng.random(len(bars)) < keep])
    return pd.concat(days, ignore_index=True)


def raw_column(sessions: Sessions, name: str) -> np.ndarray:
    """Return one feature before normalisation, of shape ``(S, T)``, NaN where the bar has no value."""
    return find_feature(name)(Block(References(sessions), np.arange(len(sessions))))
