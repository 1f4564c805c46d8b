"""Mean and scale: by hand, and in a stream to the last bit of NumPy's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import DataError
from rlwb.market import Normaliser, normaliser


def cut(values: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Cut into pieces whose sizes go round in `sizes`."""
    edges = np.cumsum(np.resize(sizes, len(values)))
    return np.split(values, edges[edges < len(values)])


def test_by_hand() -> None:
    values = np.array([[[1.0, 5.0], [3.0, 5.0]], [[np.nan, 5.0], [5.0, np.nan]]])
    fitted = Normaliser.fit(values, ("a", "b"))
    assert fitted.mean.tolist() == [3.0, 5.0]
    assert fitted.scale.tolist() == [np.sqrt(8 / 3), 1.0]  # a constant column keeps its scale


def test_impossible_statistics_are_refused() -> None:
    with pytest.raises(DataError, match="above 0"):
        Normaliser(("a",), np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="1 finite numbers"):
        Normaliser(("a",), np.array([np.nan]), np.ones(1))
    with pytest.raises(DataError, match="feature b has no value in the training part"):
        Normaliser.fit(np.array([[1.0, np.nan], [2.0, np.nan]]), ("a", "b"))


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 4000),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    missing=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 10**6),
)
def test_a_stream_has_the_bits_of_the_whole(count: int, sizes: list[int], missing: float, seed: int) -> None:
    """With pieces of 128 numbers, the fewest that NumPy adds without halving, so that the halving is ours."""
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 3, count))
    values[1:][rng.random(count - 1) < missing] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normaliser, "_LEAF", 128)
        fitted = Normaliser.stream(("a",), [partial(cut, values, sizes)])
    present = values[np.isfinite(values)]
    assert fitted.mean[0] == present.mean()
    assert fitted.scale[0] == (present.std() or 1.0)


def test_a_long_stream_has_the_bits_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(1.0, 1.0, 1_300_001)
    fitted = Normaliser.stream(("a",), [partial(cut, values, [70_001, 3])])
    assert (fitted.mean[0], fitted.scale[0]) == (values.mean(), values.std())
    # the order of adding shows: the same numbers added one after the other give other bits
    assert normaliser.stream_sum(iter([values]), len(values)) != np.cumsum(values)[-1]
