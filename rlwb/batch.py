"""Batches: arrays of N rows, dicts, tuples and records of such, and what all rows share.

A value that is no array, like the panel of features under ``features``, belongs to all rows alike: it is passed through
when rows are taken and when batches are joined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from rlwb.errors import ConfigError

StateT = TypeVar("StateT")


class Rows:
    """Base of frozen dataclasses whose arrays have one row an episode.

    ``record[i]`` is row i alone: its arrays lose their first axis, so that formulas written for N rows serve it as
    well. ``record[rows]`` with an index array or a slice is a record of those rows.
    """

    def __getitem__(self, rows: Any) -> Self:
        if isinstance(rows, (int, np.integer)) and not -len(self) <= rows < len(self):
            raise IndexError(rows)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        # Of a record that is one row already, ``record[None]`` makes a record of one row.
        return type(self)(
            **{name: take_rows(np.asarray(v) if isinstance(v, np.generic) else v, rows) for name, v in values.items()}
        )

    def __len__(self) -> int:
        raise NotImplementedError


def take_rows(batch: Any, rows: Any) -> Any:
    """Return the rows of a batch that an index array (as fresh arrays), a slice or a number picks."""
    if isinstance(batch, dict):
        return {key: take_rows(part, rows) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(take_rows(part, rows) for part in batch)
    return batch[rows] if isinstance(batch, (np.ndarray, Rows)) else batch


def take(states: Sequence[StateT], rows: np.ndarray) -> Sequence[StateT]:
    """Return ``states[rows]``, rows int64 of shape (n,), by array indexing where the sequence has it."""
    try:
        picked: Sequence[StateT] = states[rows]  # type: ignore[call-overload]
    except TypeError:
        picked = [states[int(row)] for row in rows]
    return picked


def join(batches: Sequence[Any], order: np.ndarray | None = None) -> Any:
    """Lay batches of the same structure, at least one, end to end; keep the rows `order` in this order, or all.

    Raises
    ------
    ConfigError
        When the batches have other keys, or other values that all rows share.
    """
    first = batches[0]
    if isinstance(first, dict):
        if any(batch.keys() != first.keys() for batch in batches):
            names = [sorted(batch.keys() ^ first.keys()) for batch in batches]
            raise ConfigError(f"observations differ in their keys {max(names)}; give the same keys at every step.")
        return {key: join([batch[key] for batch in batches], order) for key in first}
    if isinstance(first, tuple):
        return tuple(join(parts, order) for parts in zip(*batches, strict=True))
    if isinstance(first, np.ndarray):
        whole = np.concatenate(batches)
        return whole if order is None else whole[order]
    if any(batch is not first for batch in batches):
        raise ConfigError(
            f"the observations share one {type(first).__name__} at one step and another at the next; give the same "
            "object at every step, or arrays with a row each."
        )
    return first


def count_rows(batch: Any) -> int:
    """Return the number of rows of a batch; one that holds no array is a ConfigError."""
    for part in _arrays(batch):
        return len(part)
    raise ConfigError(f"the observations {type(batch).__name__} hold no array; give an array, or a dict of arrays.")


def split_shared(batch: Any) -> tuple[Any, dict[str, Any]]:
    """Return a batch without what all its rows share, and that by key; of a batch that is no dict, itself and {}."""
    if not isinstance(batch, dict):
        return batch, {}
    shared = {key: part for key, part in batch.items() if not isinstance(part, (np.ndarray, dict, tuple))}
    return {key: part for key, part in batch.items() if key not in shared}, shared


def _arrays(batch: Any) -> Iterator[np.ndarray]:
    if isinstance(batch, np.ndarray):
        yield batch
    elif isinstance(batch, (dict, tuple)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(part)
