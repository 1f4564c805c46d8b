"""From an order table to arrays bound to the sessions of a panel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.order import Direction, Order, OrderBatch
from rlwb.execution.prices import check_data, tick_prices
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
        Reason to the ids of the orders that it concerns; a refused order is not in the batch.
    """

    refused: dict[str, list[str]] = field(default_factory=dict)
    noted: dict[str, list[str]] = field(default_factory=dict)

    def as_text(self) -> str:
        """Return one line a reason: its count and its first order."""
        lines = []
        for kind, reasons in (("refused", self.refused), ("noted", self.noted)):
            lines += [f"{kind} {len(ids)}: {reason}; first {ids[0]}" for reason, ids in reasons.items()]
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
    calendar = sessions.calendar
    if not isinstance(orders, pd.DataFrame):
        orders = (orders,) if isinstance(orders, Order) else tuple(orders)
    columns = _from_orders(orders) if isinstance(orders, tuple) and _are_complete(orders) else None
    if columns is None:
        orders = order_table(orders, calendar)
        columns = _from_table(orders)
    row = sessions.rows(columns.instrument, columns.date)
    length = np.where(row >= 0, sessions.num_ticks[row], 0).astype(np.int64)
    start = _ticks(columns.start, calendar.first_ticks, 0)
    end = _ticks(columns.end, calendar.end_ticks, calendar.num_ticks)
    alive = np.ones(len(row), dtype=bool)

    def refuse(mask: np.ndarray, reason: str) -> None:
        rows = np.flatnonzero(mask & alive)
        if not len(rows):
            return
        alive[rows] = False
        report.refused[reason] = [columns.order_id[i] for i in rows]
        if on_refused == "raise":
            i = rows[0]
            raise OrderError(
                f"order {columns.order_id[i]} ({columns.instrument[i]}, {columns.date[i]}) cannot be executed: "
                f"{reason} ({len(rows)} such orders); correct it or leave it out."
            )

    def note(mask: np.ndarray, reason: str) -> None:
        rows = np.flatnonzero(mask & alive)
        if len(rows):
            report.noted[reason] = [columns.order_id[i] for i in rows]

    if (row < 0).any():
        known = set(sessions.instruments.tolist())
        refuse(np.array([name not in known for name in columns.instrument]), "the instrument is not in the data")
        # Day 0 of datetime64 is a Thursday.
        weekday = (columns.date.astype(np.int64) + 3) % 7
        refuse((row < 0) & ~np.isin(weekday, calendar.weekdays), "the date is not a trading weekday")
        refuse(row < 0, "the data hold no session on that date")
    refuse(columns.start >= columns.end, "its end is not after its start")
    refuse(start >= length, "it starts at or after the session's close")
    late = ~np.isnan(columns.end) & (end > length)
    end = np.minimum(end, length)
    refuse(start >= end, "its window holds no tick of the session")
    if rules.lot_size:
        refuse(columns.amount < rules.lot_size * (1 - 1e-9), f"its amount is below one lot of {rules.lot_size:g}")
    check_data(rules, sessions)
    priced, traded = _window(sessions, rules, np.where(alive, row, 0), start, end)
    refuse(priced == 0, "its window holds no bar with a price")
    note(late, "the window ends at the early close")
    note(columns.amount > traded, "the amount exceeds the whole volume of its window")
    if not alive.any():
        raise OrderError(f"none of the {len(row)} orders can be executed: {report.as_text()}.")
    keep = np.flatnonzero(alive)
    ticks = (values[keep].astype(np.int32) for values in (row, start, end))
    session, first, last = ticks
    return OrderBatch(orders, keep, session, columns.side[keep], columns.amount[keep], first, last)


class _Columns(NamedTuple):
    """Orders as columns; start and end are seconds since midnight, NaN for the session's open and close."""

    order_id: list[str]
    instrument: list[str]
    date: np.ndarray
    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray


def _are_complete(orders: tuple[Order, ...]) -> bool:
    """Tell whether the orders are in canonical form already; others go through `order_table`, with its refusals."""
    return bool(orders) and all(map(_is_complete, orders)) and len({o.order_id for o in orders}) == len(orders)


def _is_complete(order: Order) -> bool:
    stamps = (stamp for stamp in (order.start, order.end) if stamp is not None)
    return (
        isinstance(order, Order)
        and isinstance(order.instrument, str)
        and bool(order.instrument and order.order_id)
        and isinstance(order.date, pd.Timestamp)
        and order.date.tz is None
        and order.date == order.date.normalize()
        and isinstance(order.direction, Direction)
        and isinstance(order.amount, float)
        and 0 < order.amount < np.inf
        and all(isinstance(stamp, pd.Timestamp) and stamp.tz is None for stamp in stamps)
        and all(order.date <= stamp <= order.date + _DAY for stamp in (order.start, order.end) if stamp is not None)
    )


def _from_orders(orders: tuple[Order, ...]) -> _Columns:
    def seconds(stamp: pd.Timestamp | None, date: pd.Timestamp) -> float:
        return np.nan if stamp is None else (stamp - date).total_seconds()

    return _Columns(
        [order.order_id for order in orders],
        [order.instrument for order in orders],
        np.array([order.date.to_datetime64() for order in orders], dtype="datetime64[D]"),
        np.array([int(order.direction) for order in orders], dtype=np.int8),
        np.array([order.amount for order in orders], dtype=np.float64),
        np.array([seconds(order.start, order.date) for order in orders]),
        np.array([seconds(order.end, order.date) for order in orders]),
    )


def _from_table(table: pd.DataFrame) -> _Columns:
    return _Columns(
        table["order_id"].tolist(),
        table["instrument"].tolist(),
        table["date"].to_numpy().astype("datetime64[D]"),
        np.where(table["direction"] == "BUY", 1, -1).astype(np.int8),
        table["amount"].to_numpy(),
        *((table[name] - table["date"]).dt.total_seconds().to_numpy() for name in ("start", "end")),
    )


def _ticks(seconds: np.ndarray, ticks_at: Callable[[np.ndarray], np.ndarray], default: int) -> np.ndarray:
    """Return the tick of each time of day, `default` where there is none."""
    given = ~np.isnan(seconds)
    out = np.full(len(seconds), default, dtype=np.int64)
    out[given] = ticks_at(seconds[given])
    return out


def _window(
    sessions: Sessions, rules: ExecutionRules, row: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of priced ticks and the volume of each window, both of shape (N,)."""
    priced, traded = np.zeros(len(row), dtype=np.int64), np.zeros(len(row))
    ticks = np.arange(sessions.calendar.num_ticks)
    order = np.argsort(row, kind="stable")  # as the rows lie, so that a mapped panel is read once
    for low in range(0, len(row), 4096):
        part = order[low : low + 4096]
        inside = (ticks >= start[part, None]) & (ticks < end[part, None])
        p, v = tick_prices(sessions, rules, row[part]), sessions.fields["volume"][row[part]]
        priced[part] = ((p > 0) & np.isfinite(p) & inside).sum(axis=1)
        traded[part] = np.where(inside & np.isfinite(v), v, 0.0).sum(axis=1)
    return priced, traded
