"""The tidy table of results: one row a policy and figure, with estimate and interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import Interval, mean_parts, ratio, statistic_interval
from rlwb.evaluation.results import PolicyResult, check_same_orders, finite_or_nan
from rlwb.evaluation.statistics import ZERO_BP, standard_deviation


class Figure(NamedTuple):
    """A figure of a policy.

    Attributes
    ----------
    title
        What tables call it.
    meaning
        What it is. PAs are in basis points, rates are shares of 1.
    parts
        Takes a result, and the result of TWAP, to what is summed over orders, float64 of shape ``(orders, M)``.
    statistic
        What is made of the sums.
    is_share
        Whether it is shown in percent.
    """

    title: str
    meaning: str
    parts: Callable[[PolicyResult, PolicyResult | None], np.ndarray]
    statistic: Callable[[np.ndarray], np.ndarray] = ratio
    is_share: bool = False


def _column(result: PolicyResult, name: str) -> np.ndarray:
    """Return a column of the orders, float64 of shape ``(orders,)``; NaN where the table has none."""
    return finite_or_nan(result.orders[name]) if name in result.orders else np.full(len(result.orders), math.nan)


def _mean_of(name: str) -> Callable[[PolicyResult, PolicyResult | None], np.ndarray]:
    return lambda result, twap: mean_parts(_column(result, name))


def _over_twap(name: str) -> Callable[[PolicyResult, PolicyResult | None], np.ndarray]:
    """Take a figure less that of TWAP on the same order; NaN where one of the two lacks it."""

    def parts(result: PolicyResult, twap: PolicyResult | None) -> np.ndarray:
        if twap is None:
            return np.full((len(result.orders), 2), math.nan)
        other = pd.Series(_column(twap, name), index=twap.orders["order_id"]).reindex(result.orders["order_id"])
        return mean_parts(_column(result, name) - other.to_numpy())

    return parts


def _by_value(result: PolicyResult, twap: PolicyResult | None) -> np.ndarray:
    value = _column(result, "filled") * _column(result, "twap")
    return mean_parts(result.pa, np.where(value > 0, value, math.nan))


def _wins(result: PolicyResult, twap: PolicyResult | None) -> np.ndarray:
    return mean_parts(np.where(np.isnan(result.pa), math.nan, result.pa > ZERO_BP))


def _gains_and_losses(result: PolicyResult, twap: PolicyResult | None) -> np.ndarray:
    """Take sum and number of gains and of losses (GLR of Fang et al., AAAI 2021, arXiv 2103.10860)."""
    pa = result.pa
    gain, loss = pa > ZERO_BP, pa < -ZERO_BP
    parts = np.stack([np.where(gain, pa, 0.0), gain, np.where(loss, -pa, 0.0), loss], axis=1).astype(np.float64)
    parts[np.isnan(pa)] = math.nan
    return parts


def _ratio_of_means(sums: np.ndarray) -> np.ndarray:
    """Mean gain over mean loss from sum and number of gains and of losses."""
    means = np.stack([ratio(sums[:, :2]), ratio(sums[:, 2:])], axis=1)
    return np.divide(means[:, 0], means[:, 1], out=np.full(len(means), math.nan), where=means[:, 1] > 0)


FIGURES: dict[str, Figure] = {
    "pa": Figure("PA, bp", "mean PA over orders, each order counting the same", _mean_of("pa")),
    "over_twap": Figure(
        "over TWAP, bp", "mean over orders of the PA less that of the policy twap on the same order", _over_twap("pa")
    ),
    "pa_net": Figure("net PA, bp", "mean PA after costs, each order counting the same", _mean_of("pa_net")),
    "net_over_twap": Figure(
        "net over TWAP, bp",
        "mean over orders of the net PA less that of the policy twap on the same order",
        _over_twap("pa_net"),
    ),
    "pa_value_weighted": Figure("value-weighted, bp", "mean PA weighted by value traded at TWAP", _by_value),
    "glr": Figure("gain/loss", "gain-loss ratio: mean gain / |mean loss|", _gains_and_losses, _ratio_of_means),
    "reward": Figure("reward", "mean reward of an order", _mean_of("reward")),
    "win_rate": Figure("win rate", "share of orders with PA > 0", _wins, is_share=True),
    "ffr": Figure("ffr", "mean share of the amount that was filled", _mean_of("ffr"), is_share=True),
}
"""All figures by name, in the order of tables."""


def figure_table(
    groups: Mapping[str, Sequence[PolicyResult]], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """Return the tidy table of groups of policies, usually of one each.

    Parameters
    ----------
    groups
        Name to results; a group's figure is the mean over its members. All are of the same orders. The policy called
        ``twap`` among them, if any, is what figures over TWAP are taken against.
    level, resamples, seed
        Of the day-clustered bootstrap (`rlwb.evaluation.bootstrap`). All groups draw the same resampled days, so a
        group's rows do not depend on which others are there, and row differences are not resampling noise.

    Returns
    -------
    DataFrame
        Columns: `policy`, `kind`, `n` (members), `iteration`, `validation_pa` (mean over members), `orders`, `days`,
        `pa_missing` (orders without a PA, left out of every PA figure), `figure` (a name of `FIGURES`), `estimate`,
        `lo`, `hi`, `standard_error`, `std` (standard deviation of the figure over members) and `std_orders` (that of
        the PA over the orders of a single member). What cannot be computed is NaN.
    """
    everyone = [result for members in groups.values() for result in members]
    check_same_orders(everyone)
    twap = next((result for result in everyone if result.policy == "twap"), None)
    rows: list[dict[str, object]] = []
    for name, members in groups.items():
        first = members[0]
        validation = np.array([one.validation_pa for one in members], dtype=np.float64)
        known = validation[~np.isnan(validation)]
        about = {
            "policy": name,
            "kind": first.kind,
            "n": len(members),
            "iteration": first.iteration if len(members) == 1 else None,
            "validation_pa": float(known.mean()) if len(known) else math.nan,
            "orders": len(first.orders),
            "days": len(np.unique(first.dates)),
            "pa_missing": int(sum(np.isnan(one.pa).sum() for one in members)),
            "std_orders": standard_deviation(first.pa) if len(members) == 1 else math.nan,
        }
        for key, figure in FIGURES.items():
            parts = [figure.parts(one, twap) for one in members]
            found = _interval(figure, parts, members, level, resamples, seed)
            single = [_alone(figure, part) for part in parts]
            rows.append(
                {
                    **about,
                    "figure": key,
                    "estimate": found.estimate,
                    "lo": found.lo,
                    "hi": found.hi,
                    "standard_error": found.standard_error,
                    "std": standard_deviation(np.array(single)),
                }
            )
    columns = ["policy", "kind", "n", "iteration", "validation_pa", "orders", "days", "pa_missing", "std_orders"]
    columns += ["figure", "estimate", "lo", "hi", "standard_error", "std"]
    return pd.DataFrame(rows, columns=columns).astype({"iteration": "Int64"})


def _interval(
    figure: Figure,
    parts: Sequence[np.ndarray],
    members: Sequence[PolicyResult],
    level: float,
    resamples: int,
    seed: int,
) -> Interval:
    rng, dates = np.random.default_rng(seed), [one.dates for one in members]
    return statistic_interval(parts, dates, figure.statistic, rng, level=level, resamples=resamples)


def _alone(figure: Figure, parts: np.ndarray) -> float:
    there = ~np.isnan(parts).any(axis=1)
    return float(figure.statistic(parts[there].sum(axis=0, keepdims=True))[0]) if there.any() else math.nan


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a policy, each figure as ``<name>``, ``<name>_lo``, ``<name>_hi``, ``_se`` and ``_std``."""
    about = list(table.columns[: list(table.columns).index("figure")])
    frame = table.drop_duplicates("policy")[about].reset_index(drop=True)
    ends = {"estimate": "", "lo": "_lo", "hi": "_hi", "standard_error": "_se", "std": "_std"}
    for figure in FIGURES:
        rows = table[table["figure"] == figure].reset_index(drop=True)
        frame = frame.assign(**{f"{figure}{end}": rows[column] for column, end in ends.items()})
    return frame


#: The columns of ``backtest/summary.csv``, in order. PAs are in basis points, rates are shares of 1.
SUMMARY_COLUMNS = {
    "policy": "name of the policy",
    "kind": "checkpoint, last, baseline, unattainable (it sees the future) or ceiling (a bound, no policy)",
    "iteration": "training iteration; empty for a baseline",
    "validation_pa": "mean PA on the validation orders",
    "pa_mean": FIGURES["pa"].meaning,
    "pa_std": "standard deviation of PA over orders",
    "pa_lo": "lower end of the day-clustered interval of pa_mean",
    "pa_hi": "upper end of the day-clustered interval of pa_mean",
    "win_rate": FIGURES["win_rate"].meaning,
    "glr": FIGURES["glr"].meaning,
    "ffr": FIGURES["ffr"].meaning,
    "orders": "orders in the table",
    "days": "trading days in the table",
    "pa_missing": "orders without a PA, left out of every PA figure",
    "pa_se": "day-clustered standard error of pa_mean",
    "over_twap": FIGURES["over_twap"].meaning,
    "over_twap_lo": "lower end of the day-clustered interval of over_twap",
    "over_twap_hi": "upper end of the day-clustered interval of over_twap",
    "pa_value_weighted": FIGURES["pa_value_weighted"].meaning,
    "pa_net": FIGURES["pa_net"].meaning,
    "pa_net_lo": "lower end of the day-clustered interval of pa_net",
    "pa_net_hi": "upper end of the day-clustered interval of pa_net",
    "net_over_twap": FIGURES["net_over_twap"].meaning,
    "net_over_twap_lo": "lower end of the day-clustered interval of net_over_twap",
    "net_over_twap_hi": "upper end of the day-clustered interval of net_over_twap",
}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a policy of the tidy table, with the columns of `SUMMARY_COLUMNS`."""
    frame = wide(table).assign(pa_mean=lambda all_: all_["pa"], pa_std=lambda all_: all_["std_orders"])
    return frame[list(SUMMARY_COLUMNS)]
