"""The trajectory that weighs impact against risk."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines.impact import ImpactParameters
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import count_priced
from rlwb.execution.order import OrderBatch
from rlwb.execution.state import BatchState


def urgency_of(
    risk_aversion: float | np.ndarray,
    volatility: float | np.ndarray,
    temporary: float | np.ndarray,
    permanent: float | np.ndarray,
    tau: float = 1.0,
) -> np.ndarray:
    """Return kappa of Almgren and Chriss, float64, in 1 / time.

    With ``eta' = temporary - permanent * tau / 2``, kappa solves ``2 / tau**2 * (cosh(kappa * tau) - 1) = lambda *
    volatility**2 / eta'`` (Almgren and Chriss, J. Risk 3, 2000, section 2.2). 1 / kappa is the half-life of a trade.

    Parameters
    ----------
    risk_aversion
        Lambda: weight of the variance of the cost beside its mean.
    volatility, temporary, permanent
        sigma, eta and gamma, in units that agree.
    tau
        Length of an interval of trading.
    """
    squared = risk_aversion * np.square(volatility) / (temporary - np.multiply(permanent, tau / 2))
    # cosh(2 y) - 1 = 2 sinh(y)**2 keeps every digit of a small kappa.
    return np.asarray(2.0 / tau * np.arcsinh(tau / 2.0 * np.sqrt(squared)))


def risk_aversion_of(
    kappa: float | np.ndarray,
    volatility: float | np.ndarray,
    temporary: float | np.ndarray,
    permanent: float | np.ndarray,
    tau: float = 1.0,
) -> np.ndarray:
    """Return the risk aversion that `urgency_of` turns into `kappa`, float64."""
    squared = np.square(2.0 / tau * np.sinh(np.multiply(kappa, tau / 2)))
    return np.asarray(squared * (temporary - np.multiply(permanent, tau / 2)) / np.square(volatility))


def holding(kappa: np.ndarray, left: np.ndarray, horizon: np.ndarray) -> np.ndarray:
    """Return the share still held with `left` of the time `horizon` to go: ``sinh(kappa left) / sinh(kappa horizon)``.

    float64 of the arguments' common shape; ``left / horizon`` where kappa is 0; NaN where the horizon is 0 or an
    argument NaN.
    """
    a, b = np.asarray(kappa * left), np.asarray(kappa * horizon)
    with np.errstate(invalid="ignore", divide="ignore"):
        # sinh alone would overflow beyond 710.
        steep = np.exp(a - b) * np.expm1(-2.0 * a) / np.expm1(-2.0 * b)
        return np.where(b != 0, steep, np.divide(left, horizon))


class AlmgrenChriss:
    """Trades along the trajectory of least mean plus risk-weighted variance of cost, under linear impact.

    R. Almgren and N. Chriss, "Optimal execution of portfolio transactions", Journal of Risk 3 (2000), section 2.2: with
    time T to go, the part ``sinh(kappa (T - t)) / sinh(kappa T)`` of the position is kept t later.

    Parameters
    ----------
    parameters
        Estimated on the training part. An order of an instrument that they lack trades evenly.
    risk_aversion
        Lambda, a number without a unit: an order's cost is counted as a share of its value, ``mean + risk_aversion *
        variance``, so it is the paper's lambda (per unit of money) times the value of the order. 0 is the even
        schedule; larger trades earlier. Nothing in bars tells it: see `of_urgency`.

    Raises
    ------
    ConfigError
        When `risk_aversion` is negative or not finite.

    Notes
    -----
    The interval tau is one tick, and only ticks with a price count as time, as in the even schedule: which they are is
    taken as known, what the prices are is not. So steps of any length lie on one trajectory. An order of X shares
    has, as a share of its value, the impact ``temporary * X / volume`` for being traded in one tick. What rules cut
    is spread over the rest by the same formula, which is the optimal plan for the position that is left.
    """

    def __init__(self, parameters: ImpactParameters, risk_aversion: float) -> None:
        if not 0 <= risk_aversion < np.inf:
            raise ConfigError(f"the risk aversion is {risk_aversion!r}; give a finite number of 0 or more.")
        self.parameters = parameters
        self.risk_aversion = risk_aversion

    @classmethod
    def of_urgency(
        cls, parameters: ImpactParameters, engine: Engine, orders: OrderBatch, urgency: float = 3.0
    ) -> AlmgrenChriss:
        """Return the strategy whose risk aversion gives the typical one of `orders` a wanted urgency.

        A risk aversion is a taste, and one that makes a large order hurry a little makes a small one, which has next to
        no impact, trade at once. So it is told by what it does: the median over `orders` of the risk aversion with
        which ``kappa * T``, the window over the half-life of the trade, is `urgency`. Other orders follow from their
        size, volatility and impact.

        Parameters
        ----------
        parameters
            Estimated on the training part.
        engine, orders
            The orders of the training part, and what executes them.
        urgency
            Above 0; larger trades earlier. 3 leaves a fifth of the order after half of the window, and is about that
            of the paper's example (five days, and a half-life of 1.6 days).

        Raises
        ------
        ConfigError
            When `urgency` is not above 0 and finite.
        """
        if not 0 < urgency < np.inf:
            raise ConfigError(f"the urgency is {urgency!r}; give a finite number above 0.")
        own = parameters.of(engine.sessions, orders.session)
        ticks = count_priced(engine.price, orders.session, orders.start, orders.end)
        size = orders.amount / own.volume
        with np.errstate(divide="ignore"):
            each = risk_aversion_of(urgency / ticks, own.volatility, own.temporary * size, own.permanent * size)
        known = each[np.isfinite(each)]
        # Where no instrument has parameters every order trades evenly, whatever the risk aversion.
        return cls(parameters, float(np.median(known)) if len(known) else 0.0)

    def act(self, obs: BatchState, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        engine, orders, now = obs.engine, obs.orders, obs.now
        own = self.parameters.of(engine.sessions, orders.session)
        size = orders.amount / own.volume
        kappa = urgency_of(self.risk_aversion, own.volatility, own.temporary * size, own.permanent * size)
        left = count_priced(engine.price, orders.session, now.tick, orders.end)
        after = count_priced(engine.price, orders.session, engine.step_stop(orders, now), orders.end)
        share = 1.0 - holding(kappa, after, left)
        return now.position * np.where((kappa > 0) & (left > 0), share, engine.even_share(orders, now))
