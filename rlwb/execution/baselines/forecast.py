"""Forecasts of the prices of an order's next steps from the past of its day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines.bertsimas_lo import deviation, last_price
from rlwb.execution.engine import Engine
from rlwb.execution.rules import valid_prices
from rlwb.parts import Part, make
from rlwb.regression import ridge

#: Strengths of the ridge that `ridge_by_blocks` chooses from.
RIDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)


class Model(Protocol):
    """A regression of one number, as in scikit-learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        """Estimate from float64 of shape (rows, columns) and (rows,)."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return float64 of shape (rows,)."""


class AR:
    """Autoregression: a linear regression through the origin on past returns, with a ridge.

    Parameters
    ----------
    ridge
        Weight of the squared coefficients of columns of deviation 1, beside the mean squared error; 0 or more. Larger
        trusts the past less.

    Raises
    ------
    ConfigError
        When `ridge` is negative or not finite.
    """

    def __init__(self, ridge: float = 0.01) -> None:
        if not 0 <= ridge < np.inf:
            raise ConfigError(f"the ridge is {ridge!r}; give a finite number of 0 or more.")
        self.ridge = ridge
        self.coef = np.empty(0)

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        count = max(len(y), 1)
        self.coef = ridge(X.T @ X / count, X.T @ y / count, [self.ridge])[0]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X @ self.coef)


def ridge_by_blocks(X: np.ndarray, y: np.ndarray, block: np.ndarray, blocks: int) -> np.ndarray:
    """Return coefficients whose ridge predicts blocks left out best, float64 of shape (blocks + 1, columns).

    Row 0 is fitted on all rows, row 1 + b on all but those of block b. The ridge is the one of `RIDGES` with the least
    squared error on the left-out blocks.

    Parameters
    ----------
    X, y : float64 of shape (rows, columns) and (rows,)
    block : integers of shape (rows,)
        Block of each row, from 0; rows that depend on each other belong into one.
    blocks
        Number of blocks.
    """
    some = [(X[block == one], y[block == one]) for one in range(blocks)]
    squares, moments = np.array([part.T @ part for part, _ in some]), np.array([part.T @ own for part, own in some])
    left_out = [(0.0, 0.0), *zip(squares, moments, strict=True)]
    coef = np.array([ridge(squares.sum(axis=0) - one, moments.sum(axis=0) - own, RIDGES) for one, own in left_out])
    errors = [((y[:, None] - X @ one.T) ** 2).sum(axis=0) for (X, y), one in zip(some, coef[1:], strict=True)]
    best: np.ndarray = coef[:, np.argmin(np.sum(errors, axis=0))]
    return best


def carried(price: np.ndarray) -> np.ndarray:
    """Return the last price at or before each tick, float64 of shape (N, T); NaN where there is none yet."""
    latest = np.maximum.accumulate(np.where(np.isfinite(price), np.arange(price.shape[1]), 0), axis=1)
    return np.take_along_axis(price, latest, axis=1)


class PriceForecast:
    """The expected mean price of the steps to come as a share above the last price: one model for each.

    Parameters
    ----------
    part
        Name and settings of a `Model`, of kind ``forecast``.
    lags
        Number of past returns.
    horizon
        Number of steps; later ones are expected to keep the price of the last.
    seed
        Set as ``random_state`` of models that have one and were given none.

    Notes
    -----
    X holds the last `lags` returns of a tick, the latest first, 0 where one is missing, then the `deviation` of the
    last price from the mean of today's; X and y are in units of the instrument's volatility of a tick, so that one
    model serves all instruments.
    """

    def __init__(self, part: Part, lags: int, horizon: int, seed: int) -> None:
        self.part = part
        self.lags = lags
        self.horizon = horizon
        self.seed = seed
        self.models: list[Model] | None = None
        self._made()

    def fit(self, engine: Engine, rows: np.ndarray, volatility: np.ndarray) -> None:
        """Estimate from sessions: their row numbers, and the volatility of a tick of each."""
        price = valid_prices(engine.price[rows])
        starts = np.flatnonzero(np.diff(engine.cell, prepend=-1))
        priced = np.add.reduceat(np.isfinite(price), starts, axis=1)
        with np.errstate(invalid="ignore"):
            mean = np.add.reduceat(np.nan_to_num(price), starts, axis=1) / priced
        seen = [self.observe(price, np.full(len(rows), start), volatility) for start in starts]
        self.models = []
        for ahead in range(min(self.horizon, len(starts))):
            pairs = []
            for step in range(1, len(starts) - ahead):
                known, last = seen[step]
                moved = (mean[:, step + ahead] / last - 1.0) / volatility
                whole = np.isfinite(moved)
                pairs.append((known[whole], moved[whole]))
            columns = [np.concatenate(parts) for parts in zip(*pairs, strict=True)] if pairs else []
            model = self._made()
            if columns and len(columns[1]):
                model.fit(*columns)
                self.models.append(model)

    def observe(self, price: np.ndarray, tick: np.ndarray, volatility: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return X before the ticks `tick`, float64 of shape (N, lags + 1), and the last price, of shape (N,)."""
        ticks = np.arange(price.shape[1])
        past = np.where(ticks < tick[:, None], price, np.nan)
        at = tick[:, None] - 1 - np.arange(self.lags + 1)
        before = np.take_along_axis(carried(past), np.maximum(at, 0), axis=1)
        before[at < 0] = np.nan
        returns = np.nan_to_num(before[:, :-1] / before[:, 1:] - 1.0)
        return np.column_stack([returns, deviation(past)]) / volatility[:, None], last_price(past)

    def predict(self, engine: Engine, session: np.ndarray, tick: np.ndarray, volatility: np.ndarray) -> np.ndarray:
        """Return the forecasts of steps 0, 1, … from `tick` on, float64 of shape (N, steps); 0 where none is known."""
        if self.models is None:
            raise ConfigError(
                f"the forecast {self.part.name} is not known: it was not fitted, or cannot be kept in a file; fit it."
            )
        columns, last = self.observe(valid_prices(engine.price[session]), tick, volatility)
        told = np.isfinite(columns).all(axis=1) & np.isfinite(last)
        found = np.zeros((len(tick), max(len(self.models), 1)))
        for ahead, model in enumerate(self.models if told.any() else ()):
            found[told, ahead] = np.asarray(model.predict(columns[told])).reshape(-1) * volatility[told]
        if not np.isfinite(found).all():
            raise ConfigError(f"the forecast {self.part.name} predicts what is no number; choose another.")
        return found

    def state_dict(self) -> list[dict[str, Any]] | None:
        """Return the attributes of the models in plain values; None where one holds more than numbers and arrays."""
        states = [{name: _plain(one) for name, one in vars(model).items()} for model in self.models or ()]
        kept = self.models is not None and not any(one is _plain for state in states for one in state.values())
        return states if kept else None

    def load_state_dict(self, state: list[Mapping[str, Any]] | None) -> None:
        """Take what `state_dict` gave."""
        self.models = None if state is None else [self._made() for _ in state]
        for model, values in zip(self.models or (), state or (), strict=True):
            vars(model).update({key: np.array(one) if isinstance(one, list) else one for key, one in values.items()})

    def _made(self) -> Any:
        """Return a new model."""
        model = make("forecast", self.part, seed=self.seed)
        if not all(callable(getattr(model, name, None)) for name in ("fit", "predict")):
            raise ConfigError(f"forecast {self.part.name} has no fit(X, y) and predict(X); name a model that has.")
        if getattr(model, "random_state", 0) is None:
            model.random_state = self.seed
        return model


def _plain(value: Any) -> Any:
    """Return a value as a file can hold it; this function for one that cannot."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else _plain
