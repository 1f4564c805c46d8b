"""Aligning orders with a panel: each order's session and the ticks of its window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.order import Direction, Order, OrderBatch
from rlwb.execution.prices import check_data, tick_prices
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.table import order_ids, order_table, order_values
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
        With the reasons and orders that were refused or noted in its `refused` and `noted`.

    Raises
    ------
    OrderError
        Naming the order, the reason and how many orders share it; also when no order is left.
    """
    rules = rules or ExecutionRules()
    calendar = sessions.calendar
    source: pd.DataFrame | tuple[Order, ...]
    source = order_table(orders, calendar) if isinstance(orders, pd.DataFrame) else order_values(orders)

    def column(name: str, dtype: str) -> np.ndarray:
        values = source[name] if isinstance(source, pd.DataFrame) else [getattr(order, name) for order in source]
        return np.array(values, dtype=dtype)

    instrument, date, amount = column("instrument", "O"), column("date", "M8[ns]"), column("amount", "f8")
    direction = column("direction", "O")
    buy = (direction == "BUY") | (direction == Direction.BUY)
    order_id = column("order_id", "O")
    if isinstance(source, tuple):
        order_id = order_ids(order_id, instrument, date, buy)
        named = zip(source, order_id, strict=True)
        source = tuple(order if order.order_id else replace(order, order_id=name) for order, name in named)
    opens, closes = ((column(name, "M8[ns]") - date) / np.timedelta64(1, "s") for name in ("start", "end"))
    date = date.astype("M8[D]")
    row = sessions.rows(instrument, date)
    length = np.where(row >= 0, sessions.num_ticks[row], 0).astype(np.int64)
    start = np.where(np.isnan(opens), 0, calendar.first_ticks(opens))
    end = np.where(np.isnan(closes), calendar.num_ticks, calendar.end_ticks(closes))
    alive = np.ones(len(row), dtype=bool)
    refused: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}

    def note(mask: np.ndarray, reason: str, found: dict[str, list[str]] = noted) -> np.ndarray:
        rows = np.flatnonzero(mask & alive)
        if len(rows):
            found[reason] = order_id[rows].tolist()
        return rows

    def refuse(mask: np.ndarray, reason: str) -> None:
        rows = note(mask, reason, refused)
        if len(rows) and on_refused == "raise":
            raise OrderError(
                f"order {order_id[rows[0]]} ({instrument[rows[0]]}, {date[rows[0]]}) cannot be executed: "
                f"{reason} ({len(rows)} such orders); correct it or leave it out."
            )
        alive[rows] = False

    if (row < 0).any():
        refuse(~pd.Index(instrument).isin(sessions.index.names), "the instrument is not in the data")
        weekday = (date.astype(np.int64) + 3) % 7  # day 0 of datetime64 is a Thursday
        refuse((row < 0) & ~np.isin(weekday, calendar.weekdays), "the date is not a trading weekday")
        refuse(row < 0, "the data hold no session on that date")
    refuse(opens >= closes, "its end is not after its start")
    refuse(start >= length, "it starts at or after the session's close")
    late = ~np.isnan(closes) & (end > length)
    end = np.minimum(end, length)
    refuse(start >= end, "its window holds no tick of the session")
    if rules.lot_size:
        refuse(amount < rules.lot_size * (1 - 1e-9), f"its amount is below one lot of {rules.lot_size:g}")
    check_data(rules, sessions)
    priced, volume = _window(sessions, rules, np.where(alive, row, 0), start, end)
    refuse(priced == 0, "its window holds no bar with a price")
    note(late, "the window ends at the early close")
    note(amount > volume, "the amount exceeds the whole volume of its window")
    if not alive.any():
        reasons = "; ".join(f"{reason} ({len(ids)}, first {ids[0]})" for reason, ids in refused.items())
        raise OrderError(f"none of the {len(row)} orders can be executed: {reasons}.")
    keep = np.flatnonzero(alive)
    session, first, last = (values[keep].astype(np.int32) for values in (row, start, end))
    side = np.where(buy, 1, -1).astype(np.int8)
    return OrderBatch(source, keep, session, side[keep], amount[keep], first, last, refused, noted)


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
