"""Volatility, and how far a trade moves the price, estimated from bars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import valid_prices
from rlwb.market import Sessions


class Impact(NamedTuple):
    """Parameters of N orders' instruments, float64 of shape (N,) each; NaN where an instrument has none."""

    volume: np.ndarray
    volatility: np.ndarray
    temporary: np.ndarray
    permanent: np.ndarray


@dataclass(frozen=True)
class ImpactParameters:
    """Parameters of linear price impact, one value an instrument; a price move is a share of the price.

    Attributes
    ----------
    instruments
        Names, ascending.
    volume : shares a bar
        Mean volume of a tick, in shares, which are adjusted ones where the sessions have factors; above 0.
    volatility : share of the price
        Square root of the mean squared return of a tick.
    temporary : share of the price
        Price move in the tick of a trade as large as `volume`, Almgren and Chriss's eta; above 0.
    permanent : share of the price
        The part of that move that is still there a tick later, their gamma; from 0 to `temporary`.

    Notes
    -----
    Bars do not tell who moved the price, so all of a tick's move is put down to its volume: `temporary` is the slope
    of a regression through the origin of the absolute return on the volume in units of the mean (Kyle, Econometrica
    1985, for the linear form; Amihud, J. Financial Markets 2002, for the absolute return over volume). The share that
    stays is the move over the tick and the next, along the sign of the first, over the move of the first, both weighted
    by volume and cut to [0, 1]. The slope overstates what a small trader moves; what the baselines need is its scale
    beside the volatility.
    """

    instruments: tuple[str, ...]
    volume: tuple[float, ...]
    volatility: tuple[float, ...]
    temporary: tuple[float, ...]
    permanent: tuple[float, ...]

    @classmethod
    def fit(cls, engine: Engine, rows: np.ndarray) -> ImpactParameters:
        """Estimate from the prices that the engine fills at.

        Parameters
        ----------
        rows
            Bool of shape (S,), or row numbers: the sessions of the training part, which alone are read.

        Returns
        -------
        ImpactParameters
            Without the instruments that never traded or whose price never moved in `rows`.
        """
        sessions = engine.sessions
        chosen = np.arange(len(sessions))[rows]
        names, group = np.unique(sessions.instruments[chosen], return_inverse=True)
        segment = sessions.calendar.cells(sessions.calendar.num_ticks)
        found: dict[str, tuple[float, float, float, float]] = {}
        for number, name in enumerate(names.tolist()):
            own = chosen[group == number]
            one = _estimate(engine.price[own], engine.volume[own] / _factor(sessions, own)[:, None], segment)
            if one is not None:
                found[name] = one
        columns = zip(*found.values(), strict=True) if found else ((),) * len(Impact._fields)
        return cls(tuple(found), *columns)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ImpactParameters:
        """Return the parameters that `dataclasses.asdict` took apart."""
        return cls(**{field.name: tuple(values[field.name]) for field in dataclasses.fields(cls)})

    def of(self, sessions: Sessions, rows: np.ndarray) -> Impact:
        """Return the parameters of the instruments of the sessions `rows`, volumes in shares of those sessions."""
        place = pd.Index(self.instruments, dtype=object).get_indexer(sessions.instruments[rows])  # -1 where unknown
        found = Impact(*(np.array([*getattr(self, name), np.nan])[place] for name in Impact._fields))
        return found._replace(volume=found.volume * _factor(sessions, rows))


def sessions_on_the_days_of(engine: Engine, orders: OrderBatch) -> np.ndarray:
    """Return which sessions are on a date of the orders, bool of shape (S,)."""
    dates = engine.sessions.dates
    return np.isin(dates, np.unique(dates[orders.session]))


def _factor(sessions: Sessions, rows: np.ndarray) -> np.ndarray:
    """Return the adjustment factors of sessions, float64 of shape (N,); 1 where they have none."""
    return np.ones(len(rows)) if sessions.factor is None else sessions.factor[rows]


def _estimate(price: np.ndarray, volume: np.ndarray, segment: np.ndarray) -> tuple[float, float, float, float] | None:
    """Return one instrument's `Impact`; None when there is nothing to estimate it from."""
    valid = valid_prices(price)
    returns = np.full(price.shape, np.nan)  # none over a gap, and none where a segment starts
    returns[:, 1:] = np.where(segment[1:] == segment[:-1], valid[:, 1:] / valid[:, :-1] - 1.0, np.nan)
    known = np.isfinite(volume)
    mean = volume[known].mean() if known.any() else 0.0
    if not mean > 0 or not np.isfinite(returns).any():
        return None
    size = np.where(known & np.isfinite(returns), volume, 0.0) / mean
    move = np.nan_to_num(returns)
    weight = (size**2).sum()
    temporary = (np.abs(move) * size).sum() / weight if weight > 0 else 0.0
    if not temporary > 0:
        return None
    first = (np.sign(move) * size)[:, :-1] * np.isfinite(returns[:, 1:])
    stayed, moved = (first * (move[:, :-1] + move[:, 1:])).sum(), (first * move[:, :-1]).sum()
    share = float(np.clip(stayed / moved, 0.0, 1.0)) if moved > 0 else 0.0
    volatility = float(np.sqrt((move**2).sum() / np.isfinite(returns).sum()))
    return float(mean), volatility, float(temporary), float(temporary * share)
