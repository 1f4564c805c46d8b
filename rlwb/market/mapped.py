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
    source: Any = array
    while isinstance(source, np.ndarray):
        source = source.base
    if not isinstance(source, mmap.mmap) or not len(rows) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    begin = array.ctypes.data - np.frombuffer(source, dtype=np.uint8).ctypes.data
    distinct = np.unique(rows)
    cuts = np.flatnonzero(np.diff(distinct) > 1)
    first, last = distinct[np.append(0, cuts + 1)], distinct[np.append(cuts, len(distinct) - 1)]
    low = (begin + first * array.strides[0]) // _PAGE * _PAGE
    length = begin + (last + 1) * array.strides[0] - low
    with suppress(OSError):  # it is advice; what the system will not take it does not need
        for start, size in zip(low.tolist(), length.tolist(), strict=True):
            source.madvise(mmap.MADV_WILLNEED, start, size)
