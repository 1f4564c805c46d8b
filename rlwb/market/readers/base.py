"""Readers of formats of bars: what one is, how a source gets its own, and the canonical form of their tables."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rlwb import parts
from rlwb.errors import ConfigError, DataError
from rlwb.files import files_below
from rlwb.market.readers.content import one_line, visible
from rlwb.market.schema import COLUMNS, REQUIRED
from rlwb.values import suggestion

#: The reader of Parquet and CSV.
TABLE = "table"
Label = Literal["start", "end"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reader:
    """A format of bars: the function that reads it, and what is known of a source before it is opened.

    Made by the decorator `reader`; a plain function is one as well, of which nothing is known beforehand.

    Parameters
    ----------
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


def reader(
    name: str,
    *,
    files: str | Callable[..., list[Path]],
    recognises: Callable[[Path], bool] | None = None,
    label: Label | None = None,
    by_file: bool = False,
) -> Callable[[Callable[..., Iterator[pa.Table]]], Reader]:
    """Declare a function to be a `Reader`, whose parameters these are."""
    pattern = files if isinstance(files, str) else None

    def matches(source: Path) -> list[Path]:
        return [path for path in visible(source) if pattern is not None and path.match(pattern)]

    def found(source: Path) -> list[Path]:
        if not matches(source):
            raise DataError(f"{source} holds no file named {pattern}; check the path.")
        return matches(source)

    listed = found if isinstance(files, str) else files
    known = recognises or (lambda source: bool(matches(source)))
    return lambda function: Reader(name, function, listed, known, label, by_file)


def find_reader(name: str) -> Reader:
    """Return the reader of a name: a built-in, an entry point's, ``package.module:Name`` or ``file.py:Name``.

    What cannot be found or imported, or is no reader, is a `ConfigError`.
    """
    made = parts.load("reader", name)
    if isinstance(made, Reader):
        return replace(made, name=name) if name in parts.names("reader") else made
    if not callable(made) or isinstance(made, type):
        raise ConfigError(f"the reader {name} is no function that yields tables of bars; see docs/readers/own.md.")

    return Reader(name, made, files_below, lambda _: False)


def recognise(path: Path) -> Reader:
    """Return the reader that the names of files and folders point to, that of Parquet and CSV where none does."""
    table, found = find_reader(TABLE), []
    for name in parts.names("reader"):
        try:
            one = find_reader(name)
        except ConfigError as error:
            _log.warning("%s It recognises nothing.", error)
        else:
            found += [one] if name != TABLE and one.recognises(path) else []
    # A folder of another kind may hold tables beside it, which are not files of that kind by their names.
    if len(found) == 1 and path.is_dir() and table.recognises(path):
        found += [table] if any(not found[0].recognises(file) for file in table.files(path)) else []
    if len(found) > 1:
        raise DataError(f"{path} could be {' or '.join(one.name for one in found)}; say which, or part the files.")
    return found[0] if found else table


def check_options(reader: Reader, name: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option that the reader called `name` does not have, or one of another type."""
    parameters = inspect.signature(reader.function).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    known = [one for one in parameters if one not in (*parts.PASSED_TO["reader"], "name")]
    for option in options:
        if option == "name" or (option not in known and not is_open):
            hint = suggestion(option, known) if known else "it has none."
            raise ConfigError(f"the reader {name} has no option {option}; {hint}")
    parts.complete("reader", parts.Part(name=name, **options))


def known_to(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `arguments` that `function` has parameters for."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


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
    names = pa.repeat(pa.scalar(instrument, pa.string()), len(stamps))
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


def canonical(table: pa.Table, where: str, row: int | None = None) -> pa.Table:
    """Return the columns of the schema with its types: text, timestamp[ns], float64 and halted bool.

    Columns that are required and absent are missing; a halt that is missing is none. A column of another type, and an
    id with a control character, is a `DataError` that names `where`; of the latter also its row, if `row` is given.
    """
    columns = {}
    for name in COLUMNS:
        if table.column_names.count(name) > 1:
            raise DataError(f"{where}: the bars have the column {name} more than once; keep one of each.")
        if name in table.column_names:
            columns[name] = _converted(name, table[name], where)
            if name == "instrument":
                check_ids(columns[name], where, row)
        elif name in ("instrument", "datetime"):
            raise DataError(f"{where}: the bars have no column {name}; they have {', '.join(table.column_names)}.")
        elif name in REQUIRED:
            columns[name] = pa.nulls(table.num_rows, pa.float64())
    return pa.table(columns)


def _converted(name: str, column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, is_of = column.type, pa.types
    text = is_of.is_string(kind) or is_of.is_large_string(kind) or is_of.is_null(kind)
    if name == "instrument":
        if not text:
            raise DataError(f"{where}: column instrument holds {kind}; write ids as text, or 000001 loses its zeros.")
        return column.cast(pa.string())
    if name == "datetime":
        if is_of.is_null(kind):
            return column.cast(pa.timestamp("ns"))
        if not is_of.is_timestamp(kind):
            raise DataError(f"{where}: column datetime holds {kind} and not timestamps; convert it first.")
        stamps = column.cast(pa.timestamp("ns", kind.tz), safe=False)  # a year beyond nanoseconds becomes another one
        return pc.if_else(pc.equal(stamps.cast(kind, safe=False), column), stamps, None)
    if name == "halted":
        return _halts(column, where)
    if not (text or is_of.is_integer(kind) or is_of.is_floating(kind) or is_of.is_decimal(kind)):
        raise DataError(f"{where}: column {name} holds {kind}, which is not a number; correct it.")
    try:
        return column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        what = one_line(error)[:120]
        raise DataError(f"{where}: column {name} holds what is not a number ({what}); correct it.") from None


def check_ids(column: pa.Array | pa.ChunkedArray, where: str, row: int | None = None) -> None:
    """Raise `DataError` for an id with a control character; `row` is that of the column's first value in the file."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return
    column = column.cast(pa.string())
    names = pc.unique(column)
    odd = names.filter(pc.match_substring_regex(names, r"\p{Cc}"))
    if len(odd):
        place = where if row is None else f"{where}, row {row + pc.index(column, odd[0]).as_py()}"
        raise DataError(f"{place}: instrument {odd[0].as_py()!r} has a control character in it; correct it.")


def _halts(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Return halts as true and false; text and numbers may be true, false, 1 and 0."""
    if pa.types.is_boolean(column.type):
        return pc.fill_null(column, False)
    words = {"": False, "false": False, "0": False, "0.0": False, "true": True, "1": True, "1.0": True}
    try:
        text = pc.utf8_lower(pc.fill_null(column.cast(pa.string()), ""))
        meaning = pc.index_in(text, pa.array(list(words)))
        what = repr(text.filter(pc.is_null(meaning))[0].as_py()) if meaning.null_count else ""
    except pa.ArrowException as error:
        what = one_line(error)
    if what:
        raise DataError(f"{where}: column halted holds {what}; write true or false (or 1 and 0).")
    return pa.array(list(words.values())).take(meaning)
