"""Fills of brokers: FIX's names and stamps, cancels and corrections, mappings, wrong rows, and their orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import align_orders, fill_orders, fill_table, read_fills
from rlwb.execution.fills import FILL_COLUMNS, tick_of
from rlwb.market import Calendar, SyntheticSettings, synthetic_sessions

US = Calendar(segments=(("09:30", "16:00"),), timezone="America/New_York")
CN = Calendar.preset("cn")
FIX = """ClOrdID,OrderID,ExecID,ExecRefID,ExecType,Symbol,Side,OrderQty,Price,LastQty,LastPx,TransactTime,Fee,LastMkt
c1,o1,e0,,0,AAA,1,300,10.5,0,0,20240301-14:29:59.000,,
c1,o1,e1,,F,AAA,1,300,10.5,100,10.01,20240301-14:30:05.250,0.5,XNAS
c1,o1,e2,,F,AAA,1,300,10.5,100,10.02,20240301-14:31:00,0.5,XNYS
c2,o1,e3,e2,G,AAA,1,300,10.5,90,10.03,20240301-14:31:00,0.5,XNYS
c2,o1,e4,,F,AAA,1,300,10.5,110,10.04,20240301-14:32:00,0.5,XNAS
c2,o1,e5,e4,H,AAA,1,300,10.5,110,10.04,20240301-14:33:00,,XNAS
c9,o2,e6,,F,BBB,5,50,,50,20,20240301-14:30:30,-0.1,XNAS
"""


def row(**change: Any) -> dict[str, Any]:
    known = {"order_id": "a", "instrument": "A", "side": "B", "time": "2024-03-01 10:00:30", "quantity": 10, "price": 5}
    return {**known, **change}


def table(*rows: dict[str, Any], calendar: Calendar = US, **settings: Any) -> pd.DataFrame:
    return fill_table(pd.DataFrame(list(rows)), calendar, **settings)


def test_fix_columns_stamps_cancels_and_corrections(tmp_path: Path) -> None:
    (tmp_path / "fills.csv").write_text(FIX)
    fills = read_fills(tmp_path / "fills.csv", US)
    assert list(fills.columns) == list(FILL_COLUMNS)
    assert fills.dtypes.astype(str).to_dict() == {name: str(np.dtype(kind)) for name, kind in FILL_COLUMNS.items()}
    # e2 is replaced by e3, e4 is cancelled by e5, e0 is no execution; 14:30 UTC is 9:30 in New York's winter
    assert fills["order_id"].tolist() == ["o1", "o1", "o2"]
    assert fills["time"].astype(str).tolist() == [
        "2024-03-01 09:30:05.250",
        "2024-03-01 09:31:00.000",
        "2024-03-01 09:30:30.000",
    ]
    assert fills["quantity"].tolist() == [100, 90, 50]
    assert fills["price"].tolist() == [10.01, 10.03, 20]  # LastPx, not the order's limit
    assert fills["side"].tolist() == [1, 1, -1]
    assert fills["order_quantity"].tolist() == [300, 300, 50]
    assert fills["fee"].tolist() == [0.5, 0.5, -0.1]
    assert fills["venue"].tolist() == ["XNAS", "XNYS", "XNAS"]
    assert fills["start"].isna().all()
    told = " ".join(fills.attrs["notes"])
    assert "LastPx as price" in told
    assert "OrderID as order_id" in told
    assert "1 rows are no executions" in told
    assert "2 executions were cancelled or corrected" in told


def test_tags_and_the_transactions_of_older_fix() -> None:
    rows = [
        {"37": "o", "17": "1", "19": "", "20": "0", "150": "1", "55": "A", "54": "2", "60": "20240301-15:00:00"},
        {"37": "o", "17": "2", "19": "1", "20": "1", "150": "1", "55": "A", "54": "2", "60": "20240301-15:00:01"},
        {"37": "o", "17": "3", "19": "", "20": "0", "150": "2", "55": "A", "54": "2", "60": "20240301-15:00:02"},
    ]
    fills = table(*({**one, "31": "9", "32": "7"} for one in rows))
    assert fills["time"].tolist() == [pd.Timestamp("2024-03-01 10:00:02")]
    assert fills["side"].tolist() == [-1]


def test_a_correction_of_a_correction_counts_alone() -> None:
    first, second, third = (
        row(exec_id=own, exec_ref_id=ref, exec_type=kind, price=price)
        for own, ref, kind, price in (("1", "", "TRADE", 5), ("2", "1", "Trade Correct", 6), ("3", "2", "G", 7))
    )
    assert table(third, first, second)["price"].tolist() == [7]


def test_a_cancel_of_nothing_and_an_unknown_type_are_refused() -> None:
    rows = [row(exec_id="1", exec_type="F"), row(exec_id="2", exec_ref_id="9", exec_type="H"), row(exec_type="?")]
    with pytest.raises(OrderError, match=r"row 1 .*exec_ref_id '9'[^$]*row 2 .*exec_type '\?'"):
        table(*rows)
    assert len(table(*rows, on_refused="drop")) == 1


def test_a_mapping_and_own_codes(tmp_path: Path) -> None:
    frame = pd.DataFrame([{"id": 7, "isin": "X1", "way": "0", "at": "2024-03-01 10:00", "n": "5", "avg_px": "2.5"}])
    frame.to_parquet(tmp_path / "fills.parquet")
    with pytest.raises(OrderError, match=r"'order_id', 'instrument', 'side', 'time', 'quantity', 'price'.*avg_px"):
        read_fills(tmp_path / "fills.parquet", US)
    columns = {"id": "order_id", "isin": "instrument", "way": "side", "at": "time", "n": "quantity", "avg_px": "price"}
    fills = read_fills(tmp_path / "fills.parquet", US, columns=columns, codes={"0": "SELL"})
    assert fills.loc[0, ["order_id", "instrument", "side", "quantity", "price"]].tolist() == ["7", "X1", -1, 5.0, 2.5]
    with pytest.raises(OrderError, match="'limit'"):
        read_fills(tmp_path / "fills.parquet", US, columns={**columns, "limit": "fee"})
    with pytest.raises(ConfigError, match="'px'"):
        read_fills(tmp_path / "fills.parquet", US, columns={"avg_px": "px"})


def test_two_columns_of_one_name_are_refused_until_one_is_chosen() -> None:
    with pytest.raises(OrderError, match=r"\['price', 'Price'\] for price"):
        table(row(Price=7))
    assert table(row(Price=7), columns={"Price": "price"})["price"].tolist() == [7]


def test_stamps_without_a_zone_are_the_calendars_or_the_stated_zones() -> None:
    noon = row(time="2024-07-01 16:00:00")
    assert table(noon)["time"].tolist() == [pd.Timestamp("2024-07-01 16:00")]
    assert table(noon, source_timezone="UTC")["time"].tolist() == [pd.Timestamp("2024-07-01 12:00")]
    assert table(row(time="2024-07-01T16:00:00.5+02:00"))["time"].tolist() == [pd.Timestamp("2024-07-01 10:00:00.5")]
    with pytest.raises(ConfigError, match="source_timezone"):
        table(row(time="2024-07-01T16:00:00Z"), source_timezone="UTC")
    with pytest.raises(ConfigError, match="'Mars'"):
        table(noon, source_timezone="Mars")
    with pytest.raises(OrderError, match="time zone"):
        table(row(time="20240701-16:00:00"), calendar=Calendar(segments=(("09:30", "16:00"),)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": "10:00:30"}, r"row 1 .*time '10:00:30'"),
        ({"price": "0"}, r"row 1 .*price '0'"),
        ({"quantity": "-5"}, r"row 1 .*quantity '-5'"),
        ({"quantity": ""}, r"row 1 .*quantity ''"),
        ({"side": "8"}, r"row 1 .*side '8'"),
        ({"order_id": " "}, r"row 1 .*order_id ' '"),
        ({"instrument": "B"}, r"row 1 .*instrument 'B' differs"),
        ({"side": "S"}, r"row 1 .*side 'S' differs"),
        ({"start": "09:45"}, r"row 1 .*start '09:45' differs"),
        ({"time": "2024-03-04 10:00", "start": ""}, r"row 1 .*time '2024-03-04 10:00' .*later date"),
        ({"fee": "free"}, r"row 1 .*fee 'free'"),
        ({"quantity": 31}, r"row 1 .*quantity 31 .*order_quantity"),
        ({"exec_id": "x"}, r"row 1 .*exec_id 'x' occurs more than once"),
    ],
)
def test_wrong_rows_are_named_and_may_be_left_out(change: dict[str, Any], words: str) -> None:
    rows = [row(order_quantity=40, start="10:00", fee=1, exec_id="x"), row(start="10:00", exec_id="y") | change]
    with pytest.raises(OrderError, match=words):
        table(*rows)
    kept = table(*rows, on_refused="drop")
    assert len(kept) == 1
    assert any("row 1" in note for note in kept.attrs["notes"])


def test_at_most_ten_rows_are_told() -> None:
    with pytest.raises(OrderError, match=r"12 of 13 rows are wrong:(\n  row.*){10}\n  and 2 more") as caught:
        table(row(), *(row(price=0) for _ in range(12)))
    assert len(str(caught.value).splitlines()) == 12


def test_an_amended_order_has_its_last_quantity_and_blanks_take_the_orders_values() -> None:
    fills = table(
        row(order_quantity=50, time="2024-03-01 10:02"),
        row(order_quantity=10, time="2024-03-01 10:00", start="09:59", decision_price="4.9"),
        row(order_quantity="", time="2024-03-01 10:01"),
    )
    assert fills["order_quantity"].tolist() == [50, 50, 50]
    assert fills["decision_price"].tolist() == [4.9, 4.9, 4.9]
    assert fills["start"].nunique() == 1
    assert fills["time"].is_monotonic_increasing
    assert any("several order quantities" in note for note in fills.attrs["notes"])


def test_one_quantity_above_the_order_leaves_the_orders_other_fills() -> None:
    rows = [row(order_quantity=40, quantity=q, time=f"2024-03-01 10:0{k}") for k, q in enumerate((20, 5000, 15, 10))]
    with pytest.raises(OrderError, match=r"2 of 4 rows are wrong:\n  row 1 .*5000.*\n  row 3 .*10"):
        table(*rows)


def test_equal_rows_count_and_are_told() -> None:
    fills = table(row(), row())
    assert len(fills) == 2
    assert any("1 fills equal another" in note for note in fills.attrs["notes"])


def test_orders_of_fills_cover_whole_ticks() -> None:
    fills = table(
        row(order_id="a", time="2024-03-01 10:00:30", start="09:59:30", end="10:05:30", order_quantity=100),
        row(order_id="b", time="2024-03-01 10:00:30"),
        row(order_id="b", time="2024-03-01 10:04:00", side="B"),
        row(order_id="c", time="2024-03-01 10:00:30", start="10:00:40", end="10:05"),
    )
    orders = fill_orders(fills, US).set_index("order_id")
    assert orders["amount"].to_dict() == {"a": 100, "b": 20, "c": 10}
    assert orders["start"].dt.strftime("%H:%M").to_dict() == {"a": "09:59", "b": "10:00", "c": "10:00"}
    assert orders["end"].dt.strftime("%H:%M").to_dict() == {"a": "10:06", "b": "10:05", "c": "10:05"}


def test_orders_of_fills_are_aligned_like_others() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=1, days=1))
    day, name = str(sessions.dates[0]), str(sessions.instruments[0])
    fills = table(
        row(instrument=name, time=f"{day} 10:00:30"),
        row(instrument=name, time=f"{day} 10:08:00"),
        calendar=sessions.calendar,
    )
    batch = align_orders(fill_orders(fills, sessions.calendar), sessions)
    assert (batch.start.tolist(), batch.end.tolist(), batch.amount.tolist()) == (
        [6],
        [8],
        [20.0],
    )  # bars of five minutes


def test_ticks_of_moments_know_the_break() -> None:
    moments = np.array([9.5, 11.5 - 1e-6, 11.5, 12.9, 13.0, 15.0, 9.0, np.nan]) * 3600
    assert tick_of(moments, CN).tolist() == [0, 119, -1, -1, 120, -1, -1, -1]
