"""Aligning orders with a panel: each order's session and the ticks of its window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.order import AlignReport, Order, OrderBatch, order_ids, order_values
from rlwb.execution.prices import check_data, tick_prices
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.table import order_table
from rlwb.market import Sessions

_BLOCK = 4096  # sessions looked at together


def align_orders(
    orders: pd.DataFrame | Order | Iterable[Order],
    sessions: Sessions,
    rules: ExecutionRules | None = None,
    *,
    on_refused: Literal["raise", "drop"] = "raise",
) -> OrderBatch:
    """Find the session and window of each order, and refuse what cannot be executed before anything runs.

    Parameters
    ----------
    orders
        A canonical order table, any table that `order_table` reads, or `Order` values.
    sessions
        The panel. A window that reaches beyond an early close ends there, which is noted.
    rules
        Refuse amounts below one lot; the default rules have no lots.
    on_refused
        ``"raise"`` stops at the first reason found; ``"drop"`` leaves the orders out.

    Returns
    -------
    OrderBatch
        With the reasons and orders that were refused or noted in its `report`.

    Raises
    ------
    OrderError
        Naming the order, the reason and how many orders share it; also when no order is left.
    """
    rules = rules or ExecutionRules()
    calendar = sessions.calendar
    source = order_table(orders, calendar) if isinstance(orders, pd.DataFrame) else _named(order_values(orders))
    columns = _from_table(source) if isinstance(source, pd.DataFrame) else _from_values(source)
    row = sessions.rows(columns.instrument, columns.date)
    length = np.where(row >= 0, sessions.num_ticks[row], 0).astype(np.int64)
    start = np.where(np.isnan(columns.start), 0, calendar.first_ticks(columns.start))
    end = np.where(np.isnan(columns.end), calendar.num_ticks, calendar.end_ticks(columns.end))
    alive = np.ones(len(row), dtype=bool)
    report = AlignReport()

    def refuse(mask: np.ndarray, reason: str) -> None:
        rows = np.flatnonzero(mask & alive)
        if not len(rows):
            return
        alive[rows] = False
        report.refused[reason] = columns.order_id[rows].tolist()
        if on_refused == "raise":
            first = rows[0]
            raise OrderError(
                f"order {columns.order_id[first]} ({columns.instrument[first]}, {columns.date[first]}) cannot be "
                f"executed: {reason} ({len(rows)} such orders); correct it or leave it out."
            )

    def note(mask: np.ndarray, reason: str) -> None:
        rows = np.flatnonzero(mask & alive)
        if len(rows):
            report.noted[reason] = columns.order_id[rows].tolist()

    if (row < 0).any():
        refuse(~pd.Index(columns.instrument).isin(sessions.index.names), "the instrument is not in the data")
        weekday = (columns.date.astype(np.int64) + 3) % 7  # day 0 of datetime64 is a Thursday
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
    priced, volume = _window(sessions, rules, np.where(alive, row, 0), start, end)
    refuse(priced == 0, "its window holds no bar with a price")
    note(late, "the window ends at the early close")
    note(columns.amount > volume, "the amount exceeds the whole volume of its window")
    if not alive.any():
        raise OrderError(f"none of the {len(row)} orders can be executed: {report}.")
    keep = np.flatnonzero(alive)
    session, first, last = (values[keep].astype(np.int32) for values in (row, start, end))
    return OrderBatch(source, keep, session, columns.side[keep], columns.amount[keep], first, last, report)


class _Columns(NamedTuple):
    """Orders as arrays of shape (N,); start and end are seconds since midnight, NaN for the open and the close."""

    order_id: np.ndarray  # object
    instrument: np.ndarray  # object
    date: np.ndarray  # datetime64[D]
    side: np.ndarray  # int8
    amount: np.ndarray  # float64
    start: np.ndarray  # float64
    end: np.ndarray  # float64


def _named(orders: tuple[Order, ...]) -> tuple[Order, ...]:
    """Return the orders, each with an id."""
    ids = order_ids(
        [order.order_id for order in orders],
        [order.instrument for order in orders],
        [order.date for order in orders],
        [order.direction.name for order in orders],
        "orders",
    )
    return tuple(
        order if order.order_id else replace(order, order_id=made) for order, made in zip(orders, ids, strict=True)
    )


def _from_values(orders: tuple[Order, ...]) -> _Columns:
    def seconds(name: str) -> np.ndarray:
        stamps = [(getattr(order, name), order.date) for order in orders]
        return np.array([np.nan if stamp is None else (stamp - date).total_seconds() for stamp, date in stamps])

    return _Columns(
        np.array([order.order_id for order in orders], dtype=object),
        np.array([order.instrument for order in orders], dtype=object),
        np.array([order.date.to_datetime64() for order in orders], dtype="datetime64[D]"),
        np.array([order.direction for order in orders], dtype=np.int8),
        np.array([order.amount for order in orders], dtype=np.float64),
        seconds("start"),
        seconds("end"),
    )


def _from_table(table: pd.DataFrame) -> _Columns:
    return _Columns(
        table["order_id"].to_numpy(dtype=object),
        table["instrument"].to_numpy(dtype=object),
        table["date"].to_numpy().astype("datetime64[D]"),
        np.where(table["direction"] == "BUY", 1, -1).astype(np.int8),
        table["amount"].to_numpy(),
        *((table[name] - table["date"]).dt.total_seconds().to_numpy() for name in ("start", "end")),
    )


def _window(
    sessions: Sessions, rules: ExecutionRules, row: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of priced ticks and the volume of each window, both of shape (N,)."""
    ticks = np.arange(sessions.calendar.num_ticks)
    # Each different window once, in the order of the panel.
    size = len(ticks) + 1
    windows, at = np.unique((row * size + start) * size + end, return_inverse=True)
    priced, volume = np.zeros(len(windows), dtype=np.int64), np.zeros(len(windows))
    for low in range(0, len(windows), _BLOCK):
        block = slice(low, low + _BLOCK)
        inner, stop = np.divmod(windows[block], size)
        rows, begin = np.divmod(inner, size)
        inside = (ticks >= begin[:, None]) & (ticks < stop[:, None])
        price, traded = tick_prices(sessions, rules, rows), sessions.fields["volume"][rows]
        priced[block] = ((price > 0) & (price < np.inf) & inside).sum(axis=1)
        volume[block] = np.where(inside & np.isfinite(traded), traded, 0.0).sum(axis=1)
    return priced[at], volume[at]
