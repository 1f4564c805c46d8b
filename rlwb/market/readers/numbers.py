"""Tables of numbers alone: CSV without quotes, columns by place."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from rlwb.errors import DataError
from rlwb.market.readers.content import one_line

_MARK = b"\xef\xbb\xbf"
_ROW = re.compile(r"Row #(\d+)")
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_CELL = re.compile(r"In CSV column #(\d+).*invalid value '(.*)'", re.DOTALL)
_LONGEST = 10_000
#: From so many bytes on a table has at least so many for each value, its separator included.
_LARGE, _FILLED = 1 << 20, 3


def first_line(content: bytes) -> bytes:
    """Return the first line without its end and without a byte-order mark, at most 10,000 bytes of it."""
    return content.removeprefix(_MARK)[:_LONGEST].splitlines()[0] if content.removeprefix(_MARK) else b""


def read_numbers(
    content: bytes, names: Sequence[str], where: str, *, keep: Sequence[str] | None = None, skip: int = 0
) -> dict[str, np.ndarray]:
    """Return columns of a CSV of numbers as float64 of shape ``(rows,)``; an empty cell is NaN.

    Parameters
    ----------
    names
        One name a column; a row with another number of cells is refused.
    where
        The file, for messages, which count rows from 1.
    keep
        Names of the columns to return; all by default.
    skip
        Lines of a header to leave out.

    Raises
    ------
    DataError
        Where a row has another number of cells, or a cell is not a number.
    """
    table_end = len(content.rstrip(b"\r\n"))
    if not table_end:
        raise DataError(f"{where} holds blank lines alone; fetch it again.")
    blank = _blank_row(content, table_end) if len(names) > 1 else None
    if blank is not None:  # which the parser would take for a row whose cells are all empty
        raise DataError(f"{where}, row {blank} is blank; correct it or fetch the file again.")
    _check_filled(content, len(keep or names), where)
    try:
        table = pc.read_csv(
            pa.BufferReader(memoryview(content)[:table_end]),
            read_options=pc.ReadOptions(use_threads=False, column_names=list(names), skip_rows=skip),
            parse_options=pc.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(names, pa.float64()),
                null_values=["", "NaN", "nan"],
                include_columns=list(keep or names),
            ),
        )
    except pa.ArrowException as error:
        raise DataError(f"{where}{_fault(str(error), names)}; correct it or fetch the file again.") from None
    columns: dict[str, np.ndarray] = {}
    for name in keep or names:  # each is let go before the next is made
        values = table[name].to_numpy(zero_copy_only=False)
        columns[name] = values if values.flags.writeable else values.copy()
        table = table.drop_columns(name)
    return columns


def _check_filled(content: bytes, columns: int, where: str) -> None:
    """Refuse a large table of empty cells, which would take many times its size as numbers."""
    if len(content) < _LARGE:
        return
    cells = columns * max(content.count(b"\n"), content.count(b"\r"))
    if len(content) < _FILLED * cells:
        raise DataError(f"{where} holds {cells:,} values in {len(content):,} bytes, so most are empty; fetch it again.")


def _blank_row(content: bytes, end: int) -> int | None:
    """Return the number of a blank line before `end`, counted from 1, or None."""
    if content.startswith((b"\n", b"\r", _MARK + b"\n", _MARK + b"\r")):
        return 1
    places = (content.find(pair, 0, end) for pair in (b"\n\n", b"\n\r", b"\r\r"))
    place = min((place for place in places if place >= 0), default=None)
    return None if place is None else len(re.findall(rb"\r\n|\n|\r", content[: place + 1])) + 1


def check_rows(bad: np.ndarray, values: np.ndarray, what: str, where: str, skip: int = 0) -> None:
    """Raise `DataError` for the first row of `bad`, naming its number and its value of the column `what`."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = "missing" if np.isnan(values[row]) else f"{values[row]:.16g}"
        raise DataError(f"{where}, row {row + skip + 1}: {what} is {shown}; correct it or fetch the file again.")


def _fault(message: str, names: Sequence[str]) -> str:
    row, count, cell = _ROW.search(message), _COUNT.search(message), _CELL.search(message)
    place = f", row {row.group(1)}" if row else ""
    if count:
        return f"{place} holds {count.group(2)} values where {count.group(1)} belong"
    if cell:
        return f"{place}: {names[int(cell.group(1))]} is {cell.group(2)[:40]!r}, not a number"
    return f"{place} cannot be read ({one_line(ValueError(message[:200]))})"
