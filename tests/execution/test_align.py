"""Orders as values bind as a table of the same orders does."""

from __future__ import annotations

import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import Direction, Order, align_orders
from tests.execution.markets import sessions_of

SESSIONS = sessions_of([[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2)
DAY = pd.Timestamp("2024-01-02")


def test_a_date_with_a_time_of_day_moves_no_window() -> None:
    for order_id in ("", "x"):
        order = Order(
            "AAA",
            pd.Timestamp("2024-01-02 09:32"),
            Direction.BUY,
            1.0,
            pd.Timestamp("2024-01-02 09:33"),
            None,
            order_id,
        )
        batch = align_orders([order], SESSIONS)
        assert (batch.session.tolist(), batch.start.tolist(), batch.end.tolist()) == ([1], [3], [6])


@pytest.mark.parametrize("order_id", ["", "x"])
def test_ids_are_made_where_there_is_none_and_numbered_where_they_would_be_doubled(order_id: str) -> None:
    orders = [Order("AAA", DAY, Direction.BUY, amount) for amount in (1.0, 2.0)]
    orders.append(Order("AAA", DAY, Direction.SELL, 3.0, order_id=order_id))
    batch = align_orders(orders, SESSIONS)
    assert [o.order_id for o in batch] == ["AAA-20240102-B", "AAA-20240102-B-1", order_id or "AAA-20240102-S"]
    assert batch.table["amount"].tolist() == [1.0, 2.0, 3.0]


def test_doubled_ids_are_refused_and_one_order_needs_no_list() -> None:
    order = Order("AAA", DAY, Direction.BUY, 1.0, None, None, "x")
    with pytest.raises(OrderError, match="'x' occurs more than once"):
        align_orders([order, order], SESSIONS)
    assert len(align_orders(order, SESSIONS)) == 1
    with pytest.raises(OrderError, match="holds no orders"):
        align_orders([], SESSIONS)
