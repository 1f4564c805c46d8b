"""Features: causal, normalised by the training part alone, whole where bars are missing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Normaliser, Sessions, build_sessions
from rlwb.market.catalogue import BUILT_IN
from tests.market.helpers import day_bars, random_bars, raw_column

SMALL = Calendar(segments=(("10:00", "10:04"), ("11:00", "11:04")), infer_early_close_minutes=0)
#: Those of Qlib refer two days back, see test_qlib_features.py; of those across instruments see test_across.py.
NAMES = tuple(name for name, one in BUILT_IN.items() if not name.startswith("qlib_") and not one.across)
ALL = FeatureSettings(NAMES)
PLAIN = Normaliser(("close", "volume"), np.zeros(2), np.ones(2))


def quoted(instruments: list[str], dates: list[str], seed: int = 0, keep: float = 1.0) -> pd.DataFrame:
    bars = random_bars(SMALL, instruments, dates, seed, keep)
    rng = np.random.default_rng(seed)
    half = rng.uniform(1e-4, 1e-3, len(bars))
    sizes = {name: rng.integers(0, 500, len(bars)) for name in ("bid_size", "ask_size")}
    return bars.assign(bid=bars["close"] * (1 - half), ask=bars["close"] * (1 + half), vwap=bars["close"], **sizes)


def build(bars: pd.DataFrame) -> Sessions:
    return build_sessions(bars, SMALL, min_coverage=0.0)


def test_prices_are_logs_over_yesterdays_last_close_and_volume_over_its_mean() -> None:
    bars = pd.concat(
        [
            day_bars(
                SMALL, "2024-01-03", close=[10, 10, 11, 10, 10, 12, 20, np.nan], volume=[1, 2, 3, 4, 5, 6, 7, np.nan]
            ),
            day_bars(SMALL, "2024-01-04", close=20 * np.exp(np.arange(8) / 100), volume=4.0),
        ]
    )
    sessions = build(bars)
    features = MarketFeatures.build(sessions, FeatureSettings(("close", "volume")), normaliser=PLAIN)
    assert features.today.dtype == np.float32
    assert features.today.shape == (2, 8, 2)
    np.testing.assert_allclose(features.today[1, :, 0], np.arange(8) / 100, atol=1e-6)
    np.testing.assert_allclose(features.today[1, :, 1], np.log(2.0), atol=1e-6)
    # the first session: over its own first price, and over its mean volume so far
    np.testing.assert_allclose(features.today[0, :3, 0], [0, 0, np.log(1.1)], atol=1e-6)
    np.testing.assert_allclose(features.today[0, :3, 1], np.log1p([1, 2 / 1.5, 3 / 2]), atol=1e-6)
    np.testing.assert_allclose(features.today[0, 7], features.today[0, 6])  # what is missing carries on


def test_the_reference_reaches_past_a_day_without_trades() -> None:
    days = [day_bars(SMALL, "2024-01-03", close=10.0, volume=100.0)]
    days.append(day_bars(SMALL, "2024-01-04", close=10.0, volume=0.0))
    days.append(day_bars(SMALL, "2024-01-05", close=11.0, volume=100.0))
    raw = raw_column(build(pd.concat(days)), "volume")
    np.testing.assert_allclose(raw[2], np.log(2.0))
    np.testing.assert_array_equal(raw[1], 0.0)


def test_instruments_do_not_leak_into_each_other() -> None:
    both = build(quoted(["A", "B"], ["2024-01-03", "2024-01-04"]))
    alone = both.select(both.instruments == "B")
    for name in NAMES:
        np.testing.assert_array_equal(raw_column(both, name)[2:], raw_column(alone, name))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    row=st.integers(0, 5),
    tick=st.integers(0, 7),
    keep=st.floats(0.4, 1.0),
    missing=st.booleans(),
)
def test_no_feature_sees_the_future(seed: int, row: int, tick: int, keep: float, missing: bool) -> None:
    """Changing any bar at or after a tick, or of a later session, changes no feature before it."""
    rng = np.random.default_rng(seed)
    dates = ["2024-01-03", "2024-01-04", "2024-01-05"]
    base = build(quoted(["A", "B"], dates))
    fields = {name: array.copy() for name, array in base.fields.items()}
    gone = rng.random(fields["close"].shape) > keep
    for name in fields:
        fields[name][gone] = np.nan
        fields[name][rng.random(gone.shape) > keep] = np.nan
    before = Sessions(SMALL, base.instruments, base.dates, base.num_ticks, fields)
    changed = {name: array.copy() for name, array in fields.items()}
    instrument = before.instruments[row]
    future = (before.instruments == instrument)[:, None] & (
        (before.dates > before.dates[row])[:, None]
        | ((before.dates == before.dates[row])[:, None] & (np.arange(8) >= tick)[None, :])
    )
    for name in changed:
        new = np.nan if missing else rng.uniform(1, 1e4, future.shape)
        changed[name] = np.where(future, new, changed[name])
    after = Sessions(SMALL, base.instruments, base.dates, base.num_ticks, changed)
    normaliser = Normaliser(NAMES, np.zeros(len(NAMES)), np.ones(len(NAMES)))
    one = MarketFeatures.build(before, ALL, normaliser=normaliser)
    two = MarketFeatures.build(after, ALL, normaliser=normaliser)
    np.testing.assert_array_equal(one.today[~future], two.today[~future])
    assert np.isfinite(one.today).all()
    assert np.isfinite(two.today).all()
    np.testing.assert_array_equal(one.block([row], [tick]), two.block([row], [tick]))
    np.testing.assert_array_equal(one.block_previous([row]), two.block_previous([row]))


def test_blocks_hold_today_up_to_the_tick_and_yesterday_whole() -> None:
    sessions = build(random_bars(SMALL, ["A"], ["2024-01-03", "2024-01-04"]))
    features = MarketFeatures.build(sessions, FeatureSettings(previous_day=True), fit_rows=np.array([0]))
    assert features.previous_day
    block = features.block(np.array([1, 1, 0]), np.array([0, 3, 8]))
    assert block.shape == (3, 8, 5)
    assert not block[0].any()
    np.testing.assert_array_equal(block[1, :3], features.today[1, :3])
    assert not block[1, 3:].any()
    np.testing.assert_array_equal(block[2], features.today[0])
    previous = features.block_previous(np.array([0, 1]))
    assert not previous[0].any()
    np.testing.assert_array_equal(previous[1], features.today[0])
    without = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=np.array([0]))
    assert not without.previous_day
    assert not without.block_previous(np.array([0, 1])).any()
    block[:] = 7.0  # a copy: the features stay as they are
    assert not (features.today == 7.0).any()


def test_ticks_after_an_early_close_are_zero() -> None:
    calendar = dataclasses.replace(SMALL, early_closes={"2024-01-03": "11:00"})
    bars = pd.concat(
        [day_bars(SMALL, "2024-01-03", close=np.linspace(10, 11, 8)), day_bars(SMALL, "2024-01-04", close=11.0)]
    )
    features = MarketFeatures.build(build_sessions(bars, calendar), fit_rows=np.array([0, 1]))
    assert not features.today[0, 4:].any()
    assert features.today[1, 4:].any()


def test_a35_statistics_are_those_of_the_training_part() -> None:
    train = quoted(["A", "B"], ["2024-01-03", "2024-01-04"], seed=1, keep=0.8)
    test = quoted(["A", "B"], ["2024-01-08", "2024-01-09"], seed=2)
    for name in ("open", "high", "low", "close", "bid", "ask", "vwap"):
        test[name] *= 100
    whole, part = build(pd.concat([train, test])), build(train)
    split = np.datetime64("2024-01-05")
    with_test = MarketFeatures.build(whole, ALL, fit_rows=whole.dates < split)
    without = MarketFeatures.build(part, ALL, fit_rows=np.arange(len(part)))
    assert with_test.normaliser.mean.tobytes() == without.normaliser.mean.tobytes()
    assert with_test.normaliser.scale.tobytes() == without.normaliser.scale.tobytes()
    np.testing.assert_array_equal(with_test.today[whole.dates < split], without.today)
    assert np.abs(with_test.today).max() <= ALL.clip
    columns = [raw_column(part, name) for name in NAMES]
    np.testing.assert_allclose(with_test.normaliser.mean, [np.nanmean(column) for column in columns], rtol=1e-12)
    np.testing.assert_allclose(with_test.normaliser.scale, [np.nanstd(column) for column in columns], rtol=1e-9)


def test_a_checkpoints_normaliser_gives_the_same_features() -> None:
    sessions = build(random_bars(SMALL, ["A"], ["2024-01-03", "2024-01-04"]))
    fitted = MarketFeatures.build(sessions, fit_rows=np.array([0]))
    stored = Normaliser.from_dict(fitted.normaliser.as_dict())
    np.testing.assert_array_equal(MarketFeatures.build(sessions, normaliser=stored).today, fitted.today)
    with pytest.raises(DataError, match="settings that the normaliser was fitted with"):
        MarketFeatures.build(sessions, FeatureSettings(("close",)), normaliser=stored)


def test_a29_features_of_other_sessions_are_refused() -> None:
    sessions = build(random_bars(SMALL, ["A"], ["2024-01-03", "2024-01-04"]))
    features = MarketFeatures.build(sessions, fit_rows=np.array([0]))
    features.check_matches(sessions)
    with pytest.raises(DataError, match="2 sessions with 8 ticks do not fit prices of 1 sessions"):
        features.check_matches(sessions.select(np.array([0])))
    other = build(random_bars(SMALL, ["A"], ["2024-01-03", "2024-01-05"]))
    with pytest.raises(DataError, match="other bars or days"):
        features.check_matches(other)
    with pytest.raises(DataError, match="do not fit columns"):
        MarketFeatures(("close",), features.today, features.previous, features.normaliser)


def test_wrong_settings_are_refused() -> None:
    sessions = build(random_bars(SMALL, ["A"], ["2024-01-03"]))
    with pytest.raises(ConfigError, match="one of them"):
        MarketFeatures.build(sessions)
    with pytest.raises(ConfigError, match=r"no feature 'closes'; did you mean close\?"):
        FeatureSettings(("close", "closes"))
    with pytest.raises(ConfigError, match="different names"):
        FeatureSettings(("close", "close"))
    with pytest.raises(ConfigError, match="different names"):
        FeatureSettings(())
    with pytest.raises(ConfigError, match="clip"):
        FeatureSettings(clip=0)
    with pytest.raises(DataError, match="feature bid needs bid"):
        MarketFeatures.build(sessions, FeatureSettings(("bid",)), fit_rows=np.array([0]))
    with pytest.raises(DataError, match="no value in the training part"):
        MarketFeatures.build(sessions, fit_rows=np.array([], dtype=int))
