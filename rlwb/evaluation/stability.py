"""Stability of a result: PA by groups of orders, each against the rest, and its drift over the test days."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, Draws, fewest_days, mean_parts, statistic_interval
from rlwb.evaluation.groups import group_labels, thirds
from rlwb.evaluation.metrics import ROUNDING
from rlwb.evaluation.multiplicity import Estimates, step_down, t_interval
from rlwb.evaluation.results import PolicyResult
from rlwb.execution import Engine, OrderBatch

Labels = Mapping[str, Mapping[str, np.ndarray]]

STABILITY_COLUMNS = (
    *("by", "group", "policy", "title", "kind", "orders", "days", "judged", "judged_lo", "judged_hi"),
    *("over_rest", "over_rest_lo", "over_rest_hi", "p", "p_adjusted"),
)
"""The columns of ``stability/groups.csv``."""
DRIFT_COLUMNS = (
    *("policy", "title", "kind", "orders", "days", "slope", "slope_lo", "slope_hi", "p", "p_adjusted"),
    *("first_half", "second_half"),
)
"""The columns of ``stability/drift.csv``."""


def stability_labels(engine: Engine, orders: OrderBatch) -> dict[str, dict[str, np.ndarray]]:
    """Return which orders belong to which group: `group_labels`, and ``month``, ``instrument`` and ``volatility``.

    Volatility is what the order's session turned out to have, the square root of its summed squared returns, in thirds
    of the orders; nobody knew it when the session began.
    """
    sessions = engine.sessions
    months = sessions.dates[orders.session].astype("M8[M]").astype(str)
    names = sessions.instruments[orders.session]
    price = np.where(engine.price > 0, engine.price, np.nan)[orders.session]
    moves = np.diff(np.log(price), axis=1)
    volatility = np.where(np.isfinite(moves).any(axis=1), np.sqrt(np.nansum(moves**2, axis=1)), np.nan)
    regimes = thirds(1e4 * volatility, "{:.0f} bp", ("quietest", "middle", "most volatile"))
    return {
        **group_labels(engine, orders),
        "month": {str(name): months == name for name in np.unique(months)},
        "instrument": {str(name): names == name for name in np.unique(names)},
        "volatility": regimes,
    }


def traded_labels(results: Sequence[PolicyResult], steps: np.ndarray) -> dict[str, np.ndarray]:
    """Return when policies traded each order: in which third of its steps the mean share was filled.

    Empty where it is not known, or the same for all orders. Of several policies the mean counts.

    Parameters
    ----------
    results
        Of the same orders in the same sequence.
    steps : int of shape (N,)
        Steps that each order's window has.
    """
    places = []
    for one in results:
        if one.inventory is None:
            return {}
        left = np.asarray(one.inventory, dtype=np.float64)
        filled = np.maximum(left[:, :-1] - left[:, 1:], 0.0)
        at = (np.arange(filled.shape[1]) + 0.5) / np.maximum(steps, 1)[:, None]
        whole = filled.sum(axis=1)
        places.append(np.divide((filled * at).sum(axis=1), whole, out=np.full(len(left), np.nan), where=whole > 0))
    place = np.mean(places, axis=0)
    names = {"early": place < 1 / 3, "in the middle": (place >= 1 / 3) & (place <= 2 / 3), "late": place > 2 / 3}
    found = {name: rows for name, rows in names.items() if rows.any()}
    return found if len(found) > 1 else {}


def stability_table(
    groups: Mapping[str, Sequence[PolicyResult]],
    labels: Labels,
    ids: np.ndarray,
    steps: np.ndarray,
    *,
    titles: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    each: Callable[[str, float], object] | None = None,
) -> pd.DataFrame:
    """Return each policy's net PA on each group of orders, and how far it differs from that on the rest.

    One row a policy and group, with the columns of `STABILITY_COLUMNS`. The p-value is that of the difference between
    the mean over the group and the mean over all other orders; the adjusted one is corrected for the number of groups
    of the policy, all kinds of groups together (`rlwb.evaluation.multiplicity.step_down`). Groups of too few days to
    tell have neither; one that holds all orders has no rest.

    Parameters
    ----------
    groups
        Name to results of a policy, whose mean order by order counts. By when it traded (`traded_labels`), the groups
        are each policy's own.
    labels
        What `stability_labels` returns.
    ids, steps : shape (N,)
        `order_id`, and number of steps, of the orders that the labels are of.
    titles
        What people read in place of a name.
    level, resamples, seed
        Settings of the bootstrap over days.
    each
        Called with the name of each policy and its net PA on all orders, in basis points, when it is done.
    """
    rows: list[dict[str, Any]] = []
    for name, members in groups.items():
        values, dates, place, days = _by_order(members, ids)
        traded = traded_labels([_in_sequence(one, ids) for one in members], steps)
        own = {**labels, **({"traded": traded} if traded else {})}
        about = {"policy": name, "title": (titles or {}).get(name, members[0].display_name), "kind": members[0].kind}
        draws, tests = Draws(resamples, seed), list[Estimates]()
        bootstrap: dict[str, Any] = {"level": level, "resamples": resamples}
        first = len(rows)
        for by, parts in own.items():
            for group, inside in parts.items():
                within, rest = (np.where(one, values, np.nan) for one in (inside, ~inside))
                found = statistic_interval([mean_parts(within)], [dates], draws, **bootstrap)
                one, other = (Estimates.of_means(each[:, None], place, days) for each in (within, rest))
                counted = int(np.isfinite(one.influence[:, 0]).sum())
                apart = one.less(other)
                if counted < fewest_days(level):
                    apart = apart._replace(value=np.full(1, np.nan))
                low, high = t_interval(float(apart.value[0]), apart.influence[:, 0], level)
                figures = {"judged": found.estimate, "judged_lo": found.lo, "judged_hi": found.hi}
                figures |= {"over_rest": apart.value[0], "over_rest_lo": low, "over_rest_hi": high}
                rows.append({"by": by, "group": group, **about, "orders": found.orders, "days": counted, **figures})
                tests.append(apart)
        weights = np.concatenate([chunk.astype(np.float64) for chunk in draws(days, 1)])
        tested = step_down(Estimates.join(tests), weights)
        for row, p, adjusted in zip(rows[first:], *tested, strict=True):
            row |= {"p": p, "p_adjusted": adjusted}
        if each is not None:
            each(name, float(np.nanmean(values)) if np.isfinite(values).any() else np.nan)
    return _cleaned(pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)))


def drift_table(
    groups: Mapping[str, Sequence[PolicyResult]],
    *,
    titles: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how each policy's net PA drifts over the test days, one row a policy with the columns of `DRIFT_COLUMNS`.

    ``slope`` is that of a regression of the orders' net PA on the number of their day, in basis points a day; its
    standard error adds up by days, and is as wide as days that follow one another ask for (a long-run variance by
    cosines, `rlwb.evaluation.dependence`). The p-values are adjusted for the number of policies. The halves are the
    mean net PA of the first and the second half of the days.
    """
    rows: list[dict[str, Any]] = []
    tests = []
    for name, members in groups.items():
        ids = members[0].orders["order_id"].to_numpy()
        values, _, place, days = _by_order(members, ids)
        known = np.isfinite(values)
        estimate, influence = np.nan, np.full(days, np.nan)
        centred = place[known] - place[known].mean() if known.any() else np.empty(0)
        if days >= fewest_days(level) and (centred**2).sum() > 0:
            scale = (centred**2).sum()
            estimate = float(centred @ values[known] / scale)
            rest = values[known] - values[known].mean() - estimate * centred
            influence = np.bincount(place[known], centred * rest / scale, minlength=days)
        low, high = t_interval(estimate, influence, level)
        half = place < days / 2
        rows.append(
            {
                "policy": name,
                "title": (titles or {}).get(name, members[0].display_name),
                "kind": members[0].kind,
                "orders": int(known.sum()),
                "days": days,
                "slope": estimate,
                "slope_lo": low,
                "slope_hi": high,
                "first_half": np.nanmean(values[half]) if known[half].any() else np.nan,
                "second_half": np.nanmean(values[~half]) if known[~half].any() else np.nan,
            }
        )
        tests.append(Estimates(np.array([estimate]), influence[:, None]))
    table = pd.DataFrame(rows, columns=list(DRIFT_COLUMNS))
    if tests:
        weights = np.concatenate([chunk.astype(np.float64) for chunk in Draws(resamples, seed)(len(influence), 1)])
        table[["p", "p_adjusted"]] = np.stack(step_down(Estimates.join(tests), weights), axis=1)
    return _cleaned(table)


def _by_order(members: Sequence[PolicyResult], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the mean net PA of each order, its date, the number of its day, and the number of days."""
    own = [_in_sequence(one, ids) for one in members]
    known = np.stack([one.after_costs().pa for one in own])
    count = np.isfinite(known).sum(axis=0)
    values = np.divide(np.nansum(known, axis=0), count, out=np.full(len(ids), np.nan), where=count > 0)
    stamps, place = np.unique(own[0].dates, return_inverse=True)
    return values, own[0].dates, place, len(stamps)


def _in_sequence(result: PolicyResult, ids: np.ndarray) -> PolicyResult:
    """Return a result whose orders are in the sequence of `ids`."""
    place = pd.Index(result.orders["order_id"]).get_indexer(ids)
    inventory = None if result.inventory is None else result.inventory[place]
    return dataclasses.replace(result, orders=result.orders.iloc[place].reset_index(drop=True), inventory=inventory)


def _cleaned(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which rounding around 0 is 0."""
    numbers = [name for name in table.select_dtypes("float") if name not in ("p", "p_adjusted")]
    return table.assign(**table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0))
