"""The formulas that features are made of: by hand, causal, and open to one's own."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import (
    Calendar,
    FeatureSettings,
    MarketFeatures,
    Sessions,
    build_sessions,
    feature,
    feature_names,
    feature_registry,
)
from rlwb.market.catalogue import BUILT_IN, Block, Feature, of_instrument
from rlwb.market.feature_registry import check_causal
from rlwb.market.references import References
from tests.market.helpers import day_bars, random_bars, raw_column

SMALL = Calendar(segments=(("10:00", "10:04"),), infer_early_close_minutes=0)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test adds to itself."""
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(BUILT_IN))


def day(date: str, close: list[float], volume: list[float] | float = 10.0, instrument: str = "A") -> pd.DataFrame:
    return day_bars(SMALL, date, instrument, close=close, volume=volume)


def build(*days: pd.DataFrame) -> Sessions:
    return build_sessions(pd.concat(days), SMALL, min_coverage=0.0)


def gap(block: Block) -> np.ndarray:
    opening = np.where(np.arange(block.calendar.num_ticks) == 0, block["open"], np.nan)
    return np.log(np.fmax.accumulate(opening, axis=1) / block.price_reference)


def yesterday_close(block: Block) -> np.ndarray:
    return block.earlier("close", 1)


def own_rank(block: Block) -> np.ndarray:
    return block.across(ranks)


def ranks(day: Block) -> np.ndarray:
    return pd.DataFrame(day["close"]).rank().to_numpy()


OWN = (
    Feature("own_gap", ("open",), gap),
    Feature("yesterday_close", ("close",), yesterday_close),
    Feature("own_rank", ("close",), own_rank, across=True),
    of_instrument(BUILT_IN["returns"], "B"),
    of_instrument(BUILT_IN["breadth"], "C"),
)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("one", [*BUILT_IN.values(), *OWN], ids=lambda one: one.name)
def test_no_feature_sees_the_future(one: Feature, seed: int) -> None:
    check_causal(one, trials=60, seed=seed)


def next_close(block: Block) -> np.ndarray:
    return np.roll(block["close"], -1, axis=1)


def over_the_mean(block: Block) -> np.ndarray:
    return block["close"] / np.nanmean(block["close"], axis=1, keepdims=True)


def fill_from_behind(block: Block) -> np.ndarray:
    return pd.DataFrame(block["close"]).bfill(axis=1).to_numpy()


def early_reference(block: Block) -> np.ndarray:
    return np.broadcast_to(block.price_reference, (len(block), block.calendar.num_ticks))


@pytest.mark.parametrize("function", [next_close, over_the_mean, fill_from_behind, early_reference])
def test_a_feature_that_sees_the_future_is_refused(function: feature_registry.Function) -> None:
    with pytest.raises(ConfigError, match=r"feature mine sees the future: changing bars \d+ ticks later"):
        feature("mine", needs=("close",))(function)
    assert "mine" not in feature_names()


def test_a_feature_that_looks_at_its_neighbours_is_refused() -> None:
    with pytest.raises(ConfigError, match="depends on which others are computed with it"):
        feature("rank", needs=("close",))(lambda block: block["close"].argsort(axis=0))


def test_imbalance_by_hand() -> None:
    sizes = {"bid_size": [3.0, 0.0, 0.0, 5.0], "ask_size": [1.0, 2.0, 0.0, np.nan]}
    sessions = build(day("2024-01-03", [10.0] * 4).assign(bid=9.9, ask=10.1, **sizes))
    np.testing.assert_array_equal(raw_column(sessions, "imbalance"), [[0.5, -1.0, np.nan, np.nan]])


def test_volatility_by_hand() -> None:
    close = [10.0, np.nan, 10.0 * np.exp(0.03), 10.0 * np.exp(0.07)]
    sessions = build(day("2024-01-03", close, [5.0, 0.0, 5.0, 5.0]))
    # returns of 3 % (over the missing tick) and 4 %; none before the second price
    expected = [[np.nan, np.nan, 0.03, np.sqrt((0.03**2 + 0.04**2) / 2)]]
    np.testing.assert_allclose(raw_column(sessions, "volatility"), expected, rtol=1e-12)


def test_volume_share_by_hand() -> None:
    sessions = build(
        day("2024-01-03", [10.0] * 4, [1.0, 1.0, 1.0, 1.0]),
        day("2024-01-04", [10.0] * 4, 0.0),  # did not trade: says nothing of a usual day
        day("2024-01-05", [10.0] * 4, [4.0, 0.0, np.nan, 4.0]),
        day("2024-01-08", [10.0] * 4, [6.0, 3.0, np.nan, 3.0]),
        day("2024-01-08", [10.0] * 4, instrument="B"),
    )
    share = raw_column(sessions, "volume_share")
    assert np.isnan(share[[0, 4]]).all()
    np.testing.assert_allclose(share[2], np.array([4, 4, 4, 8]) / 4 - np.array([1, 2, 3, 4]) / 4)
    # the usual day is the mean of (1, 2, 3, 4) and (4, 4, 4, 8): 6 in all, of which 2.5, 3, 3.5, 6 by each tick
    np.testing.assert_allclose(share[3], np.array([6, 9, 9, 12]) / 6 - np.array([2.5, 3, 3.5, 6]) / 6)


def test_volume_share_forgets_what_is_older_than_five_sessions() -> None:
    dates = [f"2024-01-{number:02d}" for number in (2, 3, 4, 5, 8, 9, 10)]
    volumes = [1000.0, *[1.0] * 5, 2.0]
    sessions = build(*(day(date, [10.0] * 4, volume) for date, volume in zip(dates, volumes, strict=True)))
    np.testing.assert_allclose(raw_column(sessions, "volume_share")[6], [0.25, 0.5, 0.75, 1.0])


def two_days() -> Sessions:
    """Return a day that closes at 12 after a silent last tick, and a day that opens late and at 15."""
    first = day("2024-01-03", [10.0, np.nan, 12.0, np.nan]).assign(open=[9.0, np.nan, 10.0, np.nan])
    second = day("2024-01-05", [np.nan, 16.0, 16.0, 8.0]).assign(open=[np.nan, 15.0, 16.0, 16.0])
    for bars in (first, second):
        bars["high"], bars["low"] = bars[["open", "close"]].max(axis=1), bars[["open", "close"]].min(axis=1)
    return build(first, second)


NONE = [np.nan] * 4


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("returns", [np.nan, np.nan, np.log(12 / 10), np.nan], [np.nan, np.log(16 / 12), 0.0, np.log(8 / 16)]),
        ("gap", NONE, [np.nan, *[np.log(15 / 12)] * 3]),
        ("yesterday_return", NONE, [np.log(12 / 9)] * 4),
        ("yesterday_volatility", NONE, [np.log(12 / 10)] * 4),
        ("time", [0.25, 0.5, 0.75, 1.0], [0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_features_across_days_by_hand(name: str, first: list[float], second: list[float]) -> None:
    np.testing.assert_allclose(raw_column(two_days(), name), [first, second], rtol=1e-12)


def test_earlier_sessions_are_the_instruments_own() -> None:
    sessions = build(
        day("2024-01-03", [1.0, 2.0, 3.0, 4.0]),
        day("2024-01-05", [5.0, 6.0, 7.0, 8.0]),
        day("2024-01-05", [9.0] * 4, instrument="B"),
    )
    block = Block(References(sessions), np.array([2, 1, 0]))
    np.testing.assert_array_equal(block.earlier("close", 1), [NONE, [1.0, 2.0, 3.0, 4.0], NONE])
    np.testing.assert_array_equal(block.earlier("close", 2), [NONE, NONE, NONE])
    with pytest.raises(ConfigError, match="1, 2, … before, not 0"):
        block.earlier("close", 0)
    with pytest.raises(DataError, match="reads bid, which these bars lack"):
        block["bid"]
    with pytest.raises(ValueError, match="read-only"):
        block["close"][0, 0] = 1.0


def test_ones_own_feature_is_seen_under_its_name() -> None:
    feature("own_gap", needs=("open",))(gap)
    assert feature_names()[-1] == "own_gap"
    sessions = build(day("2024-01-03", [10.0] * 4), day("2024-01-04", [11.0] * 4), day("2024-01-05", [11.0] * 4))
    features = MarketFeatures.build(sessions, FeatureSettings(("close", "own_gap")), fit_rows=np.arange(2))
    assert features.columns == features.normaliser.columns == ("close", "own_gap")
    raw = features.today[:, :, 1] * features.normaliser.scale[1] + features.normaliser.mean[1]
    np.testing.assert_allclose(raw[:, 0], [0.0, np.log(1.1), 0.0], atol=1e-6)
    feature("own_gap", needs=("open",))(lambda block: np.zeros_like(block["open"]))  # a notebook's cell, run again
    assert not raw_column(sessions, "own_gap").any()


def test_the_documented_example_runs() -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(feature, "feature", globs={})
    assert len(example.examples) == 6
    assert doctest.DocTestRunner().run(example).failed == 0


def test_what_cannot_be_added_is_refused() -> None:
    with pytest.raises(ConfigError, match="close is built in"):
        feature("close", needs=("close",))
    with pytest.raises(ConfigError, match=r"feature last returns shape \(21,\) for 21 sessions of 48 ticks"):
        feature("last", needs=("close",))(lambda block: block["close"][:, -1])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("volumeshare", "did you mean volume_share"),
        ("spraed", "did you mean spread"),
        ("xyz", "choose among open, high"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"no feature '{name}'; {hint}"):
        FeatureSettings(("close", name))


def test_what_is_not_finite_is_missing() -> None:
    one = Feature("inverse", ("volume",), lambda block: 1.0 / block["volume"])
    sessions = build(day("2024-01-03", [10.0] * 4, [4.0, 0.0, 2.0, 1.0]))
    np.testing.assert_array_equal(one(Block(References(sessions), np.array([0]))), [[0.25, np.nan, 0.5, 1.0]])


def test_fields_that_lack_are_named_before_any_work() -> None:
    sessions = build_sessions(random_bars(SMALL, ["A"], ["2024-01-03"]), SMALL)
    with pytest.raises(DataError, match="feature imbalance needs ask_size, bid_size, which these bars lack"):
        MarketFeatures.build(sessions, FeatureSettings(("close", "imbalance")), fit_rows=np.array([0]))


def test_features_travel_to_other_processes() -> None:
    for one in BUILT_IN.values():
        assert pickle.loads(pickle.dumps(one)).name == one.name
