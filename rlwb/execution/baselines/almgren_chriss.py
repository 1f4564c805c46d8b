"""The trajectory that weighs impact against risk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines import Schedule
from rlwb.execution.baselines.impact import ImpactParameters, sessions_on_the_days_of
from rlwb.execution.baselines.plan import LEAST, held_after
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import NO_ROWS, count_priced
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS
from rlwb.execution.state import Known

Number = float | np.ndarray
#: A risk aversion that floating point can hold, with others of its size added up; it leaves nothing after a tick.
_MOST = 1e300


def urgency_of(
    risk_aversion: Number, volatility: Number, temporary: Number, permanent: Number, tau: float = 1.0
) -> np.ndarray:
    """Return kappa of Almgren and Chriss, float64, in 1 / time.

    With ``eta' = temporary - permanent * tau / 2``, kappa solves ``2 / tau**2 * (cosh(kappa * tau) - 1) = lambda *
    volatility**2 / eta'`` (Almgren and Chriss, J. Risk 3, 2000, section 2.2). 1 / kappa is the half-life of a trade.
    The arguments are lambda, the weight of the variance of the cost beside its mean; sigma, eta and gamma in units that
    agree; and the length of an interval of trading.
    """
    with np.errstate(over="ignore"):
        squared = risk_aversion * np.square(volatility) / (temporary - np.multiply(permanent, tau / 2))
    # cosh(2 y) - 1 = 2 sinh(y)**2 keeps every digit of a small kappa.
    return np.asarray(2.0 / tau * np.arcsinh(tau / 2.0 * np.sqrt(squared)))


def risk_aversion_of(
    kappa: Number, volatility: Number, temporary: Number, permanent: Number, tau: float = 1.0
) -> np.ndarray:
    """Return the risk aversion that `urgency_of` turns into `kappa`, float64; at most `_MOST`."""
    with np.errstate(over="ignore"):
        squared = np.square(2.0 / tau * np.sinh(np.multiply(kappa, tau / 2)))
        found = squared * (temporary - np.multiply(permanent, tau / 2)) / np.square(volatility)
    return np.minimum(found, _MOST)


def holding(kappa: np.ndarray, left: np.ndarray, horizon: np.ndarray) -> np.ndarray:
    """Return the share still held with `left` of the time `horizon` to go: ``sinh(kappa left) / sinh(kappa horizon)``.

    ``left / horizon`` where kappa is 0; NaN where the horizon is 0 or an argument NaN.
    """
    kappa = np.minimum(kappa, 1e3)  # exp(-1e3) is 0, and an infinite kappa would leave what is no number
    a, b = np.asarray(kappa * left), np.asarray(kappa * horizon)
    with np.errstate(invalid="ignore", divide="ignore"):
        # sinh alone would overflow beyond 710.
        steep = np.exp(a - b) * np.expm1(-2.0 * a) / np.expm1(-2.0 * b)
        return np.where(b != 0, steep, np.divide(left, horizon))


class AlmgrenChriss(Schedule):
    """Trades along the trajectory of least mean plus risk-weighted variance of cost: implementation shortfall.

    R. Almgren and N. Chriss, "Optimal execution of portfolio transactions", Journal of Risk 3 (2000), section 2.2: with
    time T to go, the part ``sinh(kappa (T - t)) / sinh(kappa T)`` of the position is kept t later. Where the rules
    charge temporary impact by the square root, there is no such formula, and `held_after` solves the same problem.

    Parameters
    ----------
    engine
        See `Baseline`.
    urgency : half-lives in the window
        How fast the typical training order trades, above 0: the risk aversion becomes the median over the training
        orders of the one with which ``kappa * T``, the window over the half-life of the trade, is `urgency`. 3 leaves a
        fifth of the order after half of the window, about that of the paper's example. A risk aversion that makes a
        large order hurry a little makes a small one trade at once; so it is told by what it does.
    risk_aversion
        Lambda itself in place of `urgency`, a number without a unit: an order's cost is counted as a share of its
        value, ``mean + risk_aversion * variance``. So it is the paper's lambda, per unit of money, times the value of
        the order, and 10,000 times one that weighs a variance in squared basis points beside a mean in basis points. 0
        is the even schedule; larger trades earlier. Without this setting an order that states an `aversion`, which is
        of basis points, is traded by its own, and the others by `urgency`.
    impact
        Parameters of the market; estimated by `fit` unless given. An order of an instrument that they lack trades
        evenly.
    skip_open, skip_close : minutes
        Minutes after the session's open and before its close in which nothing is asked for; see `Schedule`.

    Raises
    ------
    ConfigError
        When `urgency` is not above 0 and finite, or `risk_aversion` is negative or not finite.

    Notes
    -----
    Impact is that of the rules where they charge any (``temporary_impact_bps``, ``permanent_impact_bps``), since the
    order pays it; else what `fit` estimates from bars. `impact` itself goes before both. ``impact_from`` of the
    estimates says which. Volatility and volume are always from bars. Transient impact is not planned for: the order
    pays it, and the plan is the one without it.

    The interval tau is one tick, and only ticks with a price count as time, as in the even schedule. So steps of any
    length lie on one trajectory. An order of X shares has, as a share of its value, the impact ``temporary * X /
    volume`` for being traded in one tick. What rules cut is spread over the rest by the same formula, which is the
    optimal plan for the position that is left.

    Permanent impact by the square root is counted as the linear one that is as large when what is left is traded
    evenly; `urgency` counts temporary impact by the square root so. Where permanent impact is twice the temporary one
    or more, splitting saves nothing, and any risk aversion above 0 trades at once.
    """

    def __init__(
        self,
        engine: Engine,
        urgency: float = 3.0,
        risk_aversion: float | None = None,
        impact: ImpactParameters | None = None,
        skip_open: float = 0.0,
        skip_close: float = 0.0,
    ) -> None:
        super().__init__(engine, skip_open, skip_close)
        if not 0 < urgency < np.inf:
            raise ConfigError(f"the urgency is {urgency!r}; give a finite number above 0.")
        if risk_aversion is not None and not 0 <= risk_aversion < np.inf:
            raise ConfigError(f"the risk aversion is {risk_aversion!r}; give a finite number of 0 or more.")
        self.urgency = urgency
        self.risk_aversion = risk_aversion
        self._is_told = risk_aversion is not None
        self.impact = impact
        terms = engine.terms
        by_rules = impact is None and (terms.temporary > 0 or terms.permanent > 0)
        #: Source of the impact: the ``"rules"``, the ``"bars"``, or ``"given"``.
        self.impact_from = "rules" if by_rules else "bars" if impact is None else "given"
        self._terms = terms._replace(temporary_root=by_rules and terms.temporary_root)

    def fit(self, orders: OrderBatch) -> None:
        engine = self.engine
        if self.impact is None:
            self.impact = ImpactParameters.fit(engine, sessions_on_the_days_of(engine, orders))
        if self.risk_aversion is None:
            ticks = count_priced(engine.price, orders.session, orders.start, orders.end)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = self._own(orders.session, orders.amount, 1.0 / ticks)
                each = risk_aversion_of(self.urgency / ticks, *own)
            known = each[np.isfinite(each) & (own[0] > 0) & (ticks > 0)]
            # Where no instrument has parameters every order trades evenly, whatever the risk aversion.
            self.risk_aversion = float(np.median(known)) if len(known) else 0.0

    def amounts(self, known: Known) -> np.ndarray:
        engine, aversion = self.engine, self.aversion_of(known)
        if self._terms.temporary_root:
            share, is_known = self.planned(known, NO_ROWS, NO_ROWS)
        else:
            left = count_priced(engine.price, known.session, known.tick, known.end)
            after = count_priced(engine.price, known.session, engine.step_stop(known, known), known.end)
            own = self._own(known.session, known.amount, np.ones(len(known)))
            kappa = urgency_of(aversion, *own)
            share, is_known = 1.0 - holding(kappa, after, left), (kappa > 0) & (left > 0)
        return known.position * np.where(is_known, share, engine.even_share(known, known))

    def planned(self, known: Known, drift: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of the position that `held_after` trades in the step to come, and whether it is known.

        float64 and bool of shape (N,); `drift` and `room` are those of `held_after`.
        """
        engine, aversion = self.engine, self.aversion_of(known)
        left = count_priced(engine.price, known.session, known.tick, known.end)
        stop, held = engine.step_stop(known, known), known.position / known.amount
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rate, root = held / left, self._terms.temporary_root
            volatility, temporary, permanent = self._own(known.session, known.amount, rate)
            terms = aversion * volatility**2, temporary * np.sqrt(rate) if root else temporary, permanent, root
            places = engine.price, known.session, known.tick, stop, known.end
            share = 1.0 - held_after(*places, held, *terms, drift, room) / held
        return np.clip(share, 0.0, 1.0), (left > 0) & np.isfinite(share)

    def aversion_of(self, known: Known) -> np.ndarray:
        """Return the risk aversion of N orders, float64 of shape (N,); refuse where nothing is known of the market."""
        if self.impact is None or self.risk_aversion is None:
            raise ConfigError(f"{type(self).__name__} knows nothing of the market yet; call fit with training orders.")
        stated = np.full(len(known), np.nan)
        if not self._is_told:
            stated = known.forms.get("aversion", stated)
        return np.where(np.isnan(stated), self.risk_aversion, BASIS_POINTS * stated)

    def _own(
        self, session: np.ndarray, amount: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return volatility, temporary and permanent impact of whole orders in one tick, float64 of shape (N,) each.

        They are shares of the price; impact by the square root is the linear one that is as large at `rate`, the share
        of the order that a tick trades.
        """
        assert self.impact is not None, "act and fit see to it"
        own, terms = self.impact.of(self.engine.sessions, session), self._terms
        size = amount / own.volume
        if self.impact_from == "rules":
            rooted = np.sqrt(size / rate)
            temporary = terms.temporary * (rooted if terms.temporary_root else size)
            permanent = terms.permanent * (rooted if terms.permanent_root else size)
        else:
            temporary, permanent = own.temporary * size, own.permanent * size
        if not terms.temporary_root:
            temporary = np.maximum(temporary, permanent / 2.0 + LEAST)
        return own.volatility, temporary, permanent

    def state_dict(self) -> dict[str, Any]:
        impact = self.impact and asdict(self.impact)
        return {"impact": impact, "impact_from": self.impact_from, "risk_aversion": self.risk_aversion}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.impact = state["impact"] and ImpactParameters.from_dict(state["impact"])
        self.risk_aversion = state["risk_aversion"]
