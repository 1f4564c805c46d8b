"""Looking up among many sessions: right, and cheap."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.market import Calendar, Sessions

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
