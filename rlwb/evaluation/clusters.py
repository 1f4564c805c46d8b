"""Intervals of the mean PA by what its orders share: the day, the instrument, or either.

An interval over days is for other days of the same instruments. Where PAs also differ from instrument to instrument,
one that is to hold for other instruments as well takes both into account.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, Draws, Interval, fewest_days, mean_parts, statistic_interval
from rlwb.evaluation.dependence import Dependence
from rlwb.evaluation.metrics import ROUNDING, short_title
from rlwb.evaluation.results import PolicyResult, check_same_orders, mean

METHODS = {
    "order": "every order by itself, as if none shared anything: too narrow, for comparison",
    "day": "orders of a day together, days in blocks where they follow one another: for other days",
    "instrument": "orders of an instrument together: for other instruments on the same days",
    "both": "orders that share the day or the instrument together: for other days and other instruments",
}
"""The units that an interval resamples, orders, days, instruments or both, by name."""

CLUSTER_COLUMNS = ("policy", "title", "kind", "method", "estimate", "lo", "hi", "standard_error", "clusters")
"""The columns of ``backtest/intervals.csv``."""


def cluster_table(
    groups: Mapping[str, Sequence[PolicyResult]], *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return the mean PA of each group with its interval by each of `METHODS`, with the columns of `CLUSTER_COLUMNS`.

    Parameters
    ----------
    groups
        Name to results of the same orders, as in `rlwb.evaluation.metric_table`.
    level, resamples, seed
        Settings of the bootstrap.
    """
    check_same_orders([result for members in groups.values() for result in members])
    draws, rows = Draws(resamples, seed), []
    for name, members in groups.items():
        about = {"policy": name, "title": short_title(name, members), "kind": members[0].kind}
        for method, found in cluster_intervals(members, draws, level=level, resamples=resamples).items():
            ends = {one: getattr(found, one) for one in ("estimate", "lo", "hi", "standard_error")}
            rows.append({**about, "method": method, **ends, "clusters": found.days})
    table = pd.DataFrame(rows, columns=list(CLUSTER_COLUMNS))
    numbers = list(CLUSTER_COLUMNS[4:8])
    return table.assign(**table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0))


def cluster_intervals(
    members: Sequence[PolicyResult], draws: Draws | np.random.Generator, **bootstrap: Any
) -> dict[str, Interval]:
    """Return the interval of the mean PA of policies, their mean counting, by each of `METHODS`.

    That by both is the estimate and Student's t times the root of the variance over days, as of `Dependence.of`, plus
    that over instruments less that over their pairs, which both contain; it is at least the larger of the two. Its
    degrees of freedom are those that Satterthwaite's formula gives to the sum of the two. `Interval.days` is the number
    of clusters; by both, of the fewer ones.

    References
    ----------
    A. C. Cameron, J. B. Gelbach and D. L. Miller, "Robust Inference With Multiway Clustering", Journal of Business &
    Economic Statistics 29 (2011).
    """
    like, level = members[0], bootstrap.get("level", LEVEL)
    pas = [one.values("pa", like) for one in members]
    parts, dates = [mean_parts(pa) for pa in pas], like.dates
    instruments = pd.factorize(like.orders["instrument"], sort=True)[0]
    # Where the members have a PA, what each order adds to the mean of their means.
    influence = np.zeros(len(dates))
    for pa in pas:
        influence += np.nan_to_num(pa - mean(pa)) / max(np.isfinite(pa).sum(), 1) / len(pas)
    known = np.isfinite(pas).any(axis=0)

    def clustered(keys: np.ndarray, **settings: Any) -> Interval:
        codes = keys.astype("datetime64[D]")
        return statistic_interval(parts, [codes] * len(parts), draws, **settings, **bootstrap)

    day, instrument = clustered(dates), clustered(instruments, in_sequence=False)
    first, second = (np.unique(one[known], return_inverse=True)[1] for one in (dates, instruments))
    squares = [_sums(influence[known], one) for one in (first, second, _pairs(first, second))]
    few = fewest_days(level)
    found = {"order": _of_orders(day, influence[known], level), "day": day, "instrument": instrument}
    enough = min(day.days, instrument.days)
    error = lo = hi = math.nan
    if enough >= few:
        how = [Dependence.of(squares[0], in_blocks=False), *(Dependence.none(len(one)) for one in squares[1:])]
        over_days, over_instruments, over_pairs = (
            how.widening**2 * float(sums @ sums) for how, sums in zip(how, squares, strict=True)
        )
        error = math.sqrt(max(over_days + over_instruments - over_pairs, over_days, over_instruments))
        spread = over_days**2 / how[0].freedom + over_instruments**2 / how[1].freedom
        freedom = (over_days + over_instruments) ** 2 / spread if spread else how[0].freedom
        far = -float(stdtrit(freedom, (1 - level) / 2)) * error
        lo, hi = day.estimate - far, day.estimate + far
    return {**found, "both": Interval(day.estimate, lo, hi, error, level, day.orders, day.missing, enough)}


def _of_orders(day: Interval, influence: np.ndarray, level: float) -> Interval:
    """Return the interval of Student's t that takes every order as independent."""
    n = len(influence)
    if n < 2:
        return Interval(day.estimate, math.nan, math.nan, math.nan, level, day.orders, day.missing, n)
    error = math.sqrt(n / (n - 1) * float(influence @ influence))
    far = -float(stdtrit(n - 1, (1 - level) / 2)) * error
    return Interval(day.estimate, day.estimate - far, day.estimate + far, error, level, day.orders, day.missing, n)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)[1]


def _sums(values: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    return np.bincount(cluster, values)
