"""Comparison of two files value by value: tables by their cells, checkpoints by their tensors, texts by their lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROUNDING = 1e-9
"""Largest difference that counts as rounding: relative to the value, or absolute where that is below 1."""

CLOCK = ("seconds",)
"""Columns of tables that hold measured times."""


@dataclass(frozen=True)
class Disagreement:
    """A value of a run that is not what it is when computed again.

    Attributes
    ----------
    file
        Its file, from the run's directory.
    row, column
        Its place in the file: id or number of the row, name of the column; None for the file as a whole.
    stored, found
        What the run says, and what is so.
    """

    file: str
    row: str | None
    column: str | None
    stored: Any
    found: Any

    def __str__(self) -> str:
        place = ", ".join(filter(None, (self.row and f"row {self.row}", self.column)))
        return f"{self.file}{f', {place}' if place else ''}: {self.stored} there, {self.found} now"


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one column, or one tensor, that differ by more than `ROUNDING`.

    Attributes
    ----------
    name
        The column or tensor; None where the tables have not the same number of rows.
    rows
        Ids or numbers of the rows.
    stored, found
        The values of each side.
    largest
        Largest difference of two numbers, measured as `ROUNDING` is; NaN where none can be measured, as of texts and of
        whole numbers of a checkpoint, which stand for states.
    worst
        Where among the rows that is; 0 where nothing can be measured.
    """

    name: str | None
    rows: Sequence[str | None]
    stored: Sequence[Any]
    found: Sequence[Any]
    largest: float = float("nan")
    worst: int = 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two files compared.

    Attributes
    ----------
    values
        How many values were compared.
    rounded
        How many of them differ, but by no more than `ROUNDING`.
    columns
        What differs by more.
    """

    values: int
    rounded: int
    columns: tuple[Column, ...]

    def cells(self, file: str) -> Iterator[Disagreement]:
        """Yield each value that differs by more than rounding, as one of `file`."""
        for one in self.columns:
            for row, stored, found in zip(one.rows, one.stored, one.found, strict=True):
                yield Disagreement(file, row, one.name, stored, found)


def read_cells(path: Path, root: Path) -> pd.DataFrame:
    """Return a file of a run as a table: of JSON a row a value, of text a row a line, of a checkpoint a row a value.

    Parameters
    ----------
    root
        The run's directory; paths in texts start there.
    """
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".npy":
        return pd.DataFrame(np.load(path, allow_pickle=False))
    if path.suffix == ".csv":
        return read_csv(path)
    text = path.read_text(encoding="utf-8").replace(f"{root}/", "")
    if path.suffix != ".json":
        return pd.DataFrame({"text": text.splitlines()}, dtype=object)
    names, values = zip(*leaf_values(json.loads(text)), strict=True)
    numbers = [float(value) if isinstance(value, (int, float)) else np.nan for value in values]
    texts = ["" if isinstance(value, (int, float)) else str(value) for value in values]
    return pd.DataFrame({"name": names, "value": numbers, "text": texts})


def read_csv(path: Path) -> pd.DataFrame:
    """Return a CSV table, its numbers to the last bit."""
    return pd.read_csv(path, float_precision="round_trip")


def leaf_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the place of each value in a tree of mappings and lists, and the value."""
    pairs = [
        *(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ())
    ]
    for key, one in pairs:
        yield from leaf_values(one, f"{name}.{key}".lstrip("."))
    if not pairs:
        yield name, value


def compare_tables(stored: pd.DataFrame, found: pd.DataFrame) -> Comparison:
    """Compare two tables cell by cell; rows are called by their first column if that names each."""
    stored, found = (table.rename(columns=str) for table in (stored, found))
    columns, values, rounded = [], 0, 0
    for name in sorted({*stored.columns} ^ {*found.columns}):
        texts = ("a column", "none") if name in stored else ("none", "a column")
        columns.append(Column(name, [None], texts[:1], texts[1:]))
        values += 1
    if len(stored) != len(found):
        columns.append(Column(None, [None], [f"{len(stored)} rows"], [f"{len(found)} rows"]))
        return Comparison(values + 1, rounded, tuple(columns))
    key = stored.iloc[:, 0]
    names = key if key.is_unique and not pd.api.types.is_float_dtype(key) else stored.index
    for name in [name for name in stored.columns if name in found.columns]:
        one, two = stored[name], found[name]
        apart = np.full(len(one), np.nan)
        if pd.api.types.is_numeric_dtype(one) and pd.api.types.is_numeric_dtype(two):
            a, b = (side.to_numpy(dtype=np.float64, na_value=np.nan) for side in (one, two))
            wrong, near, apart = _numbers(a, b)
            rounded += near
        else:
            wrong = ~((one == two) | (one.isna() & two.isna())).to_numpy(dtype=bool)
        values += len(one)
        rows = np.flatnonzero(wrong)
        if len(rows):
            stored_cells, found_cells = ([_plain(side.iloc[row]) for row in rows] for side in (one, two))
            called = [str(names[row]) for row in rows]
            columns.append(Column(name, called, stored_cells, found_cells, *_largest(apart[rows])))
    return Comparison(values, rounded, tuple(columns))


def compare_states(stored: dict[str, Any], found: dict[str, Any]) -> Comparison:
    """Compare two checkpoints value by value; of a tensor that differs, the value that differs most is told."""
    import torch

    one, two = dict(leaf_values(stored)), dict(leaf_values(found))
    columns, values, rounded = [], 0, 0
    for name in sorted(one.keys() | two.keys()):
        a, b = one.get(name, "nothing"), two.get(name, "nothing")
        are_arrays = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        are_numbers = all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (a, b))
        if not are_arrays and not are_numbers:
            values += 1
            if type(a) is not type(b) or isinstance(a, torch.Tensor) or a != b:
                columns.append(Column(name, [None], [_told(a)], [_told(b)]))
            continue
        first, second = (torch.as_tensor(side).detach().double().numpy().ravel() for side in (a, b))
        wrong, near, apart = _numbers(first, second)
        values, rounded = values + len(first), rounded + near
        if wrong.any():
            largest, worst = _largest(np.where(wrong, apart, np.nan))
            if are_arrays and not a.dtype.is_floating_point:
                largest = float("nan")
            at = worst if wrong[worst] else int(np.flatnonzero(wrong)[0])
            row = str(at) if are_arrays else None
            columns.append(Column(name, [row], [first[at].item()], [second[at].item()], largest))
    return Comparison(values, rounded, tuple(columns))


def _numbers(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Return which numbers differ by more than rounding, how many by rounding alone, and by how much."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = _apart(a, b)
    near = ~same & (apart <= ROUNDING)
    return ~(same | near), int(near.sum()), apart


def _largest(apart: np.ndarray) -> tuple[float, int]:
    """Return the largest difference and its place; NaN and 0 where none can be measured."""
    if not np.isfinite(apart).any():
        return float("nan"), 0
    place = int(np.nanargmax(apart))
    return float(apart[place]), place


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return differences relative to the larger value, absolute where that is below 1; NaN beside what is infinite."""
    with np.errstate(invalid="ignore"):
        apart: np.ndarray = np.abs(a - b) / np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
    apart[~(np.isfinite(a) & np.isfinite(b))] = np.nan
    return apart


def _told(value: Any) -> str:
    text = f"{tuple(value.shape)} of {value.dtype}" if hasattr(value, "dtype") else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: Any) -> Any:
    """Return a cell as JSON can hold it."""
    return value.item() if isinstance(value, np.generic) else value if isinstance(value, (int, float)) else str(value)
