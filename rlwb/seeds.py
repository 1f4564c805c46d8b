"""All random numbers of the library: generators of named streams, and numbers by counter.

A key is a sequence of whole numbers that names a stream, for example ``(seed, iteration, Stream.ACTION)``. Two keys
that differ in a number or in their length name independent streams.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from rlwb.errors import ConfigError


class Stream(IntEnum):
    """The use of random numbers; part of a key, so that uses with a common seed share no number."""

    ACTION = 1
    ENVIRONMENT = 2
    INITIAL_STATE = 3
    MINIBATCH = 4
    REPLAY = 5
    ORDER = 6
    CERTIFICATE = 7
    EPISODE = 8
    DIAL = 9
    BASELINE = 10
    EVIDENCE = 11
    POWER = 12
    STRESS = 14


def check_seed(seed: object) -> int:
    """Return `seed` as an int if it is a whole number from 0 to 2**64 - 1, else raise a ConfigError that shows it."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ConfigError(f"the seed is {seed!r}; give a whole number from 0 to 2**64 - 1.")
    return operator.index(seed)


def generator(*key: int) -> np.random.Generator:
    """Return numpy's generator for the stream `key`, for numbers that are drawn one after another."""
    return np.random.default_rng(_sequence(key))


def derived_seed(*key: int) -> int:
    """Return a seed below 2**32 made from `key`, for other libraries and processes that are seeded by one number."""
    return int(_sequence(key).generate_state(1)[0])


def uniform(key: Sequence[int], *counters: npt.ArrayLike) -> np.ndarray:
    """Return uniform numbers that depend on key and counters only, not on the batch in which they are drawn.

    Parameters
    ----------
    key
        The stream.
    counters : integer arrays that broadcast to one shape
        One to four, for example episode and step. ``(a,)`` and ``(a, 0)`` give the same numbers.

    Returns
    -------
    float64 array of the broadcast shape
        In [0, 1).
    """
    return _draw(lambda words: _fraction(words[0]), key, counters)


def episode_seeds(seed: int, episode: npt.ArrayLike) -> np.ndarray:
    """Return the seeds of episodes' own random numbers, uint64 of the shape of `episode`; they depend on both alone."""
    return np.asarray(_draw(lambda words: words[0], (seed, Stream.ENVIRONMENT), (episode,), np.uint64))


def uniform_of(seeds: np.ndarray, *counters: npt.ArrayLike) -> np.ndarray:
    """Return a uniform number in [0, 1) for each seed, float64 of shape (N,), by seed and counters alone.

    `seeds` are uint64 of shape (N,), for example those of episodes, which a simulator gets; there are at most three
    counters, integers of shape (N,), for example the step.
    """
    return uniform((Stream.EPISODE,), seeds.astype(np.uint64).view(np.int64), *counters)


def normal(key: Sequence[int], *counters: npt.ArrayLike) -> np.ndarray:
    """Return standard normal numbers, float64, by key and counters like `uniform` (Box and Muller, 1958)."""
    return _draw(_box_muller, key, counters)


def philox(counter: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """Return the random words of Philox 4x64-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3").

    For counters, uint64 of shape (4, N), and two words of a key, they are those that ``numpy.random.Philox`` gives for
    the same key and a counter smaller by 1: uint64 of shape (4, N).
    """
    even, odd = counter[0::2], counter[1::2]
    keys = np.array(key, dtype=np.uint64)[:, None]
    for _ in range(10):
        even, odd = _high_product(even)[::-1] ^ odd ^ keys, (even * _MULTIPLIER)[::-1]
        keys = keys + _WEYL
    return np.stack([even[0], odd[0], even[1], odd[1]])


_MULTIPLIER = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], dtype=np.uint64)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_HIGH_MULTIPLIER, _LOW_MULTIPLIER = _MULTIPLIER >> _HALF, _MULTIPLIER & _LOW
Convert = Callable[[np.ndarray], np.ndarray]
_BLOCK = 8192  # numbers drawn at a time, so that intermediate arrays stay in the processor's cache


def _high_product(values: np.ndarray) -> np.ndarray:
    """Return the upper 64 bits of the products with the multipliers, by halves; no intermediate sum overflows."""
    low, high = values & _LOW, values >> _HALF
    middle = low * _HIGH_MULTIPLIER + ((low * _LOW_MULTIPLIER) >> _HALF)
    carry = (high * _LOW_MULTIPLIER + (middle & _LOW)) >> _HALF
    return np.asarray(high * _HIGH_MULTIPLIER + (middle >> _HALF) + carry)


def _sequence(key: Sequence[int]) -> np.random.SeedSequence:
    # Two words a number, then their count: numpy itself takes [1] and [1, 0], or [2**32] and [0, 1], for the same seed.
    words = [word for number in map(check_seed, key) for word in (number & 0xFFFFFFFF, number >> 32)]
    return np.random.SeedSequence([*words, len(key)])


def _draw(convert: Convert, key: Sequence[int], counters: Sequence[npt.ArrayLike], dtype: type = float) -> np.ndarray:
    if not 1 <= len(counters) <= 4:
        raise ValueError(f"{len(counters)} counters were given; give one to four.")
    words_of_key = _sequence(key).generate_state(2, np.uint64).tolist()
    arrays = [np.asarray(counter).astype(np.int64, casting="same_kind", copy=False) for counter in counters]
    given = np.broadcast_arrays(*arrays)
    flat = [array.reshape(-1) for array in given]
    out: np.ndarray = np.empty(given[0].size, dtype)
    for low in range(0, len(out), _BLOCK):
        into = out[low : low + _BLOCK]
        words = np.zeros((4, len(into)), dtype=np.uint64)
        for word, counter in zip(words, flat, strict=False):
            word[:] = counter[low : low + _BLOCK].view(np.uint64)
        into[:] = convert(philox(words, words_of_key))
    return out.reshape(given[0].shape)


def _fraction(words: np.ndarray) -> np.ndarray:
    return np.asarray((words >> np.uint64(11)) * 2.0**-53)


def _box_muller(words: np.ndarray) -> np.ndarray:
    radius = np.sqrt(-2.0 * np.log(1.0 - _fraction(words[0])))  # 1 - u is above 0
    return np.asarray(radius * np.cos(2.0 * np.pi * _fraction(words[1])))
