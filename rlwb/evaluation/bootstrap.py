"""Confidence intervals from a bootstrap that resamples whole days, in blocks where days follow one another.

Orders of one day share its price path, so their PAs are not independent. Resampling single orders would make intervals
too narrow; resampling days keeps the orders of a day together. Days are not independent either where a good one is
likelier after a good one; what is done then is that of `rlwb.evaluation.dependence`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation.dependence import Dependence, highest
from rlwb.evaluation.results import finite_or_nan

#: Nominal coverage of intervals, and number of resamples, unless told otherwise.
LEVEL, RESAMPLES = 0.95, 10_000

#: Elements of the resampling matrix held at once; bounds memory, not precision.
_CHUNK_ELEMENTS = 2_000_000

#: Standard deviations from the estimate up to which ends are read from resamples; further out they are stretched.
_FARTHEST = 2.0

#: Days from which on intervals were found to hold what they promise, up to an autocorrelation of 0.6.
ENOUGH_DAYS = 12


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
        Standard deviation of the resampled means, wider where the interval is; NaN with fewer than two days.
    level
        Nominal coverage, for example 0.95.
    orders, missing, days
        Values used, values left out because they are missing, and days with at least one value.
    block
        Days in sequence that were drawn together; 1 where single days were drawn.
    autocorrelation
        Of each day's part in the estimate with the next day's; NaN where there is no interval.
    """

    estimate: float
    lo: float
    hi: float
    standard_error: float
    level: float
    orders: int
    missing: int
    days: int
    block: int = 1
    autocorrelation: float = math.nan


def fewest_days(level: float) -> int:
    """Return the smallest number of days for which an interval of this level is given.

    Resampled means lie between the worst and the best of D days. If a day's mean is as likely above the true mean as
    below it, all D days lie on one side of it in 2^(1-D) of cases, so no interval can cover the truth more often than
    in ``1 - 2^(1-D)`` of cases. With two days a 95 % interval would cover it in 50 %.
    """
    return max(2, math.ceil(1 - math.log2((1 - level) * (1 + 1e-9))))


def too_few_days(days: int, level: float) -> str | None:
    """Say why there is no interval of this level over `days` days; None where there is one."""
    if days >= fewest_days(level):
        return None
    if days < 2:
        return "One day of orders gives no interval: nothing tells how days differ."
    held = 100 * (1 - 2.0 ** (1 - days))
    return (
        f"Intervals of {100 * level:g} % take at least {fewest_days(level)} days of orders; there are {days}, and even "
        f"the span from the worst day to the best holds the true mean in {held:.3g} % of cases only."
    )


def how_drawn(days: int, block: int, autocorrelation: float) -> str | None:
    """Say which days were drawn together for an interval, and why; None where there is no interval.

    Parameters
    ----------
    days, block, autocorrelation
        Those of the `Interval`.
    """
    if math.isnan(autocorrelation):
        return None
    most = highest(autocorrelation, days)
    if most <= 0:
        told = (
            f"Good days do not tend to follow good days (autocorrelation {autocorrelation:z.2f}), so days were drawn "
            "one by one."
        )
    else:
        drawn = f"; {block} days in sequence were drawn together" if block > 1 else ""
        told = (
            f"How one day goes may tell of the next (autocorrelation {autocorrelation:z.2f}; {days} days cannot rule "
            f"out {min(most, 1.0):.2f}), and the interval allows for that{drawn}."
        )
    if days < ENOUGH_DAYS:
        told += f" Of fewer than {ENOUGH_DAYS} days it may still be too narrow."
    return told


def day_interval(
    pa: np.ndarray, dates: np.ndarray, rng: np.random.Generator, *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Return the interval of the mean PA of one policy, each order counting the same.

    Parameters
    ----------
    pa : float64 of shape (orders,)
        PA of each order in basis points; NaN is left out and counted.
    dates : datetime64 of shape (orders,)
        Trading day of each order.
    rng
        The source of the resamples; the same generator state gives the same interval.
    """
    return statistic_interval([mean_parts(pa)], [dates], rng, level=level, resamples=resamples)


def mean_parts(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return weighted values and weights, float64 of shape ``(orders, 2)``, whose sums `ratio` makes a mean of.

    Parameters
    ----------
    values, weights : shape (orders,)
        NaN where missing. Without `weights` every value counts the same.
    """
    values = finite_or_nan(values)
    weights = np.where(np.isnan(values), np.nan, 1.0) if weights is None else finite_or_nan(weights)
    return np.stack([values * weights, weights], axis=1)


def ratio(sums: np.ndarray) -> np.ndarray:
    """Divide the first column of ``(B, 2)`` by the second: float64 of shape ``(B,)``, NaN where the second is 0."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.full(len(sums), math.nan), where=sums[:, 1] > 0)


class Draws:
    """Resampled days that several statistics share: the same number of days and length of blocks, the same days.

    Parameters
    ----------
    resamples, seed
        How many resamples, and the seed of each such set of them.
    """

    def __init__(self, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._drawn: dict[tuple[int, int], list[np.ndarray]] = {}

    def __call__(self, days: int, block: int = 1) -> list[np.ndarray]:
        """Return how often each day is drawn, unsigned int of shape ``(B, days)`` each, `resamples` rows in all."""
        if (days, block) not in self._drawn:
            chunks = draw_weights(days, self.resamples, np.random.default_rng(self.seed), block)
            smallest = np.min_scalar_type(days)  # which takes an eighth of the memory
            self._drawn[days, block] = [chunk.astype(smallest) for chunk in chunks]
        return self._drawn[days, block]


def statistic_interval(
    parts: Sequence[np.ndarray],
    dates: Sequence[np.ndarray],
    rng: np.random.Generator | Callable[[int, int], Iterable[np.ndarray]] | None,
    statistic: Callable[..., np.ndarray] = ratio,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    by_order: bool = False,
    in_sequence: bool = True,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Return the average over K policies of a statistic of their orders, with its day-clustered interval.

    The D days with a value are drawn D at a time with replacement. With S[k, d] the sums of policy k on day d, and w[d]
    how often day d was drawn, a resampled value is ``mean_k(statistic(sum_d w[d] S[k, d]))``; a policy without a value
    there is left out of that resample.

    Plain percentiles are too narrow where days are few, and where they follow one another. How much a value moves when
    a day is left out is that day's influence; from the influences in the sequence of time `Dependence.of` takes the
    length of the blocks that days are drawn in, and the standard error with its degrees of freedom. The percentiles are
    taken further out, where Student's t puts them for that standard error; beyond 2 standard deviations of the
    resamples they are those at 2, stretched. For days that do not follow one another these are D - 1 degrees of freedom
    and, up to there, the expanded percentiles of Hesterberg.

    Parameters
    ----------
    parts : K arrays, float64 of shape (orders, M)
        For each policy the terms of the sums; a row with NaN is left out and counted.
    dates : K arrays, datetime64 of shape (orders,)
        For each policy the trading day of each order.
    rng
        The source of the resamples; the same generator state gives the same interval. Or what gives for a number of
        days D and a length of blocks how often each is drawn, in arrays of shape ``(B, D)``, so that several statistics
        share their resamples (`Draws`). None gives the estimate alone.
    statistic
        Takes sums of shape ``(B, M)`` to values of shape ``(B,)``; NaN where it cannot be computed. By default the
        mean of what `mean_parts` returns.
    by_order
        Whether the statistic is none of sums: it takes the terms of one policy, float64 of shape ``(orders, M)``, the
        day of each order, int of shape ``(orders,)``, and how often each day counts, float64 of shape ``(B, D)``.
    in_sequence
        Whether dates have a sequence in time; False for clusters of another kind, which count as independent.
    within
        Least and largest value that the statistic can have; ends are cut there.

    References
    ----------
    T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015),
    section 3.4 (the expanded percentile interval).
    """
    if not 0 < level < 1:
        raise ConfigError(f"The level of an interval is {level}; it must lie between 0 and 1, for example 0.95.")
    if resamples < 100:
        raise ConfigError(f"{resamples} resamples are too few for an interval; use at least 100, better 10000.")
    kept, day_of, days = _by_day(parts, dates)
    orders = sum(map(len, kept))
    missing = sum(len(part) for part in parts) - orders
    sums_kdm = [] if by_order else [day_sums(part, day, days) for part, day in zip(kept, day_of, strict=True)]

    def values(weights_bd: np.ndarray) -> np.ndarray:
        weights_bd = np.asarray(weights_bd, dtype=np.float64)
        if by_order:
            values_kb = np.stack([statistic(part, day, weights_bd) for part, day in zip(kept, day_of, strict=True)])
        else:
            values_kb = np.stack([statistic(weights_bd @ sums_dm) for sums_dm in sums_kdm])
        known = np.isfinite(values_kb)
        count = known.sum(axis=0)
        total = np.where(known, values_kb, 0.0).sum(axis=0)
        return np.divide(total, count, out=np.full(count.shape, math.nan), where=count > 0)

    estimate = float(values(np.ones((1, days)))[0]) if days else math.nan
    if days < 2 or rng is None:
        return Interval(estimate, math.nan, math.nan, math.nan, level, orders, missing, days)
    judged = in_sequence and days >= fewest_days(level)
    left_out = without_each(values, days) if judged else np.full(days, math.nan)
    how = Dependence.of(-left_out) if np.isfinite(left_out).all() else Dependence.none(days)
    drawn = rng(days, how.block) if callable(rng) else draw_weights(days, resamples, rng, how.block)
    resampled = np.concatenate([values(weights_bd) for weights_bd in drawn])
    resampled = resampled[~np.isnan(resampled)]
    lo = hi = error = math.nan
    if len(resampled) > 1:
        error = float(resampled.std(ddof=1)) * how.widening / Dependence.none(days).widening
        if days >= fewest_days(level):
            ends = expanded(resampled, estimate, how.errors(level))
            lo, hi = (min(max(end, within[0]), within[1]) for end in ends)
    return Interval(estimate, lo, hi, error, level, orders, missing, days, how.block, how.autocorrelation)


def without_each(values: Callable[[np.ndarray], np.ndarray], days: int) -> np.ndarray:
    """Return a statistic with each day left out, float64 of shape ``(days,)``.

    Parameters
    ----------
    values
        Takes how often each day counts, float64 of shape ``(B, days)``, to values of shape ``(B,)``.
    """
    chunk, found = max(1, _CHUNK_ELEMENTS // days), np.empty(days)
    for start in range(0, days, chunk):
        rows = np.arange(start, min(start + chunk, days))
        weights = np.ones((len(rows), days))
        weights[rows - start, rows] = 0.0
        found[rows] = values(weights)
    return found


def expanded(resampled: np.ndarray, estimate: float, errors: float) -> tuple[float, float]:
    """Return the ends of an interval that lie so many standard deviations of the resamples from the estimate.

    They are percentiles of the resamples, float64 of shape ``(B,)``, up to 2; further out, where few resamples lie,
    those at 2 are stretched.
    """
    near = min(errors, _FARTHEST)
    tail = ndtr(-near)
    lo, hi = (estimate + errors / near * (end - estimate) for end in np.quantile(resampled, [tail, 1 - tail]).tolist())
    return lo, hi


def _by_day(parts: Sequence[np.ndarray], dates: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Return the rows without NaN and their days 0, 1, …, of shape ``(orders,)``, by policy; and the number of days."""
    kept, stamps = [], []
    for part, day in zip(parts, dates, strict=True):
        if part.shape[:1] != np.shape(day):
            raise DataError(f"PAs have shape {part.shape[:1]} but their dates {np.shape(day)}; give one date an order.")
        keep = ~np.isnan(part).any(axis=1)
        kept.append(part[keep])
        stamps.append(np.asarray(day).astype("datetime64[D]")[keep])
    days = np.unique(np.concatenate(stamps))
    return kept, [np.searchsorted(days, stamp) for stamp in stamps], len(days)


def day_sums(part: np.ndarray, day: np.ndarray, days: int) -> np.ndarray:
    """Return sums by day, float64 of shape ``(D, M)``."""
    sums = np.zeros((days, part.shape[1]))
    np.add.at(sums, day, part)
    return sums


def draw_weights(days: int, resamples: int, rng: np.random.Generator, block: int = 1) -> Iterator[np.ndarray]:
    """Yield how often each day was drawn, float64 of shape ``(resamples of a chunk, days)``.

    Days are drawn in blocks of `block` in sequence, the first day following the last (a circular block bootstrap); of
    the last block as many count as make up the number of days.
    """
    chunk = max(1, _CHUNK_ELEMENTS // days)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        first = rng.integers(days, size=(rows, -(-days // block)))
        drawn = ((first[:, :, None] + np.arange(block)) % days).reshape(rows, -1)[:, :days] if block > 1 else first
        drawn = drawn + np.arange(rows)[:, None] * days
        yield np.bincount(drawn.ravel(), minlength=rows * days).reshape(rows, days).astype(np.float64)
