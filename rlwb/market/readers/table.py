"""Parquet, Feather and CSV with named columns."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from rlwb.errors import ConfigError, DataError
from rlwb.market.findings import Report, printable
from rlwb.market.readers import wide
from rlwb.market.readers.base import TABLE, check_ids, reader
from rlwb.market.readers.content import DAMAGE, as_text, one_line, parse_stamps, read_delimited, visible, zero_padded
from rlwb.market.schema import COLUMNS, REQUIRED, lacking
from rlwb.values import suggestion

SUFFIXES = (".parquet", ".feather", ".csv", ".csv.gz")
#: Names that are understood where the schema's own is absent.
ALIASES = {
    "timestamp": "datetime",
    "symbol": "instrument",
    "ticker": "instrument",
    "o": "open",
    "h": "high",
    "l": "low",
    "c": "close",
    "v": "volume",
    "vol": "volume",
}
#: What a column may mean: `date` and `time` together make a stamp.
TARGETS = (*COLUMNS, "date", "time")
_TEXT = ("instrument", "datetime", "date", "time", "halted")


def suffix_of(path: Path) -> str | None:
    """Return which of `SUFFIXES` ends the file's name, or None."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def _holds_tables(source: Path) -> bool:
    return any(map(suffix_of, visible(source)))


def table_files(source: Path, *, instrument_pattern: str | None = None) -> list[Path]:
    """Return the files of `source` that end in one of `SUFFIXES`, sorted."""
    if source.is_file() and not suffix_of(source):
        raise DataError(f"{source} is not a file of bars; its name must end in {', '.join(SUFFIXES)}.")
    files = [path for path in visible(source) if suffix_of(path)]
    if not files:
        inside = [entry for entry in source.iterdir() if entry.is_dir() and _holds_tables(entry)]
        hint = f", but its folder {inside[0].name} does: name that one" if inside else "; name one that does"
        raise DataError(f"the folder {source} holds no file that ends in {', '.join(SUFFIXES)}{hint}.")
    names: dict[str, Path] = {}
    for path in files if instrument_pattern is None else []:
        other = names.setdefault(instrument_of(path), path)
        if other != path:
            raise DataError(f"{other} and {path.name} are both {instrument_of(path)}; keep one of them.")
    return files


def instrument_of(path: Path, pattern: str | None = None) -> str:
    """Return the instrument that a file's name stands for: all of it without the ending, or group 1 of `pattern`."""
    stem = path.name[: -len(suffix_of(path) or "")]
    if pattern is None:
        return stem
    try:
        match = re.fullmatch(pattern, stem)
    except re.error as error:
        raise ConfigError(f"instrument_pattern {pattern!r} is no regular expression ({error}); correct it.") from None
    if match is None or not match.groups():
        raise DataError(f"instrument_pattern {pattern!r} finds no id (group 1) in the file name {path}; correct it.")
    return match.group(1)


@reader(TABLE, files=table_files, recognises=_holds_tables, by_file=True)
def read_table(
    source: Path,
    *,
    columns: Mapping[str, str] | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    instruments: frozenset[str] | None = None,
    report: Report,
) -> Iterator[pa.Table]:
    r"""Read a Parquet, Feather or CSV file, ``.csv.gz`` too; see docs/readers/csv-parquet.md.

    Parameters
    ----------
    source
        The file. Without a column of instruments it is one instrument, named as the file without its ending.
    columns
        ``{name in the file: schema name}`` for columns that do not match by themselves (`match_columns`).
    instrument_pattern
        Regular expression whose group 1 is the id in a file's name, for folders of several files an instrument:
        ``r"(.+)-\d{8}"``.
    datetime_format
        strptime format of stamps other than ISO 8601, in text or as whole numbers (``"%Y%m%d%H%M"``); or the unit of
        numbers that count from 1970 in UTC: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
    """
    file = _opened(source)
    found = match_columns(file.names, columns, str(source))
    ignored = [name for name in file.names if name not in found.values()]
    report.add("column_ignored", len(ignored), printable(", ".join(ignored)))
    given = {*found, "instrument"} | ({"datetime"} if {"date", "time"} <= set(found) else set())
    missing = lacking(given)
    if missing:
        wide.refuse_joined_names(source, file.names)
        have, other = (printable(", ".join(names)) for names in (found.values(), ignored))
        raise DataError(
            f"the bars of {source} lack the columns {', '.join(missing)} (they have {have or 'none'}"
            f"{f'; {other} mean nothing' if other else ''}); say which of theirs is which by columns (market.columns, "
            "--column THEIRS=OURS)."
        )
    absent = [name for name in REQUIRED if name not in given]
    report.add("column_absent", len(absent), ", ".join(absent))
    only = None if "instrument" in found else instrument_of(source, instrument_pattern)
    if only is not None and instruments is not None and only not in instruments:
        return
    row = file.first_row
    for batch in file.read(found):
        table = {name: batch[name] for name in found if name not in ("date", "time")}
        table["datetime"] = _stamps(batch, str(source), datetime_format, row)
        if only is not None:
            table["instrument"] = pa.repeat(pa.scalar(only, pa.string()), batch.num_rows)
        else:
            check_ids(table["instrument"], str(source), row)
        row += batch.num_rows
        yield pa.table(table)
    report.add("file_empty", int(row == file.first_row), file=source.name)


def only_instrument(path: Path, columns: Mapping[str, str] | None, pattern: str | None = None) -> str | None:
    """Return the instrument that a file's name stands for; None where the file has a column of instruments."""
    found = match_columns(_opened(path).names, columns, str(path))
    return None if "instrument" in found else instrument_of(path, pattern)


def match_columns(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Return the file's column for each column of the schema, as ``{schema name: name in the file}``.

    What `columns` says (``{name in the file: schema name}``) goes first. Other names match without regard to case,
    surrounding blanks, ``<>`` and a leading ``$``; `ALIASES` are understood when the schema's own name is absent.
    Without a datetime, ``date`` and ``time`` together make one, and either alone is taken for it.
    """
    columns = columns or {}
    for name, wanted in columns.items():
        if wanted not in TARGETS:
            raise ConfigError(f"columns maps to {wanted!r}, which is not in the schema; {suggestion(wanted, TARGETS)}")
        if name not in names:
            raise DataError(f"{where} has no column {name!r}; it has {printable(', '.join(names))}.")
    plain = {name: name.strip().strip("<>").removeprefix("$").lower() for name in names if name not in columns}
    own = {name: word for name, word in plain.items() if word in TARGETS}
    aliased = {name: ALIASES[word] for name, word in plain.items() if word in ALIASES}
    found: dict[str, str] = {}
    for meanings in (columns, own, aliased):
        new: dict[str, str] = {}
        for name in names:
            target = meanings.get(name)
            if target is None or target in found:
                continue
            if target in new:
                both = f"{new[target]!r} and {name!r}"
                raise DataError(f"{where}: columns {both} both mean {target}; choose with columns=...")
            new[target] = name
        found |= new
    if "datetime" in found:
        return {target: name for target, name in found.items() if target not in ("date", "time")}
    if len({"date", "time"} & set(found)) == 1:
        found["datetime"] = found.pop("date" if "date" in found else "time")
    return found


def _opened(path: Path) -> _Parquet | _Feather | _Text:
    """Return a file whose header was read; a table that is wide by two header rows is a `DataError`."""
    suffix = suffix_of(path)
    file = _Parquet(path) if suffix == ".parquet" else _Feather(path) if suffix == ".feather" else _Text(path)
    wide.refuse_two_headers(path, file.names, file.cells if isinstance(file, _Text) else [])
    return file


class _Text:
    """A CSV file: its columns' names, the row after them, and its rows in batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with self._bytes() as file:
                lines = re.split(rb"\r\n|\n|\r", file.read(1 << 16).lstrip(b"\xef\xbb\xbf"))
            skip = next((at + 1 for at, line in enumerate(lines) if line.strip()), 0)
            if not skip:
                raise DataError(f"{path} is empty; remove it or write it again.")
            self.names = next(csv.reader([lines[skip - 1].decode()], strict=True))
            first = next((line for line in lines[skip:-1] or lines[skip:] if line.strip()), b"")
            self.cells = next(csv.reader([first.decode(errors="replace")]), [])
        except UnicodeDecodeError:
            raise DataError(f"{path} is not UTF-8 text; save it as UTF-8.") from None
        except (*DAMAGE, csv.Error) as error:
            raise DataError(f"{path} cannot be read ({one_line(error)}); write it again.") from None
        other = next((mark for mark in ";\t|" if len(self.names) == 1 and mark in self.names[0]), None)
        if other is not None:
            raise DataError(f"{path} separates its columns by {other!r}; write commas (and decimal points).")
        self.first_row = skip + 1
        #: Values at the end of each row that have no name; they must be empty.
        self.nameless = [f"value {place + 1}" for place in range(len(self.names), len(self.cells))]

    def _bytes(self) -> BufferedIOBase:
        return gzip.open(self.path) if self.path.suffix.lower() == ".gz" else self.path.open("rb")

    def read(self, found: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns `found` under their schema names: text, and numbers as float64."""
        keys = [str(number) for number in range(len(self.names))]
        for target, name in found.items():
            keys[self.names.index(name)] = target
        types = {target: pa.string() if target in _TEXT else pa.float64() for target in found}
        types |= dict.fromkeys(self.nameless, pa.string())
        with self._bytes() as file:
            row = self.first_row
            for batch in read_delimited(file, [*keys, *self.nameless], types, str(self.path), skip=row - 1):
                for name in self.nameless:
                    filled = pc.index(pc.not_equal(pc.utf8_trim_whitespace(batch[name]), ""), True).as_py()
                    if filled >= 0:
                        raise DataError(
                            f"{self.path}, row {row + filled} has more values than the header has columns; write "
                            "decimal points, or quote the values."
                        )
                row += batch.num_rows
                yield batch


class _Parquet:
    """A Parquet file: its columns' names, and its rows in batches."""

    kind = "Parquet"
    first_row = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._refusing():
            self.names = [str(name) for name in self._schema().names]

    def read(self, found: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns `found` under their schema names, with their types."""
        with self._refusing():
            for batch in self._batches(list(found.values())):
                batch.validate(full=True)
                yield pa.RecordBatch.from_arrays([batch[name] for name in found.values()], list(found))

    def _schema(self) -> pa.Schema:
        return pq.read_schema(self.path)

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            yield from file.iter_batches(1 << 20, columns=names)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise DataError(
                f"{self.path} is not a readable {self.kind} file ({one_line(error)}); replace it."
            ) from None


class _Feather(_Parquet):
    """A Feather file, which is one of Arrow's: its columns' names, and its rows in batches."""

    kind = "Feather"

    def _schema(self) -> pa.Schema:
        with pa.memory_map(str(self.path)) as file:
            return pa.ipc.open_file(file).schema

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as file:
            opened = pa.ipc.open_file(file)
            for number in range(opened.num_record_batches):
                yield opened.get_batch(number)


def _stamps(batch: pa.RecordBatch, where: str, datetime_format: str | None, row: int) -> pa.Array:
    """Return the column datetime as timestamps, or date and time of day together."""
    if "datetime" in batch.schema.names:
        stamps = batch["datetime"]
        if pa.types.is_timestamp(stamps.type):
            return stamps
        return parse_stamps(as_text(stamps, where), where, datetime_format, row)
    date_form, space, time_form = (datetime_format or "").partition(" ")
    if datetime_format and not space:
        raise DataError(
            f"{where} has dates and times in two columns, which are joined by a space, and datetime_format is "
            f"{datetime_format!r}; write the form of the date, a space, and that of the time, such as '%Y%m%d %H%M'."
        )
    forms, dates, times = (date_form, time_form), batch["date"], batch["time"]
    if pa.types.is_timestamp(dates.type):
        dates = dates.cast(pa.date32())
    parts = [zero_padded(as_text(part, where), form) for part, form in zip((dates, times), forms, strict=True)]
    return parse_stamps(pc.binary_join_element_wise(*parts, " "), where, datetime_format, row)
