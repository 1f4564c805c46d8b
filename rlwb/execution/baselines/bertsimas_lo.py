"""The strategy that weighs impact against a signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines import Baseline
from rlwb.execution.baselines.impact import ImpactParameters, sessions_on_the_days_of
from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import valid_prices
from rlwb.execution.state import Known


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
    mean = np.divide(np.where(valid, price, 0.0).sum(axis=1), count, out=np.ones(len(price)), where=count > 0)
    return np.where(count > 0, last_price(price) / mean - 1.0, 0.0)


def last_price(price: np.ndarray) -> np.ndarray:
    """Return the last price of each row, float64 of shape (N,); NaN where there is none."""
    last = price.shape[1] - 1 - np.argmax(np.isfinite(price)[:, ::-1], axis=1)
    return np.asarray(price[np.arange(len(price)), last])


@dataclass(frozen=True)
class SignalParameters:
    """The law of the signal X of `deviation`: how it moves prices and how it lasts, a step of the grid at a time.

    Two regressions through the origin, pooled over all sessions: the return from the last price before a step to
    the last price in it, on the signal before it; and the signal after the step on the signal before it.

    Attributes
    ----------
    gamma : share of the price
        Return over the step to come for a signal of 1: negative where prices come back to the day's mean.
    rho
        Autocorrelation of the signal from a step to the next, from -1 to 1.
    """

    gamma: float
    rho: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.gamma) and -1 <= self.rho <= 1):
            raise ConfigError(f"gamma is {self.gamma!r} and rho {self.rho!r}; gamma must be finite, rho from -1 to 1.")

    @classmethod
    def fit(cls, engine: Engine, rows: np.ndarray) -> SignalParameters:
        """Estimate from the prices that the engine fills at, for its step alone; `rows` as in `ImpactParameters.fit`.

        Both are 0 when no session has a signal before a step that has a price.
        """
        price = valid_prices(engine.price[rows])
        followed, squared, lasted = 0.0, 0.0, 0.0
        for step in range(1, engine.max_step):
            before, after = np.searchsorted(engine.cell, [step, step + 1])
            both = np.isfinite(price[:, :before]).any(axis=1) & np.isfinite(price[:, before:after]).any(axis=1)
            past, until = price[both, :before], price[both, :after]
            seen = deviation(past)
            followed += float((seen * (last_price(until) / last_price(past) - 1.0)).sum())
            lasted += float((seen * deviation(until)).sum())
            squared += float((seen**2).sum())
        if not squared > 0:
            return cls(0.0, 0.0)
        return cls(followed / squared, float(np.clip(lasted / squared, -1.0, 1.0)))


def signal_weights(gamma: float, rho: float, steps: int) -> np.ndarray:
    """Return ``theta * delta_X`` of Bertsimas and Lo for k = 0, 1, … steps after this one, float64 of shape (steps,).

    The price follows ``P_t = P_{t-1} + theta S_t + gamma X_t + eps_t``, the signal ``X_t = rho X_{t-1} + eta_t``.
    The value of a position W is ``P_{t-1} W + a_k W**2 + b_k X_t W + …`` with the backward recursion

        a_0 = theta, b_0 = gamma
        a_k = theta / 2 * (1 + 1 / (k + 1))
        b_k = gamma + theta rho b_{k-1} / (2 a_{k-1})

    and the best trade is ``W / (k + 1) + delta_X X_t`` with ``delta_X = rho b_{k-1} / (2 a_{k-1})`` (Bertsimas and Lo,
    Journal of Financial Markets 1, 1998, "linear price impact with information"). Theta drops out of b, as
    ``theta / (2 a_{k-1}) = k / (k + 1)``.
    """
    weights, b = np.zeros(steps), gamma
    for k in range(1, steps):
        weights[k] = rho * b * k / (k + 1)
        b = gamma + weights[k]
    return weights


class BertsimasLo(Baseline):
    """Trades evenly, and more while the signal says that prices will move away, less while they will come nearer.

    D. Bertsimas and A. Lo, "Optimal control of execution costs", Journal of Financial Markets 1 (1998), the strategy
    with an AR(1) information variable under linear price impact; see `signal_weights`.

    Parameters
    ----------
    engine
        See `Baseline`.
    impact
        Parameters of the market; estimated by `fit` unless given. The paper's theta S moves the price for good, so
        theta is the `permanent` slope over the mean volume, which does not depend on how long a step is. An order of an
        instrument that it lacks trades evenly.
    signal
        Parameters of the signal for the engine's step; estimated by `fit` unless given.

    Notes
    -----
    The signal is the last price over the mean of today's prices so far, less 1, and prices are counted as shares of
    the last one, so that no unit of money matters. The even part is the even schedule's share of the position, which is
    ``1 / (k + 1)`` for equal steps. The published strategy may sell in the midst of a purchase; this one is
    cut to the position. The smaller an order beside the market's volume, the more it trades all or nothing, and
    where impact leaves nothing behind, theta is 0 and it does nothing else.
    """

    def __init__(
        self, engine: Engine, impact: ImpactParameters | None = None, signal: SignalParameters | None = None
    ) -> None:
        super().__init__(engine)
        self.impact = impact
        self.signal = signal

    def fit(self, orders: OrderBatch) -> None:
        rows = sessions_on_the_days_of(self.engine, orders)
        self.impact = self.impact or ImpactParameters.fit(self.engine, rows)
        self.signal = self.signal or SignalParameters.fit(self.engine, rows)

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        if self.impact is None or self.signal is None:
            raise ConfigError("BertsimasLo knows nothing of the market yet; call fit with the training orders.")
        engine = self.engine
        own = self.impact.of(engine.sessions, obs.session)
        price = engine.price[obs.session]
        past = np.arange(price.shape[1]) < obs.tick[:, None]
        seen = deviation(np.where(past, valid_prices(price), np.nan))
        weights = signal_weights(self.signal.gamma, self.signal.rho, engine.max_step)
        step = engine.cell[np.minimum(obs.tick, len(engine.cell) - 1)]
        pull = obs.side * weights[np.maximum(engine.cell[obs.end - 1] - step, 0)] * seen
        # Nothing pulls where the signal is 0 or unknown, however small theta is.
        pulled = (pull != 0) & np.isfinite(own.permanent)
        with np.errstate(divide="ignore"):
            follow = np.divide(pull * own.volume, own.permanent, out=np.zeros(len(obs)), where=pulled)
        return np.clip(self.even(obs) + follow, 0.0, obs.position)

    def state_dict(self) -> dict[str, Any]:
        parts = {"impact": self.impact, "signal": self.signal}
        return {name: part and asdict(part) for name, part in parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.impact = state["impact"] and ImpactParameters.from_dict(state["impact"])
        self.signal = state["signal"] and SignalParameters(**state["signal"])
