"""Dates and times of orders in every form that tables come in."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import OrderError
from rlwb.execution import order_table
from rlwb.market import Calendar

US = Calendar(segments=(("09:30", "16:00"),), timezone="America/New_York")
CRYPTO = Calendar.preset("crypto", tick_minutes=30)
DAYS = [pd.Timestamp("2024-01-02"), pd.Timestamp("2024-07-03")]


def table(calendar: Calendar = US, **columns: Any) -> pd.DataFrame:
    base: dict[str, Any] = {"instrument": ["A", "B"], "date": ["2024-01-02", "2024-07-03"]}
    base |= {"direction": ["BUY", "SELL"], "amount": [1.0, 2.0]}
    return order_table(pd.DataFrame({k: v for k, v in (base | columns).items() if v is not None}), calendar)


@pytest.mark.parametrize(
    "dates",
    [
        [20240102, 20240703],
        [20240102.0, 20240703.0],
        pd.Series([20240102, "2024-07-03"], dtype=object),
        pd.array(["2024-01-02", "20240703"], dtype="string"),
        ["2024/1/2", "2024-07-03 00:00:00"],
        [dt.date(2024, 1, 2), dt.datetime(2024, 7, 3, 10)],
        pd.Categorical(["2024-01-02", "2024-07-03"]),
        pd.Categorical(DAYS),
        pd.Series(DAYS).dt.as_unit("s"),
        pd.PeriodIndex(["2024-01-02", "2024-07-03"], freq="D"),
        pd.array([20240102, 20240703], dtype="Int64"),
        pd.array([day.date() for day in DAYS], dtype=pd.ArrowDtype(pa.date32())),
        pd.array(DAYS, dtype=pd.ArrowDtype(pa.timestamp("us"))),
        pd.DatetimeIndex(DAYS).tz_localize("America/New_York"),
        ["2024-01-02T00:00:00-05:00", "2024-07-03T00:00:00-04:00"],
        ["2024-01-02 15:00:00Z", "2024-07-03"],
    ],
)
def test_every_clear_form_of_a_date_is_that_date(dates: Any) -> None:
    assert table(date=dates)["date"].tolist() == DAYS


@pytest.mark.parametrize(
    "dates",
    [
        ["01/03/2024", "13/03/2024"],
        [2024, 2024],
        [45293, 45476],
        [1704153600, 1719964800],
        [20240102.5, 20240703.0],
        [np.nan, 20240703.0],
        [np.inf, 20240703.0],
        ["today", "2024-07-03"],
        ["9999-12-31", "2024-07-03"],
        ["2024-01-02 24:00", "2024-07-03"],
        pd.Series(["9999-12-31", "2024-07-03"]).astype("datetime64[s]"),
        pd.array([None, 20240703], dtype="Int64"),
        [True, False],
        ["", "2024-07-03"],
    ],
)
def test_a_date_that_could_be_another_is_refused(dates: Any) -> None:
    with pytest.raises(OrderError, match=r"row 0 .*: date .* is not a date"):
        table(date=dates)


def test_a15_midnight_elsewhere_is_not_moved_to_another_day_in_silence() -> None:
    for dates in (pd.DatetimeIndex(DAYS).tz_localize("UTC"), ["2024-01-02T00:00:00+00:00"] * 2):
        with pytest.raises(OrderError, match="midnight there and another day in America/New_York"):
            table(date=dates)
    with pytest.raises(OrderError, match="set its timezone"):
        table(Calendar(segments=(("09:30", "16:00"),)), date=pd.DatetimeIndex(DAYS).tz_localize("UTC"))


def test_a_time_without_any_date_is_refused() -> None:
    with pytest.raises(OrderError, match=r"row 0 .*: start '10:30' is not a date"):
        table(date=None, start=["10:30", "11:00"])


@pytest.mark.parametrize(
    "starts",
    [
        [None, "10:30"],
        ["", " 10:30 "],
        [np.nan, "10:30:00"],
        [pd.NA, dt.time(10, 30)],
        pd.array([pd.NA, "10:30"], dtype="string"),
        pd.Categorical([None, "10:30"]),
        pd.array([None, "10:30"], dtype=pd.ArrowDtype(pa.string())),
        pd.array([None, dt.time(10, 30)], dtype=pd.ArrowDtype(pa.time64("us"))),
        pd.array([None, dt.datetime(2024, 7, 3, 10, 30)], dtype=pd.ArrowDtype(pa.timestamp("us"))),
        pd.array([None, pd.Timestamp("2024-07-03 14:30Z")], dtype=pd.ArrowDtype(pa.timestamp("us", "UTC"))),
        [None, "2024-07-03 10:30:00-04:00"],
        ["", "2024-07-03T14:30:00Z"],
        [None, pd.Timestamp("2024-07-03 16:30", tz="Europe/Berlin")],
        pd.Series([pd.NaT, pd.Timestamp("2024-07-03 10:30")]),
    ],
)
def test_every_form_of_a_start_is_that_start(starts: Any) -> None:
    found = table(start=starts)["start"]
    assert found.dtype == "datetime64[ns]"
    assert pd.isna(found[0])
    assert found[1] == pd.Timestamp("2024-07-03 10:30")


def test_categories_without_a_gap_are_times_too() -> None:
    assert table(start=pd.Categorical(["10:30", "11:00"]))["start"].dt.hour.tolist() == [10, 11]


def test_offsets_of_summer_and_winter_in_one_column_are_each_their_own() -> None:
    found = table(start=["2024-01-02 10:00:00-05:00", "2024-07-03 10:00:00-04:00"])["start"]
    assert found.tolist() == [pd.Timestamp("2024-01-02 10:00"), pd.Timestamp("2024-07-03 10:00")]


@pytest.mark.parametrize(
    "starts",
    [[930, 1030], ["10:30 AM", ""], ["02/01/2024 10:00", ""], ["NaT", ""], [37800.0, 0], ["T10:30", ""], ["24:00", ""]],
)
def test_what_is_no_time_is_refused(starts: Any) -> None:
    with pytest.raises(OrderError, match=r"row 0 .*: start .* is not a time"):
        table(start=starts)


@pytest.mark.parametrize(
    "ends",
    [
        ["24:00", "24:00:00"],
        ["2024-01-02 24:00", "20240703T24:00:00"],
        ["00:00", "0:00"],
        [dt.time(0)] * 2,
        ["2024-01-03", "2024-07-04"],
    ],
)
def test_midnight_ends_a_session_that_runs_until_midnight(ends: Any) -> None:
    assert table(CRYPTO, end=ends)["end"].tolist() == [day + pd.Timedelta(days=1) for day in DAYS]


@settings(max_examples=40, deadline=None)
@given(
    st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2100, 1, 1)), st.sampled_from(["UTC", "Asia/Tokyo", "US/Eastern"])
)
def test_text_and_stamps_of_any_zone_agree(moment: dt.datetime, zone: str) -> None:
    stamp = pd.Timestamp(moment.replace(microsecond=0), tz="UTC").tz_convert(zone)
    forms: list[Any] = [[stamp], [str(stamp)], [stamp.isoformat()], pd.Series([stamp]), [stamp.to_pydatetime()]]
    row = {"instrument": ["A"], "direction": ["BUY"], "amount": [1.0]}
    found = [order_table(pd.DataFrame(row | {"start": form}), US)["start"][0] for form in forms]
    assert found == [stamp.tz_convert("America/New_York").tz_localize(None)] * len(forms)
