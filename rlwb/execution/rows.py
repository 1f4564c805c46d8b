"""Records of N orders whose rows can be picked: a batch of some of them, or one."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np


class Rows:
    """Base of frozen dataclasses whose arrays have one row an order.

    ``record[i]`` is order i alone: its arrays lose their first axis, so that formulas written for N orders serve it as
    well. ``record[rows]`` with an index array or a slice is a record of those orders. What is not an array, a record
    or a tuple of such is shared by all orders.
    """

    def __getitem__(self, rows: Any) -> Self:
        if isinstance(rows, (int, np.integer)) and not -len(self) <= rows < len(self):
            raise IndexError(rows)
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return type(self)(**{field.name: _pick(getattr(self, field.name), rows) for field in fields})

    def __len__(self) -> int:
        raise NotImplementedError


def _pick(value: Any, rows: Any) -> Any:
    if isinstance(value, (np.ndarray, Rows)):
        return value[rows]
    if isinstance(value, np.generic):
        return np.asarray(value)[rows]
    if isinstance(value, tuple):
        return tuple(_pick(part, rows) for part in value)
    return value
