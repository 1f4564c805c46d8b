"""Readers of formats of bars, and the canonical form of their tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import ConfigError, DataError
from rlwb.market.readers.content import one_line, visible
from rlwb.market.schema import COLUMNS, REQUIRED
from rlwb.values import check_value, suggestion

#: Parameters of a reader's functions that are passed to it; all others are its options.
PASSED = ("source", "instruments", "report")
Label = Literal["start", "end"]


@dataclass(frozen=True)
class Reader:
    """A format of bars: the function that reads it, and what is known of a source before it is opened.

    Made by the decorator `reader`; a plain function is one as well, of which nothing is known beforehand.

    Parameters
    ----------
    name
        The name by which it is chosen.
    function
        ``function(source, *, option=default, ...)`` yields tables of bars from a file or folder, in the order of the
        source. It may take `instruments` (a frozenset of ids to keep, or None) and `report` (where it counts what it
        drops or changes) by these names.
    files
        ``files(source, *, option=default, ...)`` returns the files that the bars depend on, sorted; a `DataError` where
        there is none. Or a pattern for the names of a folder's files (``"*.jsonl"``).
    recognises
        Tells by the names of files and folders alone, opening nothing, whether a source is of this format.
    label
        Whether stamps name the start or the end of a bar; None where that depends on who wrote the source.
    by_file
        Whether each file that is recognised is read by itself, so that an import takes only those that are new.
    """

    name: str
    function: Callable[..., Iterator[pa.Table]]
    files: Callable[..., list[Path]]
    recognises: Callable[[Path], bool]
    label: Label | None = None
    by_file: bool = False

    def __call__(self, source: Path, **arguments: Any) -> Iterator[pa.Table]:
        return self.function(source, **arguments)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for an option that the reader does not have, or one of another type."""
        known = [name for name in inspect.signature(self.function).parameters if name not in PASSED]
        for name, value in options.items():
            if name not in known:
                hint = suggestion(name, known) if known else "it has none."
                raise ConfigError(f"the reader {self.name} has no option {name!r}; {hint}")
            hint = get_type_hints(self.function).get(name, Any)
            try:
                check_value(hint, value)
            except ValueError as error:
                raise ConfigError(f"{self.name}'s option {name} is {value!r}; {error}") from None


def reader(
    name: str,
    *,
    files: str | Callable[..., list[Path]],
    recognises: Callable[[Path], bool] | None = None,
    label: Label | None = None,
    by_file: bool = False,
) -> Callable[[Callable[..., Iterator[pa.Table]]], Reader]:
    """Declare a function to be a `Reader`, whose parameters these are."""
    if isinstance(files, str):
        pattern = files

        def of_pattern(source: Path) -> list[Path]:
            found = [path for path in visible(source) if path.match(pattern)]
            if not found:
                raise DataError(f"{source} holds no file named {pattern}; check the path.")
            return found

        files = of_pattern
        recognises = recognises or (lambda source: any(path.match(pattern) for path in visible(source)))
    return lambda function: Reader(name, function, files, recognises or (lambda _: False), label, by_file)


def pass_known(function: Callable[..., Any], source: Path, arguments: Mapping[str, Any]) -> Any:
    """Call `function` with `source` and those of `arguments` that it has parameters for."""
    known = inspect.signature(function).parameters
    return function(source, **{name: value for name, value in arguments.items() if name in known})


def bars(instrument: str, stamps: np.ndarray, columns: Mapping[str, np.ndarray], zone: str | None = None) -> pa.Table:
    """Return bars of one instrument as a table.

    Parameters
    ----------
    stamps
        datetime64[ns] of shape ``(bars,)``, local to `zone`, or to the exchange where it is None.
    columns
        Columns of the schema of shape ``(bars,)``: float64, halted bool. NaN is missing.
    zone
        IANA zone of the stamps. A local time that it skips or repeats becomes missing.
    """
    moments = pa.array(stamps.astype("datetime64[ns]"))
    names = pa.array(np.broadcast_to(np.array(instrument, dtype=object), len(stamps)), pa.string())
    return pa.table({"instrument": names, "datetime": in_zone(moments, zone) if zone else moments, **columns})


def clock(stamp: np.datetime64) -> str:
    """Return a stamp for a message, in whole seconds."""
    return str(stamp.astype("datetime64[s]")).replace("T", " ")


def in_zone(stamps: pa.Array | pa.ChunkedArray, zone: str) -> pa.Array | pa.ChunkedArray:
    """Return stamps without a zone as those of `zone`; a local time that it skips or repeats becomes missing."""
    try:
        early, late = (
            pc.assume_timezone(stamps, zone, ambiguous=way, nonexistent=way) for way in ("earliest", "latest")
        )
    except (pa.ArrowException, OSError):
        raise ConfigError(f"the time zone {zone!r} is unknown; give an IANA name such as UTC.") from None
    return pc.if_else(pc.equal(early, late), early, None)


def canonical(table: pa.Table, where: str) -> pa.Table:
    """Return the columns of the schema with its types: text, timestamp[ns], float64 and halted bool.

    Columns that are required and absent are missing; a halt that is missing is none.

    Raises
    ------
    DataError
        For a column of another type, naming `where`.
    """
    absent = [name for name in ("instrument", "datetime") if name not in table.column_names]
    if absent:
        raise DataError(f"{where}: the bars have no column {absent[0]}; they have {', '.join(table.column_names)}.")
    columns = {}
    for name in COLUMNS:
        if table.column_names.count(name) > 1:
            raise DataError(f"{where}: the bars have the column {name} more than once; keep one of each.")
        if name in table.column_names:
            columns[name] = _convert(name, table[name], where)
        elif name in REQUIRED:
            columns[name] = pa.nulls(table.num_rows, pa.float64())
    return pa.table(columns)


def _convert(name: str, column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if name == "instrument":
        if not is_text:
            raise DataError(f"{where}: column instrument holds {kind}; write ids as text, or 000001 loses its zeros.")
        return column.cast(pa.string())
    if name == "datetime":
        if pa.types.is_null(kind):
            return column.cast(pa.timestamp("ns"))
        if not pa.types.is_timestamp(kind):
            raise DataError(f"{where}: column datetime holds {kind} and not timestamps; convert it first.")
        return _nanoseconds(column)
    if name == "halted":
        return _flags(column, where)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or is_text):
        raise DataError(f"{where}: column {name} holds {kind}, which is not a number; correct it.")
    try:
        return column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise DataError(
            f"{where}: column {name} holds what is not a number ({one_line(error)[:120]}); correct it."
        ) from None


def _nanoseconds(stamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return stamps in nanoseconds; what they do not reach is missing."""
    target = pa.timestamp("ns", stamps.type.tz)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6}.get(stamps.type.unit)
    if per_second is None:
        return stamps
    number, most = stamps.cast(pa.int64()), (2**63 // 10**9 - 1) * per_second
    reached = pc.and_(pc.less_equal(number, most), pc.greater_equal(number, -most))
    return pc.if_else(reached, stamps, None).cast(target)


def _flags(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Return halts as true and false; text and numbers may be true, false, 1 and 0."""
    if not pa.types.is_boolean(column.type):
        words = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": None}
        try:
            text = pc.utf8_lower(pc.fill_null(column.cast(pa.string()), "")).dictionary_encode().unify_dictionaries()
            known = text.chunk(0).dictionary.to_pylist() if text.num_chunks else []
            meaning = pa.array([words[word] for word in known], pa.bool_())
        except (pa.ArrowException, KeyError) as error:
            raise DataError(
                f"{where}: column halted holds {one_line(error)}; write true or false (or 1 and 0)."
            ) from None
        column = pa.chunked_array([meaning.take(chunk.indices) for chunk in text.chunks], pa.bool_())
    return pc.fill_null(column, False)
