"""The table of results: one row a policy and metric, with estimate and interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, mean_parts, ratio, statistic_interval
from rlwb.evaluation.results import ZERO_BP, PolicyResult, check_same_orders, mean, standard_deviation


class Metric(NamedTuple):
    """A metric of a policy.

    Attributes
    ----------
    title
        Its name in tables.
    meaning
        Its definition in words. PAs are in basis points, rates are shares of 1.
    is_share
        True where it is shown in percent.
    statistic
        Takes sums over orders, float64 of shape ``(B, M)``, to values of shape ``(B,)``.
    """

    title: str
    meaning: str
    is_share: bool = False
    statistic: Callable[[np.ndarray], np.ndarray] = ratio


def _ratio_of_means(sums: np.ndarray) -> np.ndarray:
    """Return mean gain over mean loss from sum and number of gains and of losses, shape ``(B, 4)``."""
    return ratio(np.stack([ratio(sums[:, :2]), ratio(sums[:, 2:])], axis=1))


#: Numbers smaller than this are rounding around 0, in basis points and in shares alike.
ROUNDING = 1e-9

#: Name of the group of all chosen checkpoints.
CHECKPOINTS = "checkpoints"

_OVER_TWAP = "less that of the policy twap on the same order"

METRICS: dict[str, Metric] = {
    "pa": Metric("PA, bp", "mean PA over orders, each order counting the same"),
    "over_twap": Metric("over TWAP, bp", f"mean over orders of the PA {_OVER_TWAP}"),
    "pa_net": Metric("net PA, bp", "mean PA after costs, each order counting the same"),
    "net_over_twap": Metric("net over TWAP, bp", f"mean over orders of the net PA {_OVER_TWAP}"),
    "objective": Metric("objective, bp", "value of the run's objective over the orders' PA, net under costs"),
    "pa_value_weighted": Metric("value-weighted, bp", "mean PA weighted by value at the benchmark"),
    "glr": Metric("gain/loss", "gain-loss ratio: mean gain / |mean loss|", statistic=_ratio_of_means),
    "reward": Metric("reward", "mean reward of an order"),
    "win_rate": Metric("win rate", "share of orders with PA > 0", is_share=True),
    "ffr": Metric("ffr", "mean share of the amount that was filled", is_share=True),
    "untraded": Metric(
        "in untraded bars",
        "mean share of the fills in bars in which nothing is known to have traded",
        is_share=True,
    ),
}
"""All metrics by name, in the sequence of tables.

The gain-loss ratio and the win rate ("POS") are those of Fang et al., "Universal Trading for Order Execution with
Oracle Policy Distillation", AAAI 2021, arXiv:2103.10860, section "Evaluation metrics".
"""


def _order_parts(result: PolicyResult, twap: PolicyResult | None) -> dict[str, np.ndarray]:
    """Return the terms of each metric's sums over orders by its name, float64 of shape ``(orders, M)``."""
    pa, net = result.pa, result.values("pa_net")
    missing = np.full(len(pa), math.nan)
    twap_pa, twap_net = (missing if twap is None else twap.values(name, result) for name in ("pa", "pa_net"))
    value = result.values("valued") * result.values("benchmark")
    gain, loss = pa > ZERO_BP, pa < -ZERO_BP
    gains_and_losses = np.stack([np.where(gain, pa, 0.0), gain, np.where(loss, -pa, 0.0), loss], axis=1)
    gains_and_losses[np.isnan(pa)] = math.nan
    return {
        "pa": mean_parts(pa),
        "over_twap": mean_parts(pa - twap_pa),
        "pa_net": mean_parts(net),
        "net_over_twap": mean_parts(net - twap_net),
        "objective": mean_parts(result.values("objective")),
        "pa_value_weighted": mean_parts(pa, np.where(value > 0, value, math.nan)),
        "glr": gains_and_losses,
        "reward": mean_parts(result.values("reward")),
        "win_rate": mean_parts(np.where(np.isnan(pa), math.nan, gain)),
        "ffr": mean_parts(result.values("ffr")),
        "untraded": mean_parts(result.values("untraded")),
    }


def metric_values(result: PolicyResult, twap: PolicyResult | None = None) -> dict[str, float]:
    """Return all metrics of one policy by name, without intervals; NaN where one cannot be computed.

    Missing values are left out of every metric, never read as 0.

    Parameters
    ----------
    twap
        The result of TWAP on the same orders; without it metrics over TWAP are NaN.
    """
    values = {}
    for name, parts in _order_parts(result, twap).items():
        sums = parts[~np.isnan(parts).any(axis=1)].sum(axis=0, keepdims=True)
        values[name] = float(METRICS[name].statistic(sums)[0])
    return values


def metric_table(
    groups: Mapping[str, Sequence[PolicyResult]],
    *,
    titles: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a group and metric, with estimate and interval; every other table is a view of this one.

    Parameters
    ----------
    groups
        Name to results, usually one each; a group's metric is the mean over its members. All are of the same orders.
        The policy called ``twap`` among them, if any, is the reference of metrics over TWAP.
    titles
        What people read in place of a group's name; by default, for a policy's own name, that of `PolicyResult`.
    level, resamples, seed
        Settings of the day-clustered bootstrap (`rlwb.evaluation.bootstrap`). All groups share the same resampled days,
        so a group's rows do not depend on the others, and row differences are not resampling noise.

    Returns
    -------
    DataFrame
        Columns: `policy` (the group), `title`, `kind`, `n` (members), `distinct`, `iteration`, `validation_pa` (mean
        over members), `orders`, `days`, `pa_missing`, `pa_std` (over the orders of a single member), `metric` (a key of
        `METRICS`), `estimate`, `lo`, `hi`, `standard_error` and `std_checkpoints` (over members);
        `rlwb.evaluation.COLUMNS` says what each means. What cannot be computed is NaN; what is within rounding of 0 is
        0.
    """
    everyone = [result for members in groups.values() for result in members]
    check_same_orders(everyone)
    twap = next((result for result in everyone if result.policy == "twap"), None)
    rows: list[dict[str, object]] = []
    for name, members in groups.items():
        first, is_single = members[0], len(members) == 1
        dates, parts = [one.dates for one in members], [_order_parts(one, twap) for one in members]
        values = [metric_values(one, twap) for one in members]
        about = {
            "policy": name,
            "title": (titles or {}).get(name, _title(name, members)),
            "kind": first.kind,
            "n": len(members),
            "distinct": len({_figures(one, first) for one in members}),
            "iteration": first.iteration if is_single else None,
            "validation_pa": mean(np.array([one.validation_pa for one in members])),
            "orders": len(first.orders),
            "days": len(np.unique(first.dates)),
            "pa_missing": int(sum(np.isnan(one.pa).sum() for one in members)),
            "pa_std": standard_deviation(first.pa) if is_single else math.nan,
        }
        for key, metric in METRICS.items():
            rng = np.random.default_rng(seed)
            terms = [part[key] for part in parts]
            found = statistic_interval(terms, dates, rng, metric.statistic, level=level, resamples=resamples)
            ends = {"estimate": found.estimate, "lo": found.lo, "hi": found.hi, "standard_error": found.standard_error}
            std = standard_deviation(np.array([value[key] for value in values]))
            rows.append({**about, "metric": key, **ends, "std_checkpoints": std})
    table = pd.DataFrame(rows).astype({"iteration": "Int64"})
    numbers = [*table.columns[table.columns.get_loc("estimate") :], "validation_pa", "pa_std"]
    return table.assign(**table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0))


#: What follows a metric's name in tables of one row a policy, by the column of the tidy table.
_ENDS = {"estimate": "", "lo": "_lo", "hi": "_hi", "standard_error": "_se", "std_checkpoints": "_std_checkpoints"}


def wide_name(metric: str, end: str = "") -> str:
    """Return the column of a metric, or of an end of its interval, in tables of one row a policy."""
    return "pa_mean" if (metric, end) == ("pa", "") else f"{metric}{end}"


def _title(name: str, members: Sequence[PolicyResult]) -> str:
    if name == CHECKPOINTS:
        return f"best checkpoints by validation (n = {len(members)})"
    return members[0].display_name if name == members[0].policy else name


def _figures(result: PolicyResult, like: PolicyResult) -> bytes:
    """Return what tells one policy's trades from another's: filled share and price advantage of every order."""
    return b"".join((result.values(name, like) + 0.0).tobytes() for name in ("ffr", "pa"))  # + 0.0 makes -0.0 a 0.0


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a policy of the table, its metrics with their intervals in columns; see `COLUMNS`."""
    about = table.columns[: table.columns.get_loc("metric")]
    frame = table.drop_duplicates("policy")[about].reset_index(drop=True)
    for metric in METRICS:
        rows = table[table["metric"] == metric].reset_index(drop=True)
        frame = frame.assign(**{wide_name(metric, end): rows[column] for column, end in _ENDS.items()})
    return frame


SUMMARY_COLUMNS = (
    *("policy", "kind", "iteration", "validation_pa"),
    *("pa_mean", "pa_std", "pa_lo", "pa_hi", "win_rate", "glr", "ffr"),
    *("orders", "days", "pa_missing", "pa_se"),
    *("over_twap", "over_twap_lo", "over_twap_hi", "pa_value_weighted"),
    *("pa_net", "pa_net_lo", "pa_net_hi"),
    *("net_over_twap", "net_over_twap_lo", "net_over_twap_hi"),
    *("objective", "objective_lo", "objective_hi"),
    "untraded",
)
"""The columns of ``backtest/summary.csv``: a selection of those of `wide`."""


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a policy of the table, with the columns of `SUMMARY_COLUMNS`."""
    return wide(table)[list(SUMMARY_COLUMNS)]
