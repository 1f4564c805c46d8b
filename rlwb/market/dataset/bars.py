"""Bars as plain arrays, on their way into a partition and out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlwb.market.schema import FIELDS, REQUIRED

MUST = REQUIRED[2:]
#: All columns that are numbers.
NUMBERS = (*FIELDS, "factor")
MAY = tuple(name for name in NUMBERS if name not in MUST)


@dataclass(frozen=True)
class Block:
    """Bars of one instrument, or of several with their codes; all arrays of shape ``(bars,)``.

    Parameters
    ----------
    stamp
        Session-local stamps in microseconds since 1970, int64.
    values
        Float64 columns by name; NaN is missing.
    halted
        Bool, or None where the source does not say.
    source, row
        Where each bar came from: number of the source (int32), and its row there, counted from 1 (int64); 0 = unknown.
    """

    stamp: np.ndarray
    values: Mapping[str, np.ndarray]
    halted: np.ndarray | None
    source: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.stamp)

    def take(self, index: np.ndarray | slice) -> Block:
        """Return the bars of `index`, in that order."""
        return Block(
            self.stamp[index],
            {name: column[index] for name, column in self.values.items()},
            None if self.halted is None else self.halted[index],
            self.source[index],
            self.row[index],
        )


def join(blocks: Sequence[Block]) -> Block:
    """Return the bars of all, one after the other; what one of them lacks is missing."""
    names = [name for name in NUMBERS if any(name in block.values for block in blocks)]
    halted = None
    if any(block.halted is not None for block in blocks):
        halted = np.concatenate([_halts(block) for block in blocks])
    return Block(
        np.concatenate([block.stamp for block in blocks]),
        {name: np.concatenate([column(block, name) for block in blocks]) for name in names},
        halted,
        np.concatenate([block.source for block in blocks]),
        np.concatenate([block.row for block in blocks]),
    )


def column(block: Block, name: str) -> np.ndarray:
    """Return a column, float64 of shape ``(bars,)``; all missing where the block has none of that name."""
    found = block.values.get(name)
    return np.full(len(block), np.nan) if found is None else found


def equal(block: Block, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tell for pairs of bars whether they say the same, bool of shape ``(pairs,)``.

    The required columns must be equal, missing ones too; an optional value that one of them lacks contradicts nothing.
    """
    same = np.ones(len(left), dtype=bool)
    for name, values in block.values.items():
        one, two = values[left], values[right]
        missing = np.isnan(one) & np.isnan(two) if name in MUST else np.isnan(one) | np.isnan(two)
        same &= (one == two) | missing
    return same


def _halts(block: Block) -> np.ndarray:
    return np.zeros(len(block), dtype=bool) if block.halted is None else block.halted
