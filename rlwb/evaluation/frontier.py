"""The frontier of mean and deviation: which points no other passes, and how far the others lie from it.

More mean is better, less deviation is better. Functions take means and deviations of N points, of shape (N,) each; a
point with NaN is on no frontier.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def non_dominated(mean: ArrayLike, deviation: ArrayLike) -> np.ndarray:
    """Return which points no other passes in one of the two without falling behind in the other, bool of shape (N,).

    Of equal points all are kept.
    """
    mean, deviation = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    no_worse = (mean >= mean[:, None]) & (deviation <= deviation[:, None])
    better = (mean > mean[:, None]) | (deviation < deviation[:, None])
    return np.asarray(~(no_worse & better).any(axis=1) & np.isfinite(mean) & np.isfinite(deviation))


def hypervolume(mean: ArrayLike, deviation: ArrayLike, corner: tuple[float, float]) -> float:
    """Return the area that the points dominate within a corner ``(mean, deviation)``, the worst that counts.

    E. Zitzler and L. Thiele, "Multiobjective evolutionary algorithms: a comparative case study and the strength Pareto
    approach", IEEE Transactions on Evolutionary Computation 3 (1999). It is 0 where no point is better than the corner.
    """
    area, least = 0.0, corner[0]
    for own_deviation, own_mean in _front(mean, deviation):
        if own_mean > least and own_deviation < corner[1]:
            area += (own_mean - least) * (corner[1] - own_deviation)
            least = own_mean
    return area


def frontier_mean(at: ArrayLike, mean: ArrayLike, deviation: ArrayLike) -> np.ndarray:
    """Return the most mean that the points give at deviations `at` of shape (M,), float64; NaN below their least.

    Between two points it is the line: to split each order between two policies gives the mean on it, and a deviation
    of at most that on it where trading has no impact. Beyond the point of the most mean it stays there.
    """
    hull: list[tuple[float, float]] = []
    for point in _front(mean, deviation):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    if not hull:
        return np.full(np.shape(at), math.nan)
    deviations, means = zip(*hull, strict=True)
    return np.asarray(np.interp(np.asarray(at, dtype=np.float64), deviations, means, left=math.nan))


def below_frontier(at_mean: ArrayLike, at_deviation: ArrayLike, mean: ArrayLike, deviation: ArrayLike) -> np.ndarray:
    """Return how much more mean the frontier of the points gives at the deviations of M other points than these have.

    Float64 of shape (M,) in the unit of the mean: 0 on the frontier and beyond it, NaN for a point with NaN.
    """
    own = np.asarray(at_mean, dtype=np.float64) + 0.0 * np.asarray(at_deviation, dtype=np.float64)
    more = np.fmax(frontier_mean(at_deviation, mean, deviation) - own, 0.0)
    return np.where(np.isfinite(own), more, math.nan)


def _front(mean: ArrayLike, deviation: ArrayLike) -> list[tuple[float, float]]:
    """Return deviation and mean of each point that is not dominated, once, by rising deviation and so rising mean."""
    kept = non_dominated(mean, deviation)
    deviations, means = np.asarray(deviation)[kept].tolist(), np.asarray(mean)[kept].tolist()
    return sorted(set(zip(deviations, means, strict=True)))


def _slope(first: tuple[float, float], second: tuple[float, float]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])
