"""Selection bias: how much of a selected checkpoint's validation PA is luck.

The validation score of a selected checkpoint is biased upwards. These functions return the bias expected from noise
alone, how often the best policy on some days ranks below the middle on the others, how well ranks carry over, what a
choice at random gives, and p-values that count all policies that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import betainc, ndtr

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, day_sums, draw_weights, fewest_days
from rlwb.evaluation.dependence import Dependence
from rlwb.evaluation.results import ZERO_BP


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


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's rank correlation of two figures of the same policies, equal values sharing a rank.

    NaN with fewer than three policies that have both, and where one figure is the same for all.

    Parameters
    ----------
    first, second : float64 of shape (policies,)
        NaN where missing.
    """
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 3:
        return math.nan
    ranks = np.stack([pd.Series(one[both]).rank() for one in (first, second)])
    return float(np.corrcoef(ranks)[0, 1]) if (ranks.std(axis=1) > 0).all() else math.nan


def random_choice(
    values: np.ndarray, chosen: int, rng: np.random.Generator, *, level: float = LEVEL, draws: int = 10_000
) -> tuple[float, float, float]:
    """Return the mean figure of `chosen` policies drawn at random without replacement: expected, and a span of draws.

    Parameters
    ----------
    values : float64 of shape (policies,)
        NaN, which is never drawn, where missing.
    level
        Share of the draws that the span holds, as much being below it as above.

    Returns
    -------
    tuple
        Mean, lower and upper end in the unit of the values; NaN where there are not so many policies.
    """
    known = np.asarray(values, dtype=np.float64)[np.isfinite(values)]
    if not 1 <= chosen <= len(known):
        return math.nan, math.nan, math.nan
    order = rng.random((draws, len(known))).argpartition(chosen - 1, axis=1)[:, :chosen]
    low, high = np.quantile(known[order].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(known.mean()), float(low), float(high)


def superiority(
    excess: np.ndarray,
    dates: np.ndarray,
    rng: np.random.Generator | Callable[[int, int], Iterable[np.ndarray]],
    *,
    resamples: int = RESAMPLES,
) -> np.ndarray:
    """Return for each policy the p-value of being better than the benchmark, all K that were tried being counted.

    It is the probability that, were no policy better than the benchmark, the best of all K looked at least as good as
    this one: the test for superior predictive ability, which corrects White's Reality Check for policies that are far
    worse than the benchmark. With x the mean excess, se its standard error as if days were independent, and * marking
    resampled days, policy k has ``t = x / se``, each resample ``T* = max(0, max_k (x* - g) / se*)``, and the p-value
    is the share of resamples with ``T* >= t``; g is x, or 0 where ``x < -se sqrt(2 log log D)``. The standard error is
    computed anew in every resample, so that few days do not make p-values too small, and counts half of se at least.
    Where days follow one another they are drawn in blocks, and t is divided by what intervals are widened by
    (`rlwb.evaluation.dependence`): the median block and the mean widening of the policies, so that none stands out by a
    dependence that is badly known.

    Parameters
    ----------
    excess : float64 of shape (orders, K)
        PA of each order and policy less that of the benchmark on the same order, in basis points; differences, and
        means, that are rounding count as 0. Orders that some policy has no PA for, NaN, are left out.
    dates : datetime64 of shape (orders,)
        Trading day of each order.
    rng
        The source of the resamples, as in `rlwb.evaluation.bootstrap.statistic_interval`.

    Returns
    -------
    float64 of shape (K,)
        NaN with fewer days than a 95 % interval takes (`fewest_days`).

    References
    ----------
    P. R. Hansen, "A Test for Superior Predictive Ability", Journal of Business & Economic Statistics 23 (2005),
    equations 5 to 7; H. White, "A Reality Check for Data Snooping", Econometrica 68 (2000).
    """
    excess = np.asarray(excess, dtype=np.float64)
    if excess.ndim != 2 or excess.shape[:1] != np.shape(dates):
        raise DataError(f"Excess PAs have shape {excess.shape} but dates {np.shape(dates)}; give one date an order.")
    keep = np.isfinite(excess).all(axis=1)
    excess = np.where(np.abs(excess) <= ZERO_BP, 0.0, excess)[keep]
    days, day = np.unique(np.asarray(dates).astype("datetime64[D]")[keep], return_inverse=True)
    if len(days) < fewest_days(LEVEL):
        return np.full(excess.shape[1], math.nan)
    sums = day_sums(np.column_stack([excess, np.ones(len(excess))]), day, len(days))
    values_dk, orders_d = sums[:, :-1], sums[:, -1]
    # Squared residuals of a day, (value - mean orders)^2, are expanded to sums that resampled days only weigh.
    squares_dk, crossed_dk, orders_squared_d = values_dk**2, values_dk * orders_d[:, None], orders_d**2

    def estimates(weights_bd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        orders_b1 = (weights_bd @ orders_d)[:, None]
        means_bk = (weights_bd @ values_dk) / orders_b1
        residuals = weights_bd @ squares_dk - 2 * means_bk * (weights_bd @ crossed_dk)
        residuals += means_bk**2 * (weights_bd @ orders_squared_d)[:, None]
        return means_bk, np.sqrt(np.maximum(residuals, 0.0)) / orders_b1

    def studentized(distance: np.ndarray, error: np.ndarray) -> np.ndarray:
        far = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))  # days that are all alike
        return np.divide(distance, error, out=far, where=error > 0)

    (mean,), (error,) = estimates(np.ones((1, len(days))))
    mean = np.where(np.abs(mean) <= ZERO_BP, 0.0, mean)
    own = studentized(mean, error)
    bound = -error * math.sqrt(2 * math.log(math.log(len(days))))
    centre = np.where(mean >= bound, mean, 0.0)
    depend = [Dependence.of(one) for one in (values_dk - mean * orders_d[:, None]).T]
    own /= np.mean([one.widening for one in depend]) / Dependence.none(len(days)).widening
    block = sorted(one.block for one in depend)[len(depend) // 2]
    drawn = rng(len(days), block) if callable(rng) else draw_weights(len(days), resamples, rng, block)
    best = []
    for weights_bd in drawn:
        means_bk, errors_bk = estimates(np.asarray(weights_bd, dtype=np.float64))
        errors_bk = np.maximum(errors_bk, error / 2)  # near 0 where the few days that a policy differs on are not drawn
        best.append(np.maximum(studentized(means_bk - centre, errors_bk).max(axis=1), 0.0))
    return (np.concatenate(best)[:, None] >= own).mean(axis=0)
