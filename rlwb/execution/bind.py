"""From an order table to arrays bound to the sessions of a panel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.order import Order, OrderBatch
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.table import order_table
from rlwb.market import Sessions

_DAY = pd.Timedelta(days=1)


@dataclass
class BindReport:
    """What binding found.

    Attributes
    ----------
    refused, noted
        Reason to the rows of the table that it concerns; a refused order is not in the batch.
    """

    refused: dict[str, np.ndarray] = field(default_factory=dict)
    noted: dict[str, np.ndarray] = field(default_factory=dict)

    def as_text(self, table: pd.DataFrame) -> str:
        """Return one line a reason: its count and its first order."""
        lines = []
        for kind, reasons in (("refused", self.refused), ("noted", self.noted)):
            for reason, rows in reasons.items():
                lines.append(f"{kind} {len(rows)}: {reason}; first {table['order_id'].iloc[rows[0]]}")
        return "\n".join(lines)


def bind_orders(
    orders: pd.DataFrame | Iterable[Order],
    sessions: Sessions,
    rules: ExecutionRules | None = None,
    *,
    on_refused: Literal["raise", "drop"] = "raise",
    report: BindReport | None = None,
) -> OrderBatch:
    """Bind orders to sessions and refuse what cannot be executed, before anything runs.

    Parameters
    ----------
    orders
        A canonical order table, any table that `order_table` reads, or `Order` values.
    sessions
        The panel. A window that reaches beyond an early close ends there, which the report notes.
    rules
        Refuse amounts below one lot; the default rules have no lots.
    on_refused
        ``"raise"`` stops at the first reason found; ``"drop"`` leaves the orders out and reports them.
    report
        Filled with the reasons and rows.

    Raises
    ------
    OrderError
        Naming the order, the reason and how many orders share it; also when no order is left.
    """
    rules = rules or ExecutionRules()
    report = report if report is not None else BindReport()
    table = order_table(orders, sessions.calendar)
    calendar = sessions.calendar
    keys = pd.MultiIndex.from_arrays([pd.Index(sessions.instruments.astype(str)), pd.DatetimeIndex(sessions.dates)])
    row = keys.get_indexer(pd.MultiIndex.from_arrays([table["instrument"], table["date"]]))
    length = np.where(row >= 0, sessions.num_ticks[row], 0).astype(np.int64)
    start = _ticks(table, "start", calendar.first_tick, 0)
    end = _ticks(table, "end", calendar.end_tick, calendar.num_ticks)
    amount = table["amount"].to_numpy()

    alive = np.ones(len(table), dtype=bool)

    def refuse(mask: np.ndarray, reason: str) -> None:
        rows = np.flatnonzero(mask & alive)
        if not len(rows):
            return
        alive[rows] = False
        report.refused[reason] = rows
        if on_refused == "raise":
            order = table.iloc[rows[0]]
            raise OrderError(
                f"order {order['order_id']} ({order['instrument']}, {order['date']:%Y-%m-%d}) cannot be executed: "
                f"{reason} ({len(rows)} such orders); correct it or leave it out."
            )

    known = set(sessions.instruments.tolist())
    both = table["start"].notna() & table["end"].notna()
    refuse(~table["instrument"].isin(known).to_numpy(), "the instrument is not in the data")
    weekday = table["date"].dt.weekday.to_numpy()
    refuse((row < 0) & ~np.isin(weekday, calendar.weekdays), "the date is not a trading weekday")
    refuse(row < 0, "the data hold no session on that date")
    refuse((both & (table["start"] >= table["end"])).to_numpy(), "its end is not after its start")
    refuse(start >= length, "it starts at or after the session's close")
    late = alive & table["end"].notna().to_numpy() & (end > length)
    end = np.minimum(end, length)
    refuse(start >= end, "its window holds no tick of the session")
    if rules.lot_size:
        refuse(amount < rules.lot_size * (1 - 1e-9), f"its amount is below one lot of {rules.lot_size:g}")
    price = sessions.fields[rules.price_field]
    priced, traded = _window(price, sessions.fields["volume"], np.where(alive, row, 0), start, end)
    refuse(priced == 0, "its window holds no bar with a price")
    if late.any():
        report.noted["the window ends at the early close"] = np.flatnonzero(late & alive)
    large = alive & (amount > traded)
    if large.any():
        report.noted["the amount exceeds the whole volume of its window"] = np.flatnonzero(large)
    if not alive.any():
        raise OrderError(f"none of the {len(table)} orders can be executed: {report.as_text(table)}.")
    keep = np.flatnonzero(alive)
    side = np.where(table["direction"].to_numpy()[keep] == "BUY", 1, -1).astype(np.int8)
    return OrderBatch(
        table,
        keep,
        row[keep].astype(np.int32),
        side,
        amount[keep],
        start[keep].astype(np.int32),
        end[keep].astype(np.int32),
    )


def _ticks(table: pd.DataFrame, name: str, tick_of: Callable[[pd.Timestamp], int], default: int) -> np.ndarray:
    """Look each distinct time of day up once; midnight after the session is its close."""
    offsets = table[name] - table["date"]
    ticks = {offset: tick_of(pd.Timestamp(0) + offset) for offset in offsets.dropna().unique() if offset < _DAY}
    return np.array([ticks.get(offset, default) for offset in offsets], dtype=np.int64)


def _window(
    price: np.ndarray, volume: np.ndarray, row: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of priced ticks and the volume of each window, both of shape (N,)."""
    priced, traded = np.zeros(len(row), dtype=np.int64), np.zeros(len(row))
    ticks = np.arange(price.shape[1])
    for low in range(0, len(row), 4096):
        part = slice(low, low + 4096)
        inside = (ticks >= start[part, None]) & (ticks < end[part, None])
        p, v = price[row[part]], volume[row[part]]
        priced[part] = ((p > 0) & np.isfinite(p) & inside).sum(axis=1)
        traded[part] = np.where(inside & np.isfinite(v), v, 0.0).sum(axis=1)
    return priced, traded
