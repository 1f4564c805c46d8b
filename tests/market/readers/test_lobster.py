"""LOBSTER's events as bars: what a minute traded, and what was quoted when it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, load_sessions, read_bars
from rlwb.market.readers.lobster import make_bars
from tests.market.readers.sources import BOOK, LOBSTER_NAME, MESSAGES, lobster

ONE = "1001000,50,1000000,100"


def write(folder: Path, messages: list[str], book: list[str] | None = None, level: int = 1) -> Path:
    name = LOBSTER_NAME.replace("_1.csv", f"_{level}.csv")
    (folder / name.format("message")).write_text("\n".join(messages) + "\n")
    (folder / name.format("orderbook")).write_text("\n".join(book or [ONE] * len(messages)) + "\n")
    return folder


def test_the_bars_of_a_small_day(tmp_path: Path) -> None:
    source = lobster(tmp_path)
    bars = read_bars(source)
    assert bars["datetime"].astype(str).tolist() == [f"2012-06-21 09:3{minute}:00-04:00" for minute in range(4)]
    assert bars["instrument"].unique().tolist() == ["AAPL"]
    nan = np.nan
    np.testing.assert_array_equal(bars["open"], [100, nan, nan, nan])
    np.testing.assert_array_equal(bars["high"], [100.05, nan, nan, nan])
    np.testing.assert_array_equal(bars["low"], [100, nan, nan, nan])
    np.testing.assert_array_equal(bars["close"], [100.05, nan, nan, nan])
    assert bars["volume"].tolist() == [60, 0, 0, 0]
    np.testing.assert_allclose(bars["vwap"][0], (40 * 100 + 20 * 100.05) / 60, rtol=1e-15)
    np.testing.assert_array_equal(bars["bid"], [100, 100, nan, nan])
    np.testing.assert_array_equal(bars["bid_size"], [60, 60, nan, nan])
    np.testing.assert_array_equal(bars["ask"], [100.1, 100.1, nan, nan])
    # The halt begins within the third minute, which may still have traded; the fourth lies in it as a whole.
    assert bars["halted"].tolist() == [False, False, False, True]


def test_bars_of_two_minutes(tmp_path: Path) -> None:
    source = lobster(tmp_path)
    bars = read_bars(source, options={"tick_minutes": 2})
    assert bars["datetime"].dt.minute.tolist() == [30, 32]
    assert bars["volume"].tolist() == [60, 0]
    with pytest.raises(ConfigError, match="tick_minutes is 90"):
        read_bars(source, options={"tick_minutes": 90})


def test_a_halt_ends_when_trading_resumes_and_not_when_quotes_do(tmp_path: Path) -> None:
    states = {34200.0: -1, 34300.0: 0, 34335.0: 1}
    bars = read_bars(write(tmp_path, [f"{time},7,0,0,{state},-1" for time, state in states.items()]))
    assert bars["halted"].tolist() == [True, True, False, False]


def test_executions_of_auctions_are_outside_bars_and_counted(tmp_path: Path) -> None:
    messages = ["34200.0,6,-1,5000,1000000,-1", "34201.0,4,1,10,1010000,1"]
    report = Report()
    bars = read_bars(write(tmp_path, messages), report=report)
    assert (bars["volume"][0], bars["open"][0]) == (10, 101)
    assert report.counts == {"cross_trade": 1}


def test_events_at_the_very_end_belong_to_the_last_bar(tmp_path: Path) -> None:
    bars = read_bars(write(tmp_path, ["34200.0,1,1,1,1,1", "34440.0,4,1,10,1010000,1"]))
    assert bars["volume"].tolist() == [0, 0, 0, 10]


def test_there_is_no_bar_before_the_book_is_known(tmp_path: Path) -> None:
    bars = read_bars(write(tmp_path, ["34330.0,4,1,10,1010000,1"]))
    assert bars["datetime"].dt.minute.tolist() == [32, 33]


def test_deeper_books_and_named_participants_are_read(tmp_path: Path) -> None:
    book = ["1001000,50,1000000,100,1002000,1,999000,2"] * len(MESSAGES)
    bars = read_bars(write(tmp_path, MESSAGES, book, 2))
    assert bars["bid"].tolist() == [100] * 4
    named = [f"{message}," for message in MESSAGES]
    assert read_bars(write(tmp_path, named, book, 2))["volume"].tolist() == [60, 0, 0, 0]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("34199.9,1,1,1,1,1", "row 2: the time is 34199.9"),
        ("34441,1,1,1,1,1", "row 2: the time is 34441"),
        ("34200.1,1,1,1,1,1", "row 2: the time goes back and is 34200.1"),
        (",1,1,1,1,1", "row 2: the time is missing"),
        ("34201,8,1,1,1,1", r"row 2: the type \(1 to 7\) is 8"),
        ("34201,4,1,0,1,1", "row 2: the size of an execution is 0"),
        ("34201,5,1,1,-5,1", "row 2: the price of an execution is -5"),
        ("34201,4,1,1,,1", "row 2: the price of an execution is missing"),
        ("34201,7,0,0,2,-1", "row 2: the state .* of a halt is 2"),
        ("34201,4,1,1,1", "row 2 holds 5 values where 6 belong"),
        ("34201,buy,1,1,1,1", "row 2: type is 'buy', not a number"),
    ],
)
def test_messages_that_cannot_be_are_named(tmp_path: Path, message: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_bars(write(tmp_path, [MESSAGES[0], message]))
    assert "message_1.csv" in str(caught.value)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, MESSAGES, BOOK[:-1])
    with pytest.raises(DataError, match=r"orderbook_1\.csv has 4 rows, .*message_1\.csv has 5"):
        read_bars(source)
    (source / LOBSTER_NAME.format("orderbook")).unlink()
    with pytest.raises(DataError, match=r"orderbook_1\.csv is missing"):
        read_bars(source)


def test_one_day_in_two_depths_is_refused(tmp_path: Path) -> None:
    source = lobster(tmp_path)
    write(source, MESSAGES, ["1001000,50,1000000,100,1002000,1,999000,2"] * len(MESSAGES), 2)
    with pytest.raises(DataError, match="are both AAPL 2012-06-21; keep one of them"):
        read_bars(source)


def test_one_file_brings_the_one_beside_it(tmp_path: Path) -> None:
    source = lobster(tmp_path)
    assert len(read_bars(source / LOBSTER_NAME.format("message"))) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("A_2012-13-21_34200000_34440000_message_1.csv", "the date 2012-13-21"),
        ("A_2012-06-21_34440000_34200000_message_1.csv", "names no times of day"),
        ("A_2012-06-21_0_86400001_message_1.csv", "names no times of day"),
        ("A_2012-06-21_34200000_34440000_message_0.csv", "names no times of day"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text(MESSAGES[0])
    with pytest.raises(DataError, match=words):
        read_bars(tmp_path)


@pytest.mark.parametrize("symbol", ["000001", "NA", "TRUE", "1E5", "BRK.B", "A_B"])
def test_a19_a21_symbols_are_the_text_of_the_name(tmp_path: Path, symbol: str) -> None:
    for kind, lines in (("message", MESSAGES), ("orderbook", BOOK)):
        name = LOBSTER_NAME.format(kind).replace("AAPL", symbol)
        (tmp_path / name).write_text("\n".join(lines))
    assert read_bars(tmp_path)["instrument"].unique().tolist() == [symbol]


def test_a09_halted_ticks_reach_the_panel(tmp_path: Path) -> None:
    source = lobster(tmp_path)
    calendar = Calendar(segments=(("09:30", "09:34"),), timezone="America/New_York", infer_early_close_minutes=0)
    sessions = load_sessions(source, calendar, min_coverage=0.25)
    assert sessions.halted is not None
    assert sessions.halted.tolist() == [[False, False, False, True]]
    assert sessions.report.counts["quote_only"] == 1


def slow_bars(events: dict[str, np.ndarray], start: float, end: float, length: int) -> list[dict[str, Any]]:
    """The specification: one bar after the other, one event after the other."""
    bars = []
    for begin in range(int(start // length) * length, int(np.ceil(end / length)) * length, length):
        last = begin + length >= end
        inside = [row for row, time in enumerate(events["time"]) if begin <= time and (time < begin + length or last)]
        before = [row for row, time in enumerate(events["time"]) if time < begin + length or last]
        if not before:
            continue
        traded = [(events["price"][row], events["size"][row]) for row in inside if events["type"][row] in (4, 5)]
        volume = sum(size for _, size in traded)
        prices = [price for price, _ in traded] or [np.nan]
        bars.append(
            {
                "start": begin,
                "open": prices[0],
                "high": max(prices),
                "low": min(prices),
                "close": prices[-1],
                "volume": volume,
                "vwap": sum(price * size for price, size in traded) / volume if traded else np.nan,
                "bid": events["bid"][before[-1]],
                "ask_size": events["ask_size"][before[-1]],
            }
        )
    return bars


@example([(1200, 1, 1)], 60, 0)
@given(
    st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 6), st.integers(1, 500)), min_size=1, max_size=60),
    st.sampled_from([60, 120, 300]),
    st.integers(0, 100),
)
def test_fast_bars_are_those_of_the_slow_loop(rows: list[tuple[int, int, int]], length: int, offset: int) -> None:
    rows.sort(key=lambda row: row[0])
    start, end = 36_000.0 - 60 * (offset % 7), 37_200.0 + 60 * (offset % 3)
    time, kind, size = (np.array(column) for column in zip(*rows, strict=True))
    price = 100 + size / 100
    events = {
        "time": 36_000.0 + time,
        "type": kind,
        "size": size,
        "price": price,
        "halt": np.full(len(rows), np.nan),
        "bid": price - 1,
        "bid_size": size,
        "ask": price + 1,
        "ask_size": size + 1,
    }
    starts, fields = make_bars(events, start, end, length)
    expected = slow_bars(events, start, end, length)
    assert starts.tolist() == [bar["start"] for bar in expected]
    for name in expected[0].keys() - {"start"}:
        np.testing.assert_allclose(fields[name], [bar[name] for bar in expected], rtol=1e-12, err_msg=name)
