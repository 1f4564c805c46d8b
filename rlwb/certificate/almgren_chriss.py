"""A random walk with linear impact, whose frontier of mean and deviation is known in closed form.

R. Almgren and N. Chriss, "Optimal execution of portfolio transactions", Journal of Risk 3 (2000), sections 1 and 2, in
the engine's own ticks. The price is ``p_t = start * (1 + noise * W_t)`` with W a standard normal random walk and
``W_0 = 0``, so the price of the first tick is the arrival price. Of an order that trades the share s_t of its amount in
tick t, and so holds ``x_t = 1 - s_0 - … - s_t`` after it, the engine's rules make a net PA against arrival of

    mean  -(permanent / 2 + (temporary - permanent / 2) * sum_t s_t**2),    variance  noise**2 * sum_t x_t**2,

in basis points, with the impacts those of trading the whole amount in one tick. The mean less `aversion` times the
variance is greatest where ``x_{t-1} - 2 x_t + x_{t+1} = aversion * noise**2 / (temporary - permanent / 2) * x_t``, so
``x_t = sinh(kappa * (T - 1 - t)) / sinh(kappa * T)`` with ``2 cosh(kappa) - 2`` the factor on the right.

It is the frontier of schedules that are fixed before. To react to the price gains a little more (Lorenz and Almgren,
"Mean-variance optimal adaptive execution", Applied Mathematical Finance 18, 2011), so learners here do not see it:
their policies are schedules, whose mean and deviation are exact. The engine charges impact in proportion to the price
of the tick instead of the first one, which makes the deviation larger by less than the impact, 0.6 % at the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rlwb.certificate.market import START, VOLUME, both_sides, check_noise, check_ranges, panel
from rlwb.errors import ConfigError
from rlwb.execution import (
    CurrentStepStateInterpreter,
    Engine,
    ExecutionRules,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.execution.baselines.almgren_chriss import holding, risk_aversion_of, urgency_of
from rlwb.interpreter import ActionInterpreter
from rlwb.learner import Actor
from rlwb.objective import MeanVariance
from rlwb.seeds import Stream, generator
from rlwb.trainer import backtest

#: Mean of the worst twentieth of a standard normal law, negated: phi(z) / 0.05 at its quantile z.
_TAIL = 2.0627128075074257


@dataclass(frozen=True)
class WalkSettings:
    """The law of the price, the impact, and the settings of the dial.

    Parameters
    ----------
    ticks
        Ticks T of a session, each a step.
    noise_bp
        Standard deviation of a tick's move, in basis points of the starting price.
    temporary_bp, permanent_bp
        Impact on an order that trades all at once, in basis points.
    urgencies
        The settings of the dial, each by ``kappa * T`` of its best schedule; 0 is the even one.
    sessions
        Sessions that orders to train on are drawn from.
    seed
        Of the sessions.
    """

    ticks: int = 12
    noise_bp: float = 10.0
    temporary_bp: float = 60.0
    permanent_bp: float = 10.0
    urgencies: tuple[float, ...] = (0.0, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0, 15.0, 30.0)
    sessions: int = 45_000
    seed: int = 0

    def __post_init__(self) -> None:
        infinite = float("inf")
        check_ranges(self, ticks=(2, infinite), permanent_bp=(0, infinite), sessions=(1, infinite))
        check_noise(self.noise_bp, self.ticks)
        if not self.permanent_bp / 2 < self.temporary_bp <= 1e4:
            raise ConfigError(
                f"temporary_bp is {self.temporary_bp}; it must be above half of permanent_bp, for else trading at once "
                "is free, and at most 10,000."
            )

    @property
    def eta(self) -> float:
        """Weight of the sum of squared shares in the mean cost."""
        return self.temporary_bp - self.permanent_bp / 2

    @property
    def aversions(self) -> tuple[float, ...]:
        """The settings of the dial, per basis point."""
        kappa = np.array(self.urgencies) / self.ticks
        return tuple(risk_aversion_of(kappa, self.noise_bp, self.temporary_bp, self.permanent_bp).tolist())


class Point(NamedTuple):
    """Mean and standard deviation of the net PA against arrival, in basis points."""

    mean: float
    deviation: float

    def value(self, aversion: float) -> float:
        """Return the mean less `aversion` times the variance."""
        return self.mean - aversion * self.deviation**2

    @property
    def cvar(self) -> float:
        """The mean of the worst twentieth of results that are normal."""
        return self.mean - _TAIL * self.deviation


@dataclass(frozen=True, eq=False)
class WalkMarket:
    """Orders on the random walk, buys and sells, and the frontier of what can be had."""

    name: str
    settings: WalkSettings

    @cached_property
    def simulator(self) -> OrderExecution:
        """The engine on the sessions."""
        own = self.settings
        moves = generator(own.seed, Stream.CERTIFICATE).standard_normal((own.sessions, own.ticks - 1))
        walk = np.concatenate([np.zeros((own.sessions, 1)), moves.cumsum(axis=1)], axis=1)
        price = START * (1 + own.noise_bp * 1e-4 * walk)
        rules = ExecutionRules(
            volume_limit=1.0,
            temporary_impact_bps=own.temporary_bp,
            permanent_impact_bps=own.permanent_bp,
            benchmark="arrival",
        )
        return OrderExecution(Engine(panel([f"{row:07d}" for row in range(own.sessions)], price), 1, rules))

    @cached_property
    def orders(self) -> OrderBatch:
        """A buy and a sell for each session, in turn, both at one setting of the dial, which sessions take in turn."""
        sessions, aversions = self.simulator.engine.sessions, np.array(self.settings.aversions)
        own = np.repeat(aversions[np.arange(len(sessions)) % len(aversions)], 2)
        return self.simulator.align(both_sides(sessions, VOLUME).assign(aversion=own))

    @cached_property
    def objective(self) -> MeanVariance:
        """The dial."""
        return MeanVariance(self.settings.aversions)

    @property
    def sees(self) -> CurrentStepStateInterpreter:
        """The observations of a learner: how its order stands, and the setting of the dial."""
        return CurrentStepStateInterpreter(self.settings.ticks, self.objective)

    @property
    def reward(self) -> PAPenaltyReward:
        """The net PA."""
        return PAPenaltyReward(penalty=0.0)

    def draw(self, count: int, seed: int) -> OrderBatch:
        """Return orders to train on: a buy and a sell of each session drawn, so that prices cancel in their mean."""
        session = generator(seed, Stream.CERTIFICATE).integers(0, self.settings.sessions, count // 2)
        drawn: OrderBatch = self.orders[np.stack([2 * session, 2 * session + 1], axis=1).ravel()]
        return drawn

    def schedule(self, aversion: float) -> np.ndarray:
        """Return the shares of the best schedule, float64 of shape (T,), in closed form."""
        own = self.settings
        kappa = urgency_of(aversion, own.noise_bp, own.temporary_bp, own.permanent_bp)
        return -np.diff(holding(kappa, np.arange(own.ticks, -1.0, -1.0), np.array(own.ticks)))

    def point(self, shares: np.ndarray) -> Point:
        """Return mean and deviation of a schedule, of shape (T,)."""
        own = self.settings
        left = 1.0 - np.cumsum(shares)[:-1]
        mean = -(own.permanent_bp / 2 + own.eta * (shares**2).sum())
        return Point(float(mean), float(own.noise_bp * np.sqrt((left**2).sum())))

    @property
    def frontier(self) -> list[Point]:
        """The best at each setting of the dial."""
        return [self.point(self.schedule(aversion)) for aversion in self.settings.aversions]

    @property
    def corner(self) -> Point:
        """The mean of trading at once with the deviation of trading evenly, the worst of the frontier's two ends."""
        ticks = self.settings.ticks
        return Point(self.point(np.eye(ticks)[0]).mean, self.point(np.full(ticks, 1 / ticks)).deviation)

    def points(self, policy: Actor, acts: ActionInterpreter) -> list[Point]:
        """Return what a policy that sees no prices reaches at each setting, over a buy and a sell; exact."""
        found = []
        for aversion in self.settings.aversions:
            orders = self.simulator.align(self.orders[:2].table.assign(aversion=aversion))
            episodes = backtest(self.simulator, self.sees, orders, acts, policy)
            both = [self.point(-np.diff(left)) for left in episodes.details["inventory"]]
            mean = np.mean([one.mean for one in both])
            variance = np.mean([one.deviation**2 + (one.mean - mean) ** 2 for one in both])
            found.append(Point(float(mean), float(np.sqrt(variance))))
        return found

    def distance(self, point: Point) -> float:
        """Return how far a point lies from the frontier, of which both axes are measured in its own span.

        A distance of 0.01 is one hundredth of the way from the worst to the best mean, or deviation.
        """
        best, corner = self._fine, self.corner
        span = np.array([best[0, 0] - corner.mean, corner.deviation])
        start, way = best[:-1] / span, np.diff(best, axis=0) / span
        off = np.array(point) / span - start
        along = np.clip((off * way).sum(axis=1) / (way**2).sum(axis=1), 0.0, 1.0)
        return float(np.sqrt(((off - along[:, None] * way) ** 2).sum(axis=1)).min())

    @cached_property
    def _fine(self) -> np.ndarray:
        """The frontier in 2,001 points, by rising aversion, of shape (M, 2); between two it is taken for straight."""
        own = self.settings
        factor = np.concatenate([[0.0], np.geomspace(1e-5, 1e5, 2000)])
        return np.array([self.point(self.schedule(one)) for one in factor * own.eta / own.noise_bp**2])

    def gap(self, point: Point, aversion: float) -> float:
        """Return what a point lacks of the best value at an aversion, as a share of what the worse end lacks."""
        ticks = self.settings.ticks
        ends = [self.point(shares).value(aversion) for shares in (np.eye(ticks)[0], np.full(ticks, 1 / ticks))]
        best = self.point(self.schedule(aversion)).value(aversion)
        return (best - point.value(aversion)) / (best - min(ends))


def walk_market(settings: WalkSettings | None = None, *, name: str = "almgren_chriss") -> WalkMarket:
    """Return the random walk with linear impact as a market."""
    return WalkMarket(name, settings or WalkSettings())
