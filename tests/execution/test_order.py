"""Orders as values: what they are read from, how they show themselves, and that they bind as a table does."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import Direction, Order, OrderSettings, align_orders, generate_orders
from rlwb.market import SyntheticSettings, synthetic_sessions
from tests.execution.markets import sessions_of

DAY = pd.Timestamp("2024-01-02")
SESSIONS = sessions_of([[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2)


@pytest.mark.parametrize("date", ["2024-01-02", "20240102", dt.date(2024, 1, 2), np.datetime64("2024-01-02"), DAY])
@pytest.mark.parametrize("start", ["09:31", dt.time(9, 31), "2024-01-02 09:31", pd.Timestamp("2024-01-02 09:31")])
def test_every_form_of_a_field_is_one_value(date: Any, start: Any) -> None:
    given = Order("AAA", date, "buy", 5, start, "24:00", "x")  # type: ignore[arg-type]
    plain = Order("AAA", DAY, Direction.BUY, 5.0, pd.Timestamp("2024-01-02 09:31"), pd.Timestamp("2024-01-03"), "x")
    assert given == plain
    assert isinstance(given.amount, float)
    assert given.direction is Direction.BUY
    assert pickle.loads(pickle.dumps(given)) == copy.copy(given) == plain


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instrument", 1),
        ("instrument", " "),
        ("date", "01/03/2024"),
        ("date", None),
        ("direction", "hold"),
        ("direction", 0),
        ("amount", 0.0),
        ("amount", -3.0),
        ("amount", float("nan")),
        ("amount", float("inf")),
        ("amount", True),
        ("amount", "5"),
        ("amount", [1.0, 2.0]),
        ("amount", None),
        ("start", "25:00"),
        ("start", "noon"),
        ("end", pd.Timestamp("2024-01-03 09:31")),
        ("start", 930),
    ],
)
def test_an_impossible_field_is_refused_with_its_name_and_value(field: str, value: Any) -> None:
    fields = {"instrument": "AAA", "date": DAY, "direction": "BUY", "amount": 1.0} | {field: value}
    with pytest.raises(OrderError) as refusal:
        Order(**fields)
    assert field in str(refusal.value)
    assert str(value) in str(refusal.value) or field == "start"


@pytest.mark.parametrize("field", ["date", "start", "end"])
def test_a15_a_stamp_with_a_zone_is_never_read_as_another_day(field: str) -> None:
    fields = {"instrument": "AAA", "date": DAY, "direction": "BUY", "amount": 1.0}
    with pytest.raises(OrderError, match=f"{field} .* of AAA .*Asia/Shanghai"):
        Order(**fields | {field: pd.Timestamp("2024-01-02", tz="Asia/Shanghai")})  # type: ignore[arg-type]


def test_an_order_shows_its_session_side_amount_and_window() -> None:
    order = Order("AAA", DAY, Direction.SELL, 12_345.5, None, pd.Timestamp("2024-01-02 09:32"), "x7")
    assert str(order) == "order x7: SELL 12,345.5 AAA on 2024-01-02"
    assert repr(order) == "<order x7: SELL 12,345.5 AAA on 2024-01-02, open to 09:32:00>"
    html = order._repr_html_()
    for text in ("<table", "x7", "AAA", "SELL", "12345.5", "2024-01-02 09:32:00"):
        assert text in html


def test_a_batch_shows_its_size_and_span() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=3, days=20))
    batch = align_orders(generate_orders(sessions, OrderSettings(volume_days=0)), sessions)
    first, last = sessions.dates.min(), sessions.dates.max()
    assert repr(batch) == f"OrderBatch(120 orders, 20 days, 3 instruments, {first} to {last})"
    assert repr(batch[:1]) == f"OrderBatch(1 orders, 1 days, 1 instruments, {first} to {first})"
    assert repr(batch[:0]) == "OrderBatch(0 orders)"
    html = batch._repr_html_()
    assert "120 orders" in html
    assert html.count("<tr") == 6
    assert repr(align_orders(list(batch[3:9]), sessions)) == repr(batch[3:9])


def test_a_part_of_a_batch_keeps_what_was_refused_and_noted() -> None:
    orders = [Order("AAA", DAY, Direction.BUY, amount) for amount in (1.0, 1e6)]
    orders.append(Order("BBB", DAY, Direction.BUY, 1.0))
    batch = align_orders(orders, sessions_of([[10.0] * 4] * 2), on_refused="drop")
    assert len(batch) == 2
    for part in (batch, batch[:1], batch[np.array([1])]):
        assert list(part.refused.values()) == [["BBB-20240102-B"]]
        assert list(part.noted.values()) == [["AAA-20240102-B-1"]]


def test_a_date_with_a_time_of_day_moves_no_window() -> None:
    for order_id in ("", "x"):
        date, start = pd.Timestamp("2024-01-02 09:32"), pd.Timestamp("2024-01-02 09:33")
        order = Order("AAA", date, Direction.BUY, 1.0, start, None, order_id)
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
