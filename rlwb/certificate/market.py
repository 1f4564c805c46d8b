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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError
from rlwb.execution import (
    TWAP,
    AmountActionInterpreter,
    Engine,
    ExecutionRules,
    Known,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
    order_table,
)
from rlwb.learner import Actor
from rlwb.market import Calendar, Sessions
from rlwb.seeds import Stream, generator
from rlwb.trainer import backtest

#: Price of every session's first tick, shares in a lot, and shares that everyone trades in a tick.
START, LOT, VOLUME = 100.0, 100.0, 1e6
#: Dates of the sessions, and of the quiet day before them that features refer to.
DAY, DAY_BEFORE = np.datetime64("2024-01-02"), np.datetime64("2024-01-01")
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
    kind, settings
        Name of the market's law in `rlwb.certificate.KINDS`, and its settings, of which the market can be made again.
    sessions
        S sessions of T ticks. Every tick is a step, and every order runs from the first to the last.
    probability, training
        Of each session where a policy is judged, and where orders to train on are drawn; float64 of shape (S,), each
        with sum 1.
    amount
        Size of every order, in shares.
    solution, optimum
        The best policy, and its value in basis points.
    penalty
        Weight of the squared shares in the objective, in basis points.
    rules
        The rules of execution.
    actions
        Equal parts of the amount among which a learner that chooses from a list must have a choice, where those of a
        run's default cannot express the optimum; None keeps the default.
    of_any_amount
        Gives the optimum of policies that trade any amount, where it is above that of whole lots; NaN where it is not
        known. None is the same optimum.
    exact
        Whether the judged sessions are all that can happen; otherwise they are a sample.
    stopping
        Whether an order of one lot has the same optimum, so that the problem is to stop at the right time.
    """

    name: str
    kind: str
    settings: Any
    sessions: Sessions
    probability: np.ndarray
    training: np.ndarray
    amount: float
    solution: Actor
    optimum: float
    penalty: float = 0.0
    rules: ExecutionRules = field(default_factory=ExecutionRules)
    actions: int | None = None
    of_any_amount: Callable[[], float] | None = None
    exact: bool = True
    stopping: bool = False

    @cached_property
    def simulator(self) -> OrderExecution:
        """The engine on the sessions."""
        return OrderExecution(Engine(self.sessions, ticks_per_step=1, rules=self.rules))

    @cached_property
    def orders(self) -> OrderBatch:
        """A buy and a sell for each session, in turn: orders 2 s and 2 s + 1 are those of session s."""
        return self.simulator.align(both_sides(self.sessions, self.amount))

    @cached_property
    def any_amount(self) -> float:
        """The optimum of policies that trade any amount, in basis points."""
        return self.optimum if self.of_any_amount is None else self.of_any_amount()

    @property
    def reward(self) -> PAPenaltyReward:
        """The objective as the reward of a learner, in basis points."""
        return PAPenaltyReward(self.penalty)

    @cached_property
    def twap(self) -> float:
        """Value of trading evenly, replayed; on sampled sessions minus the penalty, for there PA is 0."""
        if not self.exact:
            return -self.penalty / self.sessions.calendar.num_ticks
        return self.value_of_rule(TWAP(self.simulator.engine)).mean

    def draw(self, count: int, *seeds: int) -> np.ndarray:
        """Return `count` sessions to train on, by their probability, in any order: row numbers, int64.

        One is drawn from each of so many equal parts of the law, so that those of neighbouring paths, which share their
        beginning, are met about as often as is likely.
        """
        rng = generator(*seeds, Stream.CERTIFICATE)
        places = (np.arange(count) + rng.random(count)) / count
        total = np.cumsum(self.training)
        return rng.permutation(np.searchsorted(total, places * total[-1], side="right").clip(max=len(total) - 1))

    def value_of_rule(self, rule: Actor) -> Value:
        """Return what a policy that reads `Known` and answers with amounts is worth: `solution`, or a baseline."""
        return self.value(self._play(rule))

    def value(self, reward: np.ndarray) -> Value:
        """Return what a policy is worth that earns `reward` in the judged sessions, float64 of shape (J,).

        Where these are a sample, what the solution happens to gain on them above its known value is taken off: a
        control variate, which removes the noise that the two have in common.
        """
        weight = self.probability[self.judged]
        if self.exact:
            return Value(float(weight @ reward), 0.0)
        above = reward - self.replayed
        mean = float(weight @ above)
        return Value(self.optimum + mean, float(np.sqrt(weight**2 @ (above - mean) ** 2)))

    @cached_property
    def judged(self) -> np.ndarray:
        """The sessions on which a policy is judged, row numbers of shape (J,)."""
        return np.flatnonzero(self.probability)

    @cached_property
    def replayed(self) -> np.ndarray:
        """What the engine pays the solution in each judged session, in basis points, float64 of shape (J,)."""
        return self._play(self.solution)

    def _play(self, rule: Actor) -> np.ndarray:
        """Return the mean reward of the two orders of each judged session, float64 of shape (J,)."""
        orders = self.orders[np.stack([2 * self.judged, 2 * self.judged + 1], axis=1).ravel()]
        sees, acts = KnownStateInterpreter(), AmountActionInterpreter()
        episodes = backtest(self.simulator, sees, orders, acts, rule, reward=self.reward)
        return episodes.returns.reshape(-1, 2).mean(axis=1)


def share_of_way(value: float, twap: float, optimum: float) -> float:
    """Return how far `value` is on the way from TWAP to the optimum; NaN where the optimum is not above TWAP."""
    way = optimum - twap
    return (value - twap) / way if way > _NOTHING else math.nan


def by_twap(probability: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Return the probabilities (S,) of sessions weighted by the TWAP of their prices (S, T), with sum 1."""
    weight = probability * price.mean(axis=1)
    return weight / weight.sum()


def bellman(
    gain: np.ndarray,
    penalty: np.ndarray,
    ahead: np.ndarray,
    room: np.ndarray | None = None,
    *,
    branches: int = 1,
    closing: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Make the decision of one step in N situations, each of which has some equally many outcomes.

    With the fill ``f = min(a, room)`` of a request of a lots, the value of q of L lots left is

        V(q) = max_a  sum over the outcomes of  f/L gain - (f/L)**2 penalty + ahead(q - f).

    Parameters
    ----------
    gain, penalty : float64 of shape (N * branches,)
        Expected gain of filling the whole amount in the step, and its penalty, of each outcome times its probability.
    ahead : float64 of shape (N * branches, L + 1)
        Value of going on with 0, 1, … L lots; -inf where that must not be.
    room : int64 of shape (N * branches,)
        Most lots that the step fills; None is no cap.
    branches
        Outcomes of a situation, which are neighbours.
    closing
        Whether all that is left must be asked for.

    Returns
    -------
    value : float64 of shape (N, L + 1)
        By lots left before the decision.
    lots : int64 of shape (N, L + 1)
        The decision; among equals the fewest.
    """
    number = np.arange(ahead.shape[1])
    most = np.full(len(ahead), number[-1]) if room is None else room
    fill = np.minimum(number, most[:, None])
    share = fill / number[-1]
    now = gain[:, None] * share - penalty[:, None] * share**2
    left = number[:, None] - fill[:, None, :]
    going_on = np.take_along_axis(ahead[:, None, :], np.maximum(left, 0), axis=2)
    allowed = number == number[:, None] if closing else number <= number[:, None]
    options = np.where(allowed, now[:, None, :] + going_on, -np.inf)
    options = options.reshape(-1, branches, *options.shape[1:]).sum(axis=1)
    lots = options.argmax(axis=2)
    return np.take_along_axis(options, lots[:, :, None], axis=2)[:, :, 0], lots


def panel(names: list[str], price: np.ndarray, volume: np.ndarray | None = None, date: np.datetime64 = DAY) -> Sessions:
    """Return sessions of one-minute ticks with the prices (S, T), one instrument a session, in the order of `names`."""
    volume = np.full(price.shape, VOLUME) if volume is None else volume
    return _sessions(np.array(names), np.full(len(names), date), price, volume)


def with_day_before(sessions: Sessions, rows: np.ndarray, dates: np.ndarray) -> Sessions:
    """Return sessions of a market as a run has them: with all prices of a bar, and a day before, which is quiet.

    Features refer to the last close and the volume before a session. The price of the day before goes up and down by
    the mean move of all sessions and closes where they start, with their mean volume.

    Parameters
    ----------
    rows
        Sessions to take, int64 of shape (n,); each becomes an instrument with two sessions.
    dates
        Dates of the sessions, of shape (n,).
    """
    price, volume = sessions.fields["close"], sessions.fields["volume"]
    ticks = np.arange(price.shape[1])
    move = np.abs(np.diff(price, axis=1)).mean()
    quiet = START + move * np.where((ticks[-1] - ticks) % 2 == 0, 0.0, np.where((ticks[-1] - ticks) % 4 == 1, 1, -1))
    before = np.broadcast_to([quiet, np.full(len(ticks), volume.mean())], (len(rows), 2, len(ticks)))
    names = np.repeat([f"{row:07d}" for row in range(len(rows))], 2)
    days = np.stack([np.full(len(rows), DAY_BEFORE), dates], axis=1).ravel()
    both = [
        np.stack([before[:, i], own[rows]], axis=1).reshape(-1, len(ticks)) for i, own in enumerate((price, volume))
    ]
    return _sessions(names, days, *both)


def _sessions(names: np.ndarray, dates: np.ndarray, price: np.ndarray, volume: np.ndarray) -> Sessions:
    count, ticks = price.shape
    calendar = Calendar((("00:00", f"{ticks // 60:02d}:{ticks % 60:02d}"),))
    fields: Mapping[str, np.ndarray] = {**dict.fromkeys(("open", "high", "low", "close"), price), "volume": volume}
    return Sessions(calendar, names, dates.astype("datetime64[D]"), np.full(count, ticks), fields)


def both_sides(sessions: Sessions, amount: float) -> pd.DataFrame:
    """Return orders over whole sessions, a buy and a sell of an amount in turn for each one after `DAY_BEFORE`."""
    rows = np.repeat(np.flatnonzero(sessions.dates > DAY_BEFORE), 2)
    columns = {
        "instrument": sessions.instruments[rows].astype(object),
        "date": sessions.dates[rows].astype("datetime64[ns]"),
        "direction": np.tile(["BUY", "SELL"], len(rows) // 2),
    }
    return order_table(pd.DataFrame(columns).assign(amount=amount), sessions.calendar)


def check_noise(noise_bp: float, ticks: int) -> None:
    """Refuse a deviation of a tick's move by which prices would not stay near their start, or would not move."""
    if not 0 < noise_bp * ticks**0.5 < 500:
        raise ConfigError(f"noise_bp is {noise_bp}; give a number above 0 that keeps prices near their start.")


def check_ranges(settings: object, **ranges: tuple[float, float]) -> None:
    """Refuse settings, by name, that lie outside their range, whose ends are allowed."""
    for name, (low, high) in ranges.items():
        if not low <= getattr(settings, name) <= high:
            raise ConfigError(f"{name} is {getattr(settings, name)}; give a number from {low} to {high}.")
