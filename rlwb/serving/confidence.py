"""An interval for the mean PA of a service that stays valid however often one looks at it.

A 95 % interval of the usual kind misses the mean in 5 % of cases at one look chosen beforehand. Looked at every day it
misses at some look far more often (a third within a year), so that a desk that stops when it sees what it hoped for is
misled. A confidence sequence misses at any look whatever with probability at most 5 %, all looks together.

The unit is the mean of a day, because orders of a day share its prices. For day means of a normal law of unknown
deviation, the ratio of likelihoods of a mean that is off by ``N(0, tau^2)`` deviations and of the mean ``m``,

    (1 + n tau^2)^(-1/2) ((1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1) (1 + n tau^2))))^(n / 2),   t = sqrt(n) (x - m) / s,

is a martingale of mean 1 under ``m`` (Lai, 1976; Wang and Ramdas, 2023, arXiv 2310.03722), so that by Ville's
inequality it ever passes ``1 / alpha`` with probability at most `alpha`. The interval holds every ``m`` at which it
does not. That is exact for normal day means. With more days it becomes Robbins' normal mixture boundary (1970; Howard,
Ramdas, McAuliffe and Sekhon, 2021, arXiv 1810.08240) with the deviation estimated, which holds for other laws in the
limit (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2021, arXiv 2103.06476).
"""

from __future__ import annotations

import math

import numpy as np


def confidence_sequence(
    values: np.ndarray, *, level: float = 0.95, narrowest_at: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds for the mean after each value; all of them hold at once with probability `level`.

    Parameters
    ----------
    values
        Means of days in their order, independent of one another, float64 of shape ``(n,)`` without NaN.
    level
        Probability.
    narrowest_at
        Number of values at which the interval is narrowest beside what is possible. To be chosen beforehand.

    Returns
    -------
    lo, hi
        float64 of shape ``(n,)``; without bounds (infinite) after the first few values, which say too little.
    """
    values = np.asarray(values, dtype=np.float64)
    n = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / n
    # Welford's recursion: sums of squares less squares of sums would lose all digits for a mean far from 0.
    before = np.concatenate([[0.0], mean[:-1]]) if len(n) else mean
    squares = np.cumsum((values - before) * (values - mean))
    ratio = 1 + n * _prior(level, narrowest_at)
    limit = (np.sqrt(ratio) / (1 - level)) ** (2 / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        # t^2 / (n - 1) at which the ratio of likelihoods is 1 / alpha; squares is s^2 (n - 1)
        reach = np.where(limit < ratio, (limit - 1) / (1 - limit / ratio), np.inf)
        half = np.where(np.isfinite(reach) & (n > 1), np.sqrt(reach * squares / n), np.inf)
    return mean - half, mean + half


def _prior(level: float, narrowest_at: int) -> float:
    """Return tau^2; Waudby-Smith and others (2021), appendix B.2."""
    doubled = -2 * math.log(1 - level)
    return (doubled + math.log(doubled) + 1) / narrowest_at
