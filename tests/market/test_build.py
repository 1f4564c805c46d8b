"""From bars to the panel: what is dropped, repaired and noticed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Sessions, build_sessions
from tests.market.helpers import day_bars, random_bars

US = Calendar.preset("us")
CN = Calendar.preset("cn")
SMALL = Calendar(segments=(("10:00", "10:04"), ("11:00", "11:04")), infer_early_close_minutes=0)


def build(bars: pd.DataFrame, calendar: Calendar = SMALL, **options: object) -> Sessions:
    return build_sessions(bars, calendar, **{"min_coverage": 0.0, **options})  # type: ignore[arg-type]


def same(left: Sessions, right: Sessions) -> bool:
    return left.fingerprint == right.fingerprint


# --- the panel -----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), keep=st.floats(0.3, 1.0))
def test_the_panel_holds_each_bar_at_its_tick(seed: int, keep: float) -> None:
    bars = random_bars(SMALL, ["B", "A"], ["2024-01-04", "2024-01-03"], seed, keep)
    sessions = build(bars)
    seen = 0
    for _, bar in bars.iterrows():
        row = sessions.row(bar["instrument"], bar["datetime"])
        tick = SMALL.first_tick(bar["datetime"])
        for name in ("open", "high", "low", "close", "volume"):
            assert sessions.fields[name][row, tick] == bar[name]
        seen += 1
    assert seen == np.isfinite(sessions.fields["close"]).sum()
    assert sessions.instruments.tolist() == sorted(sessions.instruments.tolist())


def test_a01_half_day_between_full_days() -> None:
    half = Calendar.preset("us", early_closes={"2024-01-04": "13:00"}, infer_early_close_minutes=0)
    days = [
        day_bars(US, "2024-01-03"),
        day_bars(US, "2024-01-04", ticks=range(210)),
        day_bars(US, "2024-01-05"),
    ]
    for calendar, reason in ((US, "early_close_inferred"), (half, "early_close_stated")):
        sessions = build_sessions(pd.concat(days), calendar)
        assert sessions.num_ticks.tolist() == [390, 210, 390]
        assert calendar.time_of(int(sessions.num_ticks[1])).isoformat() == "13:00:00"
        assert len(np.unique(calendar.cells(30)[:210])) == 7
        assert np.isnan(sessions.fields["close"][1, 210:]).all()
        assert sessions.report.counts[reason] == 1
        assert same(build_sessions(pd.concat(days[::-1]), calendar), sessions)


def test_a01_a_few_late_prints_do_not_keep_a_closed_market_open() -> None:
    bars = [day_bars(US, "2024-01-04", name, ticks=range(210)) for name in "ABCDEFGH"]
    bars.append(day_bars(US, "2024-01-04", "A", ticks=[230, 300]))
    flat = day_bars(US, "2024-01-04", "B", ticks=range(210, 390), volume=0.0)  # a vendor's padding
    sessions = build_sessions(pd.concat([*bars, flat]), US)
    assert set(sessions.num_ticks.tolist()) == {210}
    assert sessions.report.counts["after_early_close"] == 182


def test_a01_the_auction_of_a_short_day_stays_outside_like_that_of_other_days() -> None:
    auction = {"datetime": lambda bars: bars["datetime"].dt.normalize() + pd.Timedelta(hours=16)}
    full = [day_bars(US, f"2024-01-{day:02d}") for day in range(8, 13)]
    full += [bars.iloc[-1:].assign(**auction) for bars in full]
    full += [bars.assign(datetime=bars["datetime"] + pd.Timedelta(days=7)) for bars in full]
    short = day_bars(US, "2024-01-03", ticks=range(211))  # 13:00 holds the auction
    sessions = build_sessions(pd.concat([short, *full]), US)
    assert sessions.num_ticks.tolist() == [210] + [390] * 10
    assert sessions.report.counts["auction"] == 10


def test_a_thin_instrument_alone_is_no_early_close_but_too_sparse() -> None:
    bars = pd.concat([day_bars(US, "2024-01-03", ticks=range(0, 300, 20)), day_bars(US, "2024-01-04")])
    sessions = build_sessions(bars, US)
    assert sessions.dates.astype(str).tolist() == ["2024-01-04"]
    assert sessions.report.counts["sparse_session"] == 1
    assert "AAA 2024-01-03: 15 of 390 ticks" in sessions.report.examples["sparse_session"]


def test_a_day_that_breaks_off_before_its_half_is_dropped_not_shortened() -> None:
    bars = pd.concat([day_bars(US, "2024-01-03", ticks=range(60)), day_bars(US, "2024-01-04")])
    sessions = build_sessions(bars, US)
    assert len(sessions) == 1
    assert "early_close_inferred" not in sessions.report.counts


def test_a05_nan_close_is_a_missing_tick_or_refused_by_name() -> None:
    bars = day_bars(SMALL, close=[10, np.nan, 10, 12, 10, 10, 10, 10])
    sessions = build(bars)
    assert np.isnan(sessions.fields["close"][0, 1])
    assert np.nanmean(sessions.fields["close"][0, :4]) == pytest.approx(10.6667, abs=1e-4)
    assert sessions.report.counts["price_not_finite"] == 1
    with pytest.raises(DataError, match="AAA 2024-01-03 10:01:00"):
        build(bars, strict=True)


@pytest.mark.parametrize(("bad", "reason"), [(0, "price_zero"), (-5, "price_negative"), (np.inf, "price_not_finite")])
def test_a07_impossible_prices_are_missing(bad: float, reason: str) -> None:
    bars = day_bars(SMALL, close=[10, bad, 10, 10, 10, 10, 10, 10])
    sessions = build(bars)
    for name in ("open", "high", "low", "close"):
        assert np.isnan(sessions.fields[name][0, 1])
        assert np.nanmean(sessions.fields[name]) == 10.0
    assert sessions.report.counts[reason] == 1
    with pytest.raises(DataError, match="10:01:00"):
        build(bars, strict=True)


def test_a11_the_last_of_duplicated_stamps_is_kept_and_counted() -> None:
    bars = day_bars(SMALL)
    other = bars.iloc[[2]].assign(close=11.0, high=11.0)
    sessions = build(pd.concat([bars, other, bars.iloc[[5]]]))
    assert sessions.fields["close"].shape == (1, 8)
    assert sessions.fields["close"][0].tolist() == [10, 10, 11, 10, 10, 10, 10, 10]
    assert sessions.report.counts["duplicate_conflicting"] == 1
    assert sessions.report.counts["duplicate_identical"] == 1
    with pytest.raises(DataError, match="AAA 2024-01-03 10:02:00"):
        build(pd.concat([bars, other]), strict=True)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a13_shuffled_rows_make_the_same_panel(seed: int) -> None:
    bars = random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04"], seed=1)
    shuffled = bars.sample(frac=1, random_state=seed)
    assert same(build(shuffled), build(bars))
    assert "unsorted" not in build(bars).report.counts


def test_a13_newest_first_is_sorted_and_counted_and_refused_when_strict() -> None:
    bars = day_bars(SMALL).iloc[::-1]
    assert build(bars).report.counts["unsorted"] == 7
    with pytest.raises(DataError, match="sorted"):
        build(bars, strict=True)


def test_a_file_sorted_by_time_over_instruments_is_not_unsorted() -> None:
    bars = random_bars(SMALL, ["B", "A"], ["2024-01-03"]).sort_values("datetime")
    assert "unsorted" not in build(bars, strict=True).report.counts


def test_a15_a_zone_is_converted_to_the_sessions_or_refused() -> None:
    bars = day_bars(US, "2024-03-08", close=np.arange(1, 391))
    summer = day_bars(US, "2024-03-11", close=np.arange(1, 391))  # the clock changed in between
    naive = pd.concat([bars, summer])
    aware = naive.assign(datetime=naive["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("UTC"))
    assert same(build_sessions(aware, US), build_sessions(naive, US))
    without = Calendar(segments=(("09:30", "16:00"),))
    with pytest.raises(DataError, match=r"UTC.*timezone"):
        build_sessions(aware, without)
    mixed = naive.assign(datetime=naive["datetime"].astype(str))
    mixed.loc[mixed.index[0], "datetime"] = "2024-03-08 14:30:00+00:00"
    with pytest.raises(DataError, match="some do not"):
        build_sessions(mixed, US)


def test_numbers_as_stamps_are_refused() -> None:
    with pytest.raises(DataError, match="datetime holds int64"):
        build(day_bars(SMALL).assign(datetime=1_700_000_000_000))


def test_a19_ids_that_are_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="as text"):
        build(day_bars(SMALL).assign(instrument=1))


def test_a25_both_labels_give_the_same_panel() -> None:
    path = np.linspace(10, 11, 240)
    start = build_sessions(day_bars(CN, close=path), CN)
    late = Calendar.preset("cn", label="end")
    end = build_sessions(day_bars(late, close=path), late)
    assert day_bars(late)["datetime"].iloc[0] == pd.Timestamp("2024-01-03 09:31")
    assert day_bars(late)["datetime"].iloc[-1] == pd.Timestamp("2024-01-03 15:00")
    assert np.array_equal(start.fields["close"], end.fields["close"])


@pytest.mark.parametrize(("right", "wrong"), [("start", "end"), ("end", "start")])
def test_a25_the_wrong_label_is_noticed(right: str, wrong: str) -> None:
    bars = day_bars(Calendar.preset("cn", label=right))
    report = build_sessions(bars, Calendar.preset("cn", label=wrong)).report
    assert f"try label={right!r}" in report.examples["label_suspect"]
    assert "label_suspect" not in build_sessions(bars, Calendar.preset("cn", label=right)).report.counts


def test_a27_missing_minutes_stay_on_the_clock() -> None:
    gone = [CN.first_tick(time) for time in ("10:07", "10:08", "14:59")]
    ticks = np.setdiff1d(np.arange(240), gone)
    sessions = build_sessions(day_bars(CN, close=10 + ticks / 100, ticks=ticks), CN)
    assert sessions.num_ticks.tolist() == [240]
    assert np.flatnonzero(np.isnan(sessions.fields["close"][0])).tolist() == gone
    assert sessions.fields["close"][0, 39] == pytest.approx(10.39)
    assert sessions.report.counts["missing_tick"] == 3
    assert "10:07" in sessions.report.examples["missing_tick"]


# --- other findings ------------------------------------------------------------------------------


def test_bars_off_days_sessions_and_grid_are_dropped_by_reason() -> None:
    good = day_bars(SMALL)
    odd = good.iloc[:6].assign(
        datetime=pd.to_datetime(
            [
                "2024-01-06 10:00",  # a Saturday
                "2024-01-03 09:00",
                "2024-01-03 10:04",  # the edge of a segment
                "2024-01-03 10:30",
                "2024-01-03 10:01:30",
                None,
            ],
            format="ISO8601",
        )
    )
    nobody = good.iloc[:2].assign(instrument=["", None])
    report = build(pd.concat([good, odd, nobody])).report
    assert report.problems() == {
        "instrument_missing": 2,
        "datetime_missing": 1,
        "unsorted": 2,
        "closed_day": 1,
        "auction": 1,
        "off_session": 2,
        "off_grid": 1,
    }
    assert report.totals == {"bars_read": 16, "bars_kept": 8, "sessions": 1, "instruments": 1, "days": 1}
    assert report.examples["off_session"] == "AAA 2024-01-03 09:00:00"
    for row in range(len(odd)):
        with pytest.raises(DataError, match="not clean"):
            build(pd.concat([good, odd.iloc[[row]]]), strict=True)


def test_bars_shorter_or_longer_than_ticks_are_refused() -> None:
    minute, five = CN, Calendar.preset("cn", tick_minutes=5)
    with pytest.raises(DataError, match=r"between ticks of 5 min.*tick_minutes"):
        build_sessions(day_bars(minute), five)
    with pytest.raises(DataError, match="set tick_minutes=5"):
        build_sessions(day_bars(five), minute, min_coverage=0.1)


def test_broken_ranges_are_widened_to_all_four_prices() -> None:
    bars = day_bars(SMALL)
    bars.loc[1, ["open", "high", "low", "close"]] = [10.0, 9.0, 11.0, 10.5]  # high < low
    bars.loc[2, ["open", "high", "low", "close"]] = [10.0, 10.2, 9.9, 10.4]  # close above high
    sessions = build(bars)
    assert sessions.fields["high"][0, 1:3].tolist() == [11.0, 10.4]
    assert sessions.fields["low"][0, 1:3].tolist() == [9.0, 9.9]
    assert sessions.report.counts["high_low"] == 2


def test_volume_in_lots_becomes_shares_and_negative_volume_missing() -> None:
    bars = day_bars(SMALL, volume=[1, 2, -3, np.nan, 0, 5, 6, 7])
    sessions = build(bars, volume_multiplier=100)
    assert sessions.fields["volume"][0, [0, 1, 4]].tolist() == [100, 200, 0]
    assert np.isnan(sessions.fields["volume"][0, 2:4]).all()
    assert sessions.report.counts["volume_negative"] == 1
    assert sessions.report.counts["volume_missing"] == 2


def test_quotes_and_halts_are_laid_out_and_crossed_quotes_missing() -> None:
    bars = day_bars(SMALL).assign(bid=9.99, ask=10.01, bid_size=100, ask_size=200, vwap=10.0, halted=False)
    bars.loc[1, "bid"] = 10.5
    bars.loc[3, "halted"] = True
    bars.loc[2, ["open", "high", "low", "close", "volume", "vwap"]] = np.nan
    sessions = build(bars)
    assert np.isnan(sessions.fields["bid"][0, 1])
    assert np.isnan(sessions.fields["ask"][0, 1])
    assert sessions.fields["bid"][0, 2] == 9.99
    assert sessions.halted is not None
    assert np.flatnonzero(sessions.halted[0]).tolist() == [3]
    assert sessions.report.counts["quote_crossed"] == 1
    assert sessions.report.counts["quote_only"] == 1
    assert "price_not_finite" not in sessions.report.counts


def test_halted_may_be_text_and_other_words_are_refused() -> None:
    halted = build(day_bars(SMALL).assign(halted=["False"] * 7 + ["true"])).halted
    assert halted is not None
    assert halted[0].tolist() == [False] * 7 + [True]
    with pytest.raises(DataError, match="halted holds 'perhaps'"):
        build(day_bars(SMALL).assign(halted="perhaps"))


def test_jumps_and_breaks_of_volume_and_days_without_volume_are_noted() -> None:
    bars = pd.concat(
        [
            day_bars(SMALL, "2024-01-03", close=100.0),
            day_bars(SMALL, "2024-01-04", close=10.5, volume=30_000.0),
            day_bars(SMALL, "2024-01-05", close=10.5, volume=0.0),
        ]
    )
    report = build(bars).report
    assert "AAA 2024-01-04 10:00:00: 100 to 10.5" in report.examples["price_jump"]
    assert "2024-01-04: median volume a tick times 30" in report.examples["volume_break"]
    assert "AAA 2024-01-05" in report.examples["no_volume"]
    assert not report.problems()


def test_what_is_not_a_number_is_named() -> None:
    bars = day_bars(SMALL).astype({"close": object})
    bars.loc[3, "close"] = "ten"
    with pytest.raises(DataError, match=r"'ten'.*column close"):
        build(bars)


def test_missing_and_doubled_columns_are_named() -> None:
    with pytest.raises(DataError, match="lack the columns volume"):
        build(day_bars(SMALL).drop(columns="volume"))
    bars = day_bars(SMALL)
    with pytest.raises(DataError, match=r"Duplicate column names.*close"):
        build(pd.concat([bars, bars[["close"]]], axis=1))


def test_nothing_left_says_why() -> None:
    with pytest.raises(DataError, match=r"no session is left.*weekend"):
        build(day_bars(SMALL, "2024-01-06"))
    with pytest.raises(DataError, match="no bars"):
        build(day_bars(SMALL).iloc[:0])


@pytest.mark.parametrize("options", [{"min_coverage": 1.5}, {"volume_multiplier": 0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build(day_bars(SMALL), **options)
