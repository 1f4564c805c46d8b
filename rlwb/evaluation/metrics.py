"""The table of results: one row a policy and metric, with estimate and interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, Draws, Interval, mean_parts, ratio, statistic_interval
from rlwb.evaluation.results import (
    ZERO_BP,
    PolicyResult,
    best_rule,
    check_same_orders,
    mean,
    of_kind,
    standard_deviation,
    twap_of,
)


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
    statistic, by_order
        See `rlwb.evaluation.statistic_interval`.
    has_interval
        Whether resampled days can say how it would differ; not of an observed extreme.
    within
        Least and largest value that it can have.
    """

    title: str
    meaning: str
    is_share: bool = False
    statistic: Callable[..., np.ndarray] = ratio
    by_order: bool = False
    has_interval: bool = True
    within: tuple[float, float] = (-math.inf, math.inf)


def _ratio_of_means(sums: np.ndarray) -> np.ndarray:
    """Return mean gain over mean loss from sum and number of gains and of losses, shape ``(B, 4)``."""
    return ratio(np.stack([ratio(sums[:, :2]), ratio(sums[:, 2:])], axis=1))


def _spread(sums: np.ndarray) -> np.ndarray:
    """Return the sample standard deviation from sums of x, x² and 1, of shape ``(B, 3)`` or wider."""
    n = np.where(sums[:, 2] > 1, sums[:, 2], math.nan)
    return np.asarray(np.sqrt(np.maximum(sums[:, 1] - sums[:, 0] ** 2 / n, 0.0) / (n - 1)))


def _gain_per_spread(sums: np.ndarray) -> np.ndarray:
    """Return mean over standard deviation from sums of x less c, its square, 1 and c, of shape ``(B, 4)``."""
    spread, centre = _spread(sums), ratio(np.stack([sums[:, 0] + sums[:, 3], sums[:, 2]], axis=1))
    return ratio(np.stack([centre, np.where(spread > ZERO_BP, spread, 0.0)], axis=1))


def _root_mean(sums: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(ratio(sums)))


def _worst_orders(values: np.ndarray, day: np.ndarray, weights_bd: np.ndarray) -> np.ndarray:
    """Return the mean of the worst `TAIL` of the orders; one at the boundary counts in part."""
    order = np.argsort(values[:, 0], kind="stable")
    count = np.bincount(day, minlength=weights_bd.shape[1])
    return _least_mean(values[order, 0], day[order], weights_bd, weights_bd @ count * TAIL)


@numba.njit(cache=True)
def _least_mean(values: np.ndarray, day: np.ndarray, weights: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the mean of the first `size` of ascending values, each as often as its day is drawn; of shape (B,)."""
    means = np.full(len(size), np.nan)
    for b in range(len(size)):
        left, total = size[b], 0.0
        for i in range(len(values)):
            part = min(weights[b, day[i]], left)
            total += part * values[i]
            left -= part
            if left <= 0.0:
                break
        if size[b] > 0.0:
            means[b] = total / size[b]
    return means


def _worst_day(values: np.ndarray, day: np.ndarray, weights_bd: np.ndarray) -> np.ndarray:
    """Return the least mean of a day among those that are drawn and have one."""
    count, total = (np.bincount(day, one, minlength=weights_bd.shape[1]) for one in (None, values[:, 0]))
    means = ratio(np.stack([total, count], axis=1))
    return np.asarray(np.where((weights_bd > 0) & (count > 0), means, math.inf).min(axis=1))


def _difference(statistic: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the statistic of the first half of the terms less that of the second half."""

    def less(terms: np.ndarray, *more: np.ndarray) -> np.ndarray:
        half = terms.shape[1] // 2
        return statistic(terms[:, :half], *more) - statistic(terms[:, half:], *more)

    return less


#: Share of the orders that are the worst ones of CVaR.
TAIL = 0.05

#: Numbers smaller than this are rounding around 0, in basis points and in shares alike.
ROUNDING = 1e-9

#: Name of the group of all chosen checkpoints.
CHECKPOINTS = "checkpoints"

_NET = "of the net PA of single orders"
_LESS = "less that of the policy twap, of the orders that have a net PA under both"
_OVER_TWAP = "less that of the policy twap on the same order"
_SHARE, _POSITIVE = (0.0, 1.0), (0.0, math.inf)

METRICS: dict[str, Metric] = {
    "pa": Metric("PA, bp", "mean PA over orders, each order counting the same"),
    "over_twap": Metric("over TWAP, bp", f"mean over orders of the PA {_OVER_TWAP}"),
    "pa_net": Metric("net PA, bp", "mean PA after costs, each order counting the same"),
    "net_over_twap": Metric("net over TWAP, bp", f"mean over orders of the net PA {_OVER_TWAP}"),
    "over_rule": Metric(
        "over the best rule, bp",
        "mean over orders of the PA, net under costs, or of the objective's value, less that of the best simple rule",
    ),
    "attained": Metric(
        "of the attainable", "mean PA as a share of that of the policy that is attainable", is_share=True
    ),
    "objective": Metric("objective, bp", "value of the run's objective over the orders' PA, net under costs"),
    "pa_value_weighted": Metric("value-weighted, bp", "mean PA weighted by value at the benchmark"),
    "glr": Metric("gain/loss", "gain-loss ratio: mean gain / |mean loss|", statistic=_ratio_of_means, within=_POSITIVE),
    "reward": Metric("reward", "mean reward of an order"),
    "win_rate": Metric("win rate", "share of orders with PA > 0", is_share=True, within=_SHARE),
    "ffr": Metric("ffr", "mean share of the amount that was filled", is_share=True, within=_SHARE),
    "untraded": Metric(
        "in untraded bars",
        "mean share of the fills in bars in which nothing is known to have traded",
        is_share=True,
        within=_SHARE,
    ),
    "std": Metric("std, bp", f"standard deviation {_NET}", statistic=_spread, within=_POSITIVE),
    "downside": Metric(
        "downside, bp",
        f"downside deviation {_NET}: root mean square of losses",
        statistic=_root_mean,
        within=_POSITIVE,
    ),
    "cvar": Metric("CVaR 95 %, bp", f"mean {_NET} of the worst 5 % of them", statistic=_worst_orders, by_order=True),
    "worst_day": Metric(
        "worst day, bp",
        f"mean {_NET} of the day with the worst",
        statistic=_worst_day,
        by_order=True,
        has_interval=False,
    ),
    "gain_per_std": Metric("mean/std", f"mean over standard deviation {_NET}", statistic=_gain_per_spread),
    "std_over_twap": Metric("std over TWAP, bp", f"std {_LESS}", statistic=_difference(_spread)),
    "cvar_over_twap": Metric(
        "CVaR over TWAP, bp", f"cvar {_LESS}", statistic=_difference(_worst_orders), by_order=True
    ),
    "unfilled": Metric(
        "unfilled", "share of the orders' value at the benchmark that stayed open", is_share=True, within=_SHARE
    ),
    "pa_unfilled": Metric("unfilled PA, bp", "mean over orders of what the part left open adds to the PA, or would"),
}
"""All metrics by name, in the sequence of tables.

The gain-loss ratio and the win rate ("POS") are those of Fang et al., "Universal Trading for Order Execution with
Oracle Policy Distillation", AAAI 2021, arXiv:2103.10860, section "Evaluation metrics". CVaR is that of Rockafellar and
Uryasev, "Optimization of conditional value-at-risk", Journal of Risk 2 (2000), of PAs rather than losses.
"""

RISK = tuple(METRICS)[tuple(METRICS).index("std") :]
"""The metrics of risk, which stand in a table of their own."""


class Beside(NamedTuple):
    """The results that others are compared with, of the same orders.

    Attributes
    ----------
    twap
        The policy ``twap``.
    rule
        The best simple rule.
    attainable
        The policy that is attainable.
    """

    twap: PolicyResult | None = None
    rule: PolicyResult | None = None
    attainable: PolicyResult | None = None

    @classmethod
    def of(cls, results: Sequence[PolicyResult]) -> Beside:
        """Return those among the results, None where one is not there."""
        twap = twap_of(results)
        return cls(twap, best_rule(results), next(iter(of_kind(results, "attainable")), None))


def order_terms(result: PolicyResult, beside: Beside | None = None) -> dict[str, np.ndarray]:
    """Return the terms of each metric's sums over orders by its name, float64 of shape ``(orders, M)``."""
    twap, best, most = beside or Beside()
    pa, net = result.pa, result.values("pa_net")
    risk, other = result.after_costs().pa, None if twap is None else twap.after_costs().values("pa", result)
    both = np.stack([risk, np.full(len(pa), math.nan) if other is None else other], axis=1)
    both[np.isnan(both).any(axis=1)] = math.nan
    worth = result.values("amount") * result.values("benchmark")
    missing = np.full(len(pa), math.nan)
    twap_pa, twap_net = (missing if twap is None else twap.values(name, result) for name in ("pa", "pa_net"))
    gained = missing if best is None else result.values(best.judged_by) - best.values(best.judged_by, result)
    has_share = most is not None and abs(mean(most.pa)) > ZERO_BP  # of nothing there is no share
    shared = np.stack([pa, most.values("pa", result) if most is not None and has_share else missing], axis=1)
    shared[np.isnan(shared).any(axis=1)] = math.nan
    value = result.values("valued") * result.values("benchmark")
    gain, loss = pa > ZERO_BP, pa < -ZERO_BP
    gains_and_losses = np.stack([np.where(gain, pa, 0.0), gain, np.where(loss, -pa, 0.0), loss], axis=1)
    gains_and_losses[np.isnan(pa)] = math.nan
    return {
        "pa": mean_parts(pa),
        "over_twap": mean_parts(pa - twap_pa),
        "pa_net": mean_parts(net),
        "net_over_twap": mean_parts(net - twap_net),
        "over_rule": mean_parts(gained),
        "attained": shared,
        "objective": mean_parts(result.values("objective")),
        "pa_value_weighted": mean_parts(pa, np.where(value > 0, value, math.nan)),
        "glr": gains_and_losses,
        "reward": mean_parts(result.values("reward")),
        "win_rate": mean_parts(np.where(np.isnan(pa), math.nan, gain)),
        "ffr": mean_parts(result.values("ffr")),
        "untraded": mean_parts(result.values("untraded")),
        "std": _moments(risk)[:, :3],
        "downside": mean_parts(np.minimum(risk, 0.0) ** 2),
        "cvar": risk[:, None],
        "worst_day": risk[:, None],
        "gain_per_std": _moments(risk),
        "std_over_twap": np.hstack([_moments(both[:, 0])[:, :3], _moments(both[:, 1])[:, :3]]),
        "cvar_over_twap": both,
        "unfilled": mean_parts(1.0 - result.values("ffr"), np.where(worth > 0, worth, math.nan)),
        "pa_unfilled": mean_parts(result.values("pa_unfilled")),
    }


def _moments(values: np.ndarray) -> np.ndarray:
    """Return values less their mean, the squares of these, 1 and the mean: the terms of `_spread`, ``(orders, 4)``."""
    centre = mean(values)
    moved = values - centre
    known = np.where(np.isnan(values), math.nan, 1.0)
    return np.stack([moved, moved**2, known, known * centre], axis=1)


def metric_values(
    result: PolicyResult,
    twap: PolicyResult | None = None,
    rule: PolicyResult | None = None,
    attainable: PolicyResult | None = None,
) -> dict[str, float]:
    """Return all metrics of one policy by name, without intervals; NaN where one cannot be computed.

    Missing values are left out of every metric, never read as 0.

    Parameters
    ----------
    twap, rule, attainable
        What it is compared with, as in `Beside`, on the same orders; a metric over a result that is not there is NaN.
    """
    return _estimates(order_terms(result, Beside(twap, rule, attainable)), result.dates)


def _estimates(terms: Mapping[str, np.ndarray], dates: np.ndarray) -> dict[str, float]:
    """Return metrics by name from their `order_terms` and the orders' days."""
    return {name: _found([terms[name]], [dates], None, METRICS[name]).estimate for name in METRICS}


def _found(
    parts: Sequence[np.ndarray], dates: Sequence[np.ndarray], draws: Any, metric: Metric, **bootstrap: Any
) -> Interval:
    drawn = draws if metric.has_interval else None
    settings: dict[str, Any] = {"by_order": metric.by_order, "within": metric.within}
    return statistic_interval(parts, dates, drawn, metric.statistic, **settings, **bootstrap)


def metric_difference(
    first: PolicyResult, second: PolicyResult, metric: str, rng: np.random.Generator, **bootstrap: Any
) -> Interval:
    """Return the interval of a metric of one policy less that of another, on the orders that both have it of.

    Both are of the same resampled days, so what they share cancels; that of ``"pa"`` is the mean of the differences,
    order by order. `bootstrap` are ``level`` and ``resamples``.
    """
    check_same_orders([first, second])
    known, one = METRICS[metric], order_terms(first)[metric]
    order = pd.Index(second.orders["order_id"]).get_indexer(first.orders["order_id"])
    terms = np.hstack([one, order_terms(second)[metric][order]])
    less = known._replace(statistic=_difference(known.statistic), within=(-math.inf, math.inf))
    return _found([terms], [first.dates], rng, less, **bootstrap)


def metric_table(
    groups: Mapping[str, Sequence[PolicyResult]],
    *,
    titles: Mapping[str, str] | None = None,
    only: Collection[str] = METRICS.keys(),
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a group and metric, with estimate and interval; every other table is a view of this one.

    Parameters
    ----------
    groups
        Name to results, usually one each; a group's metric is the mean over its members. All are of the same orders.
        Those among them that others are compared with are found by `Beside.of`.
    titles
        What people read in place of a group's name; by default, for a policy's own name, that of `PolicyResult`.
    only
        Names of the metrics that are wanted.
    level, resamples, seed
        Settings of the day-clustered bootstrap (`rlwb.evaluation.bootstrap`). Groups share their resampled days, so
        a group's rows do not depend on the others. How long blocks of days are is decided for each figure by itself.

    Returns
    -------
    DataFrame
        Columns: `policy` (the group), `title`, `kind`, `n` (members), `distinct`, `iteration`, `validation_pa` (mean
        over members), `orders`, `days`, `pa_missing`, `pa_std` (over the orders of a single member), `metric` (a key of
        `METRICS`), `estimate`, `lo`, `hi`, `standard_error`, `std_checkpoints` (over members), and how days were drawn:
        `autocorrelation` and `block_days` (`rlwb.evaluation.bootstrap.Interval`);
        `rlwb.evaluation.COLUMNS` says what each means. What cannot be computed is NaN; what is within rounding of 0 is
        0.
    """
    everyone = [result for members in groups.values() for result in members]
    check_same_orders(everyone)
    beside = Beside.of(everyone)
    rows: list[dict[str, object]] = []

    draws = Draws(resamples, seed)
    for name, members in groups.items():
        first, is_single = members[0], len(members) == 1
        dates, parts = [one.dates for one in members], [order_terms(one, beside) for one in members]
        # Of a single member there is no deviation.
        values = [] if is_single else [_estimates(*one) for one in zip(parts, dates, strict=True)]
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
        for key in [metric for metric in METRICS if metric in only]:
            terms = [part[key] for part in parts]
            found = _found(terms, dates, draws, METRICS[key], level=level, resamples=resamples)
            ends = {"estimate": found.estimate, "lo": found.lo, "hi": found.hi, "standard_error": found.standard_error}
            std = standard_deviation(np.array([value[key] for value in values]))
            how = {"autocorrelation": found.autocorrelation, "block_days": found.block}
            rows.append({**about, "metric": key, **ends, "std_checkpoints": std, **how})
    table = pd.DataFrame(rows).astype({"iteration": "Int64"})
    numbers = [*table.columns[table.columns.get_loc("estimate") :], "validation_pa", "pa_std"]
    return table.assign(**table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0))


#: What follows a metric's name in tables of one row a policy, by the column of the tidy table.
_ENDS = {"estimate": "", "lo": "_lo", "hi": "_hi", "standard_error": "_se", "std_checkpoints": "_std_checkpoints"}


def ends_of(metric: str) -> dict[str, str]:
    """Return the columns of the tidy table that a metric has, to what follows its name in a wide one."""
    bare = ("lo", "hi", "standard_error")
    return {name: end for name, end in _ENDS.items() if METRICS[metric].has_interval or name not in bare}


def wide_name(metric: str, end: str = "") -> str:
    """Return the column of a metric, or of an end of its interval, in tables of one row a policy."""
    return "pa_mean" if (metric, end) == ("pa", "") else f"{metric}{end}"


def short_title(name: str, members: Sequence[PolicyResult]) -> str:
    """Return what figures and narrow tables call a group of results."""
    return "chosen checkpoints" if name == CHECKPOINTS else members[0].display_name


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
    columns: dict[str, np.ndarray] = {}
    for metric in METRICS:
        rows = table[table["metric"] == metric]
        for column, end in ends_of(metric).items():
            columns[wide_name(metric, end)] = rows[column].to_numpy() if len(rows) else np.full(len(frame), np.nan)
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)


SUMMARY_COLUMNS = (
    *("policy", "kind", "iteration", "validation_pa"),
    *("pa_mean", "pa_std", "pa_lo", "pa_hi", "win_rate", "glr", "ffr"),
    *("orders", "days", "pa_missing", "pa_se"),
    *("over_twap", "over_twap_lo", "over_twap_hi", "pa_value_weighted"),
    *("pa_net", "pa_net_lo", "pa_net_hi"),
    *("net_over_twap", "net_over_twap_lo", "net_over_twap_hi"),
    *("objective", "objective_lo", "objective_hi"),
    "untraded",
    *(wide_name(name, end) for name in RISK for end in ("", "_lo", "_hi") if not end or METRICS[name].has_interval),
)
"""The columns of ``backtest/summary.csv``: a selection of those of `wide`."""


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a policy of the table, with the columns of `SUMMARY_COLUMNS`."""
    return wide(table)[list(SUMMARY_COLUMNS)]
