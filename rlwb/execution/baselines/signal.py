"""A signal of the prices so far, and how far it predicts the next step: an AR(1) variable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine


def deviation(price: np.ndarray) -> np.ndarray:
    """Return how far the last price of each row lies above the mean of the row, as a share of the mean.

    Parameters
    ----------
    price : float64 of shape (N, T)
        Prices so far; NaN where there is none.

    Returns
    -------
    float64 of shape (N,)
        0 for rows without a price: nothing is known, and 0 is the signal's long-run mean.
    """
    valid = np.isfinite(price)
    count = valid.sum(axis=1)
    last = price.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
    mean = np.divide(np.where(valid, price, 0.0).sum(axis=1), count, out=np.ones(len(price)), where=count > 0)
    return np.where(count > 0, price[np.arange(len(price)), last] / mean - 1.0, 0.0)


@dataclass(frozen=True)
class SignalParameters:
    """How the signal X of `deviation` moves prices and lasts, a step of the grid at a time.

    Attributes
    ----------
    gamma
        Return over the step to come for a signal of 1: negative where prices come back to the day's mean.
    rho
        Autocorrelation of the signal from a step to the next, from -1 to 1.

    Notes
    -----
    Two regressions through the origin, pooled over all sessions: the return from the last price before a step to
    the last price in it, on the signal before it; and the signal after the step on the signal before it.
    """

    gamma: float
    rho: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.gamma) and -1 <= self.rho <= 1):
            raise ConfigError(f"gamma is {self.gamma!r} and rho {self.rho!r}; gamma must be finite, rho from -1 to 1.")

    @classmethod
    def fit(cls, engine: Engine, rows: np.ndarray) -> SignalParameters:
        """Estimate from the prices that the engine fills at, of the sessions `rows` alone; for its step alone.

        Parameters
        ----------
        rows
            Bool of shape (S,), or row numbers: the sessions of the training part.

        Returns
        -------
        SignalParameters
            Both 0 when no session has a signal before a step that has a price.
        """
        price = engine.price[rows]
        price = np.where((price > 0) & (price < np.inf), price, np.nan)
        cell = engine.cell
        followed, squared, lasted = 0.0, 0.0, 0.0
        for step in range(1, int(cell[-1]) + 1):
            before, after = np.searchsorted(cell, [step, step + 1])
            both = np.isfinite(price[:, :before]).any(axis=1) & np.isfinite(price[:, before:after]).any(axis=1)
            seen, then = deviation(price[both, :before]), deviation(price[both, :after])
            followed += float((seen * (_last(price[both, :after]) / _last(price[both, :before]) - 1.0)).sum())
            lasted += float((seen * then).sum())
            squared += float((seen**2).sum())
        if not squared > 0:
            return cls(0.0, 0.0)
        return cls(followed / squared, float(np.clip(lasted / squared, -1.0, 1.0)))


def _last(price: np.ndarray) -> np.ndarray:
    """Return the last price of each row of `price`, which has one in every row."""
    last = price.shape[1] - 1 - np.argmax(np.isfinite(price)[:, ::-1], axis=1)
    return np.take_along_axis(price, last[:, None], axis=1)[:, 0]
