"""Order tables: users' own forms in, one canonical form out, Parquet and CSV files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.order import Order, parse_direction
from rlwb.files import atomic_path
from rlwb.market import Calendar

COLUMNS = ["order_id", "instrument", "date", "direction", "amount", "start", "end"]
_SETTINGS = b"rlwb.order_settings"


def order_table(
    orders: pd.DataFrame | Iterable[Order],
    calendar: Calendar,
    *,
    codes: Mapping[Any, str] | None = None,
    source: str = "orders",
) -> pd.DataFrame:
    """Return orders in the canonical form.

    Parameters
    ----------
    orders
        A table with at least instrument, direction and amount, and a date or a start with a date; or
        `Order` values. Start and end may be times ("10:30"), stamps, or absent (the session's open and
        close). Stamps with a zone are converted to the calendar's.
    calendar
        The clock that times are read on.
    codes
        Meaning of the table's own direction codes; see `parse_direction`.
    source
        Name that errors show, for example the file.

    Returns
    -------
    DataFrame
        Columns order_id (str), instrument (str), date (datetime64[ns]), direction ("BUY"/"SELL"),
        amount (float64), start and end (datetime64[ns], session-local; NaT means open or close).

    Raises
    ------
    OrderError
        Naming the row at fault.
    """
    if not isinstance(orders, pd.DataFrame):
        orders = pd.DataFrame([[getattr(order, name) for name in COLUMNS] for order in orders], columns=COLUMNS)
    frame = orders.reset_index(drop=True)
    frame = frame.rename(columns={name: str(name).strip().lower() for name in frame.columns})
    missing = {"instrument", "direction", "amount"} - set(frame.columns)
    if "date" not in frame and "start" not in frame:
        missing.add("date")
    if missing:
        raise OrderError(
            f"{source} lacks the columns {sorted(missing)}; it has {sorted(map(str, frame))}. Rename or add them."
        )
    if frame.empty:
        raise OrderError(f"{source} holds no orders; give at least one.")

    out = pd.DataFrame(index=frame.index)
    out["instrument"] = _instruments(frame["instrument"], source)
    out["date"] = _dates(frame, calendar, source)
    out["direction"] = [
        _row(source, i, parse_direction, value, codes).name for i, value in enumerate(frame["direction"])
    ]
    out["amount"] = pd.to_numeric(frame["amount"], errors="coerce").astype(np.float64)
    bad = ~(np.isfinite(out["amount"]) & (out["amount"] > 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise OrderError(
            f"{source}, row {row}: amount {frame['amount'].tolist()[row]!r} of {out['instrument'].iloc[row]} is not a "
            f"number above 0 ({int(bad.sum())} such rows); the side belongs in the direction."
        )
    for name in ("start", "end"):
        values = frame[name] if name in frame else pd.Series(pd.NaT, index=frame.index)
        out[name] = _stamps(values, out["date"], calendar, name, source)
    out["order_id"] = _ids(frame, out, source)
    return out[COLUMNS]


def _row(source: str, index: int, parse: Any, *args: Any) -> Any:
    try:
        return parse(*args)
    except OrderError as error:
        raise OrderError(f"{source}, row {index}: {error}") from None


def _instruments(values: pd.Series, source: str) -> pd.Series:
    wrong = [i for i, value in enumerate(values) if not isinstance(value, str) or not value]
    if wrong:
        raise OrderError(
            f"{source}, row {wrong[0]}: instrument {values.tolist()[wrong[0]]!r} is not text; "
            "quote it, so that ids such as '000001' keep their zeros."
        )
    return values.astype(str)


def _local(values: pd.Series, calendar: Calendar, name: str, source: str) -> pd.Series:
    zone = values.dt.tz
    if zone is None:
        return values
    if calendar.timezone is None:
        raise OrderError(
            f"{source}: {name} carries the time zone {zone} but the calendar names none; set the calendar's timezone."
        )
    return values.dt.tz_convert(calendar.timezone).dt.tz_localize(None)


def _dates(frame: pd.DataFrame, calendar: Calendar, source: str) -> pd.Series:
    name = "date" if "date" in frame else "start"
    values = frame[name]
    if pd.api.types.is_numeric_dtype(values):
        values = values.astype("Int64").astype(str)
    stamps = pd.to_datetime(values, errors="coerce", format="mixed" if values.dtype == object else None)
    wrong = stamps.isna()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise OrderError(f"{source}, row {row}: {name} {frame[name].iloc[row]!r} is not a date; write 2024-03-01.")
    return _local(stamps, calendar, name, source).dt.normalize().astype("datetime64[ns]")


def _stamps(values: pd.Series, dates: pd.Series, calendar: Calendar, name: str, source: str) -> pd.Series:
    if pd.api.types.is_datetime64_any_dtype(values):
        stamps = _local(values, calendar, name, source)
    else:
        text = values.map(
            lambda value: "" if value is None or value is pd.NaT or value != value else str(value).strip()
        )
        clock = text.str.fullmatch(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
        full = (dates.dt.strftime("%Y-%m-%d ") + text).where(clock, text)
        stamps = pd.to_datetime(full.where(text != ""), errors="coerce", format="mixed")
        wrong = stamps.isna() & (text != "")
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise OrderError(f"{source}, row {row}: {name} {values.iloc[row]!r} is not a time; write 10:30 or a stamp.")
        if not pd.api.types.is_datetime64_any_dtype(stamps):
            raise OrderError(f"{source}: {name} mixes time zones; write all of it in the session's zone.")
        stamps = _local(stamps, calendar, name, source)
    # A close at midnight lies on the next day's date but ends this session.
    other = stamps.notna() & (stamps.dt.normalize() != dates) & (stamps != dates + pd.Timedelta(days=1))
    if other.any():
        row = int(np.flatnonzero(other)[0])
        raise OrderError(
            f"{source}, row {row}: {name} {stamps.iloc[row]} is not on the order's date {dates.iloc[row]:%Y-%m-%d}; "
            "an order lives within one session."
        )
    return stamps.astype("datetime64[ns]")


def _ids(frame: pd.DataFrame, out: pd.DataFrame, source: str) -> pd.Series:
    made = out["instrument"] + "-" + out["date"].dt.strftime("%Y%m%d") + "-" + out["direction"].str[0]
    count = made.groupby(made).cumcount()
    made = made.where(count == 0, made + "-" + count.astype(str))
    if "order_id" not in frame:
        return made
    given = frame["order_id"].map(lambda value: "" if value is None or value != value else str(value))
    ids = given.where(given != "", made)
    twice = ids[ids.duplicated()]
    if len(twice):
        raise OrderError(f"{source}: order_id {twice.iloc[0]!r} occurs more than once; ids must be unique in a table.")
    return ids


def write_orders(path: str | os.PathLike[str], table: pd.DataFrame, settings: Mapping[str, Any] | None = None) -> None:
    """Write a canonical order table to Parquet, atomically, with the settings that made it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table[COLUMNS], preserve_index=False)
    metadata = {**(arrow.schema.metadata or {}), _SETTINGS: json.dumps(dict(settings or {}), default=str).encode()}
    with atomic_path(path) as temporary:
        pq.write_table(arrow.replace_schema_metadata(metadata), temporary)


def read_orders(
    path: str | os.PathLike[str], calendar: Calendar, *, codes: Mapping[Any, str] | None = None
) -> pd.DataFrame:
    """Read an order table from Parquet or CSV into the canonical form; see `order_table`."""
    path = Path(path)
    if not path.is_file():
        raise OrderError(f"{path} does not exist; give a Parquet or CSV file of orders.")
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(path)
        elif suffix in (".csv", ".gz"):
            text = {"instrument": str, "order_id": str, "direction": str, "date": str, "start": str, "end": str}
            frame = pd.read_csv(
                path, dtype=text, keep_default_na=False, na_values={"amount": [""]}, encoding="utf-8-sig"
            )
        else:
            raise OrderError(f"{path} is neither Parquet nor CSV; convert it to one of them.")
    except OrderError:
        raise
    except Exception as error:
        raise OrderError(f"{path} cannot be read as orders: {error}. Write it again or convert it.") from error
    return order_table(frame, calendar, codes=codes, source=str(path))


def read_order_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings that `write_orders` stored in a Parquet file."""
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    return dict(json.loads(metadata.get(_SETTINGS, b"{}")))
