"""Small result tables for the tests of this room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from rlwb.evaluation import PolicyResult, metric_table, summary
from rlwb.evaluation.dependence import Dependence


def order_table(pa: Sequence[float], *, days: int = 1, instruments: Sequence[str] = ("A",), **columns) -> pd.DataFrame:
    """Make a result table; order i falls on day ``i % days`` and instrument ``i % len(instruments)``."""
    number = np.arange(len(pa))
    table = pd.DataFrame(
        {
            "order_id": [f"order-{i}" for i in number],
            "instrument": [instruments[i % len(instruments)] for i in number],
            "date": pd.Timestamp("2023-05-04") + pd.to_timedelta(number % days, unit="D"),
            "valued": 100.0,
            "benchmark": 10.0,
            "pa": np.asarray(pa, dtype=np.float64),
            "ffr": 1.0,
            "untraded": 0.0,
        }
    )
    return table.assign(**columns)


def checkpoint(pa: Sequence[float], iteration: int = 1, validation_pa: float = 2.0, **table) -> PolicyResult:
    """Make the result of a chosen checkpoint with a two-step inventory."""
    orders = order_table(pa, **table)
    inventory = np.tile([1.0, 0.4, 0.0], (len(orders), 1))
    return PolicyResult(f"checkpoint-{iteration:04d}", "checkpoint", orders, iteration, validation_pa, inventory)


def unattainable(pa: Sequence[float], policy: str = "teacher", **table) -> PolicyResult:
    """Make the result of a policy that sees the future."""
    return PolicyResult(policy, "unattainable", order_table(pa, **table))


def ceiling(pa: Sequence[float], policy: str = "hindsight", **table) -> PolicyResult:
    """Make the result of a bound, which has no inventory."""
    return PolicyResult(policy, "ceiling", order_table(pa, **table))


def baseline(pa: Sequence[float], policy: str = "twap", **table) -> PolicyResult:
    """Make the result of a baseline."""
    orders = order_table(pa, **table)
    return PolicyResult(policy, "baseline", orders, inventory=np.tile([1.0, 0.5, 0.0], (len(orders), 1)))


def summarise(results: Sequence[PolicyResult], **settings) -> pd.DataFrame:
    """Make the summary of single policies."""
    return summary(metric_table({one.policy: [one] for one in results}, **settings))


def attainable(pa: Sequence[float], policy: str = "filter_optimum", **table) -> PolicyResult:
    """Make the result of the best policy of a known law."""
    return PolicyResult(policy, "attainable", order_table(pa, **table))


def slow_interval(
    statistic: Callable[..., float], samples: Sequence[tuple[np.ndarray, np.ndarray]], seed: int, resamples: int
) -> tuple[float, float, float]:
    """Draw days, or blocks of them, one by one, string their orders together, and take the statistic.

    `samples` are values of orders with their days 0, 1, …; returned are the ends of the 95 % interval and its error.
    """
    days = int(max(day.max() for _, day in samples)) + 1

    def of(drawn: Sequence[int]) -> float:
        return statistic(*(np.concatenate([values[day == one] for one in drawn]) for values, day in samples))

    left_out = np.array([of([other for other in range(days) if other != one]) for one in range(days)])
    how, estimate = Dependence.of(-left_out), of(range(days))
    starts = np.random.default_rng(seed).integers(days, size=(resamples, math.ceil(days / how.block)))
    values = [of([(one + i) % days for one in row for i in range(how.block)][:days]) for row in starts]
    errors = how.widening * t.ppf(0.975, how.freedom)
    near = min(errors, 2.0)
    lo, hi = (estimate + errors / near * (np.quantile(values, norm.cdf(side * near)) - estimate) for side in (-1, 1))
    return lo, hi, float(np.std(values, ddof=1)) * how.widening / math.sqrt(days / (days - 1))
