"""Selection bias: how much of a selected checkpoint's validation PA is luck.

The validation score of a selected checkpoint is biased upwards. These functions return the bias expected from noise
alone, and how often the best policy on some days ranks below the middle on the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import betainc, ndtr

from rlwb.errors import ConfigError, DataError


def expected_shrinkage(standard_error: float, candidates: int, chosen: int, *, correlation: float = 0.0) -> float:
    """Return the expected fall from validation to test PA of the best checkpoints if all were equally good.

    The validation PAs are taken as normal with the same mean, the given standard error and the given correlation
    with one another. What two checkpoints share (the same orders, the same days) moves both alike and favours
    neither, so the result is ``standard_error * sqrt(1 - correlation) * m(N, k)``, with m the mean of the k
    largest of N independent standard normals. Neighbouring checkpoints are alike: with `correlation` 0 this is
    an upper bound.

    Parameters
    ----------
    standard_error
        Standard error of one validation PA in basis points, for instance `Interval.standard_error`.
    """
    if not standard_error >= 0 or not 0 <= correlation <= 1:
        raise ConfigError(
            f"A standard error of {standard_error} with correlation {correlation} cannot be; "
            "give a number >= 0 and one within 0 and 1."
        )
    return standard_error * math.sqrt(1 - correlation) * mean_of_largest(candidates, chosen)


def mean_of_largest(candidates: int, chosen: int) -> float:
    """Return the expected mean of the `chosen` = k largest of `candidates` = N independent standard normals.

    The density of the k largest together is ``N phi(x) I_Phi(x)(N - k, k)``, with I the regularised incomplete
    beta function, hence the mean is ``(N / k) * integral of x phi(x) I_Phi(x)(N - k, k)``.
    """
    if not 1 <= chosen <= candidates:
        raise ConfigError(f"The best {chosen} of {candidates} cannot be chosen; give 1 <= chosen <= candidates.")
    if chosen == candidates:
        return 0.0

    x, step = np.linspace(-9, 9, 1_801, retstep=True)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(candidates / chosen * (x * density * betainc(candidates - chosen, chosen, ndtr(x))).sum() * step)


@dataclass(frozen=True)
class Overfitting:
    """The outcome of combinatorially symmetric cross-validation.

    Attributes
    ----------
    probability
        Share of the splits in which the best on one half of the days ranks in the lower half (or exactly the
        middle) on the other: near 0 for a choice that carries over, near 0.5 for one that is noise.
    logits : float64 of shape (splits,)
        One a split, ``log(rank / (N + 1 - rank))`` of the chosen policy's rank (1 = worst) on the other half.
    degradation
        Mean fall of the chosen policy's mean PA from the half it was chosen on to the other, in basis points.
    policies, days, blocks
        N, the number of days used, and how many runs of days they were cut into.
    """

    probability: float
    logits: np.ndarray
    degradation: float
    policies: int
    days: int
    blocks: int


def overfitting_probability(day_pa: np.ndarray, *, blocks: int = 10) -> Overfitting:
    """Return the probability of backtest overfitting by combinatorially symmetric cross-validation.

    The days are cut into `blocks` runs of equal length (within one day). For every way to take half of the runs,
    the policy with the best mean PA there is looked up in the ranking on the other half.

    Parameters
    ----------
    day_pa : float64 of shape (days, policies)
        Mean PA of each day and policy in basis points, days in time order (`rlwb.evaluation.results.day_matrix`). Days
        on which any policy has no PA are left out, so that all are ranked on the same days.
    blocks
        Even; ``C(blocks, blocks / 2)`` splits are made: 252 for 10, 12,870 for 16.

    References
    ----------
    Bailey, Borwein, López de Prado and Zhu, "The Probability of Backtest Overfitting", Journal of Computational
    Finance 20 (2017), algorithm 2.3.
    """
    day_pa = np.asarray(day_pa, dtype=np.float64)
    if day_pa.ndim != 2 or day_pa.shape[1] < 2:
        raise DataError(f"Day means of shape {day_pa.shape} cannot be ranked; give (days, at least two policies).")
    if blocks < 2 or blocks % 2 or blocks > 16:
        raise ConfigError(f"{blocks} blocks cannot be halved and combined; use an even number from 2 to 16.")
    day_pa = day_pa[np.isfinite(day_pa).all(axis=1)]
    days, policies = day_pa.shape
    if days < blocks:
        raise DataError(f"{days} days with a PA of every policy cannot be cut into {blocks} blocks; ask for fewer.")

    parts = np.array_split(day_pa, blocks)
    sums = np.stack([part.sum(axis=0) for part in parts])
    lengths = np.array([[len(part)] for part in parts], dtype=np.float64)
    inside = np.array([np.isin(range(blocks), taken) for taken in combinations(range(blocks), blocks // 2)])
    inside_means, outside_means = ((half @ sums) / (half @ lengths) for half in (inside * 1.0, ~inside * 1.0))

    best = inside_means.argmax(axis=1)[:, None]
    theirs = np.take_along_axis(outside_means, best, axis=1)
    ranks = (outside_means < theirs).sum(axis=1) + ((outside_means == theirs).sum(axis=1) + 1) / 2  # ties share a rank
    logits = np.log(ranks / (policies + 1 - ranks))
    fall = np.take_along_axis(inside_means - outside_means, best, axis=1)
    return Overfitting(float((logits <= 0).mean()), logits, float(fall.mean()), policies, days, blocks)
