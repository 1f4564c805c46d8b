"""Faults that fuzzing found, each in the smallest source that shows it."""

from __future__ import annotations

import gzip
import os
import pickle
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, import_bars, load_sessions, read_bars
from rlwb.market.readers.conformance import check_refusal
from tests.market.readers.sources import PRICES, flat, price_table, write_qlib

LINES = "datetime,open,high,low,close,volume\n2024-01-03 09:30:00,1,2,1,2,5\n2024-01-03 09:31:00,2,3,2,3,6\n"


def table(**columns: object) -> pa.Table:
    stamps = pd.to_datetime(["2024-01-03 09:30", "2024-01-03 09:31"])
    plain = {"datetime": stamps, **{name: [1.0, 2.0] for name in PRICES}, "volume": [5.0, 6.0]}
    return pa.table({name: values for name, values in {**plain, **columns}.items() if values is not None})


def test_every_damaged_byte_of_a_packed_csv_is_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = gzip.compress(LINES.encode(), mtime=0)
    path = tmp_path / "A.csv.gz"
    read = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read += len(read_bars(path)) == 2
        except DataError as error:
            check_refusal(str(error), str(path), (str(path),))
    assert read == 6  # the time and the system in the header, which say nothing of the content


def test_a_column_whose_name_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "A.parquet"
    pq.write_table(table(extra_1=[1, 2]), path)
    path.write_bytes(path.read_bytes().replace(b"extra_1", b"extra\xff\xfe"))
    with pytest.raises(DataError, match=r"A\.parquet is not a readable Parquet file"):
        read_bars(path)


def test_columns_of_no_type_are_missing_values(tmp_path: Path) -> None:
    for name, low in (("A", pa.nulls(2)), ("B", pa.array([1.0, 1.5]))):
        pq.write_table(table(low=low, instrument=[name, name]), tmp_path / f"{name}.parquet")
    bars = read_bars(tmp_path)
    assert bars["low"].dtype == np.float64
    np.testing.assert_array_equal(bars["low"], [np.nan, np.nan, 1.0, 1.5])


def test_date_and_time_without_a_single_row(tmp_path: Path) -> None:
    empty = table(datetime=None, date=pa.array([0.5, 1.5]), time=pa.array([0.5, 1.5])).slice(0, 0)
    pq.write_table(empty, tmp_path / "A.parquet")
    assert len(read_bars(tmp_path)) == 0


@pytest.mark.parametrize("last", ["2262-04-11 23:47:17", "9999-12-31", "2262-04-12"])
def test_a_listing_may_end_beyond_the_years_of_nanoseconds(last: str, tmp_path: Path) -> None:
    steps = ["2024-01-03", "2024-01-04"]
    listing = f"A\t0001-01-01\t{last}\n"
    source = write_qlib(tmp_path / "q", {"A": flat([1, 2], [3, 4])}, steps, freq="day", listing=listing)
    assert read_bars(source)["close"].tolist() == [1, 2]


@pytest.mark.parametrize("dates", ["9999-01-02\t2024-01-04", "2024-01-02\t0001-01-01"])
def test_a_listing_that_begins_after_all_bars_or_ends_before_them_lists_none(dates: str, tmp_path: Path) -> None:
    steps = ["2024-01-03", "2024-01-04"]
    source = write_qlib(tmp_path / "q", {"A": flat([1, 2], [3, 4])}, steps, freq="day", listing=f"A\t{dates}\n")
    assert len(read_bars(source)) == 0


def test_every_kind_of_nan_is_one(tmp_path: Path) -> None:
    source = write_qlib(tmp_path / "q", {"A": flat([1, 2], [3, 4])}, ["2024-01-03", "2024-01-04"], freq="day")
    (source / "features" / "a" / "close.day.bin").write_bytes(bytes(4) + b"\x01\x00\x80\x7f" + b"\x00\x00\x80\x3f")
    np.testing.assert_array_equal(read_bars(source)["close"], [np.nan, 1])


def test_text_that_is_not_utf8_in_parquet_is_refused(tmp_path: Path) -> None:
    pq.write_table(table(instrument=["abcdef", "abcdeg"]), tmp_path / "A.parquet", compression="none")
    path = tmp_path / "A.parquet"
    path.write_bytes(path.read_bytes().replace(b"abcde", b"\xff\x8acde"))
    with pytest.raises(DataError, match=r"A\.parquet is not a readable Parquet file \(.* UTF8"):
        read_bars(path)


def test_a_time_of_day_beyond_the_day_is_refused(tmp_path: Path) -> None:
    late = pa.array([86_400_000_000_000, 0], pa.int64()).cast(pa.time64("us"))
    pq.write_table(table(volume=late), tmp_path / "A.parquet")
    with pytest.raises(DataError, match=r"A\.parquet is not a readable Parquet file \(.*86400000000"):
        read_bars(tmp_path)


def test_what_pandas_noted_in_a_parquet_file_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "A.parquet"
    pq.write_table(table().replace_schema_metadata({"pandas": "{"}), path)
    assert len(read_bars(path)) == 2


def test_a_pickled_table_without_rows_has_no_bars(tmp_path: Path) -> None:
    price_table(["A"], [1.0, 2.0]).iloc[:0].to_pickle(tmp_path / "A.pkl")
    assert len(read_bars(tmp_path, options={"trust_pickle": True})) == 0


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("pandas", "eval"), ("numpy", "fromfile"), ("pandas", "read_pickle")],
)
def test_a_pickle_that_names_what_no_table_needs_is_refused(module: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "A.pkl").write_bytes(f"c{module}\n{name}\n(V1\ntR.".encode())
    with pytest.raises(DataError, match=rf"A\.pkl .*'{module}\.{name}'"):
        read_bars(tmp_path, options={"trust_pickle": True})


def test_a_pickle_that_names_a_far_place_takes_no_memory_for_it(tmp_path: Path) -> None:
    (tmp_path / "A.pkl").write_bytes(b"\x80\x04]r\xff\xff\xff\x1f.")  # by C 4 GB for the places before it
    tracemalloc.start()
    with pytest.raises(DataError, match=r"A\.pkl is not a table pickled by pandas .*list"):
        read_bars(tmp_path, options={"trust_pickle": True})
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_pickles_of_every_protocol_and_type_are_read(protocol: int, dtype: type, tmp_path: Path) -> None:
    frame = price_table(["A", "000001"], [1, 2, 3], dtype)
    (tmp_path / "A.pkl").write_bytes(pickle.dumps(frame, protocol=protocol))
    bars = read_bars(tmp_path, options={"trust_pickle": True})
    assert bars["instrument"].tolist() == ["000001"] * 3 + ["A"] * 3
    assert bars["close"].tolist() == [1, 2, 3] * 2


@pytest.mark.parametrize("name", ["A.csv", "A.csv.gz", "A.parquet"])
def test_bars_beyond_the_memory_are_refused_before_they_fill_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(table(), path)
    else:
        path.write_bytes(gzip.compress(LINES.encode()) if name.endswith("gz") else LINES.encode())
    assert len(read_bars(path)) == 2
    monkeypatch.setattr(os, "sysconf", lambda _: 10)
    with pytest.raises(DataError, match=rf"{name} holds over 0\.0 GB of bars, of which some 3 times is needed"):
        read_bars(path)


def test_a_column_without_a_value_has_the_type_of_the_other_files(tmp_path: Path) -> None:
    stamps = table()["datetime"]
    named = {"A": {"datetime": pa.nulls(2, pa.float64())}, "B": {"datetime": stamps, "halted": pa.array([True, False])}}
    named["C"] = {"datetime": stamps, "halted": pa.nulls(2, pa.float64()), "low": pa.nulls(2, pa.string())}
    for name, columns in named.items():
        pq.write_table(table(instrument=[name, name], **columns), tmp_path / f"{name}.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bars = read_bars(tmp_path)
    assert list(bars.columns) == ["instrument", "datetime", *PRICES, "volume", "halted"]
    assert list(bars["instrument"]) == ["B", "B", "C", "C", "A", "A"]
    assert bars["datetime"].dtype.kind == "M"
    assert list(bars["datetime"].isna()) == [False, False, False, False, True, True]
    np.testing.assert_array_equal(bars["low"], [1, 2, np.nan, np.nan, 1, 2])
    assert bars["low"].dtype == np.float64
    assert list(bars["halted"]) == [True, False, False, False, False, False]


def test_columns_of_different_types_without_a_value_at_all_are_missing(tmp_path: Path) -> None:
    for name, kind in (("A", pa.float64()), ("B", pa.bool_()), ("C", pa.string())):
        one = table(instrument=[name, name], halted=pa.nulls(2, kind))
        pq.write_table(one, tmp_path / f"{name}.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bars = read_bars(tmp_path)
    assert len(bars) == 6
    assert not bars["halted"].any()
    assert len(load_sessions(tmp_path, Calendar.preset("us"), min_coverage=0).instruments) == 3


@pytest.mark.parametrize("name", ["A.csv", "A.parquet"])
def test_an_import_names_the_file_that_lacks_a_column(name: str, tmp_path: Path) -> None:
    path = tmp_path / "source" / name
    path.parent.mkdir()
    lacking = table(high=None)
    if name.endswith("csv"):
        lacking.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(lacking, path)
    with pytest.raises(DataError, match=rf"{name} lack the columns high"):
        import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))


def test_lists_for_instruments_are_refused(tmp_path: Path) -> None:
    pq.write_table(table(instrument=pa.array([["A"], ["A"]])), tmp_path / "A.parquet")
    words = r"A\.parquet: column instrument holds list<.*; write ids as text"
    with pytest.raises(DataError, match=words):
        load_sessions(tmp_path, Calendar.preset("us"))
    with pytest.raises(DataError, match=words):
        import_bars([tmp_path / "A.parquet"], tmp_path / "made", calendar=Calendar.preset("us"))


def test_a_column_of_halts_that_holds_stamps(tmp_path: Path) -> None:
    path = tmp_path / "A.parquet"
    stamps = pa.array(pd.to_datetime(["2024-01-03", "2024-01-04"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pq.write_table(table(halted=stamps).slice(0, 0), path)
        with pytest.raises(DataError, match=r"A\.parquet holds no bars"):
            import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))
        pq.write_table(table(halted=stamps), path)
        with pytest.raises(DataError, match=r"A\.parquet: column halted holds .*2024"):
            import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))


def test_a_large_table_of_empty_cells_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "equity/usa/minute/spy"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "20240103_trade.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("20240103_spy_minute_trade.csv", b",,,,,\n" * 200_000)
    with pytest.raises(DataError, match=r"20240103_trade\.zip, row 1: the time in milliseconds .* is missing"):
        read_bars(tmp_path)


def test_a_name_that_cannot_be_shown_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "A.csv"
    path.write_text("datetime,open,hi\tgh,low,close\n2024-01-03 09:30:00,1,2,1,2\n")
    with pytest.raises(DataError, match=r"lack the columns high, volume .*; hi\\tgh mean nothing") as caught:
        load_sessions(path, Calendar.preset("us"))
    check_refusal(str(caught.value), str(path), (str(path),))
    with pytest.raises(DataError, match=r"has no column 'shut'; it has datetime, open, hi\\tgh, low, close"):
        read_bars(path, columns={"shut": "close"})


def test_an_import_refuses_a_year_beyond_nanoseconds_as_a_reading_does(tmp_path: Path) -> None:
    path = tmp_path / "A.csv"
    path.write_text(LINES.replace("2024-01-03 09:31", "7024-01-03 09:31"))
    with pytest.raises(DataError, match=r"A\.csv, row 3: the stamp '7024-01-03 09:31:00' cannot be read"):
        import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))


def test_an_import_without_a_single_stamp_adds_no_bars(tmp_path: Path) -> None:
    path = tmp_path / "A.parquet"
    pq.write_table(table(datetime=pa.nulls(2, pa.timestamp("us"))), path)
    done = import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))
    assert (done.rows, done.bars, done.report.counts) == (2, 0, {"datetime_missing": 2, "instrument_outside": 1})
    assert len(read_bars(tmp_path / "made")) == 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("row", [1, 2, 3])
def test_a_blank_line_of_an_order_book_is_no_row(row: int, end: str, tmp_path: Path) -> None:
    messages = [f"3420{second}.5,1,{second},100,1000000,1" for second in range(4)]
    book = ["1001000,50,1000000,100"] * 3
    book.insert(row - 1, "")
    for kind, lines in (("message", messages), ("orderbook", book)):
        text = "".join(line + end for line in lines)
        (tmp_path / f"AAPL_2012-06-21_34200000_34440000_{kind}_1.csv").write_bytes(text.encode())
    with pytest.raises(DataError, match=r"orderbook_1\.csv has 3 rows, .*message_1\.csv has 4"):
        read_bars(tmp_path)


def test_whole_numbers_beyond_those_that_float64_holds_are_imported_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "A.parquet"
    pq.write_table(table(volume=pa.array([2**53 + 1, 2**62 + 1])), path)
    import_bars([path], tmp_path / "made", calendar=Calendar.preset("us"))
    np.testing.assert_array_equal(read_bars(path)["volume"].astype(np.float64), [2.0**53, 2.0**62])
    np.testing.assert_array_equal(read_bars(tmp_path / "made")["volume"], [2.0**53, 2.0**62])
