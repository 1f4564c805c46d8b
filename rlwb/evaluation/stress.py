"""The stress matrix judged: means and risks under every condition, and whether the best policy stays the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import (
    LEVEL,
    RESAMPLES,
    Draws,
    day_sums,
    fewest_days,
    mean_parts,
    statistic_interval,
)
from rlwb.evaluation.dependence import Dependence
from rlwb.evaluation.metrics import CHECKPOINTS, METRICS, ROUNDING
from rlwb.evaluation.multiplicity import Estimates, step_down
from rlwb.evaluation.results import mean

#: Metrics of every policy under every condition, then those of the comparison with the best of the base.
STRESS_METRICS = ("pa_net", "cvar", "ffr", "net_over_twap", "over_winner", "first")
#: Kinds of results that could be traded, and so can be the best.
CONTENDERS = ("checkpoint", "baseline", "policy")
STRESS_COLUMNS = (
    *("condition", "family", "level", "policy", "kind", "metric", "estimate", "lo", "hi", "p", "p_adjusted"),
    *("orders", "days"),
)
"""The columns of ``stress/conditions.csv``."""


@dataclass(frozen=True)
class _Row:
    """A policy's orders under a condition: means over its members, float64 of shape (N,), and the members' own."""

    policy: str
    kind: str
    dates: np.ndarray
    net: np.ndarray
    ffr: np.ndarray
    members: Sequence[np.ndarray]


@dataclass(frozen=True)
class StressTable:
    """The stress matrix of a run.

    Attributes
    ----------
    table
        One row a condition, policy and metric, with the columns of `STRESS_COLUMNS`.
    winner
        The contender with the best mean net PA in the first condition, the base; None without contenders.
    everywhere
        Share of resamples of days in which it is the best under all conditions at once; NaN without one.
    block
        Days in sequence that were drawn together.
    """

    table: pd.DataFrame
    winner: str | None
    everywhere: float
    block: int


def stress_table(
    results: Mapping[str, pd.DataFrame],
    places: Mapping[str, tuple[str, float | None]],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> StressTable:
    """Return the stress matrix of what policies' orders came to under each condition.

    Rows of the kind ``checkpoint`` are put together as one policy, each order with their mean; the CVaR is the mean of
    theirs. All figures are of the same resampled days under all conditions, so that what conditions and policies share
    cancels.

    Parameters
    ----------
    results
        By condition, the base first: columns `policy`, `kind`, `order_id`, `date`, `pa_net` and `ffr`.
    places
        Family of each condition, and its level.
    level, resamples, seed
        Settings of the bootstrap over days.

    Notes
    -----
    ``net_over_twap`` is tested for every policy under all conditions, and ``over_winner``, a contender's net PA less
    the winner's on the same orders, for all contenders under all conditions; tests are two-sided and corrected by
    `step_down` for their number: that of the conditions, and that of all pairs. ``first`` is the share of resamples in
    which a contender has the best mean; equal ones share it. The blocks that days are drawn in are the longest that the
    contenders' gains over TWAP in the base ask for (`rlwb.evaluation.dependence`).
    """
    grids = {condition: _grid(frame) for condition, frame in results.items()}
    base = next(iter(grids.values()))
    days = np.unique(np.concatenate([rows[0].dates for rows in grids.values()]))
    known = {row.policy: mean(row.net) for row in base if row.kind in CONTENDERS and np.isfinite(row.net).any()}
    winner = max(known, key=lambda name: known[name], default=None)
    draws, block = Draws(resamples, seed), _block(base, days)
    weights = np.concatenate([chunk.astype(np.float64) for chunk in draws(len(days), block)])
    bootstrap: dict[str, Any] = {"level": level, "resamples": resamples}
    made: list[dict[str, Any]] = []
    tests: dict[str, list[tuple[int, Estimates]]] = {}
    held = []
    for condition, rows in grids.items():
        by_name = {row.policy: row for row in rows}
        twap, best = by_name.get("twap"), by_name.get(winner or "")
        place = np.searchsorted(days, rows[0].dates)
        about = dict(zip(("condition", "family", "level"), (condition, *places[condition]), strict=True))
        about |= {"orders": len(place), "days": len(np.unique(place))}
        for row in rows:
            parts = {"pa_net": [mean_parts(row.net)], "cvar": [one[:, None] for one in row.members]}
            parts["ffr"] = [mean_parts(row.ffr)]
            compared = {"net_over_twap": (twap, row.policy)}
            if row.kind in CONTENDERS and best is not None and row is not best:
                compared["over_winner"] = (best, "")
            for metric, (other, family) in compared.items():
                less = row.net - (np.nan if other is None else other.net)
                parts[metric] = [mean_parts(less)]
                if other is not row:
                    at = len(made) + [*parts].index(metric)
                    tests.setdefault(family, []).append((at, Estimates.of_means(less[:, None], place, len(days))))
            for metric, terms in parts.items():
                how = METRICS["net_over_twap" if metric == "over_winner" else metric]
                found = statistic_interval(
                    terms, [row.dates] * len(terms), draws, how.statistic, by_order=how.by_order, **bootstrap
                )
                ends = {"estimate": found.estimate, "lo": found.lo, "hi": found.hi}
                made.append({**about, "policy": row.policy, "kind": row.kind, "metric": metric, **ends})
        contenders = [row for row in rows if row.kind in CONTENDERS]
        if best is not None:
            share = _first(contenders, place, weights)
            held.append(share[:, contenders.index(best)] > 0)
            for row, probability in zip(contenders, share.mean(axis=0), strict=True):
                made.append(
                    {**about, "policy": row.policy, "kind": row.kind, "metric": "first", "estimate": probability}
                )
    table = pd.DataFrame(made, columns=list(STRESS_COLUMNS))
    numbers = ["estimate", "lo", "hi"]
    table[numbers] = table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0)
    table[["p", "p_adjusted"]] = np.nan
    for hypotheses in tests.values() if len(days) >= fewest_days(level) else ():
        tested = step_down(Estimates.join([one for _, one in hypotheses]), weights)
        table.loc[[at for at, _ in hypotheses], ["p", "p_adjusted"]] = np.stack(tested, axis=1)
    return StressTable(table, winner, float(np.all(held, axis=0).mean()) if held else np.nan, block)


def stress_verdicts(table: pd.DataFrame, winner: str | None) -> pd.DataFrame:
    """Return one row a condition: the best contender there, and what became of the winner.

    Columns are `condition`, `family`, `best`, `stays` (the probability that the winner is the best) and `verdict`:
    ``stays`` (the best, and clear of all others), ``leads`` (the best, not clear of all), ``behind`` (not the best, not
    clearly) or ``beaten`` (another is better). Clear is an adjusted p of at most 0.05.
    """
    rows = []
    for (condition, family), some in table[table["kind"].isin(CONTENDERS)].groupby(["condition", "family"], sort=False):
        means = some[some["metric"] == "pa_net"].dropna(subset="estimate").set_index("policy")["estimate"]
        if winner not in means.index:
            continue
        rivals = some[(some["metric"] == "over_winner") & some["estimate"].notna()]
        is_clear = rivals["p_adjusted"] <= 1 - LEVEL + ROUNDING
        best = winner if means[winner] >= means.max() - ROUNDING else means.idxmax()
        if (is_clear & (rivals["estimate"] > 0)).any():
            verdict = "beaten"
        elif best != winner:
            verdict = "behind"
        else:
            verdict = "stays" if is_clear.all() else "leads"
        first = some[(some["metric"] == "first") & (some["policy"] == winner)]["estimate"].iloc[0]
        rows.append({"condition": condition, "family": family, "best": best, "stays": first, "verdict": verdict})
    return pd.DataFrame(rows, columns=["condition", "family", "best", "stays", "verdict"])


def _grid(frame: pd.DataFrame) -> list[_Row]:
    """Return a condition's policies on the same orders in the same sequence, the checkpoints as one."""
    kinds = frame.drop_duplicates("policy").set_index("policy")["kind"]
    net, ffr = (frame.pivot(index="order_id", columns="policy", values=name)[kinds.index] for name in ("pa_net", "ffr"))
    dates = frame.drop_duplicates("order_id").set_index("order_id")["date"].reindex(net.index)
    stamps = dates.to_numpy().astype("M8[D]")
    groups = {CHECKPOINTS: [*kinds.index[kinds == "checkpoint"]]} if (kinds == "checkpoint").any() else {}
    groups |= {name: [name] for name in kinds.index[kinds != "checkpoint"]}
    return [
        _Row(
            name,
            kinds[members[0]],
            stamps,
            net[members].mean(axis=1).to_numpy(),
            ffr[members].mean(axis=1).to_numpy(),
            [net[one].to_numpy() for one in members],
        )
        for name, members in groups.items()
    ]


def _block(base: Sequence[_Row], days: np.ndarray) -> int:
    """Return the longest blocks of days that contenders' gains over TWAP ask for."""
    twap = next((row for row in base if row.policy == "twap"), None)
    place, longest = np.searchsorted(days, base[0].dates), 1
    for row in base:
        if row.kind in CONTENDERS and row is not twap:
            gain = row.net if twap is None else row.net - twap.net
            influence = Estimates.of_means(gain[:, None], place, len(days)).influence[:, 0]
            longest = max(longest, Dependence.of(influence[~np.isnan(influence)]).block)
    return longest


def _first(contenders: Sequence[_Row], place: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return each contender's part in being the best in resamples, float64 of shape (B, contenders)."""
    net = np.stack([row.net for row in contenders], axis=1)
    known = np.isfinite(net)
    sums = [day_sums(part, place, weights.shape[1]) for part in (np.where(known, net, 0.0), known)]
    total, count = (weights @ part for part in sums)
    drawn = np.divide(total, count, out=np.full(total.shape, -np.inf), where=count > 0)
    best = drawn >= drawn.max(axis=1, keepdims=True) - ROUNDING
    return np.asarray(best / best.sum(axis=1, keepdims=True))
