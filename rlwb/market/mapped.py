"""Rows of arrays that are mapped from files."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE


def prefetch(array: np.ndarray, rows: np.ndarray) -> None:
    """Ask the system to read `rows` of a mapped array, all at once; an array in memory is left alone.

    Where a row is not in memory, touching it makes the system wait for it and for megabytes around it, which is right
    for a pass over all rows and ruins a draw of some. What is asked for is read alone, and side by side.

    Parameters
    ----------
    array
        Of shape ``(S, …)``, C-contiguous.
    rows
        Row numbers, int of shape ``(n,)``.
    """
    source = _source(array)
    if source is None or not len(rows) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    begin = _address(array) - _address(np.frombuffer(source, dtype=np.uint8))
    distinct = np.unique(rows)
    cuts = np.flatnonzero(np.diff(distinct) > 1)
    first, last = distinct[np.append(0, cuts + 1)], distinct[np.append(cuts, len(distinct) - 1)]
    low = (begin + first * array.strides[0]) // _PAGE * _PAGE
    length = begin + (last + 1) * array.strides[0] - low
    with suppress(OSError):  # it is advice; what the system will not take it does not need
        for start, size in zip(low.tolist(), length.tolist(), strict=True):
            source.madvise(mmap.MADV_WILLNEED, start, size)


def _source(array: np.ndarray) -> mmap.mmap | None:
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, mmap.mmap) else None


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
