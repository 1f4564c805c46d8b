"""Days that follow one another: how much less they tell of a mean than independent days, and in what blocks to draw.

Where a good day is likelier after a good one, a mean over D days varies more than the days' spread over sqrt(D) says.
Its variance is then estimated from the slowest waves through the series of days (Lazarus, Lewis, Stock and Watson, "HAR
Inference: Recommendations for Practice", Journal of Business & Economic Statistics 36, 2018): each of B cosines gives
one independent estimate, so that Student's t has B degrees of freedom. All D - 1 cosines together give the variance of
independent days.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import dct
from scipy.special import stdtrit

#: Share of the variance that the cosines in use may miss, by a first-order autoregression, before fewer are taken.
_MISSED = 0.05

#: Standard errors, 1 / sqrt(D), that are added to an autocorrelation: the upper end of its 80 % interval.
_DOUBT = 1.2816

#: Autocorrelations above this are estimated no closer; the variance that it leaves out is bounded so.
_LARGEST = 0.9


@dataclass(frozen=True)
class Dependence:
    """The dependence of units in sequence, such as days, on one another, and what follows for an interval.

    Attributes
    ----------
    autocorrelation
        Of each unit with the next, corrected for the bias of short series; NaN where units are taken as independent.
    freedom
        Degrees of freedom of Student's t: the number of cosines whose variances are averaged.
    widening
        The standard error over that of the resamples.
    block
        Units in sequence that are drawn together.
    """

    autocorrelation: float
    freedom: int
    widening: float
    block: int = 1

    @classmethod
    def none(cls, units: int) -> Dependence:
        """Return that of independent units, at least 2."""
        return cls(math.nan, units - 1, math.sqrt(units / (units - 1)))

    @classmethod
    def of(cls, influence: np.ndarray, *, in_blocks: bool = True) -> Dependence:
        """Return what the influences of units on a statistic tell.

        The first autocorrelation of the influences, plus ``(1 + 4 r) / D`` for the bias that Kendall found, decides, by
        what it may be: the upper end of its 80 % interval (`highest`). Units of which that does not exceed 0 count as
        independent. Else a first-order autoregression with it says how much of the variance at frequency 0 the slowest
        cosines hold; as many are averaged as hold 95 % of it, at least ``floor(0.4 D^(2/3))``, and what they miss by it
        is added. Blocks have the length of `block_length`, rounded to a power of 2 so that statistics share their
        resamples.

        Parameters
        ----------
        influence : float64 of shape (D,)
            What each unit adds to the statistic, up to a factor, in the sequence of time.
        in_blocks
            Whether resamples may draw blocks of units; else single ones are drawn, and the widening is all.

        References
        ----------
        M. G. Kendall, "Note on Bias in the Estimation of Autocorrelation", Biometrika 41 (1954).
        """
        units = len(influence)
        moved = influence - influence.mean()
        square = float(moved @ moved)
        if units < 3 or not square > 1e-24 * float(influence @ influence):
            return cls.none(units)
        found = float(moved[1:] @ moved[:-1]) / square
        found += (1 + 4 * found) / units
        rho = min(max(highest(found, units), 0.0), _LARGEST)
        angle = math.pi * np.arange(1, units) / units
        held = ((1 - rho) ** 2 / (1 - 2 * rho * np.cos(angle) + rho**2)).cumsum() / np.arange(1, units)
        freedom = int((held >= 1 - _MISSED).sum())
        freedom = max(freedom, min(max(2, int(0.4 * units ** (2 / 3))), units - 1))
        waves = dct(moved, norm="ortho")[1 : freedom + 1]
        variance = float(waves @ waves) / freedom / held[freedom - 1]
        block = 2 ** round(math.log2(max(1.0, block_length(moved)))) if rho > 0 and in_blocks else 1
        drawn = _drawn_variance(moved, block)
        if drawn < square / units:  # blocks that would narrow the resamples
            block, drawn = 1, square / units
        return cls(found, freedom, math.sqrt(variance / drawn), block)

    def errors(self, level: float) -> float:
        """Return how many standard deviations of the resamples the ends of an interval lie from the estimate."""
        return float(-self.widening * stdtrit(self.freedom, (1 - level) / 2))


def highest(autocorrelation: float, units: int) -> float:
    """Return the upper end of the 80 % interval of an autocorrelation that was found of so many units."""
    return autocorrelation + _DOUBT / math.sqrt(units)


def _drawn_variance(moved: np.ndarray, block: int) -> float:
    """Return the mean square of sums over all circular blocks of a series of mean 0, over the block's length."""
    around = np.concatenate([[0.0], np.concatenate([moved, moved[: block - 1]]).cumsum()])
    sums = around[block:] - around[:-block]
    return float(sums @ sums) / len(moved) / block


def block_length(values: np.ndarray) -> float:
    """Return the length of blocks by which a circular block bootstrap estimates the variance of a mean best.

    Parameters
    ----------
    values : float64 of shape (D,)
        A series in the sequence of time, not constant.

    References
    ----------
    D. N. Politis and H. White, "Automatic Block-Length Selection for the Dependent Bootstrap", Econometric Reviews 23
    (2004), as corrected by A. Patton, D. N. Politis and H. White, Econometric Reviews 28 (2009); the details that they
    leave open are those of ``arch.bootstrap.optimal_block_length``.
    """
    n = len(values)
    moved = values - values.mean()
    run = max(5, int(math.log10(n)))
    lags = min(math.ceil(math.sqrt(n)) + run, n - 2)
    products = np.array([moved[lag:] @ moved[: n - lag] for lag in range(lags + 1)])
    squares = np.concatenate([[0.0], (moved**2).cumsum()])
    later, earlier = squares[n] - squares[1 : lags + 2], squares[n - 1 - np.arange(lags + 1)]
    scale = np.sqrt(later * earlier)
    small = np.abs(products) < 2 * math.sqrt(math.log10(n) / n) * scale
    first = next((lag for lag in range(lags - run + 1) if small[lag : lag + run].all()), None)
    width = lags if first is None else min(2 * max(first, 1), lags)
    lag = np.arange(1, width + 1)
    weights = np.where(lag <= width / 2, 1.0, 2 * (1 - lag / width))
    covariances = products / n
    slope = 2 * float(weights * lag @ covariances[1 : width + 1])
    long_run = covariances[0] + 2 * float(weights @ covariances[1 : width + 1])
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    if long_run == 0:
        return float(longest)
    return float(min((1.5 * slope**2 / long_run**2 * n) ** (1 / 3), longest))
