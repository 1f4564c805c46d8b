"""A market whose optimum is known: its sessions with their probabilities, and what a policy is worth on it.

The value of a policy is the expectation of an order's whole reward in basis points (bp),

    E[ PA - penalty * sum_t w_t**2 ],    PA = sum_t w_t g_t,    g_t = side * (1 - p_t / TWAP) * 1e4,

with w_t the share of the amount that tick t fills; buys and sells count the same. The PA of a completed order is
additive in its fills, so the gain of a fill can be booked when it happens, as the expectation of g_t given what is
known then, although the TWAP is known only at the end.

Sessions are weighted by their TWAP. Let P be a law in which prices are easily stated, and Q the law with
``dQ/dP = TWAP / E_P[TWAP]``. Under Q, for a buy (a sell is its mirror image),

    E_Q[ sum_t w_t (1 - p_t / TWAP) ] = 1 - E_P[ sum_t w_t p_t ] / E_P[TWAP],

so the denominator is gone. If p is a martingale under P, every policy that does not look ahead is worth exactly 0.
Under P itself buys would gain a little by trading late, and sells by trading early, for prices and 1 / TWAP are
correlated (Jensen's inequality). This is the change of numeraire of Geman, El Karoui and Rochet (Journal of Applied
Probability 32, 1995) with the TWAP as the unit of account.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    Known,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.learner import Actor
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Sessions
from rlwb.seeds import Stream, generator
from rlwb.trainer import backtest

#: Price of every session's first tick, shares in a lot, and shares that everyone trades in a tick.
START, LOT, VOLUME = 100.0, 100.0, 1e6
#: Basis points that count as nothing beside rounding.
_NOTHING = 1e-9


class Solution(ABC):
    """The best decisions on a market; an `Actor` that reads `Known` and answers with amounts."""

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        left = np.rint(obs.position / LOT).astype(np.int64)
        return LOT * self.lots(obs, left)

    @abstractmethod
    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        """Return how many of the `left` lots to trade in the step to come, both int64 of shape (N,)."""


class Value(NamedTuple):
    """What a policy is worth in basis points, and the standard error of that; 0 where it is exact."""

    mean: float
    error: float


@dataclass(frozen=True, eq=False)
class CertifiedMarket:
    """Sessions, what an order in them is worth at best, and what any policy is.

    Attributes
    ----------
    sessions
        S sessions of T ticks. Every tick is a step, and every order runs from the first to the last.
    probability, training
        Of each session where a policy is judged, and where orders to train on are drawn; float64 of shape (S,), each
        with sum 1.
    lots
        Size of every order; a decision is for a whole number of lots.
    penalty
        Weight of the squared shares in the objective, in basis points.
    solution, optimum
        The best policy, and its value in basis points.
    exact
        Whether the judged sessions are all that can happen; otherwise they are a sample.
    """

    name: str
    sessions: Sessions
    probability: np.ndarray
    training: np.ndarray
    lots: int
    penalty: float
    solution: Solution
    optimum: float
    exact: bool

    @cached_property
    def simulator(self) -> OrderExecution:
        """The engine on the sessions, under the default rules."""
        return OrderExecution(Engine(self.sessions, ticks_per_step=1))

    @cached_property
    def orders(self) -> OrderBatch:
        """A buy and a sell for each session, in turn: orders 2 s and 2 s + 1 are those of session s."""
        return self.simulator.align(both_sides(self.sessions, LOT * self.lots))

    @cached_property
    def features(self) -> MarketFeatures:
        """Log price over that of the session's first tick, in standard deviations over the sessions to train on."""
        settings = FeatureSettings(columns=("close",), previous_day=False)
        return MarketFeatures.build(self.sessions, settings, fit_rows=self.training > 0)

    @cached_property
    def sees(self) -> FullHistoryStateInterpreter:
        """What a learner observes: the prices of earlier ticks, and how its order stands."""
        return FullHistoryStateInterpreter(self.features, self.simulator.engine.max_step)

    @cached_property
    def acts(self) -> CategoricalActionInterpreter:
        """What a learner answers: 0, 1, … lots."""
        return CategoricalActionInterpreter(self.lots)

    @property
    def reward(self) -> PAPenaltyReward:
        """The objective as the reward of a learner, in basis points."""
        return PAPenaltyReward(self.penalty)

    @property
    def twap(self) -> float:
        """Value of trading evenly: its PA is 0, and each of T ticks fills 1/T."""
        return -self.penalty / self.sessions.calendar.num_ticks

    def draw(self, count: int, seed: int) -> OrderBatch:
        """Return `count` orders to train on, sessions drawn by their probability and sides by a coin."""
        rng = generator(seed, Stream.CERTIFICATE)
        session = rng.choice(len(self.sessions), size=count, p=self.training)
        drawn: OrderBatch = self.orders[2 * session + rng.integers(0, 2, size=count)]
        return drawn

    def value(self, policy: Actor) -> Value:
        """Return what a policy on the observations of `sees` is worth when it acts greedily.

        Where the judged sessions are a sample, what the solution happens to gain on them above its known value is taken
        off: a control variate, which removes the noise that the two have in common.
        """
        return self._value(self._play(policy, self.sees, self.acts))

    def value_of_rule(self, rule: Actor) -> Value:
        """`value` of a policy that reads `Known` and answers with amounts: `solution`, or a baseline."""
        return self._value(self._play(rule, KnownStateInterpreter(), AmountActionInterpreter()))

    def share(self, value: float) -> float:
        """Return how far `value` is on the way from TWAP to the optimum; NaN where the optimum is not above TWAP."""
        way = self.optimum - self.twap
        return (value - self.twap) / way if way > _NOTHING else math.nan

    @cached_property
    def judged(self) -> np.ndarray:
        """The sessions on which a policy is judged, row numbers of shape (J,)."""
        return np.flatnonzero(self.probability)

    @cached_property
    def replayed(self) -> np.ndarray:
        """What the engine pays the solution in each judged session, in basis points, float64 of shape (J,)."""
        return self._play(self.solution, KnownStateInterpreter(), AmountActionInterpreter())

    def _play(self, actor: Actor, sees: Any, acts: Any) -> np.ndarray:
        """Return the mean reward of the two orders of each judged session, float64 of shape (J,)."""
        orders = self.orders[np.stack([2 * self.judged, 2 * self.judged + 1], axis=1).ravel()]
        episodes = backtest(self.simulator, sees, orders, acts, actor, reward=self.reward)
        return episodes.returns.reshape(-1, 2).mean(axis=1)

    def _value(self, reward: np.ndarray) -> Value:
        weight = self.probability[self.judged]
        if self.exact:
            return Value(float(weight @ reward), 0.0)
        above = reward - self.replayed
        mean = float(weight @ above)
        return Value(self.optimum + mean, float(np.sqrt(weight**2 @ (above - mean) ** 2)))


def by_twap(probability: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Return the probabilities (S,) of sessions weighted by the TWAP of their prices (S, T), with sum 1."""
    weight = probability * price.mean(axis=1)
    return weight / weight.sum()


def bellman(gain: np.ndarray, penalty: np.ndarray, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Make the decision of one step in N situations: ``V(q) = max_a  a/L gain - (a/L)**2 penalty + ahead(q - a)``.

    Parameters
    ----------
    gain, penalty : float64 of shape (N,)
        Expected gain of filling the whole amount in the step, and its penalty.
    ahead : float64 of shape (N, L + 1)
        Value of going on with 0, 1, … L lots; -inf where that must not be.

    Returns
    -------
    value : float64 of shape (N, L + 1)
        By lots left before the decision.
    lots : int64 of shape (N, L + 1)
        The decision; among equals the fewest.
    """
    number = np.arange(ahead.shape[1])
    share = number / number[-1]
    now = gain[:, None] * share - penalty[:, None] * share**2
    left = number[:, None] - number
    options = np.where(left >= 0, now[:, None, :] + ahead[:, np.maximum(left, 0)], -np.inf)
    lots = options.argmax(axis=2)
    return np.take_along_axis(options, lots[:, :, None], axis=2)[:, :, 0], lots


def panel(names: list[str], price: np.ndarray) -> Sessions:
    """Return sessions of one-minute ticks with the prices (S, T), one instrument a session, in the order of `names`."""
    count, ticks = price.shape
    calendar = Calendar((("00:00", f"{ticks // 60:02d}:{ticks % 60:02d}"),))
    fields: Mapping[str, np.ndarray] = {"close": price, "volume": np.full(price.shape, VOLUME)}
    dates = np.full(count, "2024-01-02", "datetime64[D]")
    return Sessions(calendar, np.array(names), dates, np.full(count, ticks), fields)


def both_sides(sessions: Sessions, amount: float) -> pd.DataFrame:
    """Return orders, a buy and a sell of an amount for each session, in turn, over the whole of it."""
    columns = {
        "instrument": np.repeat(sessions.instruments.astype(object), 2),
        "date": np.repeat(sessions.dates.astype("datetime64[ns]"), 2),
        "direction": np.tile(["BUY", "SELL"], len(sessions)),
    }
    return pd.DataFrame(columns).assign(amount=amount)


def check_noise(noise_bp: float, ticks: int) -> None:
    """Refuse a deviation of a tick's move by which prices would not stay near their start, or would not move."""
    if not 0 < noise_bp * ticks**0.5 < 500:
        raise ConfigError(f"noise_bp is {noise_bp}; give a number above 0 that keeps prices near their start.")


def check_ranges(settings: object, **ranges: tuple[float, float]) -> None:
    """Refuse settings, by name, that lie outside their range, whose ends are allowed."""
    for name, (low, high) in ranges.items():
        if not low <= getattr(settings, name) <= high:
            raise ConfigError(f"{name} is {getattr(settings, name)}; give a number from {low} to {high}.")
