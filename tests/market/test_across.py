"""Features across instruments: by hand, causal, one's own, and the same however sessions are cut into blocks."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Sessions, feature, feature_registry, features
from rlwb.market import references as referring
from rlwb.market.catalogue import BUILT_IN, Block, Feature
from rlwb.market.feature_registry import find_feature
from rlwb.market.references import References
from tests.market.helpers import raw_column

CLOCK = Calendar(segments=(("10:00", "10:04"),), infer_early_close_minutes=0)
ACROSS = tuple(name for name, one in BUILT_IN.items() if one.across)
NAN = np.nan


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test adds to itself."""
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(BUILT_IN))


def panel(**days: list[list[float]]) -> Sessions:
    """Return sessions by instrument, of logs of closes by day; each opens at its first price."""
    names = np.repeat(list(days), [len(one) for one in days.values()])
    close = np.exp(np.concatenate([np.array(one, dtype=float) for one in days.values()]))
    dates = np.concatenate([np.datetime64("2024-01-03") + np.arange(len(one)) for one in days.values()])
    fields = dict.fromkeys(("open", "high", "low", "close"), close) | {"volume": np.ones_like(close)}
    return Sessions(CLOCK, names, dates, np.full(len(names), CLOCK.num_ticks), fields)


#: A gains 1 % a tick, B trades first at the second tick, C halts after the first; on the second day C is not there.
MARKET = panel(
    A=[[0.00, 0.01, 0.02, 0.03], [0.10, 0.10, 0.10, 0.10]],
    B=[[NAN, 1.00, 0.98, 0.98], [0.98, 0.99, NAN, 1.00]],
    C=[[2.00, NAN, NAN, NAN]],
)


@pytest.mark.parametrize(
    ("name", "a", "b", "c"),
    [
        # the others' last close over their first: B from its first on, C flat all day
        ("market_return", [0, 0, -0.01, -0.01], [0, 0.005, 0.01, 0.015], [0, 0.005, 0, 0.005]),
        ("relative_return", [0, 0.01, 0.03, 0.04], [NAN, -0.005, -0.03, -0.035], [0, -0.005, 0, -0.005]),
        # the return of those that trade at the tick, from their last close before it; the first of all has none
        ("market_returns", [NAN, NAN, -0.02, 0], [NAN, 0.01, 0.01, 0.01], [NAN, 0.01, -0.005, 0.005]),
        ("breadth", [0.5, 0.5, 0.25, 0.25], [0.5, 0.75, 0.75, 0.75], [0.5, 0.75, 0.5, 0.5]),
        ("close@B", [NAN, 0, -0.02, -0.02], [NAN, 0, -0.02, -0.02], [NAN, 0, -0.02, -0.02]),
    ],
)
def test_a_day_by_hand(name: str, a: list[float], b: list[float], c: list[float]) -> None:
    np.testing.assert_allclose(raw_column(MARKET, name)[[0, 2, 4]], [a, b, c], atol=1e-12)


def test_a_day_on_which_one_is_absent_by_hand() -> None:
    so_far = raw_column(MARKET, "market_return")[[1, 3]]
    np.testing.assert_allclose(so_far, [[0, 0.01, 0.01, 0.02], [0] * 4], atol=1e-12)
    np.testing.assert_allclose(raw_column(MARKET, "market_returns")[1], [0, 0.01, NAN, 0.01], atol=1e-12)  # from 0.98
    assert np.isnan(raw_column(MARKET, "returns@C")[[1, 3]]).all()
    np.testing.assert_array_equal(raw_column(MARKET, "returns@B")[0], raw_column(MARKET, "returns")[2])


@pytest.mark.parametrize("name", ACROSS)
def test_a_market_of_one_instrument_has_no_others(name: str) -> None:
    alone = MARKET.select(MARKET.instruments == "A")
    assert np.isnan(raw_column(alone, name)).all()
    with pytest.raises(DataError, match=f"feature {name} has no value"):
        MarketFeatures.build(alone, FeatureSettings((name,)), fit_rows=np.arange(2))
    whole = MarketFeatures.build(MARKET, FeatureSettings((name,)), fit_rows=np.arange(5))
    assert not MarketFeatures.build(alone, FeatureSettings((name,)), normaliser=whole.normaliser).today.any()


@pytest.mark.parametrize("function", [lambda day: day["close"].argsort(axis=0), lambda day: np.nansum(day["close"], 0)])
def test_ones_own_feature_says_that_it_is_across_instruments(function: Callable[[Block], np.ndarray]) -> None:
    def own(block: Block) -> np.ndarray:
        return block.across(function)

    with pytest.raises(ConfigError, match="own reads other instruments"):
        feature("own", needs=("close",))(own)
    assert feature("own", needs=("close",), across=True)(own).across
    assert raw_column(MARKET, "own").shape == (5, 4)


def test_one_that_reads_others_of_the_panel_by_itself_is_found_out() -> None:
    def first_of_all(block: Block) -> np.ndarray:
        whole = block.references.sessions.fields["close"]
        return np.broadcast_to(whole[:1, :1], (len(block), whole.shape[1]))

    with pytest.raises(ConfigError, match="reads other instruments"):
        feature("own", needs=("close",))(first_of_all)


def last_of_the_day(day: Block) -> np.ndarray:
    return np.nan_to_num(day["close"])[:, ::-1].max(axis=0)


def naive(block: Block) -> np.ndarray:
    return np.broadcast_to(np.nan_to_num(block["close"]).sum(axis=0), (len(block), len(block.ticks)))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda block: block.across(last_of_the_day), "own sees the future"),
        (naive, r"block\.across"),
        (lambda block: block.across(lambda day: day["close"][:, 0]), "block.across, returns shape"),
    ],
)
def test_one_across_stands_the_same_trial(function: Callable[[Block], np.ndarray], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        feature("own", needs=("close",), across=True)(function)


@pytest.mark.parametrize("name", ["closes@B", "close@", "@B", "close@B@C", "my.py@B"])
def test_a_wrong_name_of_anothers_feature_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no feature"):
        FeatureSettings((name,))


def test_an_instrument_without_bars_is_named() -> None:
    assert find_feature("close@SPX").name == "close@SPX"
    with pytest.raises(DataError, match="reads SPX, of which there are no bars"):
        raw_column(MARKET, "close@SPX")
    with pytest.raises(ConfigError, match="has an @"):
        feature("own@B", needs=("close",))


def rank(block: Block) -> np.ndarray:
    return block.across(order)


def order(day: Block) -> np.ndarray:
    return day["close"].argsort(axis=0).argsort(axis=0).astype(float)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), block=st.sampled_from([1, 8, 20, 1 << 18]))
def test_ones_own_is_the_same_however_sessions_are_cut(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    names = [name for name in "ABC" for _ in range(5)]
    close = rng.normal(size=(15, 4))
    close[rng.random(close.shape) < 0.2] = NAN
    sessions = panel(**{name: close[5 * at : 5 * at + 5].tolist() for at, name in enumerate("ABC")})
    assert sessions.instruments.tolist() == names
    columns = ("own_rank", "market_return", "close@C")
    with pytest.MonkeyPatch.context() as patch:
        own = Feature("own_rank", ("close",), rank, across=True)
        patch.setattr(feature_registry, "_FEATURES", {**BUILT_IN, "own_rank": own})
        kept = MarketFeatures.build(sessions, FeatureSettings(columns), fit_rows=np.arange(12))
        patch.setattr(features, "KEPT_BYTES", 0)
        patch.setattr(referring, "BLOCK_BARS", block)
        computed = MarketFeatures.build(sessions, FeatureSettings(columns), fit_rows=np.arange(12))
        assert computed.normaliser.as_dict() == kept.normaliser.as_dict()
        assert computed.today.tobytes() == kept.today.tobytes()
        rows = rng.integers(15, size=9)
        assert computed.rows(rows).tobytes() == kept.today[rows].tobytes()
        assert pickle.loads(pickle.dumps(computed)).rows(rows).tobytes() == kept.today[rows].tobytes()


def test_numbers_of_a_date_are_found_once() -> None:
    asked: list[int] = []

    def count(day: Block) -> np.ndarray:
        asked.append(len(day))
        return np.full(4, float(len(day)))

    references = References(MARKET)
    blocks = [Block(references, np.array(rows)) for rows in ([4, 0], [1], [2, 3])]
    found = [block.across(count)[:, 0].tolist() for block in blocks]
    assert found == [[3, 3], [2], [3, 2]]
    assert asked == [3, 2]
    assert blocks[0].instruments.tolist() == ["C", "A"]
