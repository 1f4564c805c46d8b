"""Columns of one Parquet or CSV file, with ids and stamps kept as they are written."""

from __future__ import annotations

import csv
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Mapping, Sequence
from io import BufferedReader
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
_BEGIN = 1 << 16
#: A table is held some three times while it is read: as it is parsed, as columns, and joined to those of other files.
_COPIES = 3
_DAMAGE = (pd.errors.ParserError, pd.errors.EmptyDataError, pa.ArrowException, OSError, EOFError, zlib.error)


def suffix_of(path: Path) -> str | None:
    """Return which of `SUFFIXES` ends the file's name, or None."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def read_header(path: Path) -> list[str]:
    """Return the names of the file's columns."""
    if suffix_of(path) == ".parquet":
        try:
            return [str(name) for name in pq.read_schema(path).names]
        except (*_DAMAGE, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not a readable Parquet file ({_first_line(error)}); replace it.") from None
    try:
        nul, size, end = _scan(path)
        if nul:
            raise DataError(f"{path} holds NUL bytes, so it was not written whole; write it again.")
        _check_memory(path, size)
        first = first_rows(path)
        if first is not None:
            header = first[0]
        else:
            header = [str(name) for name in pd.read_csv(path, nrows=0, encoding="utf-8-sig", dtype=str).columns]
        if header[0].lower().startswith("sep="):
            raise DataError(f"{path} begins with a line for a spreadsheet ({header[0]}); remove that line.")
        other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
        if other is not None:
            raise DataError(f"{path} separates its columns by {other!r}; write commas (and decimal points).")
        if _is_cut(end):
            raise DataError(f"{path} ends in the midst of a row, so it was not written whole; write it again.")
        return header
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; remove it or write it again.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read ({_first_line(error)}); write it again.") from None


def first_rows(path: Path) -> tuple[list[str], list[str]] | None:
    """Return the names and the first row of a CSV file; None where its first lines are not as plain as they mostly are.

    Plain are names in the first line, each once and none of them blank.
    """
    with _opened(path) as file:
        begin = file.read(_BEGIN)
    lines = re.split(r"\r\n|\n|\r", begin.decode("utf-8-sig", "replace"), maxsplit=2)
    if (len(lines) < 3 and len(begin) == _BEGIN) or any(mark in "".join(lines[:2]) for mark in "\ufffd\ufeff"):
        return None
    try:  # each line by itself, so that a value which goes on in the next one is seen
        names, values = (
            next(csv.reader([line], strict=True), []) for line in (lines[0], lines[1] if lines[1:] else "")
        )
    except csv.Error:  # a quote that is not closed
        return None
    plain = bool(names) and len(set(names)) == len(names) and all(map(str.strip, names))
    return (names, values) if plain else None


def read_table(path: Path, found: Mapping[str, str], header: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the columns `found` (``{schema name: name in the file}``) under their schema names.

    `header` is what `read_header` gave, which goes through the whole of a text file; it is read again by default.
    """
    names = {name: target for target, name in found.items()}
    if suffix_of(path) == ".parquet":
        try:
            with pq.ParquetFile(path) as file:
                _check_memory(path, file.metadata.num_rows * len(names) * 8)
                table = file.read(columns=list(names))
        except _DAMAGE as error:
            raise DataError(f"{path} is not a readable Parquet file ({_first_line(error)}); replace it.") from None
        empty = [place for place, field in enumerate(table.schema) if pa.types.is_null(field.type)]
        for place in empty:  # of no type, which pandas would take for objects
            name = table.schema.names[place]
            kind = pa.string() if names[name] in _AS_TEXT else pa.float64()
            table = table.set_column(place, name, table.column(place).cast(kind))
        try:
            return table.replace_schema_metadata().to_pandas().rename(columns=names)
        except (*_DAMAGE, ValueError) as error:  # a time of day beyond the day, for one
            raise DataError(
                f"{path} holds text that is not UTF-8, or values beyond their type ({_first_line(error)}); "
                "write it again."
            ) from None
    numbers = [name for name, target in names.items() if target not in _AS_TEXT]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(  # all columns: with usecols, values beyond the header's columns go unnoticed
                path,
                dtype={name: str for name in header or read_header(path) if name not in numbers},
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
    return _scan(path)[0]


def _scan(path: Path) -> tuple[bool, int, bytes]:
    """Tell whether a text file holds NUL bytes, how many bytes it has, unpacked, and what it ends with.

    All of that as far as was looked.
    """
    size, end = 0, b""
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            if not size and chunk[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, which the reader names
                return False, len(chunk), b""
            size += len(chunk)
            if b"\0" in chunk:
                return True, size, b""
            end = (end + chunk)[-_BEGIN:]
    return False, size, end


def _is_cut(end: bytes) -> bool:
    """Tell whether a text's last line has no line end and fewer values than the one before it."""
    lines = [line for line in re.split(rb"[\r\n]", end) if line.strip()]
    if len(lines) < 2 or not end.endswith(lines[-1]) or b'"' in lines[-1] + lines[-2]:
        return False
    return lines[-1].count(b",") < lines[-2].count(b",")


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _check_memory(path: Path, size: int) -> None:
    """Refuse a table of `size` bytes for which the machine's memory does not suffice, however small its file is."""
    memory = _memory()
    if size * _COPIES > memory:
        raise DataError(
            f"{path} unpacks to {size / 1e9:,.1f} GB, of which some {_COPIES} times is needed, and this machine has "
            f"{memory / 1e9:,.1f} GB of memory; part it into smaller files and read some at a time."
        )


def _memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
