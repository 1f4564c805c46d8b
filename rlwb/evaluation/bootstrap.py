"""How sure a mean PA is: a bootstrap that draws whole days.

Orders of one day share its price path, so their PAs are not independent. Drawing orders one by one would make
intervals too narrow; drawing days keeps what belongs together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation.results import PolicyResult, check_same_orders, finite_or_nan

#: Elements of the resampling matrix held at once; bounds memory, not precision.
_CHUNK_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A mean with its day-clustered confidence interval, all in the unit of the values (basis points for PA).

    Attributes
    ----------
    estimate
        The mean of the values as they are, not of the resamples.
    lo, hi
        Ends of the interval; NaN with fewer days than `fewest_days`.
    standard_error
        Standard deviation of the resampled means; NaN with fewer than two days.
    level
        Nominal coverage, for example 0.95.
    orders, missing, days
        Values used, values left out because they are missing, and days with at least one value.
    """

    estimate: float
    lo: float
    hi: float
    standard_error: float
    level: float
    orders: int
    missing: int
    days: int


def fewest_days(level: float) -> int:
    """Return the number of days from which on an interval of this level is given.

    Resampled means lie between the worst and the best of D days, and a true mean as likely above a day as below it lies
    beyond all of them in 2^(1-D) of cases. No interval from fewer days than ``2^(1-D) <= 1 - level`` asks for can hold
    what it promises; two days promise 95 % and hold 50 %.
    """
    _check_settings(level)
    days = 2
    while 2.0 ** (1 - days) > (1 - level) * (1 + 1e-9):
        days += 1
    return days


def too_few_days(days: int, level: float) -> str | None:
    """Say why there is no interval of this level over so many days; None where there is one."""
    if days >= fewest_days(level):
        return None
    if days < 2:
        return "One day of orders gives no interval: nothing tells how days differ."
    held = 100 * (1 - 2.0 ** (1 - days))
    return (
        f"Intervals of {100 * level:g} % take at least {fewest_days(level)} days of orders; there are {days}, and even "
        f"the span from the worst day to the best holds the true mean in {held:.3g} % of cases only."
    )


def day_interval(
    pa: np.ndarray, dates: np.ndarray, rng: np.random.Generator, *, level: float = 0.95, resamples: int = 10_000
) -> Interval:
    """Interval of the equal-weighted mean PA of one policy.

    Parameters
    ----------
    pa
        PA of each order in basis points, shape ``(orders,)``; NaN is left out and counted.
    dates
        Trading day of each order, datetime64 of shape ``(orders,)``.
    rng
        The source of the resamples; the same generator state gives the same interval.
    """
    return average_day_interval([pa], [dates], rng, level=level, resamples=resamples)


def average_day_interval(
    pas: Sequence[np.ndarray],
    dates: Sequence[np.ndarray],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """Interval of the mean over K policies of their mean PAs, all policies living through the same drawn days.

    The D days are drawn D at a time with replacement. With S[k, d] the sum and C[k, d] the count of the PAs of
    policy k on day d, and w[d] how often day d was drawn, a resampled value is
    ``mean_k( sum_d w[d] S[k, d] / sum_d w[d] C[k, d] )``. Few days make plain percentiles too narrow; the
    percentiles are taken further out, where Student's t with D - 1 degrees of freedom puts them.

    References
    ----------
    T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015),
    section 3.4 (the expanded percentile interval).
    """
    _check_settings(level, resamples)
    sums_kd, counts_kd = _day_sums(pas, dates)
    orders, days = int(counts_kd.sum()), counts_kd.shape[1]
    missing = sum(len(pa) for pa in pas) - orders
    estimate = float(_mean_of_ratios(np.ones((1, days)), sums_kd, counts_kd)[0]) if days else math.nan
    if days < 2:
        return Interval(estimate, math.nan, math.nan, math.nan, level, orders, missing, days)
    resampled = np.concatenate(
        [_mean_of_ratios(weights, sums_kd, counts_kd) for weights in _draw_weights(days, resamples, rng)]
    )
    lo, hi = _expanded_percentiles(resampled, days, level)
    return Interval(estimate, lo, hi, float(resampled.std(ddof=1)), level, orders, missing, days)


def statistic_interval(
    parts: np.ndarray,
    dates: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
) -> tuple[float, float, float]:
    """Return a statistic of sums over orders with the ends of its interval, days drawn as in `average_day_interval`.

    Parameters
    ----------
    parts
        What is summed, float64 of shape ``(orders, M)``, without NaN.
    dates
        Trading day of each order, datetime64 of shape ``(orders,)``.
    statistic
        Takes sums of shape ``(B, M)`` to values of shape ``(B,)``; NaN where it cannot be computed. Such resamples are
        left out of the interval.

    Returns
    -------
    estimate, lo, hi
        The ends are NaN with fewer days than `fewest_days`, or when no resample can be computed.
    """
    _check_settings(level, resamples)
    days, index = np.unique(np.asarray(dates).astype("datetime64[D]"), return_inverse=True)
    sums_dm = np.zeros((len(days), parts.shape[1]))
    np.add.at(sums_dm, index, parts)
    estimate = float(statistic(sums_dm.sum(axis=0, keepdims=True))[0])
    if len(days) < fewest_days(level):
        return estimate, math.nan, math.nan
    drawn = _draw_weights(len(days), resamples, rng)
    resampled = np.concatenate([statistic(weights_bd @ sums_dm) for weights_bd in drawn])
    resampled = resampled[~np.isnan(resampled)]
    if not len(resampled):
        return estimate, math.nan, math.nan
    return estimate, *_expanded_percentiles(resampled, len(days), level)


def paired_interval(
    first: PolicyResult,
    second: PolicyResult,
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """Interval of the mean of ``PA(first) - PA(second)`` over the same orders, order by order.

    An order that lacks a PA in either policy is left out and counted as missing.
    """
    return day_interval(paired_difference(first, second), first.dates, rng, level=level, resamples=resamples)


def paired_difference(first: PolicyResult, second: PolicyResult) -> np.ndarray:
    """Return ``PA(first) - PA(second)`` order by order, float64 of shape ``(orders,)``; NaN where one lacks it."""
    check_same_orders([first, second])
    other = second.orders.set_index("order_id")["pa"].reindex(first.orders["order_id"])
    return first.pa - finite_or_nan(other)


def _expanded_percentiles(resampled: np.ndarray, days: int, level: float) -> tuple[float, float]:
    if days < fewest_days(level):
        return math.nan, math.nan
    tail = ndtr(math.sqrt(days / (days - 1)) * stdtrit(days - 1, (1 - level) / 2))
    lo, hi = np.quantile(resampled, [tail, 1 - tail])
    return float(lo), float(hi)


def _day_sums(pas: Sequence[np.ndarray], dates: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and counts by policy and day, each float64 of shape ``(K, D)``; D days have a value."""
    values = [finite_or_nan(pa) for pa in pas]
    keep = [~np.isnan(pa) for pa in values]
    stamps = [np.asarray(day).astype("datetime64[D]") for day in dates]
    for pa, day in zip(values, stamps, strict=True):
        if pa.shape != day.shape:
            raise DataError(f"PAs have shape {pa.shape} but their dates {day.shape}; give one date an order.")
    days = np.unique(np.concatenate([day[k] for day, k in zip(stamps, keep, strict=True)])) if pas else np.array([])
    sums, counts = np.zeros((len(pas), len(days))), np.zeros((len(pas), len(days)))
    for row, (pa, day, k) in enumerate(zip(values, stamps, keep, strict=True)):
        index = np.searchsorted(days, day[k])
        sums[row] = np.bincount(index, weights=pa[k], minlength=len(days))
        counts[row] = np.bincount(index, minlength=len(days))
    return sums, counts


def _draw_weights(days: int, resamples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield how often each day was drawn, float64 of shape ``(some resamples, days)`` a chunk."""
    chunk = max(1, _CHUNK_ELEMENTS // days)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(days, size=(rows, days)) + np.arange(rows)[:, None] * days
        yield np.bincount(drawn.ravel(), minlength=rows * days).reshape(rows, days).astype(np.float64)


def _mean_of_ratios(weights_bd: np.ndarray, sums_kd: np.ndarray, counts_kd: np.ndarray) -> np.ndarray:
    """Return the mean over policies of their weighted means, float64 of shape ``(B,)``.

    A policy without a single PA on the drawn days has no mean there and is left out of that resample.
    """
    counts_bk = weights_bd @ counts_kd.T
    means_bk = np.divide(weights_bd @ sums_kd.T, counts_bk, out=np.zeros_like(counts_bk), where=counts_bk > 0)
    return means_bk.sum(axis=1) / (counts_bk > 0).sum(axis=1)


def _check_settings(level: float, resamples: int = 100) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"The level of an interval is {level}; it must lie between 0 and 1, for example 0.95.")
    if resamples < 100:
        raise ConfigError(f"{resamples} resamples are too few for an interval; use at least 100, better 10000.")
