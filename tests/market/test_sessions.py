"""The panel: look-up, selection, immutability."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

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
