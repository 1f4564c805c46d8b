"""The clock: ticks, windows, step grid, days."""

from __future__ import annotations

import datetime as dt
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.market import Calendar

CN = Calendar.preset("cn")
UNREADABLE = "settings cannot be read"


def test_presets_have_the_known_lengths() -> None:
    assert Calendar.preset("cn").num_ticks == 240
    assert Calendar.preset("us").num_ticks == 390
    assert Calendar.preset("in").num_ticks == 375
    assert Calendar.preset("crypto").num_ticks == 1440
    assert Calendar.preset("us", tick_minutes=5).num_ticks == 78
    assert Calendar.preset("cn", tick_minutes=1 / 60).num_ticks == 14_400
    assert Calendar.preset("cn", tick_minutes=15).num_ticks == 16


def test_ticks_skip_the_lunch_break() -> None:
    assert CN.tick_start[119] == 11 * 3600 + 29 * 60
    assert CN.tick_start[120] == 13 * 3600
    assert CN.segment.tolist() == [0] * 120 + [1] * 120
    assert CN.tick_start.dtype == np.int64
    assert CN.segment.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        CN.tick_start[0] = 1


@pytest.mark.parametrize(
    ("start", "end", "first", "stop"),
    [
        ("09:30", "15:00", 0, 240),
        ("11:15", "13:15", 105, 135),
        ("11:35", "12:55", 120, 120),  # within the break: empty
        ("11:30", "13:00", 120, 120),
        ("16:00", "17:00", 240, 240),
        ("08:00", "09:00", 0, 0),
        ("10:00:30", "10:01:30", 31, 31),  # holds no whole tick
        (dt.time(10, 0), pd.Timestamp("2024-01-03 10:01"), 30, 31),
    ],
)
def test_a17_b11_windows_are_half_open_and_know_the_break(start: object, end: object, first: int, stop: int) -> None:
    assert CN.first_tick(start) == first
    assert CN.end_tick(end) == stop


def test_time_of_a_tick_and_of_the_close() -> None:
    assert CN.time_of(0) == dt.time(9, 30)
    assert CN.time_of(120) == dt.time(13, 0)
    assert CN.time_of(240) == dt.time(15, 0)
    with pytest.raises(ConfigError, match="tick 241"):
        CN.time_of(241)


def test_a_session_until_midnight_ends_at_midnight() -> None:
    day = Calendar.preset("crypto", tick_minutes=30)
    assert day.end_tick("24:00") == day.end_tick(dt.time(0, 0)) == 48
    assert day.first_tick("00:00") == 0
    assert day.seconds_at(48) == 86_400
    assert day.time_of(48) == dt.time(0, 0)


def test_a17_no_step_holds_ticks_of_both_sides_of_lunch() -> None:
    assert np.bincount(CN.cells(30)).tolist() == [30] * 8
    assert np.bincount(CN.cells(50)).tolist() == [50, 50, 20, 50, 50, 20]
    window = CN.cells(30)[CN.first_tick("11:15") : CN.end_tick("13:15")]
    assert len(window) == 30
    assert np.unique(window, return_counts=True)[1].tolist() == [15, 15]


@given(step=st.integers(1, 400), minutes=st.sampled_from([1, 5, 15, 30]))
def test_cells_are_anchored_at_segments(step: int, minutes: int) -> None:
    calendar = Calendar.preset("cn", tick_minutes=minutes)
    cells, cell, place = calendar.cells(step), -1, 0
    for tick in range(calendar.num_ticks):  # the definition, tick by tick
        begins = tick == 0 or calendar.segment[tick] != calendar.segment[tick - 1]
        place = 0 if begins else place + 1
        cell += place % step == 0
        assert cells[tick] == cell


@given(seconds=st.integers(0, 86_399))
def test_windows_match_their_definition(seconds: int) -> None:
    time = dt.time(seconds // 3600, seconds // 60 % 60, seconds % 60)
    assert CN.first_tick(time) == sum(start < seconds for start in CN.tick_start.tolist())
    assert CN.end_tick(time) == sum(start + 60 <= seconds for start in CN.tick_start.tolist())


def test_a01_early_closes_shorten_their_date_only() -> None:
    calendar = Calendar.preset("us", early_closes={"2025-11-28": "13:00"})
    dates = np.array(["2025-11-26", "2025-11-28"], dtype="datetime64[D]")
    assert calendar.ticks_on(dates).tolist() == [390, 210]


def test_open_days() -> None:
    calendar = Calendar.preset("us", closed=("2024-01-03",))
    dates = np.array(["2024-01-01", "2024-01-03", "2024-01-06", "2024-01-07", "2024-01-08"], dtype="datetime64[D]")
    assert calendar.is_open(dates).tolist() == [True, False, False, False, True]


def test_settings_survive_json_and_pickle() -> None:
    calendar = Calendar.preset(
        "cn", tick_minutes=5, label="end", early_closes={"2024-02-09": "11:30"}, closed=("2024-02-12",)
    )
    assert Calendar(**calendar.as_dict()) == calendar
    assert pickle.loads(pickle.dumps(calendar)) == calendar
    assert hash(Calendar(**calendar.as_dict())) == hash(calendar)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segments": ()}, "empty"),
        ({"segments": (("09:30", "09:00"),)}, "in order"),
        ({"segments": (("13:00", "15:00"), ("09:30", "11:30"))}, "in order"),
        ({"tick_minutes": 7}, "whole number of ticks"),
        ({"tick_minutes": 0.001}, "whole number of seconds"),
        ({"label": "middle"}, "'start' or 'end'"),
        ({"timezone": "Mars/Base"}, "IANA"),
        ({"weekdays": (7,)}, "Monday"),
        ({"segments": ((690, "15:00"),)}, "quoted text"),  # what YAML makes of an unquoted 11:30
        ({"segments": (("9.30", "15:00"),)}, "HH:MM"),
        ({"early_closes": {"2024-01-03": "09:30"}}, "leaves no tick"),
        ({"closed": ("3 January",)}, "YYYY-MM-DD"),
        ({"infer_early_close_minutes": -1}, "0 or more"),
        ({"segments": "09:30-16:00"}, UNREADABLE),
        ({"segments": (("09:30",),)}, UNREADABLE),
        ({"segments": None}, UNREADABLE),
        ({"tick_minutes": "1"}, UNREADABLE),
        ({"weekdays": 1}, UNREADABLE),
        ({"weekdays": ("Mon", 1)}, UNREADABLE),
        ({"early_closes": ["2024-01-01"]}, UNREADABLE),
        ({"infer_early_close_minutes": None}, UNREADABLE),
        ({"timezone": 5}, UNREADABLE),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Calendar(**{"segments": (("09:30", "11:30"), ("13:00", "15:00")), **settings})  # type: ignore[arg-type]


def test_unknown_preset() -> None:
    with pytest.raises(ConfigError, match="'moon'"):
        Calendar.preset("moon")


@pytest.mark.parametrize("day", ["2024-01-01", 20240101, dt.date(2024, 1, 1), pd.Timestamp("2024-01-01 10:00")])
def test_a_holiday_in_any_clear_form_is_closed(day: object) -> None:
    calendar = Calendar.preset("us", closed=(day,))
    assert calendar.closed == ("2024-01-01",)
    assert not calendar.is_open(np.array(["2024-01-01"], dtype="datetime64[D]")).any()


@pytest.mark.parametrize("day", ["2024", "2024-01", 2024, "01/02/2024", pd.NaT, "2024-02-30"])
def test_a_holiday_that_could_be_another_day_is_refused(day: object) -> None:
    with pytest.raises(ConfigError, match="is not of the form YYYY-MM-DD"):
        Calendar.preset("us", closed=(day,))


def test_times_as_values_survive_json() -> None:
    calendar = Calendar(segments=((dt.time(9, 30), dt.time(16)),))  # type: ignore[arg-type]
    assert json.loads(json.dumps(calendar.as_dict()))["segments"] == [["09:30", "16:00"]]
