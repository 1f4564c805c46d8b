"""Objectives: the value of uncertain results, mean and risk in one number.

A result X is a random number of basis points, larger is better. All objectives but the quantile are optimised certainty
equivalents (Ben-Tal and Teboulle, "An old-new concept of convex risk measures", Mathematical Finance 17, 2007),

    value(X) = max over m of  m + E u(X - m),

with a concave utility u, u(0) = 0. So one rule serves evaluation and every learner: with m the optimum of a sample, an
order counts ``m + u(X - m)``, and since the value is flat in m there, a small change of the results changes it by the
mean of ``u'(X - m)`` times the changes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from rlwb.errors import ConfigError


class Objective(ABC):
    """The value of a sample of results, in their unit.

    Attributes
    ----------
    aversions
        The settings of a dial, rising: one policy is trained for all of them, and told which an order has. Empty for an
        objective of one setting.
    dial
        The objective at each of them.
    """

    aversions: tuple[float, ...] = ()
    dial: tuple[Objective, ...] = ()

    @property
    def risk_aversion(self) -> float | None:
        """The weight of the variance that weighs small risks alike, per basis point; None where there is none."""
        return None

    @abstractmethod
    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        """Return what results are worth beside a sample of results, float64 of the shape of `x`.

        The mean over the sample itself is its value, or moves with it.
        """

    def slope(self, sample: np.ndarray) -> np.ndarray:
        """Return the derivative of the value of a sample by each result, times their number; of shape (N,)."""
        raise ConfigError(f"the objective {type(self).__name__} has no derivative by an order's result.")

    def value(self, sample: np.ndarray) -> float:
        """Return the value of a sample of shape (N,); missing results are left out, of none it is NaN."""
        terms = self.terms(sample)
        return float(np.nanmean(terms)) if np.isfinite(terms).any() else math.nan

    def terms(self, sample: np.ndarray) -> np.ndarray:
        """Return each order's part of the value, float64 of shape (N,), NaN where its result is missing.

        Their mean is the value; to first order, the mean of a part of them tells how the value of that part would
        differ, so that a bootstrap of the terms is one of the value.
        """
        sample = np.asarray(sample, dtype=np.float64)
        known = np.isfinite(sample)
        found = np.full(len(sample), math.nan)
        if known.any():
            found[known] = self.utility(sample[known], sample[known])
        return found

    @property
    def middle(self) -> int | None:
        """The middle setting of the dial, at which a policy is judged first; None without a dial."""
        return len(self.dial) // 2 if self.dial else None

    def place(self, aversion: np.ndarray) -> np.ndarray:
        """Return where aversions of shape (N,) lie on the dial, float64 of shape (N, settings): weights with sum 1.

        An order's aversion is the weight of the variance (`risk_aversion`), whatever the objective. One at a setting
        has all its weight there; between two it is shared in a line, beyond the ends it is the end's.
        """
        known = np.array([one.risk_aversion for one in self.dial])
        return np.stack([np.interp(aversion, known, one) for one in np.eye(len(known))], axis=1)

    def groups(self, settings: np.ndarray | None, count: int) -> Iterator[tuple[Objective, np.ndarray]]:
        """Yield the objective and the rows, of `count`, of each setting that occurs in `settings` of shape (count,)."""
        if not self.dial:
            yield self, np.arange(count)
            return
        if settings is None:
            raise ConfigError("the objective has several aversions, but the orders do not say which is theirs.")
        for setting in np.unique(settings):
            yield self.dial[setting], np.flatnonzero(settings == setting)

    def slopes(self, sample: np.ndarray, settings: np.ndarray | None = None) -> np.ndarray:
        """Return the `slope` of each result among those of its setting, over its `_weight`; of shape (N,)."""
        found = np.empty(len(sample))
        for one, rows in self.groups(settings, len(sample)):
            found[rows] = one.slope(sample[rows]) / self._weight(one, sample[rows])
        return found

    def _weight(self, one: Objective, sample: np.ndarray) -> float:
        """Return what a setting of a dial is divided by, so that none drowns the others: its root mean square slope."""
        return float(np.sqrt(np.mean(one.slope(sample) ** 2))) if self.dial else 1.0

    def rewards(self, reward: np.ndarray, done: np.ndarray, settings: np.ndarray | None = None) -> np.ndarray:
        """Return rewards that add up, over each episode, to the utility of the sum that `reward` has there.

        The reward of a step becomes the change of ``utility(x)``, with x the running sum of the episode: the changes
        telescope, so that a learner of the mean of these learns the objective, and every step is still told its own
        part. What is left out, the utility of 0, no action changes. The sample is the batch itself, so nothing needs to
        be tracked from update to update.

        Parameters
        ----------
        reward : float64 of shape (N,)
            Of whole episodes laid end to end.
        done : bool of shape (N,)
            The last step of each.
        settings : int of shape (episodes,), optional
            Each episode's setting of the dial.
        """
        first = np.append(True, done[:-1])
        episode, running = np.cumsum(first) - 1, np.cumsum(reward)
        running = running - (running - reward)[first][episode]
        total, worth = running[done], np.empty((2, len(reward)))
        before = np.where(first, 0.0, np.roll(running, 1))
        for one, rows in self.groups(settings, len(total)):
            at = np.isin(episode, rows)
            own = total[rows]
            worth[:, at] = one.utility(np.stack([before[at], running[at]]), own) / self._weight(one, own)
        return np.asarray(worth[1] - worth[0])


class Mean(Objective):
    """The mean: risk does not count."""

    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        return np.array(x, dtype=np.float64)

    def slope(self, sample: np.ndarray) -> np.ndarray:
        return np.ones(len(sample))

    def rewards(self, reward: np.ndarray, done: np.ndarray, settings: np.ndarray | None = None) -> np.ndarray:
        return reward


class MeanVariance(Objective):
    """The mean less a multiple of the variance: ``u(t) = t - aversion t**2``, at its best m the mean.

    Parameters
    ----------
    aversion : 1/bp
        Weight of the variance, 0 or more, per basis point; a list is a dial.
    """

    def __init__(self, aversion: float | Sequence[float]) -> None:
        self.aversion, self.aversions, self.dial = _dial(aversion, MeanVariance)

    @property
    def risk_aversion(self) -> float | None:
        return None if self.dial else self.aversion

    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        mean = sample.mean()
        return np.asarray(x - self.aversion * (x - mean) ** 2)

    def slope(self, sample: np.ndarray) -> np.ndarray:
        return np.asarray(1.0 - 2.0 * self.aversion * (sample - sample.mean()))


class Entropic(Objective):
    """The certainty equivalent under exponential utility, ``-log(E exp(-aversion X)) / aversion``.

    ``u(t) = (1 - exp(-aversion t)) / aversion``. For normal results it is the mean less half of `aversion` times the
    variance; it heeds the tails beyond that.

    Parameters
    ----------
    aversion : 1/bp
        Above 0, per basis point; a list is a dial.
    """

    def __init__(self, aversion: float | Sequence[float]) -> None:
        self.aversion, self.aversions, self.dial = _dial(aversion, Entropic)
        if not min(self.aversions or (self.aversion,)) > 0:
            raise ConfigError(f"aversion is {aversion!r}; give numbers above 0, and the objective mean for none.")

    @property
    def risk_aversion(self) -> float | None:
        return None if self.dial else self.aversion / 2

    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        m = self._centre(sample)
        return np.asarray(m - np.expm1(-self.aversion * (x - m)) / self.aversion)

    def slope(self, sample: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-self.aversion * (sample - self._centre(sample))))

    def _centre(self, sample: np.ndarray) -> float:
        power = -self.aversion * sample
        return float(math.log(len(sample)) - np.logaddexp.reduce(power)) / self.aversion


class CVaR(Objective):
    """The mean of the worst results: conditional value at risk (Rockafellar and Uryasev, Journal of Risk 2, 2000).

    ``u(t) = -max(-t, 0) / (1 - level)``, at its best m the value at risk.

    Parameters
    ----------
    level : share of the results
        Share of the results that are not among the worst, in (0, 1): 0.95 is the mean of the worst twentieth.
    """

    def __init__(self, level: float = 0.95) -> None:
        self.level = _level(level)

    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        m = self._centre(sample)
        return np.asarray(m - np.maximum(m - x, 0.0) / (1.0 - self.level))

    def slope(self, sample: np.ndarray) -> np.ndarray:
        m = self._centre(sample)
        below, at = sample < m, sample == m
        # Those at m share what is left of the tail, so that all weights have the mean 1.
        left = max((1.0 - self.level) * len(sample) - below.sum(), 0.0) / at.sum()
        return np.where(below, 1.0, np.where(at, left, 0.0)) / (1.0 - self.level)

    def _centre(self, sample: np.ndarray) -> float:
        # Rounded down by a little, since 0.05 * 100 is 5.000000000000004 here.
        rank = math.ceil((1.0 - self.level) * len(sample) - 1e-9)
        return float(np.partition(sample, rank - 1)[rank - 1])


class Quantile(Objective):
    """A quantile of the results, the median for example.

    Its gradient is that of the chance to lie above the quantile, over the density there (Jiang et al., "Quantile-based
    deep reinforcement learning using two-timescale policy gradient algorithms", arXiv 2305.07248, who track the
    quantile from update to update; here it is that of the batch).

    Parameters
    ----------
    level : share of the results
        Share of the results below it, in (0, 1): 0.05 is a bad order.
    """

    def __init__(self, level: float = 0.05) -> None:
        self.level = _level(level)

    def utility(self, x: np.ndarray, sample: np.ndarray) -> np.ndarray:
        return np.asarray(x >= self._quantile(sample)).astype(np.float64)

    def value(self, sample: np.ndarray) -> float:
        known = np.asarray(sample)[np.isfinite(sample)]
        return self._quantile(known) if len(known) else math.nan

    def terms(self, sample: np.ndarray) -> np.ndarray:
        sample = np.asarray(sample, dtype=np.float64)
        known = sample[np.isfinite(sample)]
        if not len(known):
            return np.full(len(sample), math.nan)
        near = min(self.level, 1.0 - self.level, 0.1) / 2
        low, q, high = np.quantile(known, [self.level - near, self.level, self.level + near])
        above = np.where(np.isfinite(sample), sample >= q, math.nan)
        # The influence function of a quantile; the density is that between two quantiles around it.
        return np.asarray(q + (above - np.nanmean(above)) * (high - low) / (2 * near))

    def _quantile(self, sample: np.ndarray) -> float:
        return float(np.quantile(sample, self.level))


def _dial(
    aversion: float | Sequence[float], kind: type[MeanVariance] | type[Entropic]
) -> tuple[float, tuple[float, ...], tuple[Objective, ...]]:
    """Return one aversion, or NaN and those of a dial with the objectives at them."""
    several = isinstance(aversion, Sequence)
    given = sorted(float(one) for one in (aversion if isinstance(aversion, Sequence) else [aversion]))
    if not all(0 <= one < math.inf for one in given) or len(set(given)) < max(len(given), 1 + several):
        raise ConfigError(
            f"aversion is {aversion!r}; give a number of 0 or more, or two or more in a list that differ."
        )
    if not several:
        return given[0], (), ()
    return math.nan, tuple(given), tuple(kind(one) for one in given)


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ConfigError(f"level is {level!r}; it must lie between 0 and 1.")
    return level
