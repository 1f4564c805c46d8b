"""The panel: look-up, right and cheap; selection, immutability."""

from __future__ import annotations

import datetime as dt
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import DataError
from rlwb.market import Calendar, Sessions, build_sessions
from tests.market.helpers import random_bars

SMALL = Calendar(segments=(("10:00", "10:05"),), infer_early_close_minutes=0)
DATES = ["2024-01-03", "2024-01-04", "2024-01-09"]


@pytest.fixture
def sessions() -> Sessions:
    return build_sessions(random_bars(SMALL, ["BRK.B", "000001"], DATES), SMALL)


def test_rows_are_sorted_and_know_their_yesterday(sessions: Sessions) -> None:
    assert sessions.instruments.tolist() == ["000001"] * 3 + ["BRK.B"] * 3
    assert sessions.previous.tolist() == [-1, 0, 1, -1, 3, 4]
    assert sessions.previous.dtype == np.int32
    assert len(sessions) == 6
    assert "2 instruments" in repr(sessions)


@pytest.mark.parametrize("date", ["2024-01-04", dt.date(2024, 1, 4), pd.Timestamp("2024-01-04 10:02")])
def test_row_takes_any_date(sessions: Sessions, date: object) -> None:
    assert sessions.row("BRK.B", date) == 4


def test_row_names_what_is_nearest(sessions: Sessions) -> None:
    with pytest.raises(DataError, match=r"BRK\.A has no session; the nearest name is BRK\.B"):
        sessions.row("BRK.A", "2024-01-03")
    with pytest.raises(DataError, match="the nearest is 2024-01-09"):
        sessions.row("BRK.B", "2024-01-08")
    with pytest.raises(DataError, match="quote it"):
        sessions.row(1, "2024-01-03")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="YYYY-MM-DD"):
        sessions.row("BRK.B", "tomorrow")


def test_rows_mark_what_is_absent(sessions: Sessions) -> None:
    assert sessions.rows(["BRK.B", "000001", "X"], ["2024-01-09", "2024-01-05", "2024-01-03"]).tolist() == [5, -1, -1]


def test_select_by_mask_and_number(sessions: Sessions) -> None:
    late = sessions.select(sessions.dates >= np.datetime64("2024-01-04"))
    assert late.previous.tolist() == [-1, 0, -1, 2]
    assert np.array_equal(late.fields["close"], sessions.fields["close"][[1, 2, 4, 5]])
    assert sessions.select(np.array([5, 0])).instruments.tolist() == ["000001", "BRK.B"]
    assert len(sessions.select(np.array([]))) == 0
    assert late.fingerprint != sessions.fingerprint


def test_nothing_can_be_changed(sessions: Sessions) -> None:
    with pytest.raises(ValueError, match="read-only"):
        sessions.fields["close"][0, 0] = 1.0
    with pytest.raises(TypeError):
        sessions.fields["close"] = np.zeros((6, 5))  # type: ignore[index]
    with pytest.raises(AttributeError, match="calendar"):
        sessions.calendar = SMALL  # type: ignore[misc]


def test_one_changed_value_changes_the_fingerprint(sessions: Sessions) -> None:
    close = sessions.fields["close"].copy()
    close[3, 2] += 1e-12
    other = Sessions(
        SMALL, sessions.instruments, sessions.dates, sessions.num_ticks, {**sessions.fields, "close": close}
    )
    assert other.fingerprint != sessions.fingerprint


def test_a29_arrays_of_another_shape_or_order_are_refused(sessions: Sessions) -> None:
    parts = (SMALL, sessions.instruments, sessions.dates, sessions.num_ticks)
    with pytest.raises(DataError, match="field close has shape"):
        Sessions(*parts, {"close": np.zeros((6, 4))})
    with pytest.raises(DataError, match="sort the rows"):
        Sessions(SMALL, sessions.instruments[::-1], *parts[2:], sessions.fields)
    with pytest.raises(DataError, match="must have 6 rows"):
        Sessions(SMALL, sessions.instruments, sessions.dates[:5], sessions.num_ticks, sessions.fields)


@pytest.mark.parametrize("date", [20240104, "20240104", pd.Timestamp("2024-01-04 23:00", tz="Asia/Shanghai")])
def test_row_takes_the_date_as_it_is_written(sessions: Sessions, date: object) -> None:
    assert str(sessions.dates[sessions.row("000001", date)]) == "2024-01-04"


@pytest.mark.parametrize("date", [pd.NaT, None, "", "04/01/2024", 1.5])
def test_row_refuses_what_is_no_date(sessions: Sessions, date: object) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        sessions.row("000001", date)


ONE = Calendar(segments=(("10:00", "10:01"),), infer_early_close_minutes=0)


def panel(keys: list[tuple[str, int]]) -> Sessions:
    names = np.array([name for name, _ in keys], dtype=np.str_)
    dates = np.array([day for _, day in keys], dtype=np.int64).astype("datetime64[D]")
    return Sessions(ONE, names, dates, np.ones(len(keys)), {"close": np.ones((len(keys), 1))})


NAMES = st.sampled_from(["A", "AA", "B", "BRK.B", "z", "Ä", "000001", "上"])
KEYS = st.tuples(NAMES, st.integers(-400, 20_000))


@settings(max_examples=200, deadline=None)
@given(there=st.sets(KEYS, max_size=25), asked=st.lists(KEYS, max_size=10))
def test_rows_are_those_of_a_dictionary(there: set[tuple[str, int]], asked: list[tuple[str, int]]) -> None:
    keys = sorted(there)
    sessions, where = panel(keys), {key: row for row, key in enumerate(keys)}
    wanted = [*asked, *keys]
    names, days = [name for name, _ in wanted], np.array([day for _, day in wanted], dtype="datetime64[D]")
    expected = [where.get(key, -1) for key in wanted]
    assert sessions.rows(names, days).tolist() == expected
    assert sessions.rows(np.array(names, dtype=object), days.tolist()).tolist() == expected
    earlier = [max((row for row in range(i) if keys[row][0] == keys[i][0]), default=-1) for i in range(len(keys))]
    assert sessions.previous.tolist() == earlier
    assert sessions.first.tolist() == [min(row for row in range(len(keys)) if keys[row][0] == k[0]) for k in keys]
    assert sessions.index.names.tolist() == sorted({name for name, _ in keys})


def test_dates_beyond_all_calendars_are_not_there() -> None:
    sessions = panel([("A", 0), ("B", 0)])
    strange = np.array(["NaT", "9999999-01-01", "-9999999-01-01", "1970-01-01"], dtype="datetime64[D]")
    assert sessions.rows(["A", "A", "B", "B"], strange).tolist() == [-1, -1, -1, 1]


def test_as_many_dates_as_instruments() -> None:
    with pytest.raises(ValueError, match="2 instruments and 1 dates"):
        panel([("A", 0)]).rows(["A", "A"], ["1970-01-01"])


def test_a_look_up_takes_few_bytes_a_session() -> None:
    """400,000 sessions; a dictionary of them would take over 200 bytes each."""
    names = np.repeat([f"I{number:04d}" for number in range(1600)], 250)
    dates = np.tile(np.datetime64("2024-01-01") + np.arange(250), 1600)
    sessions = Sessions(ONE, names, dates, np.ones(len(names)), {"close": np.ones((len(names), 1))})
    tracemalloc.start()
    try:
        assert sessions.row("I1599", "2024-01-02") == 399_751
        assert sessions.previous[399_751] == 399_750
        assert sessions.first[399_751] == 399_750
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(names)
