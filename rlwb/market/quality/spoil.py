"""Faults put into sound bars on purpose, so that a check can be held against the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.schema import TRADE_PRICES

_FEWEST = 6
_STALE_MINUTES = 90
_MISSING = 5
_SPLIT = 4


def spoil_bars(bars: pd.DataFrame, *, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a copy of the bars with one or more of each fault, and where they are.

    Parameters
    ----------
    bars
        Sound bars in the schema, sorted by instrument and stamp, of at least 6 days an instrument; regular in time.
    seed
        Chooses the instruments and stamps.

    Returns
    -------
    bars : pandas.DataFrame
        The spoilt ones: rows are changed, missing, doubled, and added on a weekend.
    truth : pandas.DataFrame
        One row a fault: kind (of `rlwb.market.findings.KINDS`), instrument, date (``YYYY-MM-DD``).
    """
    rng = np.random.default_rng(seed)
    bars = bars.reset_index(drop=True)
    day = bars["datetime"].dt.normalize()
    names = bars["instrument"].astype(str).unique()
    fewest = int(day.groupby(bars["instrument"].astype(str)).nunique().min())
    if fewest < _FEWEST:
        raise DataError(f"an instrument has bars of {fewest} days; give bars of at least {_FEWEST}.")
    truth: list[dict[str, str]] = []
    spoilt = bars.copy()
    taken = np.zeros(len(bars), dtype=bool)
    gone = np.zeros(len(bars), dtype=bool)

    def choose(kind: str, length: int = 1) -> np.ndarray:
        """Return consecutive rows of one session, away from its edges and from what is spoilt already."""
        while True:
            begin = int(rng.integers(3, len(bars) - length - 3))
            rows = np.arange(begin - 3, begin + length + 3)
            one = bars.loc[rows, "instrument"].astype(str).nunique() == 1 and day[rows].nunique() == 1
            if one and not taken[rows].any():
                taken[rows] = True
                truth.append(
                    {"kind": kind, "instrument": str(bars.at[begin, "instrument"]), "date": f"{day[begin]:%Y-%m-%d}"}
                )
                return rows[3:-3]

    prices = list(TRADE_PRICES)
    for _ in range(3):
        spoilt.loc[choose("price_zero"), prices] = 0.0
        spoilt.loc[choose("outlier"), prices] *= 1.15
        spoilt.loc[choose("high_low"), "high"] *= 0.9
        spoilt.loc[choose("volume_negative"), "volume"] = -1.0
    step = float(bars["datetime"].diff().dt.total_seconds().div(60).loc[lambda gap: gap > 0].min())
    stale = choose("stale", max(4, int(np.ceil(_STALE_MINUTES / step))))
    spoilt.loc[stale, prices] = float(bars.at[stale[0], "close"])
    gone[choose("missing_tick", _MISSING)] = True
    split = str(rng.choice(names))
    days = np.unique(day[bars["instrument"].astype(str) == split])
    first = days[len(days) // 2]
    after = (bars["instrument"].astype(str) == split) & (day >= first)
    spoilt.loc[after, prices] /= _SPLIT
    spoilt.loc[after, "volume"] *= _SPLIT
    truth.append({"kind": "split_suspected", "instrument": split, "date": str(first)[:10]})
    doubled, told_twice = choose("duplicate_identical"), choose("duplicate_conflicting")
    other = spoilt.loc[told_twice].assign(volume=lambda rows: rows["volume"] + 1)
    weekend = spoilt.loc[choose("closed_day")].copy()
    saturday = weekend["datetime"].dt.normalize() + pd.to_timedelta(5 - weekend["datetime"].dt.dayofweek, unit="D")
    weekend["datetime"] = saturday + (weekend["datetime"] - weekend["datetime"].dt.normalize())
    truth[-1]["date"] = f"{saturday.iloc[0]:%Y-%m-%d}"
    spoilt = pd.concat([spoilt[~gone], spoilt.loc[doubled], other, weekend], ignore_index=True)
    return spoilt, pd.DataFrame(truth)
