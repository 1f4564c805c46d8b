"""The table of results by side, size and window of the orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rlwb.evaluation.metrics import metric_table, wide, wide_name
from rlwb.evaluation.results import PolicyResult
from rlwb.execution import Engine, OrderBatch
from rlwb.execution.likeness import size_of

#: More windows than these are put together by their length.
_MOST_WINDOWS = 6
_METRICS = ("pa", "over_twap", "pa_net", "net_over_twap", "std", "cvar")
GROUP_COLUMNS = (
    *("by", "group", "policy", "title", "kind", "n", "orders", "days", "pa_missing"),
    *(wide_name(name, end) for name in _METRICS for end in ("", "_lo", "_hi")),
    *("win_rate", "ffr", "untraded"),
)
"""The columns of ``backtest/groups.csv``: `by` (``side``, ``size`` or ``window``), `group`, and those of
`rlwb.evaluation.metrics.metric_table` and of its metrics on the orders of that group."""


def group_labels(engine: Engine, orders: OrderBatch) -> dict[str, dict[str, np.ndarray]]:
    """Return which orders belong to which group: ``side``, ``size`` and ``window`` to group to bool of shape (N,).

    Sizes are amounts as shares of the window's volume, in thirds; windows are told apart by start and end while they
    are at most six, and put together in thirds by their number of bars else.
    """
    sides = {"buy": orders.side > 0, "sell": orders.side < 0}
    size = 100 * size_of(engine, orders)
    sizes = thirds(size, "{:.3g} % of volume", ("smallest", "middle", "largest")) | {
        "no volume in the window": np.isnan(size)
    }
    calendar, last = engine.sessions.calendar, orders.end - 1
    pairs = orders.start.astype(np.int64) * calendar.num_ticks + last
    distinct = np.unique(pairs)
    if len(distinct) <= _MOST_WINDOWS:
        edges = {pair: divmod(int(pair), calendar.num_ticks) for pair in distinct}
        windows = {
            f"{calendar.time_of(first):%H:%M} to {_end_text(calendar, stop)}": pairs == pair
            for pair, (first, stop) in edges.items()
        }
    else:
        windows = thirds(
            (orders.end - orders.start).astype(np.float64), "{:.0f} bars", ("shortest", "middle", "longest")
        )
    found = {"side": sides, "size": sizes, "window": windows}
    return {by: {name: rows for name, rows in groups.items() if rows.any()} for by, groups in found.items()}


def _end_text(calendar: Any, last: int) -> str:
    seconds = int(calendar.tick_start[last]) + calendar.tick_seconds
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"


def thirds(values: np.ndarray, unit: str, names: tuple[str, str, str]) -> dict[str, np.ndarray]:
    """Return the rows of each third of the values that are there; of one value alone all rows."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    if known.min() == known.max():
        return {unit.format(known[0]): np.isfinite(values)}
    edges = np.quantile(known, [1 / 3, 2 / 3])
    third = np.where(np.isfinite(values), np.searchsorted(edges, values, side="left"), -1)
    texts = {}
    for number, name in enumerate(names):
        rows = third == number
        if rows.any():
            low, high = (unit.format(end) for end in (values[rows].min(), values[rows].max()))
            texts[f"{name}: {low.split(' ')[0]} to {high}" if low != high else f"{name}: {high}"] = rows
    return texts


def group_table(
    results: Mapping[str, Sequence[PolicyResult]],
    labels: Mapping[str, Mapping[str, np.ndarray]],
    ids: np.ndarray,
    **bootstrap: Any,
) -> pd.DataFrame:
    """Return the results on each group of orders, one row a group and policy, with the columns of `GROUP_COLUMNS`.

    Parameters
    ----------
    results
        Name to results, as in `metric_table`.
    labels
        What `group_labels` returns.
    ids
        `order_id` of the orders that the labels are of, of shape (N,).
    bootstrap
        Settings of `metric_table`; the intervals are those of each group's own days.
    """
    tables = []
    for by, groups in labels.items():
        for group, rows in groups.items():
            inside = set(ids[rows].tolist())
            some = {name: [_of(one, inside) for one in members] for name, members in results.items()}
            tables.append(wide(metric_table(some, **bootstrap)).assign(by=by, group=group))
    return pd.concat(tables, ignore_index=True)[list(GROUP_COLUMNS)]


def _of(result: PolicyResult, ids: set[str]) -> PolicyResult:
    """Return a result of the orders with these ids alone."""
    orders = result.orders[result.orders["order_id"].isin(ids)].reset_index(drop=True)
    return replace(result, orders=orders, inventory=None)
