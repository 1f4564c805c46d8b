"""Order tables: users' own forms in, one canonical form out, Parquet and CSV files."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.moments import order_dates, order_stamps
from rlwb.execution.order import Order, parse_direction
from rlwb.files import atomic_path
from rlwb.market import Calendar
from rlwb.market.readers.content import holds_nul, one_line

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
        orders = [orders] if isinstance(orders, Order) else list(orders)
        odd = next((order for order in orders if not isinstance(order, Order)), None)
        if odd is not None or None in orders:
            raise OrderError(f"{source} hold {odd!r}, which is no Order; give Order values or a table.")
        orders = pd.DataFrame([[getattr(order, name) for name in COLUMNS] for order in orders], columns=COLUMNS)
    frame = orders.reset_index(drop=True)
    frame = frame.rename(columns={name: str(name).strip().lower() for name in frame.columns})
    doubled = sorted(name for name in COLUMNS if list(frame.columns).count(name) > 1)
    if doubled:
        raise OrderError(f"{source} has the columns {doubled} more than once; keep one of each.")
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
    out["date"] = order_dates(frame, calendar, source)
    out["direction"] = [
        _row(source, i, parse_direction, value, codes).name for i, value in enumerate(frame["direction"])
    ]
    out["amount"] = _amounts(frame["amount"])
    bad = ~(np.isfinite(out["amount"]) & (out["amount"] > 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise OrderError(
            f"{source}, row {row}: amount {frame['amount'].tolist()[row]!r} of {out['instrument'].iloc[row]} is not a "
            f"number above 0 ({int(bad.sum())} such rows); the side belongs in the direction."
        )
    for name in ("start", "end"):
        values = frame[name] if name in frame else pd.Series(pd.NaT, index=frame.index)
        out[name] = order_stamps(values, out["date"], calendar, name, source)
    out["order_id"] = _ids(frame, out, source)
    return out[COLUMNS]


def _row(source: str, index: int, parse: Any, *args: Any) -> Any:
    try:
        return parse(*args)
    except OrderError as error:
        raise OrderError(f"{source}, row {index}: {error}") from None


def _instruments(values: pd.Series, source: str) -> pd.Series:
    wrong = [i for i, value in enumerate(values) if not isinstance(value, str) or not value.strip()]
    if wrong:
        raise OrderError(
            f"{source}, row {wrong[0]}: instrument {values.tolist()[wrong[0]]!r} is not text; "
            "quote it, so that ids such as '000001' keep their zeros."
        )
    return pd.Series([str(value) for value in values], index=values.index, dtype=object)


def _amounts(values: pd.Series) -> np.ndarray:
    """Return amounts as float64 of shape ``(N,)``, NaN where the value is not a number."""
    if pd.api.types.is_any_real_numeric_dtype(values.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.array([_amount(value) for value in values.astype(object)], dtype=np.float64)


def _amount(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, str) and "_" in value):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _ids(frame: pd.DataFrame, out: pd.DataFrame, source: str) -> pd.Series:
    made = out["instrument"] + "-" + out["date"].dt.strftime("%Y%m%d") + "-" + out["direction"].str[0]
    count = made.groupby(made).cumcount()
    made = made.where(count == 0, made + "-" + count.astype(str))
    if "order_id" not in frame:
        return made
    given = pd.Series([_id_text(value) for value in frame["order_id"].astype(object)], index=frame.index, dtype=object)
    ids = given.where(given != "", made)
    twice = ids[ids.duplicated()]
    if len(twice):
        raise OrderError(f"{source}: order_id {twice.iloc[0]!r} occurs more than once; ids must be unique in a table.")
    return ids


def _id_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    whole = isinstance(value, float) and value.is_integer()  # whole numbers beside missing ones
    return str(int(value) if whole else value)


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
            if holds_nul(path):
                raise OrderError(f"{path} holds NUL bytes, so it was not written whole; write it again.")
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the header
                frame = pd.read_csv(path, dtype=str, keep_default_na=False, index_col=False, encoding="utf-8-sig")
        else:
            raise OrderError(f"{path} is neither Parquet nor CSV; convert it to one of them.")
    except OrderError:
        raise
    except pd.errors.ParserWarning:
        raise OrderError(f"{path} has rows with more values than its header has columns; correct them.") from None
    except Exception as error:
        raise OrderError(
            f"{path} cannot be read as orders ({one_line(error)}); write it again or convert it."
        ) from error
    return order_table(frame, calendar, codes=codes, source=str(path))


def read_order_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings that `write_orders` stored in a Parquet file."""
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    return dict(json.loads(metadata.get(_SETTINGS, b"{}")))
