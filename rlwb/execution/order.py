"""Orders: one as a value, many as a table, many as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.rows import Rows


class Direction(IntEnum):
    """The side of an order; the value is the sign of what it adds to the holdings."""

    BUY = 1
    SELL = -1


_FIELDS = ["order_id", "instrument", "date", "direction", "amount", "start", "end"]
_TEXT = {"BUY": Direction.BUY, "B": Direction.BUY, "SELL": Direction.SELL, "S": Direction.SELL}


def parse_direction(value: Any, codes: Mapping[Any, str] | None = None) -> Direction:
    """Read a direction from ``buy/sell``, ``B/S`` (any case) or ``+1/-1``.

    Parameters
    ----------
    value
        What the table holds.
    codes
        Own codes to ``"BUY"`` or ``"SELL"``, for example ``{0: "SELL", 1: "BUY"}``. They replace the
        numeric convention, so that 0 and 1 are never guessed.

    Raises
    ------
    OrderError
        For a value that is none of these.
    """
    if isinstance(value, Direction):
        return value
    if codes is not None:
        value = {_code(key): side for key, side in codes.items()}.get(_code(value), value)
    text = str(value).strip().upper()
    if isinstance(value, str) and text in _TEXT:
        return _TEXT[text]
    if codes is None and not isinstance(value, (bool, np.bool_)) and _code(value) in ("1", "+1", "-1"):
        return Direction(int(_code(value)))
    raise OrderError(
        f"direction {value!r} is not BUY or SELL (also B/S, +1/-1); other codes must be named, "
        'for example codes={0: "SELL", 1: "BUY"}.'
    )


def _code(value: Any) -> str:
    """Return a code as text, so that 0, 0.0 and a file's "0" are the same one."""
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if whole else value).strip().upper()


@dataclass(frozen=True)
class Order:
    """One amount of one instrument to trade within one session.

    Attributes
    ----------
    instrument, date
        The session that the order belongs to.
    direction, amount
        Side, and how much in the units of the volume; above 0.
    start, end
        The window ``[start, end)`` in session-local time; None means the session's open or close.
    order_id
        Unique in its table; made from the other fields when empty.
    """

    instrument: str
    date: pd.Timestamp
    direction: Direction
    amount: float
    start: pd.Timestamp | None = None
    end: pd.Timestamp | None = None
    order_id: str = ""

    def __str__(self) -> str:
        side = Direction(self.direction).name
        return f"order {self.order_id or '(no id)'}: {side} {self.amount:g} {self.instrument} on {self.date:%Y-%m-%d}"


@dataclass(frozen=True, eq=False)
class OrderBatch(Rows, Sequence[Order]):
    """N orders as arrays, bound to the sessions of one panel.

    Attributes
    ----------
    source
        What the batch was bound from: a canonical order table, or the orders.
    row : int64 of shape (N,)
        Row of each order in `source`.
    session : int32 of shape (N,)
        Row of the order's session in the panel.
    side : int8 of shape (N,)
        +1 buy, -1 sell.
    amount : float64 of shape (N,)
    start, end : int32 of shape (N,)
        Ticks of the window ``[start, end)``.
    """

    source: pd.DataFrame | tuple[Order, ...]
    row: np.ndarray
    session: np.ndarray
    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.session)

    def __getitem__(self, index: Any) -> Any:
        """Return one `Order` for an integer, an `OrderBatch` for a slice or an index array."""
        if isinstance(index, (int, np.integer)):
            row = int(self.row[index])
            if isinstance(self.source, tuple):
                return self.source[row]
            values = {name: self.source[name].iat[row] for name in _FIELDS}
            values["direction"] = parse_direction(values["direction"])
            values |= {name: None for name in ("start", "end") if values[name] is pd.NaT}
            return Order(**{**values, "amount": float(values["amount"])})
        arrays = (self.row, self.session, self.side, self.amount, self.start, self.end)
        return OrderBatch(self.source, *(array[index] for array in arrays))

    def __iter__(self) -> Iterator[Order]:
        return (self[i] for i in range(len(self)))

    @property
    def table(self) -> pd.DataFrame:
        """The orders as a table, one row an order in the batch's sequence."""
        if not isinstance(self.source, tuple):
            return self.source.iloc[self.row].reset_index(drop=True)
        orders = [self.source[row] for row in self.row]
        table = pd.DataFrame([[getattr(order, name) for name in _FIELDS] for order in orders], columns=_FIELDS)
        stamps = {name: pd.to_datetime(table[name]).astype("datetime64[ns]") for name in ("date", "start", "end")}
        return table.assign(direction=[order.direction.name for order in orders], **stamps)

    def label(self, index: int) -> str:
        """Return a short text that names order `index` in an error."""
        return str(self[int(index)])
