"""Columns of one Parquet or CSV file, with ids and stamps kept as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import DataError

SUFFIXES = (".parquet", ".csv", ".csv.gz")
_AS_TEXT = ("instrument", "datetime", "date", "time")
_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"]
_DAMAGE = (pd.errors.ParserError, pa.ArrowException, OSError, EOFError)


def suffix_of(path: Path) -> str | None:
    """Return which of `SUFFIXES` ends the file's name, or None."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def read_header(path: Path) -> list[str]:
    """Return the names of the file's columns."""
    if suffix_of(path) == ".parquet":
        try:
            return [str(name) for name in pq.read_schema(path).names]
        except _DAMAGE as error:
            raise DataError(f"{path} is not a readable Parquet file ({_first_line(error)}); replace it.") from None
    try:
        return [str(name) for name in pd.read_csv(path, nrows=0, encoding="utf-8-sig", dtype=str).columns]
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; remove it or write it again.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read ({_first_line(error)}); write it again.") from None


def read_table(path: Path, found: Mapping[str, str]) -> pd.DataFrame:
    """Return the columns `found` (``{schema name: name in the file}``) under their schema names."""
    names = {name: target for target, name in found.items()}
    if suffix_of(path) == ".parquet":
        try:
            table = pq.read_table(path, columns=list(names))
        except _DAMAGE as error:
            raise DataError(f"{path} is not a readable Parquet file ({_first_line(error)}); replace it.") from None
        return table.to_pandas(ignore_metadata=True).rename(columns=names)
    numbers = [name for name, target in names.items() if target not in _AS_TEXT]
    try:
        frame = pd.read_csv(
            path,
            usecols=list(names),
            dtype={name: str for name, target in names.items() if target in _AS_TEXT},
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values=dict.fromkeys(numbers, _MISSING),
            low_memory=False,
        )
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read ({_first_line(error)}); write it again.") from None
    for name in numbers:
        if frame[name].dtype == object and names[name] != "halted":
            bad = frame[name][pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()]
            if len(bad):
                raise DataError(
                    f"{path}, line {bad.index[0] + 2}: {name} is {bad.iloc[0]!r}, not a number; correct it."
                )
            frame[name] = pd.to_numeric(frame[name])
    return frame.rename(columns=names)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
