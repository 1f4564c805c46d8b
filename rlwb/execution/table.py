"""Order tables: the forms that people bring, one canonical form, and files of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import OrderError
from rlwb.execution.order import COLUMNS, FORMS, Order, columns_of, parse_direction, text_of
from rlwb.files import atomic_path
from rlwb.market import Calendar
from rlwb.market.calendar import DAY_SECONDS
from rlwb.market.readers.qlib_pickle import read_pickled_table

_SETTINGS = b"rlwb.order_settings"  # key of the Parquet file's metadata
_DAY = pd.Timedelta(days=1)
_ENDS = ("end", "latest_end")
#: Levels of an index that are columns of orders.
_LEVELS = (*COLUMNS, *FORMS, "datetime")
#: What Qlib's ``order_type`` means.
_ORDER_TYPES = {0: "SELL", 1: "BUY"}
MOST_TOLD = 10  # wrong rows that are told one by one
OnRefused = Literal["raise", "drop"]
PlaceOf = Callable[[int], str]
# A date and a time with a zone, each of which may be absent. The year comes first: 01/03/2024 is two different days.
_STAMP = (
    r"^(?P<date>\d{8}|\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2})?"
    r"(?:(?:^|(?<=\d)[T ])(?P<time>\d{1,2}:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?)(?P<zone>\s*(?:Z|[+-]\d{2}(?::?\d{2})?))?)?$"
)


def order_table(
    orders: pd.DataFrame | Iterable[Order],
    calendar: Calendar,
    *,
    codes: Mapping[Any, str] | None = None,
    source: str = "orders",
    on_refused: OnRefused = "raise",
) -> pd.DataFrame:
    """Return orders in the canonical form.

    Parameters
    ----------
    orders
        `Order` values, or a table with at least instrument, direction and amount, and a date or a start with a date.
        Start and end (also start_time and end_time) may be times ("10:30"), stamps, or absent. Stamps with a zone are
        converted to the calendar's.
        Qlib's ``order_type`` (0 sells, 1 buys) and ``datetime`` stand for direction and date, its index for columns.
    calendar
        The clock that times are read on.
    codes
        Meaning of the table's own direction codes; see `parse_direction`.
    source
        Name of the table in errors, for example its file.
    on_refused
        ``"raise"`` refuses a table with wrong rows; ``"drop"`` leaves them out.

    Returns
    -------
    DataFrame
        Columns order_id (str), instrument (str), date (datetime64[ns]), direction ("BUY"/"SELL"),
        amount (float64), start and end (datetime64[ns], session-local; NaT means open or close), and those of
        `rlwb.execution.order.FORMS` in which some order states something; NaN where it does not.
        ``attrs["notes"]`` says in words which rows were left out.

    Raises
    ------
    OrderError
        Naming the first ten wrong rows, counted from 0, with instrument and value, and the number of the others.
    """
    return _read(orders, calendar, codes, source, on_refused)


def _read(
    orders: pd.DataFrame | Iterable[Order],
    calendar: Calendar,
    codes: Mapping[Any, str] | None,
    source: str,
    on_refused: OnRefused,
    place_of: PlaceOf = "row {}".format,
) -> pd.DataFrame:
    notes: list[str] = []
    columns = order_columns(orders, calendar, codes, source, on_refused, place_of, notes)
    table = pd.DataFrame(columns)
    table.attrs["notes"] = notes
    return table


def order_columns(
    orders: pd.DataFrame | Order | Iterable[Order],
    calendar: Calendar,
    codes: Mapping[Any, str] | None = None,
    source: str = "orders",
    on_refused: OnRefused = "raise",
    place_of: PlaceOf = "row {}".format,
    notes: list[str] | None = None,
) -> dict[str, np.ndarray]:
    """Return the columns of `order_table`; of a few `Order` values in a fraction of the time that a table takes.

    `place_of` names a row by its number; to `notes` is added what was left out.
    """
    if isinstance(orders, pd.DataFrame):
        columns = _read_table(orders, calendar, codes, source, on_refused, place_of, notes)
    else:
        given = [orders] if isinstance(orders, Order) else list(orders)
        for order in given:
            if not isinstance(order, Order):
                raise OrderError(f"{source} hold {order!r}, which is no Order; give Order values or a table.")
        columns = columns_of(given)
    ids = columns["order_id"]
    if not len(ids):
        raise OrderError(f"{source} holds no orders; give at least one.")
    if (empty := ids == "").any():
        instrument, date, direction = (columns[name][empty] for name in ("instrument", "date", "direction"))
        made = made_ids(instrument, date, direction == "BUY")
        count = pd.Series(made).groupby(made).cumcount().to_numpy()
        ids[empty] = np.where(count == 0, made, made + "-" + count.astype(str).astype(object))
    if len(set(ids.tolist())) < len(ids):
        twice = ids[pd.Series(ids).duplicated()][0]
        raise OrderError(f"{source}: order_id {twice!r} occurs more than once; ids must be unique in a table.")
    return columns


def _levels_as_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with rows counted from 0, the levels of its index that orders have being columns."""
    levels = [name for name in table.index.names if name in _LEVELS and name not in table.columns]
    return table.reset_index(levels).reset_index(drop=True)


def _of_qlib(frame: pd.DataFrame, codes: Mapping[Any, str] | None) -> tuple[pd.DataFrame, Mapping[Any, str] | None]:
    """Return a table with the names of its columns for Qlib's, ``order_type`` (0 sells, 1 buys) and ``datetime``."""
    if "order_type" in frame and "direction" not in frame:
        frame, codes = frame.rename(columns={"order_type": "direction"}), codes or _ORDER_TYPES
    if "datetime" in frame and not {"date", "start"} & set(frame.columns):
        frame = frame.rename(columns={"datetime": "date"})
    return frame, codes


def made_ids(instrument: np.ndarray, date: np.ndarray, buy: np.ndarray) -> np.ndarray:
    """Return ids such as ``AAA-20240301-B``, object of the arrays' shape (N,)."""
    at, days = pd.factorize(date)
    text = pd.DatetimeIndex(days).strftime("-%Y%m%d-").to_numpy(dtype=object)
    ids: np.ndarray = instrument.astype(object) + text[at]
    return ids + np.where(buy, "B", "S").astype(object)


def _read_table(
    table: pd.DataFrame,
    calendar: Calendar,
    codes: Mapping[Any, str] | None,
    source: str,
    on_refused: OnRefused,
    place_of: PlaceOf,
    notes: list[str] | None,
) -> dict[str, np.ndarray]:
    """Return the canonical columns of a table of people's own; ids may be empty."""
    frame = _levels_as_columns(table).rename(columns=lambda name: str(name).strip().lower())
    frame, codes = _of_qlib(frame, codes)
    # the names of the settings of generated orders, and of Qlib's Order
    frame = frame.rename(columns={f"{name}_time": name for name in ("start", "end") if name not in frame})
    doubled = sorted(set(frame.columns[frame.columns.duplicated()]) & {*COLUMNS, *FORMS})
    if doubled:
        raise OrderError(f"{source} has the columns {doubled} more than once; keep one of each.")
    dated = "start" if "start" in frame and "date" not in frame else "date"
    sized = "notional" if "notional" in frame and "amount" not in frame else "amount"
    missing = sorted({"instrument", dated, "direction", sized} - set(frame.columns))
    if missing:
        raise OrderError(f"{source} lacks the columns {missing}; it has {sorted(frame.columns)}. Rename or add them.")
    forms = [name for name in FORMS if name in frame and frame[name].map(text_of).ne("").any()]
    names = [*COLUMNS, *forms]
    frame = frame.loc[:, frame.columns.isin(names)].reindex(columns=names)
    cells = Cells(frame, calendar, place_of)
    instrument = frame["instrument"].to_numpy(dtype=object)
    wrong = [not isinstance(value, str) or not value.strip() for value in instrument]
    cells.refuse(wrong, "instrument", "is not text; quote it, so that ids such as '000001' keep their zeros")
    ids = frame["order_id"].astype(object).map(text_of)
    cells.refuse(ids.duplicated() & (ids != ""), "order_id", "occurs more than once; ids must be unique in a table")
    date = cells.dates(dated)
    columns = {
        "order_id": ids,
        "instrument": instrument,
        "date": date,
        "direction": cells.directions(codes),
        "amount": cells.amounts("notional" if "notional" in forms else None),
        "start": cells.times("start", date),
        "end": cells.times("end", date),
        **{name: cells.form(name, date) for name in forms},
    }
    if {"min_participation", "max_participation"} <= columns.keys():
        above = columns["min_participation"] > columns["max_participation"]
        cells.refuse(above, "min_participation", "is above the order's max_participation")
    if cells.faults and on_refused == "raise":
        raise OrderError(f"{source}{cells.told(len(frame))}")
    if cells.faults and notes is not None:
        notes.append(f"left out of {source}{cells.told(len(frame))}")
    good = np.setdiff1d(np.arange(len(frame)), list(cells.faults))
    types = COLUMNS | {name: FORMS[name].dtype for name in forms}
    return {name: np.array(values, dtype=types[name])[good] for name, values in columns.items()}


@dataclass(frozen=True)
class Cells:
    """The columns of one table, read into their canonical types; `faults` has a text for each row that is wrong.

    The frame has a column "instrument", by which rows are named; `place_of` names them by their number.
    """

    frame: pd.DataFrame
    calendar: Calendar
    place_of: PlaceOf
    faults: dict[int, str] = field(default_factory=dict)

    def refuse(self, bad: Any, name: str, why: str | Callable[[int], str]) -> None:
        """Note what is wrong with a column where `bad` is true, of shape (rows,); the first fault of a row counts."""
        rows = np.flatnonzero(bad).tolist()
        values = self.frame[name].tolist() if rows else []
        for row in rows:
            value = values[row]
            shown = value if isinstance(value, (str, int, float)) else str(value)
            self.faults.setdefault(row, f"{name} {shown!r} {why if isinstance(why, str) else why(row)}")

    def told(self, count: int) -> str:
        """Return the first faults in words that follow the name of the table, and how many more there are."""
        rows = sorted(self.faults)
        lines = [
            f"{self.place_of(row)} ({self.frame['instrument'].iloc[row]}): {self.faults[row]}"
            for row in rows[:MOST_TOLD]
        ]
        if len(rows) == 1:
            return f", {lines[0]}."
        more = [f"and {len(rows) - MOST_TOLD} more"] if len(rows) > MOST_TOLD else []
        return "\n  ".join([f": {len(rows)} of {count} rows are wrong:", *lines, *more])

    def directions(self, codes: Mapping[Any, str] | None, name: str = "direction") -> np.ndarray:
        """Return BUY or SELL, "" where a cell is neither, object of shape (rows,)."""
        values = self.frame[name].astype(object)
        labels = pd.factorize(values.map(repr))[0]  # repr tells 1, "1" and True apart
        first = np.unique(labels, return_index=True)[1]
        names = []
        for label, row in enumerate(first.tolist()):
            try:
                names.append(parse_direction(values.iloc[row], codes).name)
            except OrderError as error:
                names.append("")
                why = str(error).partition(" is not ")[2].rstrip(".")
                self.refuse(labels == label, name, f"is not {why}")
        return np.array(names, dtype=object)[labels]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column's numbers, NaN where a cell is none, float64 of shape (rows,)."""
        values = self.frame[name]
        if pd.api.types.is_any_real_numeric_dtype(values.dtype):
            numbers: np.ndarray = values.to_numpy(dtype=np.float64, na_value=np.nan)
            return numbers
        return np.array([_amount(value) for value in values.astype(object)], dtype=np.float64)

    def amounts(self, instead: str | None = None) -> np.ndarray:
        """Return the column "amount"; a cell may be empty, and NaN, where the column `instead` has one."""
        amounts = self.numbers("amount")
        bad = ~(np.isfinite(amounts) & (amounts > 0))
        if instead is not None:
            bad &= self.given("amount") | ~self.given(instead)
        self.refuse(bad, "amount", "is not a number above 0; the side belongs in the direction")
        return amounts

    def given(self, name: str) -> np.ndarray:
        """Return which cells of a column are not empty, bool of shape (rows,)."""
        return self.frame[name].map(text_of).ne("").to_numpy()

    def form(self, name: str, date: pd.Series) -> Any:
        """Return an optional column, of shape (rows,): numbers, NaN where there is none, or stamps as `times` does."""
        if FORMS[name].dtype != "f8":
            return self.times(name, date)
        values = self.numbers(name)
        self.refuse(self.given(name) & ~FORMS[name].fits(values), name, f"is not {FORMS[name].wanted}")
        return values

    def dates(self, name: str) -> pd.Series:
        """Return each order's date from the column "date", or from "start" in a table without dates."""
        stamps = self.stamps(name)
        self.refuse(stamps["local"].isna(), name, "is not a date; write 2024-03-01")
        day = stamps["local"].dt.normalize()
        if name == "date":
            moved = (stamps["time"] == pd.Timedelta(0)) & (day != stamps["date"])
            zone = self.calendar.timezone
            self.refuse(moved, name, f"is midnight there and another day in {zone}; write the date without a zone")
        return day

    def times(self, name: str, date: pd.Series) -> pd.Series:
        """Return starts or ends as session-local stamps on the orders' dates, NaT where there is none.

        A time alone lies on the order's date. The end of the day is 24:00, in a session that runs until midnight also
        00:00, or midnight of the next date.
        """
        stamps = self.stamps(name)
        time, given = stamps["time"], stamps["given"]
        if name in _ENDS and self.calendar.close_seconds == DAY_SECONDS:
            time = time.where(time != pd.Timedelta(0), _DAY)
        local = stamps["local"].where(stamps["dated"], date + time).where(given)
        self.refuse(local.isna() & given, name, "is not a time; write 10:30 or 2024-03-01 10:30")
        moved = (local < date) | (local > date + _DAY)
        self.refuse(moved, name, lambda row: f"is not on the order's date {date.iloc[row]:%Y-%m-%d}")
        return local

    def stamps(self, name: str) -> pd.DataFrame:
        """Return a column's stamps, a row a cell, each different cell being read once.

        Columns are given (the cell is not empty), dated (it has a date), date and time (as written; 0:00 where there is
        no time), and local, both in the session's zone; NaT where there is none or it cannot be read.
        """
        values = self.frame[name]
        values = values.map(text_of) if values.dtype == object else values
        labels, distinct = pd.factorize(values, use_na_sentinel=False)
        text = pd.Series([text_of(value) for value in distinct], dtype=object)
        parts = text.str.extract(_STAMP)
        dated, timed, zoned = (parts[part].notna() for part in ("date", "time", "zone"))
        date = pd.to_datetime(parts["date"], errors="coerce", format="mixed")
        time = pd.to_timedelta(parts["time"].fillna("0:00").str.replace(r"^(\d+:\d+)$", r"\1:00", regex=True))
        exists = (time < _DAY) | (time == _DAY) & (name in _ENDS)  # 24:00 is an end alone
        time = time.where(exists & (dated | timed & ~zoned))
        local = date + time
        if zoned.any():
            zone = self.calendar.timezone
            if zone is None:
                self.refuse(zoned.to_numpy()[labels], name, "has a time zone and the calendar none; set its timezone")
            moved = pd.to_datetime(text.where(dated & zoned), utc=True, errors="coerce", format="mixed")
            local = local.where(~zoned, moved.dt.tz_convert(zone).dt.tz_localize(None))
        found = pd.DataFrame({"given": text != "", "dated": dated, "date": date, "time": time, "local": local})
        return found.take(labels).reset_index(drop=True)


def _amount(value: Any) -> float:
    """Return a cell as a number, NaN if it is none; True and Python's 1_000 are none."""
    try:
        return np.nan if isinstance(value, (bool, np.bool_)) or "_" in str(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def write_orders(path: str | os.PathLike[str], table: pd.DataFrame, settings: Mapping[str, Any] | None = None) -> None:
    """Write a canonical order table to Parquet, atomically, with the settings that made it."""
    plain = table[[*COLUMNS, *(name for name in FORMS if name in table)]].copy(deep=False)
    plain.attrs = {}  # which pandas writes into the file, so that the same rows would give other bytes
    arrow = pa.Table.from_pandas(plain, preserve_index=False)
    metadata = {**(arrow.schema.metadata or {}), _SETTINGS: json.dumps(dict(settings or {}), default=str).encode()}
    with atomic_path(path) as temporary:
        pq.write_table(arrow.replace_schema_metadata(metadata), temporary)


def read_orders(
    path: str | os.PathLike[str],
    calendar: Calendar,
    *,
    codes: Mapping[Any, str] | None = None,
    trust_pickle: bool = False,
    on_refused: OnRefused = "raise",
) -> pd.DataFrame:
    """Read an order table from Parquet, CSV or Qlib's pickles into the canonical form; see `order_table`.

    Errors and notes name the rows of a CSV file by their line, the header's being 1, and those of other files counted
    from 0.

    Parameters
    ----------
    path
        A file; a folder stands for the pickles in it, as in Qlib.
    calendar, codes, on_refused
        As in `order_table`.
    trust_pickle
        Must be true for a pickle, which can be made to run anything when it is read.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == ".pkl")
        if not files:
            raise OrderError(
                f"{path} is a folder without a .pkl; give a file of orders, or a folder of Qlib's pickles."
            )
        tables = [read_pickled_table(file, keys=(), trust_pickle=trust_pickle) for file in files]
        frame = pd.concat(map(_levels_as_columns, tables))
        return _read(frame, calendar, codes, str(path), on_refused)
    if kind == ".pkl" and path.is_file():
        frame = read_pickled_table(path, keys=(), trust_pickle=trust_pickle)
        return _read(frame, calendar, codes, str(path), on_refused)
    frame, place_of = read_rows(path, "orders")
    return _read(frame, calendar, codes, str(path), on_refused, place_of)


def read_rows(path: Path, what: str) -> tuple[pd.DataFrame, PlaceOf]:
    """Return the rows of a Parquet or CSV file as they are, those of a CSV as text, and what names a row by its place.

    `what` names the rows in errors: ``"orders"``.
    """
    if not path.is_file():
        raise OrderError(f"{path} does not exist; give a Parquet or CSV file of {what}.")
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv", ".gz"):
        pickles = ", and no pickle of Qlib's" if what == "orders" else ""
        raise OrderError(f"{path} is neither Parquet nor CSV{pickles}; convert it to one of them.")
    try:
        if kind == ".parquet":
            return pd.read_parquet(path), "row {}".format
        content = path.read_bytes()
        content = gzip.decompress(content) if kind == ".gz" else content
        if b"\0" in content:  # at which the parser would cut a value short in silence
            raise ValueError("NUL bytes, so it was not written whole")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # for rows that are longer than the header
            text: Any = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
            frame = pd.read_csv(io.BytesIO(content), index_col=False, **text)
        lines = cache(partial(_lines, content))
        return frame, lambda row: f"line {lines()[row]}"
    except Exception as error:
        longer = isinstance(error, pd.errors.ParserWarning)
        reason = "rows with more values than its header has columns" if longer else " ".join(str(error).split())
        raise OrderError(
            f"{path} cannot be read as {what} ({reason.rstrip('.')}); write it again or convert it."
        ) from error


def _lines(content: bytes) -> list[int]:
    """Return the line of each row of a CSV file below its header; rows of several lines begin at the first of them."""
    reader, lines, begin = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")), [], 1
    limit = csv.field_size_limit(len(content))  # which pandas does not have
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():  # the parser passes over empty lines
                lines.append(begin)
            begin = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)
    return lines[1:]
