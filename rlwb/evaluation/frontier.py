"""The frontier of mean and deviation, and what a policy's gain costs in risk.

More mean is better, less deviation is better. Functions of points take the means and deviations of N of them, of shape
(N,) each; a point with NaN is on no frontier.

Policies are compared by the net PA of single orders against their arrival price, whatever the run's benchmark: that is
what happens to the money between decision and fills. Against its own TWAP the policy TWAP has no deviation at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rlwb.evaluation.bootstrap import mean_parts, statistic_interval
from rlwb.evaluation.metrics import CHECKPOINTS, metric_table, wide, wide_name
from rlwb.evaluation.results import PolicyResult, twap_of

#: Metric to what follows ``arrival_`` in the table, beside its interval.
_FIGURES = {
    "pa": "mean",
    "std": "std",
    "cvar": "cvar",
    "over_twap": "mean_over_twap",
    "std_over_twap": "std_over_twap",
    "cvar_over_twap": "cvar_over_twap",
}
#: Kinds of results that nobody could have traded, or only who knows the market's law; they are on no frontier.
BEYOND = ("attainable", "unattainable", "ceiling")


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


def against_arrival(result: PolicyResult) -> PolicyResult:
    """Return a copy whose PA is that against the arrival price, after costs where its fills have any.

    A ceiling is the bound before costs.
    """
    charged = np.zeros(len(result.orders))
    if result.kind != "ceiling":
        with np.errstate(divide="ignore", invalid="ignore"):
            charged = (result.pa - result.after_costs().pa) * result.values("benchmark") / result.values("arrival")
    orders = result.orders.assign(pa=result.values("pa_arrival") - charged)
    return replace(result, orders=orders.drop(columns="pa_net", errors="ignore"))


def frontier_table(groups: Mapping[str, Sequence[PolicyResult]], **bootstrap: Any) -> pd.DataFrame:
    """Return mean, deviation and tail of each group's orders against arrival, with day-clustered intervals.

    Parameters
    ----------
    groups
        Name to results, as in `rlwb.evaluation.metric_table`; the policy ``twap`` among them is what others are over.
    bootstrap
        ``level``, ``resamples`` and ``seed``.

    Returns
    -------
    DataFrame
        Columns: `policy`, `title`, `kind`; `arrival_mean`, `arrival_std`, `arrival_cvar` and the same `_over_twap`, in
        basis points, each with the ends of its interval, `_lo` and `_hi`; `below_frontier`, see the function, of the
        frontier of all policies that know no future; and where orders have the run's objective,
        `objective_over_twap`.
    """
    moved = {name: [*map(against_arrival, one)] for name, one in groups.items()}
    table = wide(metric_table(moved, only=_FIGURES, **bootstrap))
    names = {
        wide_name(name, end): f"arrival_{figure}{end}"
        for name, figure in _FIGURES.items()
        for end in ("", "_lo", "_hi")
    }
    found = table[["policy", "title", "kind", *names]].rename(columns=names)
    own = ~found["kind"].isin(BEYOND)
    at = found["arrival_mean"], found["arrival_std"]
    found["below_frontier"] = np.where(own, below_frontier(*at, at[0][own], at[1][own]), math.nan)
    twap = twap_of(one for members in groups.values() for one in members)
    if twap is not None and "objective" in twap.orders:
        found = found.join(pd.DataFrame([_objective_over(twap, members, **bootstrap) for members in groups.values()]))
    return found


def _objective_over(twap: PolicyResult, members: Sequence[PolicyResult], **bootstrap: Any) -> dict[str, float]:
    rng = np.random.default_rng(bootstrap.pop("seed", 0))
    parts = [mean_parts(one.values("objective") - twap.values("objective", one)) for one in members]
    found = statistic_interval(parts, [one.dates for one in members], rng, **bootstrap)
    name = "objective_over_twap"
    return {name: found.estimate, f"{name}_lo": found.lo, f"{name}_hi": found.hi}


class RiskVerdict(NamedTuple):
    """The risk of the chosen checkpoints beside that of TWAP.

    Attributes
    ----------
    risk
        ``"more"`` where the interval of the difference of deviations lies above 0, or that of CVaR below; ``"less"``
        where that of deviations lies below 0; else ``"unclear"``.
    sentences
        The same for people, with the figures.
    """

    risk: Literal["more", "less", "unclear"]
    sentences: tuple[str, ...]


def risk_verdict(table: pd.DataFrame) -> RiskVerdict | None:
    """Return what a table of `frontier_table` says of the chosen checkpoints; None where it has no differences."""
    rows = {str(row["policy"]): row for row in table.to_dict("records")}
    own, twap = rows.get(CHECKPOINTS), rows.get("twap")
    if own is None or twap is None or math.isnan(own["arrival_std_over_twap_lo"]):
        return None
    wider = own["arrival_std_over_twap_lo"] > 0 or own["arrival_cvar_over_twap_hi"] < 0
    narrower = own["arrival_std_over_twap_hi"] < 0
    risk: Literal["more", "less", "unclear"] = "more" if wider else "less" if narrower else "unclear"
    told = (
        "This test does not tell the chosen checkpoints' risk from TWAP's"
        if risk == "unclear"
        else f"The chosen checkpoints bear {risk} risk than TWAP"
    )
    spread, tail = (
        f"{own[f'arrival_{name}']:z.2f} bp, TWAP's {twap[f'arrival_{name}']:z.2f} bp (difference "
        f"{own[f'arrival_{name}_over_twap']:z.2f}, interval [{own[f'arrival_{name}_over_twap_lo']:z.2f}, "
        f"{own[f'arrival_{name}_over_twap_hi']:z.2f}])"
        for name in ("std", "cvar")
    )
    sentences = [f"{told}: against their arrival prices single orders have a standard deviation of {spread}."]
    sentences.append(f"The worst twentieth of orders has a mean of {tail}.")
    if risk == "more" and own["arrival_mean_over_twap_lo"] > 0:
        sentences += _price_of_risk(own, table[table["kind"] == "baseline"])
    return RiskVerdict(risk, tuple(sentences))


def _price_of_risk(own: Mapping[str, Any], baselines: pd.DataFrame) -> list[str]:
    """Return sentences on a gain that bears more risk: what it gains for it, and which baseline has as much for it."""
    gain, risk = own["arrival_mean_over_twap"], own["arrival_std_over_twap"]
    told = [f"That is a gain of {gain / risk:.2f} bp for each bp of added deviation."] if risk > 0 else []
    equal = (baselines["arrival_mean"] >= own["arrival_mean"]) & (baselines["arrival_std"] <= own["arrival_std"])
    if equal.any():
        best = baselines[equal].sort_values("arrival_mean").iloc[-1]
        mean, deviation = f"{best['arrival_mean']:z.2f} bp", f"{best['arrival_std']:z.2f} bp"
        return [*told, f"{best['title']} has as much mean for no more: {mean} at a deviation of {deviation}."]
    return [*told, "No baseline of this run has as much mean at that deviation or less."]
