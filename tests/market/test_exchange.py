"""Calendars of exchanges: hours, holidays, early closes, zones and the changes of clocks."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.sources import CalendarSettings
from rlwb.market import Calendar, build_sessions
from rlwb.parts import Part, complete
from tests.market.helpers import day_bars

NEW_YORK = Calendar.exchange("XNYS", tick_minutes=30)
SHANGHAI = Calendar.exchange("XSHG", tick_minutes=30)


def dates(*days: str) -> np.ndarray:
    return np.array(days, dtype="datetime64[D]")


def utc_bars(first: str, minutes: int, count: int, instrument: str = "A") -> pd.DataFrame:
    """Return bars at one price, stamped in UTC at their start."""
    stamps = pd.Timestamp(first, tz="UTC") + pd.to_timedelta(np.arange(count) * minutes, unit="min")
    prices = dict.fromkeys(("open", "high", "low", "close"), 10.0)
    return pd.DataFrame({"instrument": instrument, "datetime": stamps, **prices, "volume": 100.0})


def test_new_york_closes_early_and_keeps_its_holidays() -> None:
    half = dates("2024-07-02", "2024-07-03", "2024-07-05", "2024-11-29", "2024-12-24")
    assert NEW_YORK.ticks_on(half).tolist() == [13, 7, 13, 7, 7]
    assert NEW_YORK.early_closes["2024-11-29"] == "13:00"
    days = dates("2024-07-03", "2024-07-04", "2024-03-29", "2025-01-09", "2012-10-29", "2024-07-06")
    assert NEW_YORK.is_open(days).tolist() == [True, False, False, False, False, False]  # Carter, Sandy, a Saturday


def test_shanghai_rests_at_noon_and_for_the_golden_week() -> None:
    assert SHANGHAI.segments == (("09:30", "11:30"), ("13:00", "15:00"))
    week = np.arange("2024-09-30", "2024-10-09", dtype="datetime64[D]")
    assert SHANGHAI.is_open(week).tolist() == [True, *[False] * 7, True]
    assert not SHANGHAI.is_open(dates("2024-09-29")).any()  # a working Sunday, on which the exchange rests


def test_hong_kong_has_half_days_that_end_at_noon() -> None:
    calendar = Calendar.exchange("XHKG", tick_minutes=30)
    assert calendar.segments == (("09:30", "12:00"), ("13:00", "16:00"))
    assert calendar.ticks_on(dates("2024-12-24", "2024-12-23")).tolist() == [5, 11]


def test_the_hours_of_former_years_are_early_closes() -> None:
    calendar = Calendar.exchange("XTKS", tick_minutes=30)
    assert calendar.segments[-1] == ("12:30", "15:30")  # since 5 November 2024; 15:00 before
    assert calendar.ticks_on(dates("2024-11-01", "2024-11-05")).tolist() == [10, 11]


def test_bars_in_utc_keep_their_place_when_clocks_change() -> None:
    friday, monday = utc_bars("2024-03-08 14:30", 30, 13), utc_bars("2024-03-11 13:30", 30, 13)
    sessions = build_sessions(pd.concat([friday, monday]), NEW_YORK, strict=True)
    assert np.isfinite(sessions.fields["close"]).all()
    late = build_sessions(utc_bars("2024-03-11 14:30", 30, 13), NEW_YORK)  # as if it were still winter
    assert np.isnan(late.fields["close"][0, :2]).all()
    assert late.report.counts["auction"] + late.report.counts["off_session"] == 2


def test_bars_of_holidays_and_after_early_closes_are_told() -> None:
    frames = [day_bars(NEW_YORK, day) for day in ("2024-07-02", "2024-07-03", "2024-07-04")]
    sessions = build_sessions(pd.concat(frames), NEW_YORK)
    assert sessions.num_ticks.tolist() == [13, 7]
    counts = sessions.report.counts
    assert (counts["closed_day"], counts["after_early_close"], counts["early_close_stated"]) == (13, 6, 1)
    assert "AAA 2024-07-04" in sessions.report.examples["closed_day"]
    with pytest.raises(DataError, match="on a weekend or a day the calendar calls closed"):
        build_sessions(pd.concat(frames), NEW_YORK, strict=True)


def test_a_quiet_afternoon_is_no_early_close_where_the_exchange_says_so() -> None:
    bars = day_bars(NEW_YORK, "2024-07-02", ticks=range(9))
    assert build_sessions(bars, NEW_YORK).num_ticks.tolist() == [13]
    assert build_sessions(bars, Calendar.preset("us", tick_minutes=30)).num_ticks.tolist() == [9]


def test_dates_that_the_package_does_not_know_are_refused() -> None:
    assert SHANGHAI.covers is not None
    later = str(np.datetime64(SHANGHAI.covers[1]) + 5)
    with pytest.raises(
        DataError, match=rf"lie outside 2000-01-04 to {SHANGHAI.covers[1]}, for which the calendar knows"
    ):
        build_sessions(day_bars(SHANGHAI, later), SHANGHAI)


def test_own_dates_are_added() -> None:
    calendar = Calendar.exchange("XNYS", closed="2024-07-02", early_closes={"2024-07-05": "12:00"}, label="end")
    assert not calendar.is_open(dates("2024-07-02", "2024-07-04")).any()
    assert calendar.ticks_on(dates("2024-07-03", "2024-07-05")).tolist() == [210, 150]
    assert calendar.label == "end"


def test_a_calendar_of_an_exchange_survives_json() -> None:
    assert Calendar(**json.loads(json.dumps(SHANGHAI.as_dict()))) == SHANGHAI


def test_other_names_of_an_exchange_mean_the_same() -> None:
    assert Calendar.exchange("NYSE", tick_minutes=30) == NEW_YORK


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("XNYZ", r"no exchange 'XNYZ'; did you mean .*XNYS"),
        ("xnys", r"no exchange 'xnys'; did you mean XNYS"),
        ("moon", r"no exchange 'moon'; give its code.*The presets are cn, us, in, crypto"),
        ("CMES", r"sessions of CMES run through midnight"),
    ],
)
def test_unknown_and_unfit_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Calendar.exchange(name)


def test_without_the_package_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)
    with pytest.raises(ConfigError, match=r"which is not installed; pip install 'rlwb\[calendars\]' brings it"):
        Calendar.exchange("XPAR")  # which no other test has asked for


def built(**calendar: Any) -> Calendar:
    part = Part(name="bars", source="bars", calendar=calendar)
    return CalendarSettings(**complete("market", part).settings["calendar"]).build()


def test_a_configuration_names_an_exchange_in_place_of_a_preset() -> None:
    assert built(exchange="XSHG", tick_minutes=30) == SHANGHAI
    assert built(exchange="XNYS", infer_early_close_minutes=60).infer_early_close_minutes == 60


def test_the_written_configuration_reads_as_the_same(tmp_path: Any) -> None:
    config = RunConfig.load(
        None, parse_assignments(["market.name=bars", "market.source=bars", "market.calendar.exchange=XNYS"])
    )
    path = tmp_path / "config.yaml"
    path.write_text(config.as_yaml())
    assert RunConfig.load(path).market == config.market


@pytest.mark.parametrize(
    ("calendar", "message"),
    [
        ({"exchange": "XNYS", "preset": "us"}, "as preset us and as exchange XNYS; keep one"),
        ({"exchange": "XNYZ"}, "did you mean .*XNYS"),
    ],
)
def test_a_configuration_of_two_minds_is_refused(calendar: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(**calendar)
