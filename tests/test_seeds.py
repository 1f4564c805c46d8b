from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.seeds import Stream, check_seed, derived_seed, generator, normal, philox, uniform

words = st.integers(0, 2**64 - 1)


def numpys_words(counter: list[int], key: tuple[int, int]) -> list[int]:
    """numpy's Philox adds 1 to its counter of 256 bits before it draws."""
    before = (sum(word << 64 * place for place, word in enumerate(counter)) - 1) % 2**256
    pair = np.array(key, dtype=np.uint64)
    return np.random.Philox(counter=before, key=pair).random_raw(4).tolist()


@given(st.lists(words, min_size=4, max_size=4), st.tuples(words, words))
@settings(deadline=None)
def test_philox_equals_numpys_bit_for_bit(counter: list[int], key: tuple[int, int]) -> None:
    drawn = philox(np.array(counter, dtype=np.uint64)[:, None], key)
    assert drawn[:, 0].tolist() == numpys_words(counter, key)


@pytest.mark.parametrize("word", [0, 1, 2**32 - 1, 2**32, 2**64 - 1])
def test_philox_carries_at_the_edges_of_its_halves(word: int) -> None:
    many = np.full((4, 3), word, dtype=np.uint64)
    assert philox(many, (word, word)).T.tolist() == [numpys_words([word] * 4, (word, word))] * 3


def test_a_number_is_made_of_the_words_of_its_counter() -> None:
    key = (7, 1, Stream.ACTION)
    expanded = [int(k) for number in (7, 1, 1) for k in (number, 0)]
    pair = np.random.SeedSequence([*expanded, 3]).generate_state(2, np.uint64).tolist()
    first, second = (word >> 11 for word in numpys_words([5, 2, 0, 0], tuple(pair))[:2])
    assert uniform(key, 5, 2) == first / 2**53
    radius = np.sqrt(-2 * np.log(1 - first / 2**53))
    assert normal(key, 5, 2) == pytest.approx(radius * np.cos(2 * np.pi * second / 2**53), rel=1e-14)


places = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 40)), min_size=1, max_size=40)


@pytest.mark.parametrize("draw", [uniform, normal])
@given(places, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_a_number_depends_on_key_and_counters_alone(draw, rows, random) -> None:
    episode, step = np.array(rows).T
    together = draw((3, 1), episode, step)
    order = np.array(random.sample(range(len(rows)), len(rows)))
    alone = np.array([draw((3, 1), episode[i], step[i]) for i in order])
    np.testing.assert_array_equal(alone, together[order])


def test_a_batch_larger_than_a_block_is_drawn_whole_and_counters_broadcast() -> None:
    table = uniform((0,), np.arange(10_000)[:, None], np.arange(3))
    assert table.shape == (10_000, 3)
    assert len(np.unique(table)) == table.size
    np.testing.assert_array_equal(table[9_990:, 2], uniform((0,), np.arange(9_990, 10_000), 2))
    assert uniform((0,), np.arange(0)).shape == (0,)


def test_uniform_numbers_are_uniform_and_independent_between_keys() -> None:
    episode, step = np.repeat(np.arange(2000), 20), np.tile(np.arange(20), 2000)
    one = uniform((0, 1), episode, step)
    assert ((one >= 0) & (one < 1)).all()
    assert len(np.unique(one)) == len(one)
    counts = np.histogram(one, bins=20, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 45  # 19 degrees of freedom, p = 0.0007
    for other in ((0, 2), (1, 1), (0,), (0, 1, 0)):
        assert abs(np.corrcoef(one, uniform(other, episode, step))[0, 1]) < 0.02


def test_normal_numbers_are_normal() -> None:
    from scipy.stats import kstest

    drawn = normal((0,), np.arange(100_000))
    assert kstest(drawn, "norm").pvalue > 0.001
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.012


def test_numbers_of_floats_and_of_too_many_counters_are_refused() -> None:
    with pytest.raises(TypeError):
        uniform((0,), np.array([0.5]))
    with pytest.raises(ValueError, match="5 counters"):
        uniform((0,), 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "keys",
    [
        ((5,), (5, 0)),
        ((5, 0), (5, 0, 0)),
        ((2**32, 1), (0, 2**32 + 1)),  # numpy joins the words of a list of seeds
        ((0, 1, 2), (2**32, 2)),
        ((1, 2), (2, 1)),
        ((1, Stream.MINIBATCH), (1, Stream.REPLAY)),
    ],
)
def test_keys_that_differ_give_streams_that_differ(keys: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    one, two = keys
    assert generator(*one).random() != generator(*two).random()
    assert derived_seed(*one) != derived_seed(*two)
    assert uniform(one, 0) != uniform(two, 0)


def test_a_generator_repeats_and_names_of_streams_differ() -> None:
    assert generator(3, Stream.REPLAY).random(4).tolist() == generator(3, Stream.REPLAY).random(4).tolist()
    assert 0 <= derived_seed(3, Stream.ENVIRONMENT) < 2**32
    drawn = [generator(0, stream).random() for stream in Stream]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@pytest.mark.parametrize("seed", [-1, 1.5, 2.0, None, "a", True, 2**64])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    for use in (check_seed, generator, derived_seed, lambda key: uniform((key,), 0)):
        with pytest.raises(ConfigError, match=f"{seed!r}"):
            use(seed)


def test_numpys_integers_are_seeds() -> None:
    assert check_seed(np.int64(4)) == 4
    assert type(check_seed(np.uint32(4))) is int
    assert generator(np.int64(4)).random() == generator(4).random()
