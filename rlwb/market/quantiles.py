"""Exact quantiles of numbers that need not be in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

_DIGIT = 16
_BINS = 1 << _DIGIT
_SIGN = np.uint64(1 << 63)


def stream_quantiles(source: Callable[[], Iterable[np.ndarray]], count: int, shares: Sequence[float]) -> list[float]:
    """Return the quantiles of the `count` numbers that `source` gives, interpolated linearly as `numpy.quantile` does.

    Parameters
    ----------
    source
        Each call gives all numbers, finite float64, in arrays of one axis. It is called four times.
    count
        How many they are, at least 1.
    shares
        Which quantiles, each from 0 to 1.

    Notes
    -----
    Radix selection: the bits of a float, turned so that they sort as the numbers do, are settled 16 at a time, by
    counting in each pass the numbers that agree with what is settled.
    """
    places = [(count - 1) * share for share in shares]
    ranks = sorted({int(np.floor(place)) for place in places} | {int(np.ceil(place)) for place in places})
    value = dict(zip(ranks, _order_statistics(source, ranks), strict=True))
    found = []
    for place in places:
        low, high = value[int(np.floor(place))], value[int(np.ceil(place))]
        found.append(low + (high - low) * (place - np.floor(place)))
    return found


def _order_statistics(source: Callable[[], Iterable[np.ndarray]], ranks: Sequence[int]) -> list[float]:
    """Return the numbers at these places of the sorted whole, 0 the smallest."""
    settled, left = [0] * len(ranks), list(ranks)
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = {head: np.zeros(_BINS, dtype=np.int64) for head in settled}
        for values in source():
            keys = _sortable(values)
            heads = keys >> np.uint64(shift + _DIGIT) if shift + _DIGIT < 64 else np.zeros_like(keys)
            digits = ((keys >> np.uint64(shift)) & np.uint64(_BINS - 1)).astype(np.int64)
            for head, total in counts.items():
                total += np.bincount(digits[heads == np.uint64(head)], minlength=_BINS)
        for number, head in enumerate(settled):
            below = np.cumsum(counts[head])
            digit = int(np.searchsorted(below, left[number], side="right"))
            left[number] -= int(below[digit - 1]) if digit else 0
            settled[number] = head << _DIGIT | digit
    keys = np.array(settled, dtype=np.uint64)
    return [float(value) for value in np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)]


def _sortable(values: np.ndarray) -> np.ndarray:
    """Return uint64 keys that sort as the float64 `values` do."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)
