"""Order forms: optional columns of an order table, what they do to fills, and where they are refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import Engine, ExecutionState, Order, align_orders, order_table, read_orders, write_orders
from rlwb.execution.order import COLUMNS, FORMS
from tests.execution.markets import sessions_of

SESSIONS = sessions_of([[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2)
ROWS = pd.DataFrame(
    {"instrument": "AAA", "date": ["2024-01-01", "2024-01-02"], "direction": "BUY", "amount": [5.0, 6.0]}
)


def test_a_form_goes_through_table_file_batch_and_state_and_back(tmp_path: Path) -> None:
    table = order_table(ROWS.assign(Aversion=["", "1e-6"]), SESSIONS.calendar)
    assert list(table) == [*COLUMNS, "aversion"]
    for name in ("orders.parquet", "orders.csv"):
        if name.endswith("csv"):
            table.to_csv(tmp_path / name, index=False)
        else:
            write_orders(tmp_path / name, table)
        pd.testing.assert_frame_equal(read_orders(tmp_path / name, SESSIONS.calendar), table)
    batch = align_orders(table, SESSIONS)
    assert [one.aversion for one in batch] == [None, 1e-6]
    assert align_orders(list(batch), SESSIONS).fingerprint == batch.fingerprint
    assert repr(batch[1]).endswith("open to close, aversion 1e-06>")
    known = ExecutionState.start(Engine(SESSIONS, 2), batch).known
    assert known.aversion.tolist() == [0.0, 1e-6]
    assert known[1].aversion == 1e-6
    assert known[np.array([1])].aversion.tolist() == [1e-6]


def test_without_a_form_nothing_is_different(tmp_path: Path) -> None:
    plain = order_table(ROWS, SESSIONS.calendar)
    empty = order_table(ROWS.assign(**dict.fromkeys(FORMS, "")), SESSIONS.calendar)
    pd.testing.assert_frame_equal(plain, empty)
    written = []
    for table in (plain, empty):
        write_orders(tmp_path / "orders.parquet", table)
        written.append((tmp_path / "orders.parquet").read_bytes())
    assert written[0] == written[1]
    batch = align_orders(plain, SESSIONS)
    stated = align_orders(order_table(ROWS.assign(aversion=1.0), SESSIONS.calendar), SESSIONS)
    assert batch.fingerprint == align_orders(empty, SESSIONS).fingerprint != stated.fingerprint
    assert batch.forms == {}
    np.testing.assert_array_equal(ExecutionState.start(Engine(SESSIONS, 2), batch).known.aversion, [0.0, 0.0])


@pytest.mark.parametrize(("name", "value"), [("aversion", -1.0), ("aversion", math.inf), ("aversion", "much")])
def test_an_impossible_form_is_refused_with_row_and_value(name: str, value: Any) -> None:
    with pytest.raises(OrderError, match="row 1 .AAA.: " + name) as refusal:
        order_table(ROWS.assign(**{name: pd.Series([None, value], dtype=object)}), SESSIONS.calendar)
    assert repr(value) in str(refusal.value)
    with pytest.raises(OrderError, match=f"{name} {value!r} of AAA"):
        Order("AAA", "2024-01-02", "BUY", 5.0, **{name: value})  # type: ignore[arg-type]
