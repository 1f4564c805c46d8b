"""Faults that make a study worthless are found and named, each by its own kind; what merely looks odd is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, Sessions, SyntheticSettings, import_bars, load_sessions, synthetic_bars
from rlwb.market.bars import bars_of, merge, table_of
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.dataset import stored
from rlwb.market.findings import KINDS, Report
from rlwb.market.quality import check_bars
from tests.market.helpers import random_bars

US = Calendar.preset("us")
CN = Calendar.preset("cn", tick_minutes=5)
NAMES = ["A", "B", "C", "D"]
#: Eight days in a row, on each of which New York was open; 8 January is a Monday.
DAYS = [f"2024-01-{day:02d}" for day in (8, 9, 10, 11, 12, 16, 17, 18)]
PRICES = ["open", "high", "low", "close"]


@pytest.fixture(scope="module")
def sound() -> pd.DataFrame:
    """Bars of four instruments and eight days whose volume has a peak at the open, as ranges do."""
    bars = random_bars(US, NAMES, DAYS)
    minute = (bars["datetime"] - bars["datetime"].dt.normalize()).dt.total_seconds() / 60 - 570
    busy = 1 + 4 * np.exp(-minute / 40)
    middle = bars[["open", "close"]].mean(axis=1)
    bars["high"] = np.maximum(bars[["open", "close"]].max(axis=1), middle * (1 + 3e-4 * busy))
    bars["low"] = np.minimum(bars[["open", "close"]].min(axis=1), middle * (1 - 3e-4 * busy))
    bars["volume"] = np.rint((bars["volume"] + 100) * busy)
    bars["close"] = bars.groupby(["instrument", bars["datetime"].dt.date])["open"].shift(-1).fillna(bars["close"])
    bars["high"] = bars[["high", "close"]].max(axis=1)
    bars["low"] = bars[["low", "close"]].min(axis=1)
    return bars


def of(bars: pd.DataFrame, name: str | None = None, *days: str) -> pd.Series:
    """Tell of each bar whether it is of the instrument, and of one of the days, where these are given."""
    mine = bars["instrument"].eq(name) if name else pd.Series(True, bars.index)
    return mine & bars["datetime"].dt.strftime("%Y-%m-%d").isin(days) if days else mine


def report_of(bars: pd.DataFrame, calendar: Calendar = US) -> Report:
    """Return all that building a panel finds, also where no session is left."""
    report = Report(limit=100)
    merged = merge(bars_of(table_of(bars, report), calendar.timezone, report), report, {}).bars
    with suppress(DataError):
        PanelBuilder(lambda: [merged], calendar, Building(), report, {}).whole()
    return report


def faults(report: Report) -> dict[str, int]:
    return {kind: count for kind, count in report.counts.items() if KINDS[kind].severity == "fault"}


def named(report: Report, kind: str) -> list[tuple[str | None, str | None, str | None]]:
    return [(one.instrument, one.date, one.last) for one in report.listed[kind]]


def test_the_bars_that_the_faults_are_put_into_are_sound(sound: pd.DataFrame) -> None:
    assert faults(report_of(sound)) == {}


@pytest.mark.parametrize("minutes", [15, -15, 30, 60, -60, 300, -300])
@pytest.mark.parametrize(
    ("name", "days", "where"),
    [
        (None, DAYS, (None, DAYS[0], DAYS[-1])),
        (None, DAYS[3:4], (None, DAYS[3], None)),
        (None, DAYS[4:], (None, DAYS[4], DAYS[-1])),
        (None, DAYS[2:5], (None, DAYS[2], DAYS[4])),
        ("B", DAYS, ("B", DAYS[0], DAYS[-1])),
        ("B", DAYS[3:4], ("B", DAYS[3], None)),
    ],
    ids=["all", "one day", "from a date on", "a stretch", "one instrument", "one session"],
)
def test_i01_a_wrong_clock_is_named_with_minutes_dates_and_instruments(
    sound: pd.DataFrame, minutes: int, name: str | None, days: list[str], where: tuple[Any, ...]
) -> None:
    rows = of(sound, name, *days)
    late = sound.assign(datetime=sound["datetime"] + pd.to_timedelta(np.where(rows, minutes, 0), unit="min"))
    report = report_of(late)
    assert report.counts["clock_shifted"] == len(days) * (1 if name else len(NAMES))
    assert named(report, "clock_shifted") == [where]
    what = report.listed["clock_shifted"][0].what
    assert what.startswith(f"shifted by about {abs(minutes)} minutes")
    assert ("stamps are late" in what) == (minutes > 0)
    assert "early_close_inferred" not in report.counts
    assert "label_suspect" not in report.counts


def test_i01_one_day_an_hour_late_is_a_fault_of_the_command(sound: pd.DataFrame, tmp_path: Path) -> None:
    rows = of(sound, None, DAYS[5])
    sound.assign(datetime=sound["datetime"] + pd.to_timedelta(np.where(rows, 60, 0), unit="min")).to_parquet(
        tmp_path / "bars.parquet"
    )
    quality = check_bars(tmp_path / "bars.parquet", calendar=US)
    assert not quality.sound
    assert (
        f"{DAYS[5]}: shifted by about 60 minutes, stamps are late (all 4 instruments, 4 sessions)" in quality.as_text()
    )


def test_i01_a_clock_of_bars_before_and_after_hours_is_told_by_the_busiest(sound: pd.DataFrame) -> None:
    quiet = Calendar(segments=(("07:00", "18:30"),), infer_early_close_minutes=0)
    around = random_bars(quiet, NAMES, DAYS, seed=3)
    minute = around["datetime"].dt.hour * 60 + around["datetime"].dt.minute
    around = around[(minute < 570) | (minute >= 960)]
    around = around.assign(volume=around["volume"] * 0.01)
    whole = pd.concat([sound, around])
    assert "clock_shifted" not in report_of(whole).counts
    assert "off_session_many" not in report_of(whole).counts
    late = whole.assign(
        datetime=whole["datetime"] + pd.to_timedelta(np.where(of(whole, None, DAYS[2]), 60, 0), unit="min")
    )
    assert named(report_of(late), "clock_shifted") == [(None, DAYS[2], None)]


def around_hours(sound: pd.DataFrame, begin: str, end: str) -> pd.DataFrame:
    """Return thin bars of A on 10 January, outside the session."""
    stamps = pd.date_range(f"{DAYS[2]} {begin}", f"{DAYS[2]} {end}", freq="min", inclusive="left")
    few = sound[of(sound, "A", DAYS[2])].iloc[: len(stamps)]
    return few.assign(datetime=stamps.to_numpy(), volume=few["volume"].min() * 0.01)


def test_i01_thin_bars_before_the_open_of_a_day_that_ends_early_are_no_wrong_clock(sound: pd.DataFrame) -> None:
    """An hour before the open and none after three: so would be a clock an hour early, but for the volume."""
    ends = of(sound, "A", DAYS[2]) & (sound["datetime"].dt.strftime("%H:%M") >= "15:00")
    assert faults(report_of(pd.concat([sound[~ends], around_hours(sound, "08:30", "09:30")]))) == {}


def test_i01_a_wrong_clock_of_one_session_with_thin_bars_after_hours(sound: pd.DataFrame) -> None:
    whole = pd.concat([sound, around_hours(sound, "16:00", "16:20")])
    assert faults(report_of(whole)) == {}
    late = pd.to_timedelta(np.where(of(whole, "A", DAYS[2]), 60, 0), unit="min")
    report = report_of(whole.assign(datetime=whole["datetime"] + late))
    assert named(report, "clock_shifted") == [("A", DAYS[2], None)]


def test_i01_bars_outside_are_a_fault_where_the_session_lacks_bars(sound: pd.DataFrame) -> None:
    """Half of three days, and a third as many bars strewn over every evening: no shift explains them."""
    kept = sound[(sound.index % 2 == 0) | ~of(sound, None, *DAYS[:3])]
    evening = sound[sound.index % 3 == 0].copy()
    evening["datetime"] = evening["datetime"].dt.normalize() + pd.to_timedelta(
        17 * 60 + 2 * (np.arange(len(evening)) % 130), unit="min"
    )
    bars = pd.concat([kept, evening]).drop_duplicates(["instrument", "datetime"])
    report = report_of(bars)
    assert report.counts["off_session_many"] > 0
    assert report.counts["off_session"] >= report.counts["off_session_many"]


def test_i01_summer_time_that_was_missed(sound: pd.DataFrame) -> None:
    """UTC stamps read as if New York were five hours behind all year: an hour late from 10 March 2024 on."""
    days = ["2024-03-07", "2024-03-08", "2024-03-11", "2024-03-12", "2024-03-13"]
    bars = random_bars(US, NAMES, days)
    utc = bars["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("UTC").dt.tz_localize(None)
    report = report_of(bars.assign(datetime=utc - pd.Timedelta(hours=5)))
    assert named(report, "clock_shifted") == [(None, "2024-03-11", "2024-03-13")]
    assert report.listed["clock_shifted"][0].what.startswith("shifted by about 60 minutes, stamps are early")


@pytest.mark.parametrize("anew", [False, True], ids=["of the day", "anew after the break"])
def test_i02_a_running_total_of_volume(anew: bool) -> None:
    bars = random_bars(CN, NAMES, DAYS)
    day = bars["datetime"].dt.date
    parts = [bars["instrument"], day, bars["datetime"].dt.hour >= 12] if anew else [bars["instrument"], day]
    rows = of(bars, "C", *DAYS[2:6])
    total = bars.groupby(parts)["volume"].cumsum()
    report = report_of(bars.assign(volume=bars["volume"].mask(rows, total)), CN)
    assert report.counts["volume_running_total"] == 4
    assert named(report, "volume_running_total") == [("C", DAYS[2], DAYS[5])]
    assert ("again after the break" in report.listed["volume_running_total"][0].what) == anew
    assert "volume_running_total" not in report_of(bars, CN).counts


def moved(bars: pd.DataFrame, name: str, day: str, to: tuple[str, str]) -> pd.DataFrame:
    """Return the bars with a session of theirs in the place of another."""
    copy = bars[of(bars, name, day)]
    copy = copy.assign(instrument=to[0], datetime=copy["datetime"] + (pd.Timestamp(to[1]) - pd.Timestamp(day)))
    return pd.concat([bars[~of(bars, *to)], copy])


def test_i03_a_session_that_repeats_another(sound: pd.DataFrame) -> None:
    report = report_of(moved(moved(sound, "A", DAYS[2], ("A", DAYS[3])), "B", DAYS[1], ("B", DAYS[6])))
    assert named(report, "session_copied") == [("A", DAYS[3], None), ("B", DAYS[6], None)]
    assert [one.what for one in report.listed["session_copied"]] == [f"equals {DAYS[2]}", f"equals {DAYS[1]}"]
    assert faults(report) == {"session_copied": 2}


@pytest.mark.parametrize(
    ("price", "volume"), [(1.0, 1.0), (1.37, 1.0), (1.0, 100.0), (1 / 3, 2.0)], ids=["equal", "price", "lots", "both"]
)
def test_i03_an_instrument_that_repeats_another(sound: pd.DataFrame, price: float, volume: float) -> None:
    twin = sound[of(sound, "A")].assign(instrument="Z")
    twin = twin.assign(**{name: twin[name] * price for name in PRICES}, volume=twin["volume"] * volume)
    report = report_of(pd.concat([sound, twin]))
    assert report.counts["session_twin"] == len(DAYS)
    assert named(report, "session_twin") == [("Z", DAYS[0], DAYS[-1])]
    assert report.listed["session_twin"][0].what == "equals A (8 sessions)"
    assert faults(report) == {"session_twin": len(DAYS)}


def test_i03_suspended_instruments_at_one_price_are_no_copies(sound: pd.DataFrame) -> None:
    flat = sound.assign(**dict.fromkeys(PRICES, 10.0), volume=0.0)
    rows = of(sound, "A") | of(sound, "B", *DAYS[3:])
    report = report_of(sound.where(~rows, flat))
    assert not {"session_copied", "session_twin", "volume_lost"} & report.counts.keys()


def test_i04_a_range_without_volume_is_a_fault_of_the_volume(sound: pd.DataFrame) -> None:
    bars = sound.copy()
    ranged = bars.index[of(bars, "A", DAYS[2]) & (bars["high"] > bars["low"])][[5, 50, 70]]
    bars.loc[ranged, "volume"] = 0.0
    flat = bars.index[of(bars, "B", DAYS[2])][20:24]
    bars.loc[flat, PRICES], bars.loc[flat, "volume"] = bars.loc[flat[0], "open"], 0.0
    report = report_of(bars)
    assert faults(report) == {"range_without_volume": 3}
    one = report.listed["range_without_volume"][0]
    assert (one.instrument, one.stamp, one.value) == ("A", str(bars["datetime"][ranged[0]]), 3.0)


@pytest.mark.parametrize("value", [0.0, np.nan], ids=["0", "missing"])
@pytest.mark.parametrize(
    ("name", "days", "where"),
    [(None, DAYS[3:4], (None, DAYS[3], None)), ("B", DAYS, ("B", DAYS[0], DAYS[-1]))],
    ids=["a day", "an instrument"],
)
def test_i04_volume_that_is_lost_for_whole_sessions(
    sound: pd.DataFrame, name: str | None, days: list[str], where: tuple[Any, ...], value: float
) -> None:
    report = report_of(sound.assign(volume=sound["volume"].mask(of(sound, name, *days), value)))
    assert named(report, "volume_lost") == [where]
    assert faults(report) == {"volume_lost": len(days) * (1 if name else len(NAMES))}


def test_i04_a_set_without_any_volume_is_noted(sound: pd.DataFrame) -> None:
    report = report_of(sound.assign(volume=np.nan))
    assert faults(report) == {}
    assert report.counts["no_volume"] == len(NAMES) * len(DAYS)


def test_i04_volume_lost_in_an_afternoon_is_no_early_close(sound: pd.DataFrame) -> None:
    """The day is the eve of a holiday, and prices move after 13:00, so it was open."""
    rows = of(sound, None, DAYS[4]) & (sound["datetime"].dt.hour >= 13)
    report = report_of(sound.assign(volume=sound["volume"].mask(rows, 0.0)))
    assert not {"early_close_inferred", "after_early_close"} & set(report.counts)
    assert report.counts["range_without_volume"] == int((rows & (sound["high"] > sound["low"])).sum()) > 0


def test_i05_half_of_all_sessions_is_no_early_close(sound: pd.DataFrame) -> None:
    half = sound[sound["datetime"].dt.hour < 14]
    report = report_of(half)
    assert report.counts["early_close_inferred"] == len(DAYS)
    assert report.counts["hours_missing"] == len(NAMES) * len(DAYS)
    assert named(report, "hours_missing") == [(None, DAYS[0], DAYS[-1])]
    assert "no bar in the last 120 minutes" in report.listed["hours_missing"][0].what
    late = report_of(sound[sound["datetime"].dt.hour >= 11])
    assert named(late, "hours_missing") == [(None, DAYS[0], DAYS[-1])]


@pytest.mark.parametrize(
    ("close", "gone", "fault"),
    [("13:00", DAYS[4], False), ("13:07", DAYS[4], True), ("13:00", DAYS[6], True)],
    ids=["before a holiday", "at an odd time", "on a plain day"],
)
def test_i05_one_early_close(sound: pd.DataFrame, close: str, gone: str, fault: bool) -> None:
    """The day is 11 January; only where the 12th is a holiday is it a likely half day."""
    clock = sound["datetime"].dt.strftime("%H:%M")
    report = report_of(sound[~of(sound, None, gone) & ~(of(sound, None, DAYS[3]) & (clock >= close))])
    assert [one.date for one in report.listed["early_close_inferred"]] == [DAYS[3]]
    assert faults(report) == ({"hours_missing": len(NAMES)} if fault else {})


@pytest.mark.parametrize(("day", "fault"), [(4, False), (5, True)], ids=["the eve", "the day after"])
def test_i05_an_early_close_is_on_the_eve_of_a_holiday(sound: pd.DataFrame, day: int, fault: bool) -> None:
    """Monday 15 January 2024 was a holiday; 12 January is the Friday before, 16 January the Tuesday after."""
    cut = of(sound, None, DAYS[day]) & (sound["datetime"].dt.strftime("%H:%M") >= "13:00")
    assert faults(report_of(sound[~cut])) == ({"hours_missing": len(NAMES)} if fault else {})


def test_i06_instruments_outside_the_session_and_daily_bars(
    sound: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a part holds nothing but them, which used to end in an IndexError."""
    night = sound.head(12).assign(instrument="X", datetime=pd.date_range("2024-01-09 20:00", periods=12, freq="min"))
    daily = sound.head(8).assign(instrument="Y", datetime=pd.to_datetime(DAYS))
    closing = sound.head(8).assign(instrument="Z", datetime=pd.to_datetime(DAYS) + pd.Timedelta(hours=16))
    bars = pd.concat([sound, night, daily, closing])
    bars.to_parquet(tmp_path / "bars.parquet")
    monkeypatch.setattr(stored, "PART_BARS", 5)
    found = check_bars(tmp_path / "bars.parquet", calendar=US).found
    assert faults(found) == {"instrument_outside": 1, "daily_bars": 2}
    assert named(found, "instrument_outside") == [("X", "2024-01-09", None)]
    assert named(found, "daily_bars") == [("Y", DAYS[0], DAYS[-1]), ("Z", DAYS[0], DAYS[-1])]


@pytest.mark.parametrize("odd", ["X", "Y"])
def test_i06_bars_all_of_which_lie_outside_are_told_from_a_refusal(
    sound: pd.DataFrame, tmp_path: Path, odd: str
) -> None:
    night = pd.date_range("2024-01-09 20:00", periods=12, freq="min")
    stamps = night if odd == "X" else pd.to_datetime(DAYS)
    sound.head(len(stamps)).assign(instrument=odd, datetime=stamps).to_parquet(tmp_path / "bars.parquet")
    found = check_bars(tmp_path / "bars.parquet", calendar=US).found
    assert found.counts["refused"] == 1
    assert found.counts["instrument_outside" if odd == "X" else "daily_bars"] == 1


def test_i06_an_import_says_which_instruments_have_no_bar_in_the_session(sound: pd.DataFrame, tmp_path: Path) -> None:
    daily = sound.head(8).assign(instrument="Y", datetime=pd.to_datetime(DAYS))
    pd.concat([sound, daily]).to_parquet(tmp_path / "bars.parquet")
    done = import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=US)
    assert [one.instrument for one in done.report.listed["instrument_outside"]] == ["Y"]
    assert "no bar of Y lies inside the session" in done.as_text()
    assert faults(check_bars(tmp_path / "set").found) == {"daily_bars": 1}


@pytest.mark.parametrize(("minutes", "apart"), [(5, 5), (60, 30)])
def test_i06_an_instrument_whose_bars_are_longer_than_the_ticks(sound: pd.DataFrame, minutes: int, apart: int) -> None:
    """Bars of an hour are stamped 09:30, 10:00, 11:00, …, all of which are half hours."""
    slot = sound["datetime"].dt.floor(f"{minutes}min")
    longer = sound[sound["instrument"] == "A"].groupby(slot, as_index=False).first().assign(instrument="X")
    report = report_of(pd.concat([sound, longer]))
    assert faults(report)["bars_apart"] == 1
    (found,) = report.listed["bars_apart"]
    assert (found.instrument, found.what, found.value) == ("X", f"{apart} min apart", apart)


def exchanged(*names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(**dict(zip(names, [part[name] for name in (*names[1:], names[0])], strict=True)))

    return change


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("open", "close"), "open and close are exchanged"),
        (("high", "low"), "high and low are exchanged"),
        (("open", "high"), "open and high are exchanged"),
        (("low", "close"), "low and close are exchanged"),
        (("close", "volume"), "close and volume are exchanged"),
        (("high", "close", "low"), "high holds close, low holds high, close holds low"),
    ],
)
@pytest.mark.parametrize("days", [DAYS, DAYS[3:4]], ids=["all days", "one day"])
def test_i07_columns_that_stand_for_each_other(
    sound: pd.DataFrame, names: tuple[str, ...], text: str, days: list[str]
) -> None:
    rows = of(sound, "B", *days)
    report = report_of(pd.concat([sound[~rows], exchanged(*names)(sound[rows])]))
    assert named(report, "columns_exchanged") == [("B", days[0], days[-1] if len(days) > 1 else None)]
    assert report.listed["columns_exchanged"][0].what.startswith(text)


@pytest.mark.parametrize("times", [0.01, 100.0])
@pytest.mark.parametrize("days", [DAYS[2:5], DAYS[3:4], DAYS[5:]], ids=["a stretch", "one day", "from a date on"])
def test_i07_volume_in_another_unit(sound: pd.DataFrame, times: float, days: list[str]) -> None:
    rows = of(sound, "D", *days)
    report = report_of(sound.assign(volume=sound["volume"].where(~rows, np.rint(sound["volume"] * times))))
    assert named(report, "volume_units") == [("D", days[0], days[-1] if len(days) > 1 else None)]
    assert faults(report) == {"volume_units": len(days)}


def test_i07_a_session_locked_at_one_price_is_in_no_other_unit(sound: pd.DataFrame) -> None:
    bars, locked = sound.copy(), of(sound, "D", DAYS[3])
    bars.loc[locked, PRICES] = float(bars.loc[locked, "open"].iloc[0])
    bars.loc[locked, "volume"] = np.rint(bars.loc[locked, "volume"] / 50)
    assert faults(report_of(bars)) == {}


def backwards(bars: pd.DataFrame) -> pd.DataFrame:
    """Return bars whose values run backwards in time within each session."""
    parts = [part for _, part in bars.groupby(["instrument", bars["datetime"].dt.date])]
    return pd.concat([part.iloc[::-1].assign(datetime=part["datetime"].to_numpy()) for part in parts])


def test_i07_all_sessions_reversed_also_where_bars_of_one_name_do_not_tell(sound: pd.DataFrame) -> None:
    """The bars of D open where they close, wherever the last one closed."""
    bars = sound.assign(open=sound["open"].where(~of(sound, "D"), sound["close"]))
    report = report_of(backwards(bars))
    assert {name for name, _, _ in named(report, "session_reversed")} == {"A", "B", "C"}
    assert "columns_exchanged" not in report.counts


def test_i07_where_neither_profile_nor_gaps_tell_both_causes_are_named() -> None:
    """Ranges and volumes are the same from both ends, and each session opens and closes at one price."""
    minute = np.arange(390)
    wave = np.sin(np.arange(391) / 390 * 2 * np.pi) * 0.01
    frames = []
    for number, day in enumerate(DAYS):
        path = (100 + 0.1 * number) * np.exp(wave * (1 + 0.1 * number))
        opening, close = path[:-1], path[1:]
        top, bottom = np.maximum(opening, close) * 1.0001, np.minimum(opening, close) / 1.0001
        stamps = pd.Timestamp(f"{day} 09:30") + pd.to_timedelta(minute, unit="min")
        volume = 1000.0 + np.minimum(minute, 389 - minute) * (7 + number) % 11
        frames.append(
            pd.DataFrame(
                {"instrument": "A", "datetime": stamps, "open": opening, "high": top, "low": bottom, "close": close}
            ).assign(volume=volume)
        )
    bars = pd.concat(frames, ignore_index=True)
    assert faults(report_of(bars)) == {}
    day = of(bars, "A", DAYS[3])
    for spoilt in (backwards(bars[day]), exchanged("open", "close")(bars[day])):
        report = report_of(pd.concat([bars[~day], spoilt]))
        found = [*report.listed.get("session_reversed", ()), *report.listed.get("columns_exchanged", ())]
        assert [(one.date, one.what) for one in found] == [
            (DAYS[3], "open and close are exchanged, or the bars run backwards")
        ]


@pytest.mark.parametrize("days", [DAYS[3:4], DAYS], ids=["one day", "all days"])
def test_i07_a_session_reversed_in_time(sound: pd.DataFrame, days: list[str]) -> None:
    parts = [sound[~of(sound, "B", *days)]]
    for day in days:
        part = sound[of(sound, "B", day)]
        parts.append(part.iloc[::-1].assign(datetime=part["datetime"].to_numpy()))
    report = report_of(pd.concat(parts))
    assert named(report, "session_reversed") == [("B", days[0], days[-1] if len(days) > 1 else None)]
    assert "columns_exchanged" not in report.counts


@pytest.mark.parametrize(
    ("times", "days"), [(100.0, DAYS[2:5]), (0.01, DAYS[5:]), (0.7, DAYS[3:5])], ids=["pence", "pounds", "currency"]
)
def test_prices_in_another_unit(sound: pd.DataFrame, times: float, days: list[str]) -> None:
    rows = of(sound, "D", *days)
    spoilt = sound.copy()
    spoilt.loc[rows, PRICES] *= times
    report = report_of(spoilt)
    assert named(report, "price_units") == [("D", days[0], days[-1])]


def test_prices_on_another_scale_with_volumes_as_after_two_splits(sound: pd.DataFrame) -> None:
    """A split that is undone two days later is none."""
    bars, rows = sound.copy(), of(sound, "B", *DAYS[3:5])
    bars.loc[rows, PRICES] *= 0.7
    bars.loc[rows, "volume"] = np.rint(bars.loc[rows, "volume"] / 0.7)
    assert named(report_of(bars), "price_units") == [("B", DAYS[3], DAYS[4])]


def test_i08_a_bar_that_touches_neither_neighbour_is_an_outlier_also_with_much_volume(sound: pd.DataFrame) -> None:
    """It is 3 % away, with five times the volume; one beside ticks without a bar may be a move and its return."""
    bars = sound.copy()
    day = bars.index[of(bars, "A", DAYS[2])]
    bars.loc[day[200], PRICES] *= 1.03
    bars.loc[day[200], "volume"] *= 5
    report = report_of(bars)
    assert faults(report) == {"outlier": 1}
    assert report.listed["outlier"][0].stamp == str(bars["datetime"][day[200]])
    assert faults(report_of(bars.drop(index=day[[199, 201]]))) == {}


def test_i08_a_news_bar_beside_bars_of_its_prices_is_no_outlier(sound: pd.DataFrame) -> None:
    """The price falls by 6 % within a bar whose high is the last close, and stays."""
    bars = sound.copy()
    day = bars.index[of(bars, "A", DAYS[2])]
    at, after = day[100], day[101:]
    bars.loc[after, PRICES] *= 0.94
    bars.loc[bars.index[of(bars, "A", *DAYS[3:])], PRICES] *= 0.94
    high = float(bars.at[day[99], "close"])
    bars.loc[at, PRICES] = [high * 0.941, high, high * 0.939, high * 0.94]
    assert faults(report_of(bars)) == {}


def test_i08_a_bad_print_is_named_with_the_price_that_is_wrong(sound: pd.DataFrame) -> None:
    bars = sound.copy()
    day = bars.index[of(bars, "A", DAYS[2])]
    bars.loc[day[100], "high"] = 1.08 * bars["high"][day[99:102]].max()
    beside = max(bars.loc[day[100], "close"], *bars["high"][[day[99], day[101]]])
    bars.loc[day[200], PRICES] *= 1.1
    found = report_of(bars)
    assert faults(found) == {"outlier": 2}
    kinds = {one.stamp: one.what for one in found.listed["outlier"]}
    wick = f"high {bars['high'][day[100]]:g}, the close and the bars beside {beside:g}"
    assert kinds[str(bars["datetime"][day[100]])].startswith(wick)
    assert kinds[str(bars["datetime"][day[200]])].startswith(f"close {bars['close'][day[200]]:g}, before")


@pytest.mark.parametrize("times", [0.5, 0.9, 1.1])
def test_i08_a_bad_open_is_named(sound: pd.DataFrame, times: float) -> None:
    bars = sound.copy()
    at = bars.index[of(bars, "A", DAYS[2])][100]
    bars.loc[at, "open"] *= times
    bars.loc[at, "low" if times < 1 else "high"] = bars.loc[at, "open"]
    report = report_of(bars)
    assert faults(report) == {"outlier": 1}
    (found,) = report.listed["outlier"]
    assert (found.instrument, found.stamp) == ("A", str(bars["datetime"][at]))


@pytest.mark.parametrize("hours", [5, 1])
def test_i09_one_instrument_in_another_zone_is_not_called_a_wrong_label(sound: pd.DataFrame, hours: int) -> None:
    alone = sound[of(sound, "B")]
    report = report_of(alone.assign(datetime=alone["datetime"] + pd.Timedelta(hours=hours)))
    assert "label_suspect" not in report.counts
    assert named(report, "clock_shifted") == [("B", DAYS[0], DAYS[-1])]
    assert "--source-timezone" in KINDS["clock_shifted"].advice


def test_a_halt_and_a_thin_name_are_no_faults(sound: pd.DataFrame) -> None:
    clock = sound["datetime"].dt.strftime("%H:%M")
    halted = of(sound, "A", DAYS[2]) & clock.between("11:00", "12:59")
    halted |= of(sound, "B", DAYS[4]) & (clock >= "13:30")
    thin = of(sound, "C") & (np.random.default_rng(0).random(len(sound)) < 0.4)
    assert faults(report_of(sound[~halted & ~thin])) == {}


def test_missing_bars_are_told_where_a_name_usually_has_all(sound: pd.DataFrame) -> None:
    gone = of(sound, "A", DAYS[2]) & (np.random.default_rng(0).random(len(sound)) < 0.5)
    report = report_of(sound[~gone])
    assert named(report, "bars_missing") == [("A", DAYS[2], None)]


def test_the_synthetic_market_is_sound() -> None:
    settings = SyntheticSettings(instruments=8, days=20)
    assert faults(report_of(synthetic_bars(settings), settings.calendar)) == {}


def test_the_page_lists_every_kind_by_its_severity() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    table = page.partition("| kind | reported when | what to do |\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [line.split("|")[1:3] for line in table]
    notes = [names for kind, names in cells if kind.strip().startswith("notes")]
    listed = {
        "fault": [name for kind, _ in cells for name in re.findall(r"`(\w+)`", kind)],
        "note": [name for names in notes for name in re.findall(r"`(\w+)`", names)],
    }
    for severity, names in listed.items():
        assert sorted(names) == sorted(name for name, kind in KINDS.items() if kind.severity == severity)


def test_a_panel_in_parts_names_the_same(sound: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = moved(sound, "A", DAYS[2], ("B", DAYS[2]))
    rows = of(spoilt, "C", DAYS[5])
    spoilt = spoilt.assign(datetime=spoilt["datetime"] + pd.to_timedelta(np.where(rows, 60, 0), unit="min"))
    spoilt.to_parquet(tmp_path / "bars.parquet")
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=US)

    def suspects(panel: Sessions) -> dict[str, Any]:
        return {kind: panel.report.examples[kind] for kind in ("session_twin", "clock_shifted")}

    whole = suspects(load_sessions(tmp_path / "set"))
    monkeypatch.setattr(stored, "PART_BARS", 500)
    assert suspects(load_sessions(tmp_path / "set")) == whole
