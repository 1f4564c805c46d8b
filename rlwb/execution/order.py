"""Orders: one as a value, and many as arrays that are aligned with a panel."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property, partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.batch import Rows
from rlwb.errors import ConfigError, OrderError
from rlwb.market.calendar import day_of, seconds_of


class Direction(IntEnum):
    """The side of an order; the value is the sign of what it adds to the holdings."""

    BUY = 1
    SELL = -1


#: Columns of a canonical order table, which are the fields of an `Order`, with their types.
COLUMNS = {
    "order_id": "O",
    "instrument": "O",
    "date": "M8[ns]",
    "direction": "O",
    "amount": "f8",
    "start": "M8[ns]",
    "end": "M8[ns]",
}


class Form(NamedTuple):
    """An optional column of order tables: its type, which of its numbers fit, and what is asked for in words."""

    dtype: str
    fits: Callable[[Any], Any]
    wanted: str


_ABOVE_0 = Form("f8", lambda value: (value > 0) & (value < np.inf), "a number above 0")
_SHARE = Form("f8", lambda value: (value > 0) & (value <= 1), "a share in (0, 1]")
#: Optional columns of a canonical order table and fields of an `Order`; a table has those that some order states.
FORMS = {
    "limit_price": _ABOVE_0,
    "would_price": _ABOVE_0,
    "min_participation": _SHARE,
    "max_participation": _SHARE,
    "latest_end": Form("M8[ns]", lambda value: value == value, "a time"),
    "notional": _ABOVE_0,
    "aversion": Form("f8", lambda value: (value >= 0) & (value < np.inf), "a finite number of 0 or more"),
    "decision_price": _ABOVE_0,
}
#: Those that what fills an order must honour; the others are settled when orders are aligned, or only carried.
FORMS_OF_FILLS = frozenset(("limit_price", "would_price", "min_participation", "max_participation", "latest_end"))
_SIDES = {"BUY": Direction.BUY, "B": Direction.BUY, "SELL": Direction.SELL, "S": Direction.SELL}
_SIGNS = {"1": "BUY", "+1": "BUY", "-1": "SELL"}
_DAY = pd.Timedelta(days=1)


def parse_direction(value: Any, codes: Mapping[Any, str] | None = None) -> Direction:
    """Read a direction from ``buy/sell``, ``B/S`` (any case) or ``+1/-1``; anything else is an OrderError.

    Parameters
    ----------
    value
        A cell of a table.
    codes
        The table's own codes, for example ``{0: "SELL", 1: "BUY"}``. They replace ``+1/-1``, so that 0 and 1 are
        never guessed.
    """
    if isinstance(value, Direction):
        return value
    named = {text_of(code).upper(): side for code, side in (_SIGNS if codes is None else codes).items()}
    text = text_of(value).upper()
    side = named.get(text, text if isinstance(value, str) else "")
    if side.strip().upper() not in _SIDES:
        raise OrderError(
            f"direction {value!r} is not BUY or SELL (also B/S, +1/-1); other codes must be named, "
            'for example codes={0: "SELL", 1: "BUY"}.'
        )
    return _SIDES[side.strip().upper()]


def text_of(value: Any) -> str:
    """Return a cell of a table as text: "" where it is missing, and "7" for each of 7, 7.0 and " 7"."""
    if isinstance(value, str):
        return value.strip()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if whole else value)


@dataclass(frozen=True, repr=False)
class Order:
    """An amount of one instrument to buy or sell within one session.

    Attributes
    ----------
    instrument, date
        The session. A date is a stamp or text ("2024-03-01"); its time of day is dropped.
    direction
        A `Direction`, or what `parse_direction` reads.
    amount
        Above 0, in the units of the volume; None if there is a notional.
    start, end
        The window ``[start, end)``, session-local: stamps or times of the day ("10:30"); None is the open or close.
    order_id
        Unique among orders that are executed together; made from the other fields there if it is empty.
    limit_price
        Worst price that may fill: nothing is bought above it or sold below it.
    would_price
        Price at which, or at a better one, all that is left is asked for at once.
    min_participation, max_participation
        Least share of a tick's volume that is asked for, and most that is filled, in (0, 1].
    latest_end
        Until when what is open at the end may go on; None is the end.
    notional
        Amount in currency, converted at the arrival price when the order is aligned.
    aversion
        Risk aversion, 0 or more, the weight of the variance per basis point: policies see it, the engine does not use
        it. None leaves it to them; those with a dial take 0.
    decision_price
        Price when the order was decided on, from which its cost counts (`rlwb.execution.attribution`); None is the
        arrival price.

    Raises
    ------
    OrderError
        Naming the field and value at fault.
    """

    instrument: str
    date: pd.Timestamp
    direction: Direction
    amount: float | None = None
    start: pd.Timestamp | None = None
    end: pd.Timestamp | None = None
    order_id: str = ""
    limit_price: float | None = None
    would_price: float | None = None
    min_participation: float | None = None
    max_participation: float | None = None
    latest_end: pd.Timestamp | None = None
    notional: float | None = None
    aversion: float | None = None
    decision_price: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.instrument, str) or not self.instrument.strip():
            raise OrderError(f"instrument {self.instrument!r} is not text; quote it, so that 000001 keeps its zeros.")
        for name in ("date", "start", "end", "latest_end"):
            object.__setattr__(self, name, self._stamp(name, getattr(self, name)))
        object.__setattr__(self, "direction", parse_direction(self.direction))
        for name, form in {**FORMS, "amount": _ABOVE_0}.items():
            value: Any = getattr(self, name)
            if value is None or (value != value and name in FORMS):
                object.__setattr__(self, name, None)
            elif form.dtype == "f8":
                if isinstance(value, bool) or not isinstance(value, Real) or not form.fits(value):
                    raise OrderError(f"{name} {value!r} of {self.instrument} is not {form.wanted}.")
                object.__setattr__(self, name, float(value))
        if self.amount is None and self.notional is None:
            raise OrderError(f"amount None of {self.instrument} is not a number above 0; give it or a notional.")
        if self.min_participation and self.max_participation and self.min_participation > self.max_participation:
            raise OrderError(
                f"min_participation {self.min_participation:g} of {self.instrument} is above its max_participation "
                f"{self.max_participation:g}."
            )

    def _stamp(self, name: str, value: Any) -> pd.Timestamp | None:
        if name != "date" and (value is None or pd.isna(value)):
            return None
        if getattr(value, "tzinfo", None) is not None:
            raise OrderError(
                f"{name} {value} of {self.instrument} carries the time zone {value.tzinfo}; give session-local stamps, "
                "for example stamp.tz_convert('Asia/Shanghai').tz_localize(None)."
            )
        try:
            if name == "date":
                return pd.Timestamp(day_of(value))
            is_time = re.fullmatch(r"[\d:]{4,8}", str(value))  # "10:30" or datetime.time
            stamp = self.date + pd.Timedelta(seconds=seconds_of(value)) if is_time else pd.Timestamp(value)
        except (TypeError, ValueError, ConfigError):
            raise OrderError(
                f"{name} {value!r} of {self.instrument} cannot be read; write a pandas.Timestamp."
            ) from None
        if not self.date <= stamp <= self.date + _DAY:
            raise OrderError(f"{name} {stamp} of {self.instrument} is not on the order's date {self.date:%Y-%m-%d}.")
        return stamp

    def __str__(self) -> str:
        name, side = self.order_id or "(no id)", self.direction.name
        size = f"for {self.notional:,.12g}" if self.amount is None else f"{self.amount:,.12g}"
        return f"order {name}: {side} {size} {self.instrument} on {self.date:%Y-%m-%d}"

    def __repr__(self) -> str:
        start, end = ("" if stamp is None else f"{stamp:%H:%M:%S}" for stamp in (self.start, self.end))
        stated = {name: getattr(self, name) for name in FORMS}
        texts = [
            f", {name} {value:{'g' if FORMS[name].dtype == 'f8' else '%H:%M:%S'}}"
            for name, value in stated.items()
            if value is not None
        ]
        return f"<{self}, {start or 'open'} to {end or 'close'}{''.join(texts)}>"

    def _repr_html_(self) -> str:
        return pd.DataFrame(columns_of([self])).to_html(index=False)


def columns_of(orders: Sequence[Order]) -> dict[str, np.ndarray]:
    """Return the columns of a canonical order table, forms only if some order states them; ids are as they are."""
    columns = {name: np.array([getattr(order, name) for order in orders], kind) for name, kind in COLUMNS.items()}
    columns["direction"] = np.array([order.direction.name for order in orders], dtype=object)
    stated = {name: [getattr(order, name) for order in orders] for name in FORMS}
    columns |= {name: np.array(v, FORMS[name].dtype) for name, v in stated.items() if any(x is not None for x in v)}
    return columns


@dataclass(frozen=True, eq=False, repr=False)
class OrderBatch(Rows, Sequence[Order]):
    """N orders as arrays, aligned with the sessions of one panel.

    Attributes
    ----------
    source
        Columns of the canonical order table that the batch was made from.
    row : int64 of shape (N,)
        Row of each order in `source`.
    session : int32 of shape (N,)
        Row of the order's session in the panel.
    side : int8 of shape (N,)
        +1 buy, -1 sell.
    amount : float64 of shape (N,)
        In the units of the volume.
    start, end : int32 of shape (N,)
        Ticks of the window ``[start, end)``, which schedules and benchmarks go by.
    latest_end : int32 of shape (N,)
        Tick until which what is open at the end goes on; the end where an order states none.
    refused, noted
        Reason to the ids of the orders of `source` that were left out for it, or are only remarkable for it.
    """

    source: Mapping[str, np.ndarray]
    row: np.ndarray
    session: np.ndarray
    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray
    refused: Mapping[str, list[str]] = field(default_factory=dict)
    noted: Mapping[str, list[str]] = field(default_factory=dict)
    latest_end: np.ndarray = field(default_factory=partial(np.empty, 0, np.int32))

    def __post_init__(self) -> None:
        if len(self.latest_end) < len(self.end):
            object.__setattr__(self, "latest_end", self.end)

    def __len__(self) -> int:
        return len(self.session)

    def __getitem__(self, index: Any) -> Any:
        """Return one `Order` for an integer, an `OrderBatch` for a slice or an index array."""
        if isinstance(index, (int, np.integer)):
            row = int(self.row[index])
            return Order(**{name: values[row] for name, values in self.source.items()})
        arrays = ("row", "session", "side", "amount", "start", "end", "latest_end")
        return replace(self, **{name: getattr(self, name)[index] for name in arrays})

    def __iter__(self) -> Iterator[Order]:
        return (self[i] for i in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: of the table only the rows of the batch's orders, so that a part travels alone."""
        rows, row = np.unique(self.row, return_inverse=True)
        source = {name: values[rows] for name, values in self.source.items()}
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "source": source, "row": row}

    @cached_property
    def forms(self) -> dict[str, np.ndarray]:
        """Numbers of the optional columns that the table has, float64 of shape (N,) each; NaN where none is stated."""
        numbers = (name for name, form in FORMS.items() if form.dtype == "f8" and name in self.source)
        return {name: np.asarray(self.source[name])[self.row] for name in numbers}

    @property
    def table(self) -> pd.DataFrame:
        """The orders as a canonical table, one row an order in the batch's sequence."""
        return pd.DataFrame({name: values[self.row] for name, values in self.source.items()})

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the orders in their sequence, and of the ticks that they may trade in."""
        digest = hashlib.blake2b(digest_size=16)
        for column in self.table.items():
            digest.update(repr(column[0]).encode() + pd.util.hash_array(column[1].to_numpy()).tobytes())
        ends = [self.end, self.latest_end] if "latest_end" in self.source else [self.end]
        digest.update(np.stack([self.start, *ends]).astype("<i8").tobytes())
        return digest.hexdigest()

    def label(self, index: int) -> str:
        """Return a short text that names order `index` in an error."""
        return str(self[int(index)])

    def __repr__(self) -> str:
        if not len(self):
            return "OrderBatch(0 orders)"
        table = self.table
        days, count = table["date"], table[["date", "instrument"]].nunique()
        return (
            f"OrderBatch({len(self):,} orders, {count['date']:,} days, {count['instrument']:,} instruments, "
            f"{days.min():%Y-%m-%d} to {days.max():%Y-%m-%d})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{self!r}; the first of them:</p>{self[:5].table.to_html(index=False)}"
