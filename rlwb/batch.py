"""Batches of observations: arrays of N rows, dicts and tuples of such, and what all rows share.

A value that is no array, like the panel of features under ``features``, belongs to all rows alike: it is passed through
when rows are taken and when batches are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlwb.errors import ConfigError


def take_rows(batch: Any, rows: np.ndarray) -> Any:
    """Return the rows of a batch, int64 of shape (n,), as fresh arrays."""
    if isinstance(batch, dict):
        return {key: take_rows(part, rows) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(take_rows(part, rows) for part in batch)
    return batch[rows] if isinstance(batch, np.ndarray) else batch


def join(batches: Sequence[Any], order: np.ndarray | None = None) -> Any:
    """Lay batches of the same structure end to end.

    Parameters
    ----------
    batches
        At least one.
    order : int64 of shape (n,), optional
        Rows of the joined batch to keep, in this order; all by default.

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
    """Return the number of rows of a batch.

    Raises
    ------
    ConfigError
        When the batch holds no array.
    """
    for part in _arrays(batch):
        return len(part)
    raise ConfigError(f"the observations {type(batch).__name__} hold no array; give an array, or a dict of arrays.")


def split_shared(batch: Any) -> tuple[Any, dict[str, Any]]:
    """Return a batch without what all its rows share, and that by key; of a batch that is no dict, itself and {}."""
    if not isinstance(batch, dict):
        return batch, {}
    shared = {key: part for key, part in batch.items() if not isinstance(part, (np.ndarray, dict, tuple))}
    return {key: part for key, part in batch.items() if key not in shared}, shared


def _arrays(batch: Any) -> Any:
    if isinstance(batch, np.ndarray):
        yield batch
    elif isinstance(batch, (dict, tuple)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _arrays(part)
