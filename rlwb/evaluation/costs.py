"""Tables of what orders cost against arrival, by part (`rlwb.execution.attribution`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import ratio, statistic_interval
from rlwb.evaluation.metrics import ROUNDING, short_title
from rlwb.evaluation.results import PolicyResult
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_OFF, REACTION, reaction
from rlwb.execution.rules import BASIS_POINTS

TOTAL = "total"


def cost_table(groups: Mapping[str, Sequence[PolicyResult]], **bootstrap: Any) -> pd.DataFrame:
    """Return one row a policy and component, value-weighted, with a day-clustered interval.

    Parts that are 0 on every order of every policy are left out, and so are policies without costs, as ceilings are.

    Parameters
    ----------
    groups
        Name to results, as in `rlwb.evaluation.metric_table`; a group's figures are the means over its members.
    bootstrap
        Settings of `rlwb.evaluation.statistic_interval`, and the `seed` of its resamples.

    Returns
    -------
    DataFrame
        Columns: `policy`, `title`, `kind`, `component` (a key of `rlwb.execution.attribution.PARTS`, then ``total``,
        and where trading has impact `rlwb.execution.attribution.REACTION`, which is in no total), `currency` (sum over
        orders), `cost_bp` (over the sum of amount times arrival), `lo` and `hi` (ends of its interval), `orders` that
        have one, `days`.
    """
    seed = bootstrap.pop("seed", 0)
    found = {name: [one for one in members if "cost" in one.orders] for name, members in groups.items()}
    found = {name: members for name, members in found.items() if members}
    everyone = [one for members in found.values() for one in members]
    shown = [part for part in COST_COLUMNS if part == TOTAL or any((_cost(one, part) != 0).any() for one in everyone)]
    rows: list[tuple[object, ...]] = []
    for name, members in found.items():
        title = short_title(name, members)
        has_impact = all(IMPACT_OFF in one.orders for one in members)
        for part in [*shown, *([REACTION] if has_impact else [])]:
            terms = [np.stack([BASIS_POINTS * _cost(one, part), _value(one)], axis=1) for one in members]
            rng, dates = np.random.default_rng(seed), [one.dates for one in members]
            interval = statistic_interval(terms, dates, rng, ratio, **bootstrap)
            currency = float(np.mean([np.nansum(_cost(one, part)) for one in members]))
            figures = (currency, interval.estimate, interval.lo, interval.hi, interval.orders // len(members))
            rows.append((name, title, members[0].kind, part, *figures, interval.days))
    names = ("policy", "title", "kind", "component", "currency", "cost_bp", "lo", "hi", "orders", "days")
    table = pd.DataFrame(rows, columns=list(names))
    numbers = table[["cost_bp", "lo", "hi"]]
    return table.assign(**numbers.mask(numbers.abs() < ROUNDING, 0.0))


def wide_costs(costs: pd.DataFrame) -> pd.DataFrame:
    """Return `cost_table` as one row a policy, its components in columns, in basis points, its title beside them."""
    table = costs.pivot(index="policy", columns="component", values="cost_bp").rename_axis(columns=None)
    return table.reindex(costs["policy"].unique()).assign(
        title=costs.drop_duplicates("policy").set_index("policy")["title"]
    )


def cost_groups(results: Sequence[PolicyResult]) -> pd.DataFrame:
    """Return sums over the orders of each side, day and instrument, one row a policy and group.

    Columns: `by` (``side``, ``day`` or ``instrument``), `group`, `policy`, `orders`, `value` (sum of amount times
    arrival), those of `COST_COLUMNS` in currency, `cost` being the sum of the others, and `cost_bp`, `cost` over
    `value`. Orders with a missing part are in no sum.
    """
    tables = []
    for one in (one for one in results if "cost" in one.orders):
        parts = {column: _cost(one, part) for part, column in COST_COLUMNS.items() if part != TOTAL}
        whole = np.isfinite(_cost(one, TOTAL))
        table = pd.DataFrame({"orders": 1, "value": _value(one), **parts})[whole]
        labels = {"side": one.orders["direction"], "day": one.dates.astype(str), "instrument": one.orders["instrument"]}
        for by, label in labels.items():
            sums = table.groupby(np.asarray(label)[whole]).sum().rename_axis("group").reset_index()
            cost = reduce(np.add, [sums[column] for column in parts])
            sums = sums.assign(cost=cost, cost_bp=BASIS_POINTS * cost / sums["value"])
            sums.insert(0, "by", by)
            sums.insert(2, "policy", one.policy)
            tables.append(sums)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _cost(result: PolicyResult, part: str) -> np.ndarray:
    """Return a part of each order's cost in currency, float64 of shape (orders,); NaN where it is missing."""
    if part == REACTION:
        return np.asarray(reaction(result.orders))
    if COST_COLUMNS[part] not in result.orders:
        return np.zeros(len(result.orders))  # of a table that is older than the part
    return result.values(COST_COLUMNS[part])


def _value(result: PolicyResult) -> np.ndarray:
    return result.values("amount") * result.values("arrival")
