"""Columns of one Parquet or CSV file, with ids and stamps kept as they are written."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import DataError

SUFFIXES = (".parquet", ".csv", ".csv.gz")
_AS_TEXT = ("instrument", "datetime", "date", "time")
#: What stands for a missing number.
MISSING_WORDS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"]
_CHUNK = 1 << 20
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
        if holds_nul(path):
            raise DataError(f"{path} holds NUL bytes, so it was not written whole; write it again.")
        header = [str(name) for name in pd.read_csv(path, nrows=0, encoding="utf-8-sig", dtype=str).columns]
        other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
        if other is not None:
            raise DataError(f"{path} separates its columns by {other!r}; write commas (and decimal points).")
        return header
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
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(  # all columns: with usecols, values beyond the header's columns go unnoticed
                path,
                dtype={name: str for name in read_header(path) if name not in numbers},
                index_col=False,
                encoding="utf-8-sig",
                keep_default_na=False,
                na_values=dict.fromkeys(numbers, MISSING_WORDS),
                float_precision="round_trip",
                low_memory=False,
            )[list(names)]
    except pd.errors.ParserWarning:
        raise DataError(
            f"{path} has rows with more values than its header has columns; write decimal points, or quote the values."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read ({_first_line(error)}); write it again.") from None
    for name in numbers:
        if names[name] == "halted":
            continue
        if frame[name].dtype == bool:
            raise DataError(f"{path}: {name} holds true and false, not numbers; correct it.")
        if frame[name].dtype == object:
            bad = frame[name][pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()]
            if len(bad):
                raise DataError(
                    f"{path}, line {bad.index[0] + 2}: {name} is {bad.iloc[0]!r}, not a number; correct it."
                )
            frame[name] = frame[name].astype(np.float64)
    return frame.rename(columns=names)


def holds_nul(path: Path) -> bool:
    """Tell whether a text file holds NUL bytes, at which the parser would cut a value short in silence."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        head: bytes = file.read(2)
        if head in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, which the reader names
            return False
        return b"\0" in head or any(b"\0" in chunk for chunk in iter(lambda: file.read(_CHUNK), b""))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
