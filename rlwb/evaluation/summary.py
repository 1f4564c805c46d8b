"""``backtest/summary.csv``: one row a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import Interval, day_interval, paired_difference
from rlwb.evaluation.results import PolicyResult
from rlwb.evaluation.statistics import (
    count_missing,
    gain_loss_ratio,
    mean,
    standard_deviation,
    value_weighted_mean,
    win_rate,
)

#: The columns of the summary, in order. PAs are in basis points, rates are shares of 1.
SUMMARY_COLUMNS = {
    "policy": "name of the policy",
    "kind": "checkpoint, last, baseline, unattainable (it sees the future) or ceiling (a bound, no policy)",
    "iteration": "training iteration; empty for a baseline",
    "validation_pa": "mean PA on the validation orders",
    "pa_mean": "mean PA over orders, each order counting the same",
    "pa_std": "standard deviation of PA over orders",
    "pa_lo": "lower end of the day-clustered interval of pa_mean",
    "pa_hi": "upper end of the day-clustered interval of pa_mean",
    "win_rate": "share of orders with PA > 0",
    "glr": "gain-loss ratio: mean gain / |mean loss|",
    "ffr": "mean share of the amount that was filled",
    "orders": "orders in the table",
    "days": "trading days in the table",
    "pa_missing": "orders without a PA, left out of every PA figure",
    "pa_se": "day-clustered standard error of pa_mean",
    "over_twap": "mean over orders of the PA less that of the policy twap on the same order",
    "over_twap_lo": "lower end of the day-clustered interval of over_twap",
    "over_twap_hi": "upper end of the day-clustered interval of over_twap",
    "pa_value_weighted": "mean PA weighted by value traded at TWAP",
    "pa_net": "mean PA after costs, each order counting the same",
    "pa_net_lo": "lower end of the day-clustered interval of pa_net",
    "pa_net_hi": "upper end of the day-clustered interval of pa_net",
    "net_over_twap": "mean over orders of the net PA less that of the policy twap on the same order",
    "net_over_twap_lo": "lower end of the day-clustered interval of net_over_twap",
    "net_over_twap_hi": "upper end of the day-clustered interval of net_over_twap",
}


def summarise(
    results: Sequence[PolicyResult], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """Return one row a policy with the columns of `SUMMARY_COLUMNS`, in the order of `results`.

    Every policy draws the same days, so a policy's row does not depend on which others are there, and
    differences between rows are not differences between draws.
    """
    twap = next((result for result in results if result.policy == "twap"), None)
    rows = [_row(result, twap, level, resamples, seed) for result in results]
    frame = pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS))
    return frame.astype({"iteration": "Int64", "orders": "int64", "days": "int64", "pa_missing": "int64"})


def _row(result: PolicyResult, twap: PolicyResult | None, level: float, resamples: int, seed: int) -> dict[str, object]:
    def interval_of(pa: np.ndarray) -> Interval:
        return day_interval(pa, result.dates, np.random.default_rng(seed), level=level, resamples=resamples)

    def over_twap(one: PolicyResult, base: PolicyResult | None) -> Interval:
        return interval_of(np.full(len(one.orders), np.nan) if base is None else paired_difference(one, base))

    interval, over = interval_of(result.pa), over_twap(result, twap)
    has_net = "pa_net" in result.orders
    net = result.after_costs() if has_net else None
    net_interval = interval_of(np.full(len(result.orders), np.nan) if net is None else net.pa)
    base = twap.after_costs() if twap is not None and has_net and "pa_net" in twap.orders else None
    net_over = over_twap(result if net is None else net, base)
    return {
        "policy": result.policy,
        "kind": result.kind,
        "iteration": result.iteration,
        "validation_pa": result.validation_pa,
        "pa_mean": interval.estimate,
        "pa_std": standard_deviation(result.pa),
        "pa_lo": interval.lo,
        "pa_hi": interval.hi,
        "win_rate": win_rate(result.pa),
        "glr": gain_loss_ratio(result.pa),
        "ffr": mean(result.orders["ffr"].to_numpy()),
        "orders": len(result.orders),
        "days": len(np.unique(result.dates)),
        "pa_missing": count_missing(result.pa),
        "pa_se": interval.standard_error,
        "over_twap": over.estimate,
        "over_twap_lo": over.lo,
        "over_twap_hi": over.hi,
        "pa_value_weighted": weighted_by_value(result),
        "pa_net": net_interval.estimate,
        "pa_net_lo": net_interval.lo,
        "pa_net_hi": net_interval.hi,
        "net_over_twap": net_over.estimate,
        "net_over_twap_lo": net_over.lo,
        "net_over_twap_hi": net_over.hi,
    }


def weighted_by_value(result: PolicyResult) -> float:
    """Mean PA weighted by ``filled * twap``, in basis points; NaN if the table lacks these columns."""
    if not {"filled", "twap"} <= set(result.orders):
        return float("nan")
    return value_weighted_mean(result.pa, (result.orders["filled"] * result.orders["twap"]).to_numpy())
