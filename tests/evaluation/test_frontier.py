"""The frontier of mean and deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.evaluation.frontier import below_frontier, frontier_mean, hypervolume, non_dominated

#: Points by hand: mean and deviation. The third is dominated by the second, the fifth lies below a line.
MEAN = [0.0, 2.0, 1.0, 6.0, 3.0, math.nan]
DEVIATION = [1.0, 2.0, 2.5, 6.0, 4.0, 1.0]

POINTS = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), min_size=1, max_size=8)


def test_points_by_hand() -> None:
    assert non_dominated(MEAN, DEVIATION).tolist() == [True, True, False, True, True, False]
    assert non_dominated([1.0, 1.0], [2.0, 2.0]).tolist() == [True, True], "equal points"
    # Strips of the corner (-1, 8): 1 x 7, 2 x 6, 1 x 4, 3 x 2.
    assert hypervolume(MEAN, DEVIATION, (-1.0, 8.0)) == 7 + 12 + 4 + 6
    assert hypervolume(MEAN, DEVIATION, (7.0, 8.0)) == 0
    assert hypervolume(MEAN, DEVIATION, (-1.0, 1.0)) == 0
    found = frontier_mean([0.5, 1.0, 1.5, 4.0, 6.0, 9.0], MEAN, DEVIATION)
    np.testing.assert_allclose(found, [math.nan, 0.0, 1.0, 4.0, 6.0, 6.0])
    found = below_frontier([*MEAN, 5.0, -1.0], [*DEVIATION, 0.5, math.nan], MEAN, DEVIATION)
    np.testing.assert_allclose(found, [0.0, 0.0, 1.5, 0.0, 1.0, math.nan, 0.0, math.nan])
    assert np.isnan(frontier_mean([1.0], [math.nan], [1.0])).all()


@given(POINTS)
def test_what_a_frontier_is(points: list[tuple[int, int]]) -> None:
    mean, deviation = (np.array(one, dtype=float) for one in zip(*points, strict=True))
    for at, kept in enumerate(non_dominated(mean, deviation)):
        others = [one for one in points if one != points[at]]
        assert kept == (not any(m >= mean[at] and d <= deviation[at] for m, d in others))
    below = below_frontier(mean, deviation, mean, deviation)
    assert (below >= 0).all()
    assert below[np.argmax(mean - 1e-3 * deviation)] == 0, "the most mean, at the least deviation that gives it"
    # Unit squares within the corner that some point dominates.
    cells = sum(
        any(m > low and d <= left for m, d in points) for low in range(-10, 9) for left in range(10)
    )  # [low, low + 1] by [left, left + 1]
    assert hypervolume(mean, deviation, (-10.0, 10.0)) == pytest.approx(cells)
