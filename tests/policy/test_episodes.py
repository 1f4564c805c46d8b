from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import RlwbError
from rlwb.policy.episodes import check_episodes, cut, gae, last_rows, merge_statistics, shuffled

lengths_of = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def ends(lengths: list[int]) -> np.ndarray:
    done = np.zeros(sum(lengths), dtype=bool)
    done[np.cumsum(lengths) - 1] = True
    return done


def test_gae_of_two_episodes_by_hand() -> None:
    # gamma 0.9, lambda 0.5. First episode: r = 1, 0, 2 and v = 0.5, 1, -1:
    # delta = 1 + 0.9 - 0.5 = 1.4;  0 - 0.9 - 1 = -1.9;  2 + 1 = 3
    # A_2 = 3;  A_1 = -1.9 + 0.45 * 3 = -0.55;  A_0 = 1.4 + 0.45 * -0.55 = 1.1525
    # Second: r = 4, v = 1: A = 3. Third: r = -1, 1 and v = 0, 2: A_1 = -1, A_0 = -1 + 1.8 - 0.45 = 0.35
    reward, value = np.array([1, 0, 2, 4, -1, 1.0]), np.array([0.5, 1, -1, 1, 0, 2])
    advantage, returns = gae(reward, value, ends([3, 1, 2]), 0.9, 0.5)
    np.testing.assert_allclose(advantage, [1.1525, -0.55, 3, 3, 0.35, -1], rtol=1e-12)
    np.testing.assert_allclose(returns, [1.6525, 0.45, 2, 4, 0.35, 1], rtol=1e-12)


def test_gae_without_discount_is_reward_to_come_less_value() -> None:
    reward, value = np.array([1, 2, 3, 10.0]), np.array([7, 8, 9, 5.0])
    advantage, returns = gae(reward, value, ends([3, 1]), 1.0, 1.0)
    np.testing.assert_allclose(returns, [6, 5, 3, 10])
    np.testing.assert_allclose(advantage, [-1, -3, -6, 5])


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.8), (0.5, 0.0), (0.0, 1.0)])
def test_gae_equals_tianshou(gamma: float, lam: float) -> None:
    from tianshou.algorithm.algorithm_base import _gae

    rng = np.random.default_rng(0)
    done = ends(list(rng.integers(1, 9, size=50)))
    reward, value = rng.normal(size=len(done)), rng.normal(size=len(done))
    following = np.where(done, 0.0, np.append(value[1:], 0.0))
    advantage, _ = gae(reward, value, done, gamma, lam)
    np.testing.assert_allclose(advantage, _gae(value, following, reward, done, gamma, lam), rtol=1e-9, atol=1e-12)


@given(lengths_of, st.integers(1, 60))
@settings(deadline=None, max_examples=200)
def test_cut_gives_whole_episodes_and_every_row_once(lengths: list[int], size: int) -> None:
    done = ends(lengths)
    rows = shuffled(done, np.random.default_rng(len(lengths)))
    parts = list(cut(rows, done, size))
    np.testing.assert_array_equal(np.concatenate(parts), rows)
    for part in parts:
        assert done[part[-1]]
        assert len(part) >= min(size / 2, len(rows))
    # No piece holds an episode more than its size asks for, but the last, which may take up a remainder.
    for part in parts[:-1]:
        assert len(part) < size + max(lengths)


@given(lengths_of, st.integers(0, 2**32))
@settings(deadline=None)
def test_shuffled_keeps_episodes_in_one_piece(lengths: list[int], seed: int) -> None:
    done = ends(lengths)
    rows = shuffled(done, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(done)))
    inside = ~done[rows][:-1]
    assert (np.diff(rows)[inside] == 1).all()


def test_last_rows() -> None:
    np.testing.assert_array_equal(last_rows(ends([3, 1, 2])), [2, 2, 2, 3, 5, 5])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 2**32))
@settings(deadline=None)
def test_statistics_of_parts_are_those_of_the_whole_and_of_tianshou(sizes: list[int], seed: int) -> None:
    from tianshou.utils import RunningMeanStd

    rng, theirs = np.random.default_rng(seed), RunningMeanStd()
    parts, found = [rng.normal(3, 2, size) for size in sizes], (0, 0.0, 1.0)
    for part in parts:
        found = merge_statistics(*found, part)
        theirs.update(part)
    whole = np.concatenate(parts)
    np.testing.assert_allclose(found, [len(whole), whole.mean(), whole.var()], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found, [theirs.count, theirs.mean, theirs.var])


def test_the_first_reward_that_is_not_finite_is_named() -> None:
    obs, done = {"tick": np.zeros(4)}, ends([4])
    with pytest.raises(RlwbError, match=r"\b1\b.*nan"):
        check_episodes(obs, np.zeros(4), np.array([0.0, np.nan, 1.0, np.inf]), done)
