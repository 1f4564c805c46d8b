"""A market that pulls a Gaussian price back to where it started, solved on a grid.

The price is ``p_t = start * (1 + x_t)`` with ``x_0 = 0`` and

    x_t = (1 - reversion) x_{t-1} + noise e_t,    e_t standard normal,

a random walk, and so a martingale, at ``reversion=0``. Sessions are weighted by their TWAP (`rlwb.certificate.market`).
Then the value of PA is exactly ``-side * E[sum_t w_t x_t] * 1e4`` under the law above: the TWAP is neither in the
denominator nor in the state, which is (x_{t-1}, lots left), and a sell is a buy on -x. The penalty keeps a weight of
``1 + mean of x``; over a buy and a sell that do the same on mirrored prices it averages out, and what the two could
gain by doing different things is below ``penalty * E|mean of x|``, 0.064 % of the penalty at the defaults.

The dynamic programme (Bertsekas, Dynamic Programming and Optimal Control I, section 1.3) interpolates its values
linearly between the points of a grid. Expectations of a piecewise linear f with kinks k_j are exact (Bachelier, 1900):

    E f(y) = f(k_0) + f'(k_0) (m - k_0) + sum_j (jump of f' at k_j) * (s phi(d_j) + (m - k_j) Phi(d_j)),

``d_j = (m - k_j) / s`` for y normal with mean m and deviation s. So interpolation is the only error. Values are convex
in x (maxima of sums of linear and convex functions) and a chord lies above a convex function, so a grid overstates the
optimum, by an amount that falls to a quarter when the spacing is halved: 0.0007 bp of 8.3 bp at the defaults. What the
solution earns on sampled sessions understates it, up to the sampling error; the optimum lies between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from rlwb.certificate.market import (
    LOT,
    START,
    CertifiedMarket,
    Solution,
    bellman,
    by_twap,
    check_noise,
    check_ranges,
    panel,
)
from rlwb.errors import ConfigError
from rlwb.execution import Known

#: The grid reaches this many deviations of the last price; beyond it values go on along their last slope.
_REACH = 8.0


@dataclass(frozen=True)
class GaussianSettings:
    """The law of the price and the size of the samples.

    Parameters
    ----------
    ticks
        Ticks T of a session, each a step.
    lots
        Size of an order.
    reversion
        Share of the distance to the start that the price is expected to return in a tick, in [0, 1); 0 is no signal.
    noise_bp
        Standard deviation of a tick's move, in basis points of the starting price.
    penalty
        Weight of the squared shares in the objective, in basis points; 0 makes the objective PA itself.
    points
        Points of the grid, an odd number, so that 0 is one of them.
    train_sessions, judged_sessions
        Sessions that orders to train on are drawn from, and others that policies are judged on.
    seed
        Of the sessions.
    """

    ticks: int = 16
    lots: int = 4
    reversion: float = 0.25
    noise_bp: float = 10.0
    penalty: float = 0.0
    points: int = 801
    train_sessions: int = 20_000
    judged_sessions: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        infinite = float("inf")
        check_ranges(self, ticks=(2, infinite), lots=(1, infinite), penalty=(0, infinite), points=(3, infinite))
        check_ranges(self, train_sessions=(1, infinite), judged_sessions=(2, infinite))
        if not 0 <= self.reversion < 1:
            raise ConfigError(f"reversion is {self.reversion}; it must lie in [0, 1).")
        check_noise(self.noise_bp, self.ticks)
        if self.points % 2 == 0:
            raise ConfigError(f"points is {self.points}; give an odd number.")

    @property
    def keep(self) -> float:
        """Share of a deviation that is expected to be left after a tick."""
        return 1.0 - self.reversion

    @property
    def noise(self) -> float:
        """Standard deviation of a tick's move."""
        return self.noise_bp * 1e-4


def gaussian_prices(settings: GaussianSettings, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw prices of `count` sessions, float64 of shape (count, T), not yet weighted by their TWAP."""
    x = np.zeros((count, settings.ticks))
    moves = settings.noise * rng.standard_normal((count, settings.ticks - 1))
    for tick in range(1, settings.ticks):
        x[:, tick] = settings.keep * x[:, tick - 1] + moves[:, tick - 1]
    return START * (1 + x)


def expectation(grid: np.ndarray, mean: np.ndarray, deviation: float) -> np.ndarray:
    """Return the matrix (N, G) that takes values on an equally spaced grid (G,) to expectations of their interpolation.

    `mean` (N,) and `deviation` are those of N normal laws.
    """
    below = mean[:, None] - grid[None, 1:-1]
    d = below / deviation
    call = deviation * np.exp(-(d**2) / 2) / np.sqrt(2 * np.pi) + below * ndtr(d)
    slope = np.diff(np.eye(len(grid)), axis=0) / (grid[1] - grid[0])
    first = np.eye(len(grid))[0] + (mean[:, None] - grid[0]) * slope[0]
    return np.asarray(first + call @ np.diff(slope, axis=0))


class GridSolution(Solution):
    """The dynamic programme over (tick, last x, lots left), for a buy.

    Attributes
    ----------
    value
        Of an order of all lots, in basis points.
    """

    def __init__(self, settings: GaussianSettings) -> None:
        self.settings = settings
        last = settings.noise * np.sqrt((settings.keep ** (2 * np.arange(settings.ticks - 1))).sum())
        self.grid = np.linspace(-_REACH * last, _REACH * last, settings.points)
        step = expectation(self.grid, settings.keep * self.grid, settings.noise)
        # What lies ahead after a decision on x_{t-1}, by tick; at the last tick nothing may be left.
        done = np.full((settings.points, settings.lots + 1), -np.inf)
        done[:, 0] = 0.0
        self._ahead = [done]
        for tick in range(settings.ticks - 1, 0, -1):
            value, _ = self._decide(self.grid, self._ahead[0])
            # Tick 0 is at x = 0 for certain, so the decision at tick 1 is made on x_0 = 0 too.
            self._ahead.insert(0, step @ value if tick > 1 else value)
        start = np.zeros(1)
        value, _ = self._decide(start, self._at(start, 0))
        self.value = float(value[0, -1])

    def _decide(self, x: np.ndarray, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        penalty = np.full(len(x), self.settings.penalty)
        return bellman(-self.settings.keep * x * 1e4, penalty, ahead)

    def _at(self, x: np.ndarray, tick: int) -> np.ndarray:
        """Interpolate what lies ahead of `tick` at x (N,), of shape (N, L + 1)."""
        ahead, spacing = self._ahead[tick], self.grid[1] - self.grid[0]
        if tick == self.settings.ticks - 1:
            return np.repeat(ahead[:1], len(x), axis=0)
        low = np.clip(np.floor((x - self.grid[0]) / spacing).astype(np.int64), 0, len(self.grid) - 2)
        part = ((x - self.grid[low]) / spacing)[:, None]
        return np.asarray((1 - part) * ahead[low] + part * ahead[low + 1])

    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        decided = np.zeros(len(left), dtype=np.int64)
        for tick in np.unique(obs.tick):
            rows = np.flatnonzero(obs.tick == tick)
            x = np.zeros(len(rows))
            if tick > 0:
                seen = obs.bars()[rows, tick - 1]
                x = obs.side[rows] * (seen / START - 1)
            _, lots = self._decide(x, self._at(x, int(tick)))
            decided[rows] = lots[np.arange(len(rows)), left[rows]]
        return decided


def gaussian_market(settings: GaussianSettings | None = None, *, name: str = "gaussian") -> CertifiedMarket:
    """Return sampled sessions as a market: first those to train on, then those to judge by."""
    settings = settings or GaussianSettings()
    train, judged = settings.train_sessions, settings.judged_sessions
    price = gaussian_prices(settings, train + judged, np.random.default_rng(settings.seed))
    first = np.arange(train + judged) < train
    solution = GridSolution(settings)
    return CertifiedMarket(
        name=name,
        kind="gaussian",
        settings=settings,
        sessions=panel([f"{row:07d}" for row in range(train + judged)], price),
        probability=by_twap(np.where(first, 0.0, 1.0), price),
        training=by_twap(np.where(first, 1.0, 0.0), price),
        amount=LOT * settings.lots,
        solution=solution,
        optimum=solution.value,
        penalty=settings.penalty,
        actions=settings.lots,
        of_any_amount=(lambda: math.nan) if settings.penalty else None,
        exact=False,
        stopping=not settings.penalty,
    )
