"""Tests of many estimates at once, of the same days: p-values, and p-values corrected for their number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from rlwb.evaluation.dependence import Dependence

#: Numbers smaller than this, in basis points, are rounding around 0.
_ROUNDING = 1e-9


class Estimates(NamedTuple):
    """H estimates of the same D days, and what each day has to do with them.

    Attributes
    ----------
    value : float64 of shape (H,)
        NaN for one that cannot be computed.
    influence : float64 of shape (D, H)
        By how much the estimate moves, to first order, as a day counts once more; the days add up to 0. NaN on a day
        that an estimate has no orders of. Days are in their sequence.
    """

    value: np.ndarray
    influence: np.ndarray

    @classmethod
    def of_means(cls, values: np.ndarray, day: np.ndarray, days: int) -> Estimates:
        """Return the means over orders of H quantities.

        Parameters
        ----------
        values : float64 of shape (N, H)
            NaN is left out.
        day : int of shape (N,)
            Number of each order's day.
        days
            Number of days D.
        """
        known = np.isfinite(values)
        total, count = np.zeros((days, values.shape[1])), np.zeros((days, values.shape[1]))
        np.add.at(total, day, np.where(known, values, 0.0))
        np.add.at(count, day, known)
        number = np.where(known.any(axis=0), known.sum(axis=0), np.nan)
        mean = total.sum(axis=0) / number
        return cls(mean, np.where(count > 0, (total - mean * count) / number, np.nan))

    @classmethod
    def join(cls, parts: list[Estimates]) -> Estimates:
        """Lay estimates side by side."""
        return cls(np.concatenate([one.value for one in parts]), np.hstack([one.influence for one in parts]))

    def less(self, other: Estimates) -> Estimates:
        """Return the estimates less those of others, one by one."""
        none = np.isnan(self.influence) & np.isnan(other.influence)
        both = np.nan_to_num(self.influence) - np.nan_to_num(other.influence)
        return Estimates(self.value - other.value, np.where(none, np.nan, both))


class Tested(NamedTuple):
    """The tests of H estimates against 0, each float64 of shape (H,).

    Attributes
    ----------
    p
        Two-sided p-value of each by itself; NaN where fewer than two days tell, or the estimate is 0 and never varies.
    p_adjusted
        The same corrected for there being H: it is at most alpha for any true 0 with probability at most alpha.
    """

    p: np.ndarray
    p_adjusted: np.ndarray


def step_down(estimates: Estimates, weights: np.ndarray) -> Tested:
    """Test that each of H estimates is 0, corrected for their number by the step-down maximum of Romano and Wolf.

    Each estimate is taken over its standard error, by Student's t as its days ask for (`rlwb.evaluation.dependence`),
    and what that is worth as a normal score is its statistic. How far scores of what is 0 reach, and together, is told
    by resampled days: by how much the estimate moves there, over the deviation of these moves. For the adjusted
    p-values estimates are taken from the most significant down, each compared with the largest score in the resample
    among those that are left; so what they share through their days counts. The estimate itself counts as a resample,
    so that no p-value is 0.

    Parameters
    ----------
    estimates
        What is 0 under the hypotheses.
    weights : float64 of shape (B, D)
        How often each day was drawn in each resample.

    References
    ----------
    J. P. Romano and M. Wolf, "Exact and approximate stepdown methods for multiple hypothesis testing", Journal of the
    American Statistical Association 100 (2005), algorithm 3.1; the p-values are those of their "Efficient computation
    of adjusted p-values for resampling-based stepdown multiple testing", Statistics and Probability Letters 113 (2016).
    """
    own = np.array([_score(*one) for one in zip(estimates.value, estimates.influence.T, strict=True)])
    known = np.flatnonzero(~np.isnan(own))
    p, adjusted = np.full(len(own), np.nan), np.full(len(own), np.nan)
    if not len(known):
        return Tested(p, adjusted)
    moved = weights @ np.nan_to_num(estimates.influence[:, known])
    scale = np.sqrt((moved**2).mean(axis=0))
    drawn = np.abs(np.divide(moved, scale, out=np.zeros(moved.shape), where=scale > _ROUNDING))
    p[known] = (1 + (drawn >= own[known]).sum(axis=0)) / (len(weights) + 1)
    order = np.argsort(-own[known], kind="stable")
    largest = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    above = (1 + (largest >= own[known][order]).sum(axis=0)) / (len(weights) + 1)
    adjusted[known[order]] = np.maximum.accumulate(above)
    return Tested(p, adjusted)


def t_interval(value: float, influence: np.ndarray, level: float) -> tuple[float, float]:
    """Return the ends of the interval of an estimate by its standard error and Student's t, as its days ask for."""
    error, freedom = _error(influence)
    reach = -stdtrit(freedom, (1 - level) / 2) * error if freedom else np.nan
    return float(value - reach), float(value + reach)


def _error(influence: np.ndarray) -> tuple[float, int]:
    """Return the standard error of an estimate and its degrees of freedom; NaN and 0 where days cannot tell."""
    own = influence[~np.isnan(influence)]
    if len(own) < 2:
        return np.nan, 0
    how = Dependence.of(own, in_blocks=False)
    return float(how.widening * np.sqrt(own @ own)), how.freedom


def _score(value: float, influence: np.ndarray) -> float:
    """Return the normal score of an estimate, without sign; infinite for one that never varies, NaN for one of 0."""
    error, freedom = _error(influence)
    if not freedom or np.isnan(value) or (abs(value) <= _ROUNDING and error <= _ROUNDING):
        return np.nan
    return float(-ndtri(stdtr(freedom, -abs(value) / error))) if error > _ROUNDING else np.inf
