"""Contents of files: found by name, read whole up to a stated size, unpacked; separated values, numbers and stamps."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rlwb.errors import ConfigError, DataError

#: Megabytes (1e6 bytes) of the largest file, packed or unpacked, that a reader takes by default.
MEGABYTES = 512
#: Words that stand for a missing number.
MISSING_WORDS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"]
#: What reading a damaged file of separated values or Parquet raises.
DAMAGE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError)
#: What a number of a stamp may count since 1970, in UTC.
UNITS = ("s", "ms", "us", "ns")
#: Digits of the directives of strptime that have always as many.
_WIDTHS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "j": 3}
#: How a stamp ends that carries an offset.
_OFFSET = r"[T ]\d.*(?:Z|[+-]\d{1,2}(?::?\d{1,2})?)$|(?:UTC|GMT)$"


def one_line(error: BaseException | str) -> str:
    """Return an exception's message on one line, or its class where it has none."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def visible(source: Path) -> list[Path]:
    """Return `source` if it is a file, else the files in the folder that are neither hidden nor temporary, sorted."""
    if not source.is_dir():
        return [source]
    return sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith((".", "_", "~")))


def matching(source: Path, pattern: re.Pattern[str]) -> dict[Path, re.Match[str]]:
    """Return the visible files of `source` whose whole name matches `pattern`, with the match."""
    return {path: match for path in visible(source) if (match := pattern.fullmatch(path.name))}


def date_in(path: Path, text: str) -> np.datetime64:
    """Return midnight of the date (``YYYY-MM-DD``) that the name of `path` holds, datetime64[ns]."""
    try:
        date = np.datetime64(text, "D")
        if np.datetime64("1700") <= date < np.datetime64("2260"):
            return date.astype("datetime64[ns]")
    except ValueError:
        pass
    raise DataError(f"{path}: the date {text} in its name does not exist; rename the file.")


def read_file(path: Path, max_megabytes: int = MEGABYTES) -> bytes:
    """Return the content of `path`; a file of more than `max_megabytes`, an empty one or none is a `DataError`."""
    if max_megabytes < 1:
        raise ConfigError(f"max_megabytes is {max_megabytes}; give a whole number above 0.")
    try:
        if path.stat().st_size > max_megabytes * 1_000_000:
            raise _too_large(str(path), max_megabytes)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights.") from None
    if not content:
        raise DataError(f"{path} is empty; remove it or write it again.")
    return content


def read_member(path: Path, max_megabytes: int = MEGABYTES) -> tuple[str, bytes]:
    """Return name and content of the one file in a ZIP archive.

    Nothing is written to disk, so a name such as ``../x`` does no harm. A member that unpacks to more than
    `max_megabytes` is refused, whether its header admits it or not.
    """
    packed = io.BytesIO(read_file(path, max_megabytes))
    limit = max_megabytes * 1_000_000
    try:
        with zipfile.ZipFile(packed) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise DataError(f"{path} holds {len(members)} files and not one; replace it by the source's own.")
            if members[0].file_size > limit:
                raise _too_large(f"{path} unpacks to {members[0].file_size:,} bytes: it", max_megabytes)
            with archive.open(members[0]) as file:
                content = file.read(limit + 1)
    except DataError:
        raise
    except Exception as error:  # a damaged, encrypted or foreign archive may raise anything
        raise DataError(f"{path} is not a whole ZIP archive ({one_line(error)}); fetch it again.") from None
    if len(content) > limit:
        raise _too_large(str(path), max_megabytes)
    if not content:
        raise DataError(f"{path} holds an empty file; fetch it again.")
    return members[0].filename, content


def _too_large(what: str, megabytes: int) -> DataError:
    return DataError(f"{what} is larger than {megabytes} MB; raise max_megabytes if that is right.")


def read_delimited(
    file: BufferedIOBase,
    names: Sequence[str],
    types: Mapping[str, pa.DataType],
    where: str,
    *,
    skip: int = 0,
    missing: Sequence[str] = MISSING_WORDS,
    quotes: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `types` of a table whose rows all have one value for each of `names`; blank lines are no rows.

    Refusals name `where`, the file, and count rows from 1 with the `skip` lines before the first; `missing` are the
    words that stand for no number, and values may stand between double quotes where `quotes` are allowed.
    """
    try:
        with pa.csv.open_csv(
            file,
            pa.csv.ReadOptions(use_threads=False, block_size=1 << 22, column_names=list(names), skip_rows=skip),
            pa.csv.ParseOptions(quote_char='"' if quotes else False),
            pa.csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=list(missing)),
        ) as reader:
            yield from reader
    except DAMAGE as error:
        raise DataError(f"{where}{_fault(str(error), names)}; correct it or write it again.") from None


def _fault(message: str, names: Sequence[str]) -> str:
    """Return what Arrow found, in words that follow the name of the file."""
    place = re.search(r"Row #(\d+)", message)
    row = f", row {place[1]}" if place else ""
    if count := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return f"{row} holds {count[2]} values where {count[1]} belong"
    if cell := re.search(r"In CSV column #(\d+).*invalid value '(.*)'", message, re.DOTALL):
        return f"{row}: {names[int(cell[1])]} is {cell[2][:40]!r}, not a number"
    return f"{row} is not UTF-8 text" if "UTF8" in message else f"{row} cannot be read ({one_line(message[:200])})"


def read_numbers(
    content: bytes, names: Sequence[str], where: str, *, keep: Sequence[str] | None = None, skip: int = 0
) -> dict[str, np.ndarray]:
    """Return the columns `keep` (by default all) of a table of numbers, float64 of shape ``(rows,)``; empty is NaN.

    The other parameters are those of `read_delimited`.
    """
    types = dict.fromkeys(keep or names, pa.float64())
    missing = ("", "NaN", "nan")
    batches = read_delimited(io.BytesIO(content), names, types, where, skip=skip, missing=missing, quotes=False)
    table = pa.Table.from_batches(batches, pa.schema(types))
    if not table.num_rows:
        raise DataError(f"{where} holds no rows; fetch it again.")
    return {name: np.array(table[name].to_numpy()) for name in types}


def first_cells(content: bytes) -> list[bytes]:
    """Return the cells of the first line, or of the first 10,000 bytes of it, without a byte-order mark."""
    lines = content.removeprefix(b"\xef\xbb\xbf")[:10_000].splitlines()
    return [cell.strip() for cell in lines[0].split(b",")] if lines else [b""]


def check_rows(bad: np.ndarray, values: np.ndarray, what: str, where: str, skip: int = 0) -> None:
    """Raise `DataError` for the first row of `bad`, naming its number and its value of the column `what`."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = "missing" if np.isnan(values[row]) else f"{values[row]:.16g}"
        raise DataError(f"{where}, row {row + skip + 1}: {what} is {shown}; correct it or fetch the file again.")


def nearest_decimal(values: np.ndarray) -> np.ndarray:
    """Return float64 values with the fewest digits after the point, at most six, that are the same float32.

    float32 holds 11.53 as 11.5299997, which a limit of 11.53 would not be seen to reach. A float32 that no such
    decimal gives back is returned itself, so nothing is lost.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # one kind of NaN
        exact = values.astype(np.float64)
        found, left = exact.copy(), np.isfinite(values) & (exact != np.rint(exact))
        for digits in range(1, 7):
            scale = 10.0**digits
            decimal = np.rint(exact * scale) / scale
            same = left & (decimal.astype(np.float32) == values)
            found[same] = decimal[same]
            left &= ~same
            if not left.any():
                break
    return found


def parse_stamps(
    text: pa.Array | pa.ChunkedArray, where: str, datetime_format: str | None = None, row: int = 1
) -> pa.Array | pa.ChunkedArray:
    """Return stamps read from text as timestamp[ns]: without a zone, or in UTC when all of them carry an offset.

    ISO 8601 is understood, anything else needs `datetime_format`: strptime's, by which whole numbers may lack the
    zeros they begin with, or one of `UNITS`. Empty text is missing.

    A mix of stamps with and without an offset is a `DataError`, as is text that cannot be read; it names the file
    `where` and the row, `row` being that of the first stamp.
    """
    if datetime_format is None:
        _refuse_numbers(text, where, row)
    if datetime_format is None and len(text):  # Arrow reads plain forms ten times as fast as pandas, and no others
        with contextlib.suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("ns", "UTC" if re.search(_OFFSET, str(text[0])) else None))
    text = zero_padded(text.cast(pa.string()), datetime_format or "")
    if datetime_format in UNITS:
        return _counted(text, where, datetime_format, row)
    words = text.to_pandas().astype("string").replace("", pd.NA)
    words.index = range(row, row + len(words))
    stamps = _parse_any(words.dropna(), where, datetime_format).reindex(words.index)
    zone = None if stamps.dt.tz is None else "UTC"
    return pa.array(stamps.dt.tz_localize(None).astype("datetime64[ns]")).cast(pa.timestamp("ns", zone))


def as_text(column: pa.Array, where: str) -> pa.Array:
    """Return stamps, or parts of them, as text; whole numbers without a point, whatever their type."""
    try:
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
            if pc.all(pc.equal(pc.floor(column), column)).as_py() is not False:
                column = column.cast(pa.int64())
        return column.cast(pa.string())
    except pa.ArrowException:
        kind = column.type
        raise DataError(f"{where}: column datetime holds {kind} and no stamps; write timestamps or text.") from None


def zero_padded(text: pa.Array, datetime_format: str) -> pa.Array:
    """Return trimmed text, whole numbers with the zeros in front that `datetime_format` asks for."""
    text = pc.replace_substring_regex(pc.utf8_trim_whitespace(text), r"^(\d+)\.0+$", r"\1")
    parts = re.findall(r"%(.)|(.)", datetime_format, re.DOTALL)
    if not parts or any(name and name not in _WIDTHS for name, _ in parts):
        return text
    width = sum(_WIDTHS[name] if name else 1 for name, _ in parts)
    return pc.if_else(pc.match_substring_regex(text, r"^\d+$"), pc.utf8_lpad(text, width, "0"), text)


def _counted(text: pa.Array, where: str, unit: str, row: int) -> pa.Array:
    """Return stamps of numbers that count `unit` since 1970."""
    text = pc.replace_with_mask(text, pc.fill_null(pc.equal(text, ""), False), pa.scalar(None, pa.string()))
    try:
        try:
            stamps = text.cast(pa.int64()).cast(pa.timestamp(unit, "UTC"))
        except pa.ArrowInvalid:
            scale = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[unit]
            stamps = (
                pc.round(pc.multiply(text.cast(pa.float64()), scale)).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
            )
        return stamps.cast(pa.timestamp("ns", "UTC"))
    except pa.ArrowException as error:
        what = f"datetime_format is {unit!r}, and a stamp is no such number ({one_line(error)[:120]})"
        raise DataError(f"{where}, row {row} or later: {what}; correct it.") from None


def _refuse_numbers(text: pa.Array | pa.ChunkedArray, where: str, row: int) -> None:
    """Raise `DataError` where the first stamp is a whole number, with the format that it seems to have."""
    first = next((word.strip() for word in text.slice(0, 100).to_pylist() if word and word.strip()), "")
    if not re.fullmatch(r"\d+(\.\d+)?", first) or len(first) == 8:  # 20240103 is a date of ISO 8601
        return
    digits = len(first.partition(".")[0])
    form = {12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}.get(digits) or {10: "s", 13: "ms", 16: "us", 19: "ns"}.get(digits)
    guess = f"which looks like {form!r} here" if form else "such as '%Y%m%d%H%M'"
    raise DataError(
        f"{where}, row {row}: the stamp {first} is a number; give datetime_format, "
        f"{guess} ({', '.join(UNITS)} count from 1970 in UTC)."
    )


def _parse_any(words: pd.Series, where: str, datetime_format: str | None) -> pd.Series:
    """Return the stamps of text, none of it missing, that has the rows of a file for its index."""
    if datetime_format is None:
        aware = words.str.contains(_OFFSET, regex=True)
    elif "%" in datetime_format:
        aware = pd.Series("%z" in datetime_format, index=words.index)
    else:
        raise ConfigError(
            f"datetime_format {datetime_format!r} is no strptime format; write for example '%d/%m/%Y %H:%M'."
        )
    if aware.any() and not aware.all():
        raise DataError(
            f"{where}: some stamps carry a zone ({words[aware].iloc[0]}) and some do not ({words[~aware].iloc[0]}); "
            "write all of them one way."
        )
    form = datetime_format or "ISO8601"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of a zone that the pattern above does not know
            return pd.to_datetime(words, format=form, utc=bool(aware.any()))
    except (ValueError, OverflowError, FutureWarning) as error:
        try:
            parsed = pd.to_datetime(words, format=form, utc=True, errors="coerce")
        except ValueError:
            raise ConfigError(f"datetime_format {form!r} is no strptime format ({error}); correct it.") from None
        bad = words[parsed.isna()]
        if not len(bad):
            raise DataError(f"{where}: the stamps carry zones of different forms; write all of them one way.") from None
        raise DataError(
            f"{where}, row {bad.index[0]}: the stamp {bad.iloc[0]!r} cannot be read; write YYYY-MM-DD HH:MM:SS or give "
            "datetime_format."
        ) from None
