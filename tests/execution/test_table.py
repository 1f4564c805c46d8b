"""Order files: what is written is read, and users' own tables come in or are refused by row."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from rlwb.errors import DataError, OrderError
from rlwb.execution import (
    Direction,
    align_orders,
    generate_orders,
    order_table,
    read_orders,
    write_orders,
)
from rlwb.market import Calendar, SyntheticSettings, synthetic_sessions

US = Calendar(segments=(("09:30", "16:00"),), timezone="America/New_York")


def test_parquet_round_trip_with_settings(tmp_path: Path) -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=3))
    table = generate_orders(sessions)
    write_orders(tmp_path / "orders.parquet", table, {"seed": 0})
    back = read_orders(tmp_path / "orders.parquet", sessions.calendar)
    pd.testing.assert_frame_equal(back, table, check_dtype=True)
    metadata = pq.read_schema(tmp_path / "orders.parquet").metadata
    assert json.loads(metadata[b"rlwb.order_settings"]) == {"seed": 0}


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
    with pytest.raises(OrderError, match=r"line 3 .*: direction '0' is not BUY or SELL"):
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
        ({"start": "25:99"}, "row 0 .*: start '25:99' is not a time"),
        ({"start": "2024-01-03 10:00"}, "not on the order's date 2024-01-02"),
        ({"direction": "hold"}, "row 0 .*: direction 'hold'"),
        ({"amount": "-3"}, "row 0 .*: amount '-3' is not a number above 0"),
        ({"instrument": ""}, "row 0 .*: instrument '' is not text"),
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
    assert align_orders(pd.DataFrame([row]), sessions).end.tolist() == [sessions.calendar.num_ticks]


def test_orders_bind_like_the_table_they_came_from() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=3))
    table = generate_orders(sessions)
    table.loc[0, ["start", "end"]] = table.loc[0, "date"] + pd.to_timedelta(["10:00:00", "14:15:00"])
    table.loc[1, ["start", "end"]] = pd.NaT
    batch = align_orders(table, sessions)
    again = align_orders(list(batch), sessions)
    for name in ("session", "side", "amount", "start", "end"):
        expected = getattr(batch, name)
        np.testing.assert_array_equal(getattr(again, name), expected)
        assert getattr(again, name).dtype == expected.dtype
    pd.testing.assert_frame_equal(again.table, batch.table)
    assert list(again) == list(batch)


@pytest.mark.parametrize(
    "header", ["ORDER_ID, Instrument, Date, Direction, Amount", "order_id,instrument,date,direction,amount"]
)
def test_a19_ids_keep_their_zeros_under_any_heading_and_trailing_commas_shift_nothing(
    header: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.csv").write_text(f"{header}\n007,000001,20240102,B,0.12345678901234568,\n")
    row = read_orders(tmp_path / "orders.csv", US).iloc[0]
    assert (row["order_id"], row["instrument"], row["amount"]) == ("007", "000001", 0.12345678901234568)


def test_rows_longer_than_the_header_and_nul_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("instrument,date,direction,amount\nA,20240102,B,1,5\n")
    with pytest.raises(OrderError, match="more values than its header"):
        read_orders(path, US)
    path.write_bytes(b"instrument,date,direction,amount\nA,20240102,B,1\x0000\n")
    with pytest.raises(OrderError, match="NUL bytes"):
        read_orders(path, US)


def order_rows(**columns: object) -> pd.DataFrame:
    base = {"instrument": ["A", "B"], "date": ["2024-01-02"] * 2, "direction": ["BUY", "SELL"], "amount": [1.0, 2.0]}
    return pd.DataFrame({**base, **columns})


@pytest.mark.parametrize(
    "direction", [True, np.True_, None, pd.NA, float("nan"), [1], np.array([1, 2]), 2, 1.5, "+1.0"]
)
def test_b09_what_is_no_direction_is_refused(direction: object) -> None:
    with pytest.raises(OrderError, match=r"row 0 .*: direction .* is not BUY or SELL"):
        order_table(order_rows(direction=pd.Series([direction, "SELL"], dtype=object)), US)


def test_b09_codes_match_a_files_text_and_never_turn_a_named_side() -> None:
    codes = {0: "SELL", 1: "BUY"}
    for given in ([0, 1], ["0", "1"], [0.0, 1.0], pd.array([0, 1], dtype="Int64")):
        assert order_table(order_rows(direction=given), US, codes=codes)["direction"].tolist() == ["SELL", "BUY"]
    sides = pd.Series([Direction.BUY, Direction.SELL], dtype=object)
    turned = order_table(order_rows(direction=sides), US, codes={1: "SELL", -1: "BUY"})
    assert turned["direction"].tolist() == ["BUY", "SELL"]


@pytest.mark.parametrize("amount", [True, "1,000", "1_000", 1 + 0j, None, pd.NA, pd.Timestamp(2024, 1, 2), [1.0]])
def test_what_is_no_amount_is_refused(amount: object) -> None:
    with pytest.raises(OrderError, match=r"row 0 .*: amount"):
        order_table(order_rows(amount=pd.Series([amount, 1.0], dtype=object)), US)


@pytest.mark.parametrize(
    "ids", [[7.0, np.nan], [7, None], pd.array([7, None], dtype="Int64"), ["7", pd.NA], [" 7 ", "  "]]
)
def test_missing_ids_are_made_and_whole_numbers_stay_whole(ids: object) -> None:
    assert order_table(order_rows(order_id=ids), US)["order_id"].tolist() == ["7", "B-20240102-S"]


def test_doubled_headings_and_other_things_than_orders_are_refused() -> None:
    with pytest.raises(OrderError, match=r"the columns \['amount'\] more than once"):
        order_table(order_rows(Amount=3.0), US)
    for thing in (1, {"instrument": "A"}, None):
        with pytest.raises(OrderError, match="is no Order"):
            order_table([thing], US)  # type: ignore[list-item]
    with pytest.raises(OrderError, match="instrument ' ' is not text"):
        order_table(order_rows(instrument=[" ", "A"]), US)


def qlib_orders() -> pd.DataFrame:
    """Orders as Qlib's example pickles them: by date and instrument, 0 sells and 1 buys."""
    return pd.DataFrame(
        {
            "date": pd.to_datetime(["2024-03-01", "2024-03-01", "2024-03-04"]),
            "instrument": ["SH600000", "000001", "SH600000"],
            "amount": [100.0, 250.5, 30.0],
            "order_type": [0, 1, 1],
        }
    ).set_index(["date", "instrument"])


@pytest.mark.parametrize("form", ["pickle", "folder", "csv", "parquet", "datetime", "text dates", "table"])
def test_l05_qlibs_orders_are_read_as_they_are(form: str, tmp_path: Path) -> None:
    orders, path = qlib_orders(), tmp_path / "train.pkl"
    if form == "table":
        found = order_table(orders, US)
    elif form == "csv":
        orders.to_csv(path := tmp_path / "train.csv")
        found = read_orders(path, US)
    elif form == "parquet":
        orders.to_parquet(path := tmp_path / "train.parquet")
        found = read_orders(path, US)
    elif form == "folder":
        (tmp_path / "train").mkdir()
        for day, some in orders.groupby(level="date"):
            some.to_pickle(tmp_path / "train" / f"{day:%Y%m%d}.pkl")
        found = read_orders(tmp_path / "train", US, trust_pickle=True)
    else:
        if form == "datetime":  # as newer ones have it
            orders = orders.rename_axis(["datetime", "instrument"])
        elif form == "text dates":
            orders = orders.reset_index().astype({"date": str}).set_index(["date", "instrument"])
        orders.to_pickle(path)
        found = read_orders(path, US, trust_pickle=True)
    assert found["instrument"].tolist() == ["SH600000", "000001", "SH600000"]
    assert found["direction"].tolist() == ["SELL", "BUY", "BUY"]
    assert found["amount"].tolist() == [100.0, 250.5, 30.0]
    assert found["date"].tolist() == list(pd.to_datetime(["2024-03-01", "2024-03-01", "2024-03-04"]))


@pytest.mark.parametrize("zone", ["America/New_York", "UTC", timezone(timedelta(hours=-5))])
def test_l05_dates_with_a_zone_are_read_from_a_pickle(zone: Any, tmp_path: Path) -> None:
    """Noon of 1 March in New York is a stamp of that date in every zone here."""
    noon = pd.to_datetime(["2024-03-01 12:00"]).tz_localize("America/New_York").tz_convert(zone)
    orders = pd.DataFrame({"instrument": ["A"], "amount": [5.0], "order_type": [0], "start": noon})
    orders.to_pickle(tmp_path / "train.pkl")
    found = read_orders(tmp_path / "train.pkl", US, trust_pickle=True)
    assert found["date"].tolist() == [pd.Timestamp("2024-03-01")]
    assert found["start"].tolist() == [pd.Timestamp("2024-03-01 12:00")]


def test_k28_a_window_by_the_names_of_the_settings_is_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("instrument,date,direction,amount,start_time,end_time\nA,2024-03-01,BUY,5,10:00,11:00\n")
    (found,) = read_orders(path, US)[["start", "end"]].to_numpy().tolist()
    assert [str(pd.Timestamp(one).time()) for one in found] == ["10:00:00", "11:00:00"]


def test_l05_a_pickle_is_read_only_if_trusted_and_holds_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "train.pkl"
    qlib_orders().to_pickle(path)
    with pytest.raises(DataError, match=r"train\.pkl is a pickle.*trust_pickle"):
        read_orders(path, US)
    path.write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(DataError, match=r"train\.pkl.*pathlib"):
        read_orders(path, US, trust_pickle=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OrderError, match="empty is a folder without"):
        read_orders(tmp_path / "empty", US, trust_pickle=True)


def test_l05_an_order_type_of_ones_own_beside_a_direction_is_left_alone() -> None:
    own = qlib_orders().assign(direction=["BUY", "SELL", "BUY"], order_type="limit")
    assert order_table(own, US)["direction"].tolist() == ["BUY", "SELL", "BUY"]
    with pytest.raises(OrderError, match="direction 2"):
        order_table(qlib_orders().assign(order_type=2), US)


HEADER = "instrument,date,direction,amount,start\n"


def wrong_csv(tmp_path: Path) -> Path:
    """A hundred orders, five of them with impossible amounts, the file with an empty line and a cell of two lines."""
    amounts = {10: "0", 20: "-5", 30: "NaN", 40: "inf", 50: "many"}
    rows = [f"A,2024-01-02,BUY,{amounts.get(i, '1')},10:00" for i in range(100)]
    rows[15] = 'A,2024-01-02,BUY,1,"10:00\n"'  # takes two lines
    rows.insert(5, "")
    (tmp_path / "orders.csv").write_text(HEADER + "\n".join(rows) + "\n")
    return tmp_path / "orders.csv"


def test_j08_every_wrong_row_of_a_csv_file_is_named_by_its_line(tmp_path: Path) -> None:
    path = wrong_csv(tmp_path)
    with pytest.raises(OrderError) as error:
        read_orders(path, US)
    lines = path.read_text().split("\n")
    told = {int(line.split()[1]): line for line in str(error.value).split("\n")[1:]}
    # The header, an empty line before row 5, and a line more from row 15 on.
    assert list(told) == [13, 24, 34, 44, 54]
    for number, value in zip(told, ("0", "-5", "NaN", "inf", "many"), strict=True):
        assert f",{value}," in lines[number - 1]
        assert f"amount '{value}' is not a number above 0" in told[number]
    assert "orders.csv: 5 of 100 rows are wrong" in str(error.value)


def test_j08_a_line_is_named_behind_a_cell_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(f"instrument,date,direction,amount,note\nA,2024-03-01,BUY,1,{'x' * 200_000}\nA,2024-03-01,BUY,0,\n")
    with pytest.raises(OrderError, match=r"orders.csv, line 3 \(A\): amount '0'"):
        read_orders(path, US)


def test_j08_wrong_rows_are_left_out_and_counted_where_asked(tmp_path: Path) -> None:
    table = read_orders(wrong_csv(tmp_path), US, on_refused="drop")
    assert len(table) == 95
    assert (table["amount"] == 1.0).all()
    (note,) = table.attrs["notes"]
    assert "5 of 100 rows" in note
    assert "line 54 (A): amount 'many'" in note


def test_j08_faults_of_all_columns_are_told_together_the_first_ten_of_them() -> None:
    row = {"instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": "1", "start": "10:00", "end": ""}
    changes = [{"instrument": ""}, {"date": "soon"}, {"direction": "hold"}, {"start": "25:99"}, {"end": "2024-01-04"}]
    frame = pd.DataFrame([row, *(row | change for change in changes), *[row | {"amount": "0"}] * 7])
    with pytest.raises(OrderError) as error:
        order_table(frame, US)
    first, *told, rest = str(error.value).split("\n  ")
    assert "orders: 12 of 13 rows are wrong" in first
    assert [line.split(" (")[0] for line in told] == [f"row {i}" for i in range(1, 11)]
    assert rest == "and 2 more"
    for line, name in zip(told, ("instrument", "date", "direction", "start", "end", "amount"), strict=False):
        assert f": {name} " in line
    assert len(order_table(frame, US, on_refused="drop")) == 1


def test_j08_a_doubled_id_and_an_unknown_code_are_wrong_rows_as_others() -> None:
    row = {"order_id": "x", "instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": 1.0}
    frame = pd.DataFrame([row, row | {"order_id": "y", "direction": 7}, row, row | {"order_id": ""}, row])
    kept = order_table(frame, US, on_refused="drop")
    assert kept["order_id"].tolist() == ["x", "A-20240102-B"]
    assert "3 of 5 rows" in kept.attrs["notes"][0]
    with pytest.raises(OrderError, match=r"row 1 \(A\): direction 7 is not BUY or SELL"):
        order_table(frame, US)


def test_j08_nothing_but_wrong_rows_is_refused_in_any_case() -> None:
    row = {"instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": -1.0}
    with pytest.raises(OrderError, match="holds no orders"):
        order_table(pd.DataFrame([row, row]), US, on_refused="drop")


def test_j08_one_wrong_row_of_a_parquet_file_is_counted_from_0(tmp_path: Path) -> None:
    rows = [{"instrument": "A", "date": "2024-01-02", "direction": "BUY", "amount": float(i)} for i in (2, 1, 0)]
    pd.DataFrame(rows).to_parquet(tmp_path / "orders.parquet")
    with pytest.raises(OrderError, match=r"orders.parquet, row 2 \(A\): amount 0.0 is not"):
        read_orders(tmp_path / "orders.parquet", US)


def test_j08_orders_that_cannot_be_executed_are_all_named() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=1, days=5))
    day = str(sessions.dates[0])
    row = {"instrument": "SYN001", "date": day, "direction": "BUY", "amount": 1.0}
    late, short = {"start": "15:30"}, {"start": "10:02", "end": "10:03"}
    changes = [{}, {"instrument": "B"}, {"date": "2000-01-03"}, late, short, *[{"instrument": "C"}] * 8]
    frame = pd.DataFrame([row | change | {"order_id": str(i)} for i, change in enumerate(changes)])
    with pytest.raises(OrderError) as error:
        align_orders(frame, sessions)
    first, *told, rest = str(error.value).split("\n  ")
    assert "12 of 13 orders cannot be executed" in first
    assert [line.split()[1] for line in told] == [str(i) for i in range(1, 11)]
    reasons = ["not in the data", "no session", "session's close", "no tick"]
    assert all(reason in line for reason, line in zip(reasons, told, strict=False))
    assert rest == "and 2 more"
    assert len(align_orders(frame, sessions, on_refused="drop")) == 1
