"""Order files: what is written is read, and users' own tables come in or are refused by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import bind_orders, generate_orders, order_table, read_order_settings, read_orders, write_orders
from rlwb.market import Calendar, SyntheticSettings, synthetic_sessions

US = Calendar(segments=(("09:30", "16:00"),), timezone="America/New_York")


def test_parquet_round_trip_with_settings(tmp_path: Path) -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=3))
    table = generate_orders(sessions)
    write_orders(tmp_path / "orders.parquet", table, {"seed": 0})
    back = read_orders(tmp_path / "orders.parquet", sessions.calendar)
    pd.testing.assert_frame_equal(back, table, check_dtype=True)
    assert read_order_settings(tmp_path / "orders.parquet") == {"seed": 0}


def test_csv_with_spoilt_ids_times_and_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeffInstrument,Date,Direction,Amount,Start,End\n"
    text += "000001,2024-01-02,B,100,10:00,11:00\nNA,2024-01-02,sell,5e2,,\n"
    (tmp_path / "orders.csv").write_text(text, encoding="utf-8")
    table = read_orders(tmp_path / "orders.csv", US)
    assert table["instrument"].tolist() == ["000001", "NA"]
    assert table["direction"].tolist() == ["BUY", "SELL"]
    assert table["amount"].tolist() == [100.0, 500.0]
    assert table["start"].astype(str).tolist() == ["2024-01-02 10:00:00", "NaT"]


def test_qlib_direction_codes_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("instrument,date,direction,amount\nA,2024-01-02,1,5\nA,2024-01-03,0,5\n")
    with pytest.raises(OrderError, match="row 1: direction '0' is not BUY or SELL"):
        read_orders(tmp_path / "orders.csv", US)
    codes = {"0": "SELL", "1": "BUY"}
    assert read_orders(tmp_path / "orders.csv", US, codes=codes)["direction"].tolist() == ["BUY", "SELL"]


def test_stamps_carry_the_date(tmp_path: Path) -> None:
    frame = pd.DataFrame({"instrument": ["A"], "direction": ["BUY"], "amount": [1.0], "start": ["2024-01-02 10:00"]})
    table = order_table(frame, US)
    assert table["date"].tolist() == [pd.Timestamp("2024-01-02")]
    aware = pd.DataFrame(
        {"instrument": ["A"], "direction": ["BUY"], "amount": [1.0], "start": ["2024-01-02T15:00:00+00:00"]}
    )
    assert order_table(aware, US)["start"].tolist() == [pd.Timestamp("2024-01-02 10:00")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": "25:99"}, "row 0: start '25:99' is not a time"),
        ({"start": "2024-01-03 10:00"}, "not on the order's date 2024-01-02"),
        ({"direction": "hold"}, "row 0: direction 'hold'"),
        ({"amount": "-3"}, "row 0: amount '-3' of A is not a number above 0"),
        ({"instrument": ""}, "row 0: instrument '' is not text"),
    ],
)
def test_bad_rows_are_named(change: dict[str, str], words: str) -> None:
    row = {"instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": "1", "start": "10:00"}
    with pytest.raises(OrderError, match=words):
        order_table(pd.DataFrame([row | change]), US)


def test_missing_columns_doubled_ids_and_empty_tables() -> None:
    with pytest.raises(OrderError, match=r"lacks the columns \['amount', 'date'\]"):
        order_table(pd.DataFrame({"instrument": ["A"], "direction": ["BUY"]}), US)
    row = {"order_id": "x", "instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": 1.0}
    with pytest.raises(OrderError, match="order_id 'x' occurs more than once"):
        order_table(pd.DataFrame([row, row]), US)
    with pytest.raises(OrderError, match="holds no orders"):
        order_table(pd.DataFrame(columns=["instrument", "date", "direction", "amount"]), US)


def test_two_orders_of_one_session_get_ids_of_their_own() -> None:
    row = {"instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": 1.0}
    assert order_table(pd.DataFrame([row, row]), US)["order_id"].tolist() == ["A-20240102-B", "A-20240102-B-1"]


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="does not exist"):
        read_orders(tmp_path / "none.csv", US)
    (tmp_path / "orders.xlsx").write_text("x")
    with pytest.raises(OrderError, match="neither Parquet nor CSV"):
        read_orders(tmp_path / "orders.xlsx", US)
    (tmp_path / "orders.parquet").write_text("no parquet")
    with pytest.raises(OrderError, match="cannot be read as orders"):
        read_orders(tmp_path / "orders.parquet", US)


def test_a_close_at_midnight_ends_the_session() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=1, days=1))
    row = {"instrument": "SYN001", "date": sessions.dates[0], "direction": "BUY", "amount": 1.0}
    row["end"] = str(sessions.dates[0] + np.timedelta64(1, "D"))
    assert bind_orders(pd.DataFrame([row]), sessions).end.tolist() == [sessions.calendar.num_ticks]


def test_orders_bind_like_the_table_they_came_from() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=3))
    table = generate_orders(sessions)
    table.loc[0, ["start", "end"]] = table.loc[0, "date"] + pd.to_timedelta(["10:00:00", "14:15:00"])
    table.loc[1, ["start", "end"]] = pd.NaT
    batch = bind_orders(table, sessions)
    again = bind_orders(list(batch), sessions)
    for name in ("session", "side", "amount", "start", "end"):
        expected = getattr(batch, name)
        np.testing.assert_array_equal(getattr(again, name), expected)
        assert getattr(again, name).dtype == expected.dtype
    pd.testing.assert_frame_equal(again.table, batch.table)
    assert list(again) == list(batch)
