"""Files that rlwb wrote, read again; whatever is wrong with one is a `FileError` that names it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import FileError, RlwbError
from rlwb.values import fitting

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read as `what` into a `FileError`; a damaged file may raise anything."""
    try:
        yield
    except RlwbError:
        raise
    except Exception as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        why = " ".join(said.split())[:200].rstrip(".")
        raise FileError(f"{path} cannot be read as {what} ({why}); restore it, or have it made again.") from error


def read_json(path: Path, kind: Any = dict[str, Any]) -> Any:
    """Return what a JSON file holds, of the type `kind` (anything that pydantic takes); names beside its own stay."""
    with reading(path, "JSON"):
        value = json.loads(path.read_text(encoding="utf-8"))
        fitting(kind, value)
        return value


def read_table(
    path: Path,
    key: str | Sequence[str] = (),
    *,
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
    is_numeric: bool = False,
) -> pd.DataFrame:
    """Return a CSV or Parquet table with at least the columns that are named.

    A CSV file is text in UTF-8 whose lines all have a cell a column and an end.

    Parameters
    ----------
    key
        Column in which every row has a value of its own, or several that tell rows apart together; a number there is
        whole.
    numbers, texts
        Columns of numbers, or NaN, and of texts.
    is_numeric
        Whether all other columns are of numbers, too.
    """
    import pandas as pd

    keys = [key] if isinstance(key, str) else list(key)
    with reading(path, "a table"):
        if path.suffix == ".parquet":
            table = pd.read_parquet(io.BytesIO(path.read_bytes()))  # of a folder it would read what lies in it
        else:
            content = path.read_text(encoding="utf-8")
            if not content.endswith("\n"):
                raise ValueError("it ends within a line")
            header, *rows = csv.reader(io.StringIO(content), strict=True)
            if len(set(header)) < len(header) or {len(row) for row in rows} - {len(header)}:
                raise ValueError("its rows do not have a cell a column")
            table = pd.read_csv(io.StringIO(content), index_col=False)
        for name in dict.fromkeys((*numbers, *texts, *keys, *(table if is_numeric else ()))):
            if name not in table:
                raise ValueError(f"it has no column {name}")
            is_number = pd.api.types.is_numeric_dtype(table[name]) or table[name].isna().all()
            if (name in numbers or (is_numeric and name not in texts)) and not is_number:
                raise ValueError(f"its column {name} holds what is no number")
            if name in texts and not table[name].map(lambda one: isinstance(one, str)).all():
                raise ValueError(f"its column {name} holds what is no text")
        given = table[keys]
        numeric = given.select_dtypes("number")
        if keys and (given.isna().any(axis=None) or (numeric % 1 != 0).any(axis=None) or given.duplicated().any()):
            raise ValueError(f"its column {' and '.join(keys)} has not one value of its own a row")
        return table


def read_array(path: Path) -> np.ndarray:
    """Return the array of an ``.npy`` file; nothing is unpickled."""
    with reading(path, "an array"):
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise TypeError("it is an archive of several")
        return array


def read_bytes(path: Path) -> bytes:
    """Return what a file holds."""
    with reading(path, "a file"):
        return path.read_bytes()


def read_text(path: Path) -> str:
    """Return a text in UTF-8."""
    with reading(path, "text"):
        return path.read_text(encoding="utf-8")
