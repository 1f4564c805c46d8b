"""Where `cut` parts batches of whole episodes."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.policy.episodes import cut


@pytest.mark.parametrize(
    ("lengths", "size", "pieces"),
    [
        # Exactly half of the size is a piece of its own; less joins the piece before.
        ([1] * 15, 10, [10, 5]),
        ([1] * 14, 10, [14]),
        ([1] * 24, 10, [10, 14]),
        ([1] * 25, 10, [10, 10, 5]),
        # Half of an odd size is no whole number: 3 of 5 are enough, 2 are not.
        ([1] * 8, 5, [5, 3]),
        ([1] * 7, 5, [7]),
        # A piece ends with the first episode that ends at its size, or beyond.
        ([4, 4, 4, 4], 8, [8, 8]),
        ([4, 4, 4, 4], 6, [8, 8]),
        ([4, 4, 4, 4], 5, [8, 8]),
        ([4, 4, 4, 4], 4, [4, 4, 4, 4]),
        # What is left counts in rows, not in episodes.
        ([4, 4, 2], 8, [10]),
        ([4, 4, 1, 1, 2], 8, [8, 4]),
        # Fewer rows than the size, and an episode longer than it.
        ([2, 1], 10, [3]),
        ([9, 9], 4, [9, 9]),
    ],
)
def test_pieces_by_hand(lengths: list[int], size: int, pieces: list[int]) -> None:
    done = np.zeros(sum(lengths), dtype=bool)
    done[np.cumsum(lengths) - 1] = True
    rows = np.arange(len(done))
    parts = list(cut(rows, done, size))
    assert [len(part) for part in parts] == pieces
    np.testing.assert_array_equal(np.concatenate(parts), rows)
