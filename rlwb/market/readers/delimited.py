"""Text with separated values, read in batches by Arrow; what does not fit is refused with its row."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from rlwb.errors import DataError
from rlwb.market.readers.content import one_line

#: Words that stand for a missing number.
MISSING_WORDS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"]
DAMAGE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError)
_BLOCK = 1 << 22
_ROW = re.compile(r"Row #(\d+)")
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_CELL = re.compile(r"In CSV column #(\d+).*invalid value '(.*)'", re.DOTALL)
_DECIMALS = 6


def read_delimited(
    file: BinaryIO | io.BufferedIOBase,
    names: Sequence[str],
    types: Mapping[str, pa.DataType],
    where: str,
    *,
    skip: int = 0,
    missing: Sequence[str] = MISSING_WORDS,
    quotes: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `types` of a table whose rows all have one value for each of `names`; blank lines are no rows.

    Parameters
    ----------
    file
        Open for reading bytes, at its beginning.
    names
        One distinct name a column, in the order of the file.
    types
        Arrow types of the columns to read, by name.
    where
        The file, for messages, which count rows from 1 with the header.
    skip
        Lines before the first row.
    missing
        What stands for a missing number.
    quotes
        Whether values may stand between double quotes.

    Raises
    ------
    DataError
        For a row with another number of values, a value that is not of its type, and what cannot be read at all.
    """
    try:
        with pc.open_csv(
            file,
            pc.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=list(names), skip_rows=skip),
            pc.ParseOptions(quote_char='"' if quotes else False),
            pc.ConvertOptions(column_types=types, include_columns=list(types), null_values=list(missing)),
        ) as reader:
            yield from reader
    except DAMAGE as error:
        raise DataError(f"{where}{_fault(str(error), names)}; correct it or write it again.") from None


def _fault(message: str, names: Sequence[str]) -> str:
    place, count, cell = _ROW.search(message), _COUNT.search(message), _CELL.search(message)
    row_text = f", row {place[1]}" if place else ""
    if count:
        return f"{row_text} holds {count[2]} values where {count[1]} belong"
    if cell:
        return f"{row_text}: {names[int(cell[1])]} is {cell[2][:40]!r}, not a number"
    if "UTF8" in message:
        return f"{row_text} is not UTF-8 text"
    return f"{row_text} cannot be read ({one_line(ValueError(message[:200]))})"


def read_numbers(
    content: bytes, names: Sequence[str], where: str, *, keep: Sequence[str] | None = None, skip: int = 0
) -> dict[str, np.ndarray]:
    """Return columns of a table of numbers alone as float64 of shape ``(rows,)``; an empty cell is NaN.

    Parameters
    ----------
    names, where, skip
        As for `read_delimited`.
    keep
        Names of the columns to return; all by default.
    """
    types = dict.fromkeys(keep or names, pa.float64())
    batches = read_delimited(
        io.BytesIO(content), names, types, where, skip=skip, missing=("", "NaN", "nan"), quotes=False
    )
    table = pa.Table.from_batches(batches, pa.schema(list(types.items())))
    if not table.num_rows:
        raise DataError(f"{where} holds no rows; fetch it again.")
    return {name: np.array(table[name].to_numpy()) for name in types}


def first_line(content: bytes) -> bytes:
    """Return the first line without its end and without a byte-order mark, at most 10,000 bytes of it."""
    return (content.removeprefix(b"\xef\xbb\xbf")[:10_000].splitlines() or [b""])[0]


def check_rows(bad: np.ndarray, values: np.ndarray, what: str, where: str, skip: int = 0) -> None:
    """Raise `DataError` for the first row of `bad`, naming its number and its value of the column `what`."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = "missing" if np.isnan(values[row]) else f"{values[row]:.16g}"
        raise DataError(f"{where}, row {row + skip + 1}: {what} is {shown}; correct it or fetch the file again.")


def nearest_decimal(values: np.ndarray) -> np.ndarray:
    """Return float64 values with the fewest digits after the point that are the same float32, of the same shape.

    float32 holds 11.53 as 11.5299997, which a limit of 11.53 would not be seen to reach. Where up to six digits after
    the point give back the same float32, that decimal is returned, otherwise the float32 itself; nothing is lost.

    Parameters
    ----------
    values
        float32 of any shape.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # one kind of NaN
        exact = values.astype(np.float64)
        found, left = exact.copy(), np.isfinite(values) & (exact != np.rint(exact))
        for digits in range(1, _DECIMALS + 1):
            if not left.any():
                break
            scale = 10.0**digits
            decimal = np.rint(exact * scale) / scale
            same = left & (decimal.astype(np.float32) == values)
            found[same] = decimal[same]
            left &= ~same
    return found
