"""Tests of whether features foretell anything: ridge on earlier days, judged on later ones, with days as clusters.

Forecasts are out of sample: the days are cut into blocks, and each block is forecast by a regression on the days before
it, less a gap. The test is that of Clark and West, "Approximately normal tests for equal predictive accuracy in nested
models", Journal of Econometrics 138 (2007), equation 3.2, of a forecast against the mean: it compares what the two
models would err with the estimation noise of the larger one taken out, so that a useless feature has a mean of 0. Its
standard error takes all that happens on a day as one (Liang and Zeger, "Longitudinal data analysis using generalized
linear models", Biometrika 73, 1986). Several tests are corrected by Holm, "A simple sequentially rejective multiple
test procedure", Scandinavian Journal of Statistics 6 (1979).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlwb.errors import DataError
from rlwb.regression import ridge

#: Blocks of days, of which the first are for fitting alone.
BLOCKS, FIRST = 10, 4
#: Days that are left out between what a forecast is fitted on and what it forecasts.
GAP = 1
#: Penalties of ridge, as multiples of the number of samples, where all columns have a deviation of 1.
PENALTIES = np.logspace(-3, 2, 11)


def block_edges(days: int) -> np.ndarray:
    """Return where the blocks of so many days begin, and the last one's end, int64 of shape ``(BLOCKS + 1,)``.

    Raises
    ------
    DataError
        When a block would be of less than two days.
    """
    if days < 2 * BLOCKS:
        raise DataError(f"{days} training days are too few to tell a forecast from luck; use at least {2 * BLOCKS}.")
    edges: np.ndarray = np.round(np.linspace(0, days, BLOCKS + 1)).astype(np.int64)
    return edges


class DayMoments:
    """Sums of products by day, of which ridge regressions on any days and any columns are made.

    Parameters
    ----------
    values
        What forecasts are made of, float64 of shape ``(N, C)``, finite.
    target
        What is forecast, float64 of shape ``(N,)``, finite.
    day
        Number of each sample's day, int64 of shape ``(N,)``, sorted, of ``0..days-1``.
    days
        How many days there are.
    """

    def __init__(self, values: np.ndarray, target: np.ndarray, day: np.ndarray, days: int) -> None:
        self.values, self.target, self.day = values, target, day
        self.edges = block_edges(days)
        self._start = np.searchsorted(day, np.arange(days + 1))
        parts = zip(self._start[:-1], self._start[1:], strict=True)
        rows = (np.column_stack([np.ones(b - a), values[a:b], target[a:b]]) for a, b in parts)
        self._sums = np.stack([one.T @ one for one in rows])

    def forecast(self, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return forecasts by some columns, and by the mean alone, float64 of shape ``(N,)``; NaN in the first blocks.

        The penalty is the one whose forecasts of each earlier block by the other earlier blocks err least.
        """
        chosen = np.array([0, *(column + 1 for column in columns), self._sums.shape[1] - 1])
        sums = self._sums[:, chosen[:, None], chosen[None, :]]
        made = np.full((2, len(self.target)), np.nan)
        for block in range(FIRST, BLOCKS):
            begin, stop = self.edges[block : block + 2]
            known = [sums[a : min(b, begin - GAP)].sum(axis=0) for a, b in self._spans(block)]
            whole = np.sum(known, axis=0)
            errors = np.zeros(len(PENALTIES))
            for part in known:
                errors += [one @ part @ one for one in _residuals(whole - part)]
            constant, slopes = -(best := _residuals(whole)[int(np.argmin(errors))])[0], -best[1:-1]
            here = slice(self._start[begin], self._start[stop])
            made[0, here] = constant + self.values[here][:, list(columns)] @ slopes
            made[1, here] = whole[0, -1] / whole[0, 0]
        return made[0], made[1]

    def _spans(self, block: int) -> list[tuple[int, int]]:
        return list(zip(self.edges[:block].tolist(), self.edges[1 : block + 1].tolist(), strict=True))


def _residuals(sums: np.ndarray) -> np.ndarray:
    """Return by penalty what the residual is made of: weights of ``[1, values, target]``, of shape ``(P, C + 2)``."""
    count = sums[0, 0]
    mean = sums[0, 1:] / count
    covariance = sums[1:, 1:] / count - np.outer(mean, mean)
    varies = np.append(np.diag(covariance)[:-1] > (1e-9 * (1 + np.abs(mean[:-1]))) ** 2, True)  # else it says nothing
    covariance = covariance * varies * varies[:, None]
    slopes = ridge(covariance[:-1, :-1], covariance[:-1, -1], PENALTIES)
    constant = mean[-1] - slopes @ mean[:-1]
    return np.column_stack([-constant, -slopes, np.ones(len(PENALTIES))])


def clustered_t(values: np.ndarray, day: np.ndarray) -> tuple[float, int]:
    """Return the t statistic of a mean, with days as clusters, and how many days there are.

    The variance of the mean is ``G / (G - 1) * sum over days of (sum of a day's deviations) ** 2 / N ** 2`` for G days;
    NaN where it is 0.
    """
    _, group = np.unique(day, return_inverse=True)
    days = int(group.max(initial=-1)) + 1
    by_day = np.bincount(group, values - values.mean(), minlength=days)
    if days < 2 or not (variance := days / (days - 1) * float(by_day @ by_day)) > 0:
        return float("nan"), days
    return float(values.sum() / np.sqrt(variance)), days


def holm(p: np.ndarray) -> np.ndarray:
    """Return p values corrected for how many there are; NaN, which is no test, stays and is not counted."""
    adjusted = np.full(len(p), np.nan)
    tests = np.flatnonzero(np.isfinite(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    steps = p[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
