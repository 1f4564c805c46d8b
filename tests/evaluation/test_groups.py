"""Results by side, size and window, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlwb.evaluation import PolicyResult, group_labels, group_table
from rlwb.evaluation.groups import GROUP_COLUMNS
from rlwb.execution import Engine, Order, align_orders
from rlwb.market import Sessions
from tests.execution.markets import order, sessions_of


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    """Six days of four bars; 400 shares are traded on each but the last, which has no volume."""
    return sessions_of([[10.0] * 4] * 6, [[100.0] * 4] * 5 + [[0.0] * 4])


def result(policy: str, kind: str, pa: list[float], batch) -> PolicyResult:  # type: ignore[no-untyped-def]
    table = batch.table.assign(pa=pa, ffr=1.0, valued=1.0, benchmark=10.0)
    return PolicyResult(policy, kind, table.sample(frac=1.0, random_state=0), inventory=None)  # type: ignore[arg-type]


def test_j05_orders_fall_into_sides_thirds_of_sizes_and_windows(sessions: Sessions) -> None:
    orders = [
        order(4.0, "BUY", day=1),
        order(8.0, "SELL", day=1),
        order(40.0, "BUY", day=2, start="09:31"),
        order(2.0, "BUY", day=3, start="09:31"),
        order(400.0, "SELL", day=4),
        order(100.0, "SELL", day=5),
        order(1.0, "SELL", day=6),
    ]
    labels = group_labels(Engine(sessions, 1), align_orders(orders, sessions))
    rows = {by: {name: np.flatnonzero(rows).tolist() for name, rows in groups.items()} for by, groups in labels.items()}
    assert rows["side"] == {"buy": [0, 2, 3], "sell": [1, 4, 5, 6]}
    # Shares of the window's volume: 1, 2, 13.3 (of 300), 0.67 (of 300), 100 and 25 %, and none.
    assert rows["size"] == {
        "smallest: 0.667 to 1 % of volume": [0, 3],
        "middle: 2 to 13.3 % of volume": [1, 2],
        "largest: 25 to 100 % of volume": [4, 5],
        "no volume in the window": [6],
    }
    assert rows["window"] == {"09:30 to 09:34": [0, 1, 4, 5, 6], "09:31 to 09:34": [2, 3]}


def test_j05_many_windows_are_put_together_by_length() -> None:
    sessions = sessions_of([[10.0] * 10])
    orders = [
        Order("AAA", "2024-01-01", "BUY", 10.0, f"09:3{first}", f"09:{30 + first + length}", f"{first}-{length}")  # type: ignore[arg-type]
        for length in (1, 4, 6)
        for first in (0, 1, 2)
    ]
    labels = group_labels(Engine(sessions, 2), align_orders(orders, sessions))["window"]
    assert {name: rows.sum() for name, rows in labels.items()} == {
        "shortest: 1 bars": 3,
        "middle: 4 bars": 3,
        "longest: 6 bars": 3,
    }


def test_j05_each_groups_figures_are_those_of_its_orders(sessions: Sessions) -> None:
    orders = [order(4.0, "BUY", day=day) for day in (1, 2)] + [order(4.0, "SELL", day=day) for day in (1, 2)]
    batch = align_orders(orders, sessions)
    rows = {
        "best": [
            result("one", "checkpoint", [1.0, 3.0, 10.0, 20.0], batch),
            result("two", "checkpoint", [3.0, 5.0, 0.0, 2.0], batch),
        ],
        "TWAP": [result("twap", "baseline", [0.0, 2.0, 1.0, math.nan], batch)],
    }
    labels = group_labels(Engine(sessions, 1), batch)
    table = group_table(rows, labels, batch.table["order_id"].to_numpy(), resamples=100)
    assert tuple(table) == GROUP_COLUMNS
    assert table[["by", "group"]].drop_duplicates().to_numpy().tolist() == [
        ["side", "buy"],
        ["side", "sell"],
        ["size", "1 % of volume"],
        ["window", "09:30 to 09:34"],
    ]
    best = table[table["policy"] == "best"].set_index("group")
    # Buys: the mean of 2 and 4; sells: of 15 and 1. Over TWAP: 3 - 1 and, on the first day alone, (9 + -1) / 2.
    assert best["pa_mean"].tolist() == [3.0, 8.0, 5.5, 5.5]
    assert best.loc[["buy", "sell"], "over_twap"].tolist() == [2.0, 4.0]
    assert best["orders"].tolist() == [2, 2, 4, 4]
    assert table[table["policy"] == "TWAP"].set_index("group")["pa_missing"].tolist() == [0, 1, 1, 1]
