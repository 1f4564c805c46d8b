"""The fast way through Parquet and CSV: column by column with Arrow, in pieces that fit the memory.

It takes only what it reads exactly as `rlwb.market.read` does, and leaves everything else, faults too, to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rlwb.market.dataset.bars import NUMBERS
from rlwb.market.schema import REQUIRED
from rlwb.market.stamps import has_offset
from rlwb.market.tables import MISSING_WORDS, first_rows, suffix_of

_BATCH = 1 << 20
_CSV_BLOCK = 1 << 24
_EARLIEST, _LATEST = (int(stamp.value) // 1000 for stamp in (pd.Timestamp.min, pd.Timestamp.max))
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


class UnfitError(Exception):
    """The file, or what follows in it, is for the slow way."""


def arrow_batches(path: Path, found: Mapping[str, str], datetime_format: str | None, skip: int) -> Iterator[pa.Table]:
    """Yield the file's columns `found` (``{schema name: name in the file}``) under their schema names, in order.

    Parameters
    ----------
    skip
        Rows to pass over.

    Raises
    ------
    UnfitError
        At the first thing that may need more than this.
    """
    if not set(REQUIRED) - {"instrument"} <= set(found) or not set(found) <= {*REQUIRED, *NUMBERS, "halted"}:
        raise UnfitError("columns")
    parquet = suffix_of(path) == ".parquet"
    batches = _parquet(path, found, skip) if parquet else _csv(path, found, datetime_format, skip)
    try:
        for batch in batches:
            named = pa.Table.from_batches([batch]).select(list(found.values())).rename_columns(list(found))
            yield named
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UnfitError(str(error)) from None


def _parquet(path: Path, found: Mapping[str, str], skip: int) -> Iterator[pa.RecordBatch]:
    _check_types(pq.read_schema(path), found)
    with pq.ParquetFile(path, read_dictionary=[found["instrument"]] if "instrument" in found else []) as file:
        groups: list[int] = []
        rows = 0
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if rows + count > skip or groups:
                groups.append(number)
            else:
                rows += count
        left = skip - rows
        for batch in file.iter_batches(_BATCH, row_groups=groups, columns=list(found.values())):
            if left < batch.num_rows:
                yield batch.slice(left)
            left = max(0, left - batch.num_rows)


def _check_types(schema: pa.Schema, found: Mapping[str, str]) -> None:
    for target, name in found.items():
        kind = schema.field(name).type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if target == "instrument":
            good = text or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))
        elif target == "datetime":
            good = pa.types.is_timestamp(kind)
        elif target == "halted":
            good = pa.types.is_boolean(kind)
        else:
            good = pa.types.is_floating(kind) or pa.types.is_integer(kind)
        if not good:
            raise UnfitError(f"{name} is of type {kind}")


def _csv(path: Path, found: Mapping[str, str], datetime_format: str | None, skip: int) -> Iterator[pa.RecordBatch]:
    names, first = first_rows(path) or ([], [])
    if datetime_format is not None or "halted" in found or not names or len(first) != len(names):
        raise UnfitError("text that needs more than ISO 8601 and numbers")
    numbers = [name for target, name in found.items() if target in NUMBERS]
    types: dict[str, pa.DataType] = dict.fromkeys(numbers, pa.float64())
    zoned = has_offset(first[names.index(found["datetime"])].strip())
    types[found["datetime"]] = pa.timestamp("us", "UTC" if zoned else None)
    if "instrument" in found:
        types[found["instrument"]] = _DICTIONARY
    convert = pacsv.ConvertOptions(
        column_types=types, include_columns=list(found.values()), null_values=MISSING_WORDS, strings_can_be_null=False
    )
    with (
        pa.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None) as stream,
        pacsv.open_csv(stream, pacsv.ReadOptions(block_size=_CSV_BLOCK), convert_options=convert) as reader,
    ):
        for batch in reader:
            if batch.column(found["datetime"]).null_count:
                raise UnfitError("a stamp that is empty or says that it is missing")
            if not _in_reach(batch.column(found["datetime"])):
                raise UnfitError("a year that nanoseconds do not reach")
            if not all(_finite(batch.column(name)) for name in numbers):
                raise UnfitError("a number that is too large, infinite, or not a number by another word")
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(0, skip - batch.num_rows)


def _finite(numbers: pa.Array) -> bool:
    """Tell whether all are finite that are not missing."""
    return int(np.isfinite(numbers.to_numpy(zero_copy_only=False)).sum()) == len(numbers) - numbers.null_count


def _in_reach(stamps: pa.Array) -> bool:
    """Tell whether microseconds are within the years of nanoseconds."""
    found = pc.min_max(stamps.cast(pa.int64())).as_py()
    return found["min"] is None or (found["min"] > _EARLIEST and found["max"] < _LATEST)


def read_plain_csv(path: Path, found: Mapping[str, str], datetime_format: str | None) -> pd.DataFrame:
    """Return the columns `found` of a CSV file as `rlwb.market.tables.read_table` does, with stamps as such.

    Raises
    ------
    UnfitError
        Where the file needs more than this.
    """
    batches = list(arrow_batches(path, found, datetime_format, 0))
    if not batches:
        raise UnfitError("no rows")
    table = pa.concat_tables(batches)
    table = table.set_column(
        table.column_names.index("datetime"),
        "datetime",
        table["datetime"].cast(pa.timestamp("ns", table["datetime"].type.tz)),
    )
    columns = {target: table[target].to_pandas() for target in found}
    if "instrument" in columns:
        names = columns["instrument"].cat
        columns["instrument"] = names.reorder_categories(sorted(names.categories))
    return pd.DataFrame(columns, copy=False)


def codes_of(table: pa.Table, names: list[str]) -> np.ndarray:
    """Return each row's instrument as a number into `names`, which grows by new ones; -1 where there is none."""
    known = {name: code for code, name in enumerate(names)}
    pieces = []
    for piece in table["instrument"].chunks:
        array = piece if pa.types.is_dictionary(piece.type) else piece.dictionary_encode()
        own = array.dictionary.to_pylist()
        for name in own:
            if name and name not in known:
                known[name] = len(names)
                names.append(name)
        rank = np.array([known.get(name, -1) if name else -1 for name in own] + [-1], dtype=np.int32)
        pieces.append(rank[array.indices.fill_null(len(own)).to_numpy()])
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int32)


def local_stamps(
    column: pa.ChunkedArray, zone: str | None, source_zone: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return session-local stamps in microseconds, which of them are there, and which are finer than that; ``(n,)``.

    Parameters
    ----------
    zone
        The session's.
    source_zone
        That of stamps which carry none, where it is another.
    """
    try:
        if source_zone is not None:
            if column.type.tz is not None:
                raise UnfitError("two zones")
            column = pc.assume_timezone(column, source_zone)
        if column.type.tz is not None:
            if zone is None:
                raise UnfitError("a zone, and the calendar has none")
            column = pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
        there = np.ones(len(column), dtype=bool)
        if column.null_count:
            there = column.is_valid().to_numpy()
            column = column.fill_null(0)
        if column.type.unit == "ns":
            whole, rest = np.divmod(column.cast(pa.int64()).to_numpy(), 1000)
            return whole, there, rest != 0
        stamps = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        return stamps, there, np.zeros(len(stamps), dtype=bool)
    except pa.ArrowException as error:
        raise UnfitError(str(error)) from None
