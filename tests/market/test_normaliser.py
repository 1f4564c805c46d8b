"""Mean and scale: by hand, and in a stream to the last bit of NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import (
    FeatureSettings,
    MarketFeatures,
    Normaliser,
    SyntheticSettings,
    synthetic_sessions,
)
from tests.market.helpers import raw_column


def cut(values: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Cut into pieces whose sizes go round in `sizes`."""
    edges = np.cumsum(np.resize(sizes, len(values)))
    return np.split(values, edges[edges < len(values)])


def columns_of(values: np.ndarray) -> list[Callable[[], Iterator[np.ndarray]]]:
    return [partial(iter, [values[..., index]]) for index in range(values.shape[-1])]


def test_by_hand() -> None:
    values = np.array([[[1.0, 5.0], [3.0, 5.0]], [[np.nan, 5.0], [5.0, np.nan]]])
    fitted = Normaliser.fit(("a", "b"), columns_of(values))
    assert fitted.mean.tolist() == [3.0, 5.0]
    assert fitted.scale.tolist() == [np.sqrt(8 / 3), 1.0]  # a constant column keeps its scale


def test_impossible_statistics_are_refused() -> None:
    with pytest.raises(DataError, match="above 0"):
        Normaliser(("a",), np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="1 finite numbers"):
        Normaliser(("a",), np.array([np.nan]), np.ones(1))
    with pytest.raises(DataError, match="feature b has no value in the training part"):
        Normaliser.fit(("a", "b"), columns_of(np.array([[1.0, np.nan], [2.0, np.nan]])))


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(1, 4000),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    missing=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 10**6),
)
def test_a_stream_has_the_bits_of_the_whole(count: int, sizes: list[int], missing: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 3, count))
    values[1:][rng.random(count - 1) < missing] = np.nan
    fitted = Normaliser.fit(("a",), [partial(cut, values, sizes)])
    present = values[np.isfinite(values)]
    assert fitted.mean[0] == present.mean()
    assert fitted.scale[0] == (present.std() or 1.0)
    robust = Normaliser.fit(("a",), [partial(cut, values, sizes)], robust=True)
    low, middle, high = np.quantile(present, (0.25, 0.5, 0.75))
    assert robust.mean[0] == pytest.approx(middle, rel=1e-12)
    if high > low:
        assert robust.scale[0] == pytest.approx((high - low) / (2 * 0.6744897501960817), rel=1e-9)


def test_a_long_stream_has_the_bits_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(1.0, 1.0, 1_300_001)
    fitted = Normaliser.fit(("a",), [partial(cut, values, [70_001, 3])])
    assert (fitted.mean[0], fitted.scale[0]) == (values.mean(), values.std())


def test_a_robust_normaliser_is_not_moved_by_wild_values() -> None:
    clean = np.random.default_rng(0).normal(3.0, 2.0, (200, 50, 1))
    wild = clean.copy()
    wild[:40] = 1e6  # a fifth of all
    robust = Normaliser.fit(("x",), columns_of(wild), robust=True)
    plain = Normaliser.fit(("x",), columns_of(wild))
    assert abs(plain.mean[0]) > 1e5
    assert plain.scale[0] > 1e5
    usual = Normaliser.fit(("x",), columns_of(clean), robust=True)
    np.testing.assert_allclose([usual.mean[0], usual.scale[0]], [3.0, 2.0], atol=0.06)
    assert abs(robust.mean[0] - 3.0) < 1.0
    assert 1.5 < robust.scale[0] < 4.0


def test_a_robust_normaliser_by_hand() -> None:
    values = np.array([[1.0, 2.0, np.nan, 3.0], [4.0, 5.0, 1000.0, np.nan]])
    robust = Normaliser.fit(("x",), columns_of(values[..., None]), robust=True)
    assert robust.mean[0] == 3.5  # of 1, 2, 3, 4, 5, 1000
    np.testing.assert_allclose(robust.scale[0], (4.75 - 2.25) / (2 * 0.6744897501960817), rtol=1e-12)
    mostly = np.array([[0.0] * 9 + [10.0]])
    assert Normaliser.fit(("x",), columns_of(mostly[..., None]), robust=True).scale[0] == 3.0  # the quartiles meet


def test_features_by_robust_scaling_come_from_the_training_part() -> None:
    market = synthetic_sessions(SyntheticSettings(instruments=2, days=8, tick_minutes=30))
    train = market.dates < market.dates[5]
    features = MarketFeatures.build(market, FeatureSettings(("returns",), scaling="robust"), fit_rows=train)
    raw = raw_column(market, "returns")[train]
    assert features.normaliser.mean[0] == pytest.approx(np.nanmedian(raw), rel=1e-12)
    again = MarketFeatures.build(market, FeatureSettings(("returns",)), normaliser=features.normaliser)
    np.testing.assert_array_equal(again.today, features.today)
    with pytest.raises(ConfigError, match="scaling is 'quantile'; write 'standard', 'robust' or 'qlib'"):
        FeatureSettings(scaling="quantile")  # type: ignore[arg-type]
