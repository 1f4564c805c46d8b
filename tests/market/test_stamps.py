"""Stamps: zones are found where they are, and no stamp becomes another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, build_sessions
from rlwb.market.bars import bars_of
from rlwb.market.readers.content import parse_stamps
from tests.market.helpers import day_bars

NY = "America/New_York"


def local(text: list[str], datetime_format: str | None = None) -> list[str]:
    stamps = parse_stamps(pa.array(text), "f.csv", datetime_format)
    table = pa.table({"instrument": ["A"] * len(text), "datetime": stamps})
    return [str(stamp) for stamp in pd.to_datetime(bars_of(table, NY, Report()).stamp, unit="us")]


@pytest.mark.parametrize("offsets", [("-05", "-04"), ("-0500", "-0400"), ("-05:00", "-04:00")])
@pytest.mark.parametrize("form", ["2024-{}-03T10:00:00{}", "2024{}03T100000{}", "2024-{}-03 10:00{}"])
def test_a15_offsets_of_any_length_over_a_clock_change(offsets: tuple[str, str], form: str) -> None:
    text = [form.format(month, offset) for month, offset in zip(("01", "07"), offsets, strict=True)]
    assert local(text) == ["2024-01-03 10:00:00", "2024-07-03 10:00:00"]


def test_a15_short_offsets_beside_none_are_refused() -> None:
    with pytest.raises(DataError, match="some stamps carry a zone"):
        local(["2024-01-03 10:00:00-05", "2024-01-03 10:01:00"])


@pytest.mark.parametrize("offset", ["-0", "+8", "-05:3"])
def test_offsets_of_one_digit_beside_none_are_refused_as_well(offset: str) -> None:
    with pytest.raises(DataError, match="some stamps carry a zone"):
        local([f"2024-01-03 10:00:00{offset}", "2024-01-03 10:01:00"])


def test_a_stamp_that_cannot_be_read_is_named_by_its_row() -> None:
    with pytest.raises(DataError, match=r"f\.csv, row 3: the stamp 'never' cannot be read"):
        local(["2024-01-03 10:00:00", "", "never", "2024-01-03 10:00:00"])


def test_a_year_at_the_end_is_no_offset() -> None:
    assert local(["10:00 03-01-2024"], "%H:%M %d-%m-%Y") == ["2024-01-03 10:00:00"]
    assert local(["10:00 03-01-2024 -0600"], "%H:%M %d-%m-%Y %z") == ["2024-01-03 11:00:00"]


@pytest.mark.parametrize("form", ["%Q", "mixed", "DD/MM/YYYY"])
def test_what_is_no_format_is_refused(form: str) -> None:
    with pytest.raises(ConfigError, match="no strptime format"):
        local(["03/01/2024 10:00"], form)


def test_years_beyond_nanoseconds_are_missing_and_no_other_day() -> None:
    # As a nanosecond count the second stamp wraps round to 2024-01-03 09:33:59.
    far = np.array(["9999-12-31T09:33:00", "2608-07-24T09:08:33", "0001-01-01", "2024-01-03T09:33:00"], "datetime64[s]")
    report = Report()
    found = bars_of(pa.table({"instrument": ["A"] * 4, "datetime": far}), None, report)
    assert found.stamp.view("datetime64[us]").astype(str).tolist() == ["2024-01-03T09:33:00.000000"]
    assert report.counts == {"datetime_missing": 3}
    calendar = Calendar(segments=(("09:30", "09:40"),), infer_early_close_minutes=0)
    bars = day_bars(calendar)
    bars["datetime"] = bars["datetime"].astype("datetime64[s]")
    bars.loc[9, "datetime"] = far[1]
    report = build_sessions(bars, calendar).report
    assert report.counts == {"datetime_missing": 1, "missing_tick": 1}


@pytest.mark.parametrize(("column", "value"), [("close", True), ("volume", False), ("halted", 2.0), ("halted", "yes")])
def test_values_of_another_kind_are_refused(column: str, value: object) -> None:
    calendar = Calendar(segments=(("09:30", "09:40"),), infer_early_close_minutes=0)
    with pytest.raises(DataError, match=column):
        build_sessions(day_bars(calendar).assign(**{column: value}), calendar)
