"""Orders as values bind as a table of the same orders does."""

from __future__ import annotations

import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import Direction, Order, bind_orders
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
        batch = bind_orders([order], SESSIONS)
        assert (batch.session.tolist(), batch.start.tolist(), batch.end.tolist()) == ([1], [3], [6])


@pytest.mark.parametrize("start", [None, pd.Timestamp("2024-01-02 09:31")])
@pytest.mark.parametrize("order_id", ["", "x"])
def test_a15_a_date_with_a_zone_is_never_read_as_the_day_before(start: pd.Timestamp | None, order_id: str) -> None:
    order = Order("AAA", pd.Timestamp("2024-01-02", tz="Asia/Shanghai"), Direction.BUY, 1.0, start, None, order_id)
    with pytest.raises(OrderError, match="carries the time zone Asia/Shanghai but the calendar names none"):
        bind_orders([order], SESSIONS)


def test_doubled_ids_are_refused_and_one_order_needs_no_list() -> None:
    order = Order("AAA", DAY, Direction.BUY, 1.0, None, None, "x")
    with pytest.raises(OrderError, match="'x' occurs more than once"):
        bind_orders([order, order], SESSIONS)
    assert len(bind_orders(order, SESSIONS)) == 1  # type: ignore[arg-type]
    with pytest.raises(OrderError, match="holds no orders"):
        bind_orders([], SESSIONS)
