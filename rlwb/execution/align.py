"""Aligning orders with a panel: each order's session and the ticks of its window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.kernel import TOLERANCE, arrival_prices, window_prices
from rlwb.execution.order import COLUMNS, FORMS_OF_FILLS, Order, OrderBatch
from rlwb.execution.rules import ExecutionRules, check_data, outer_fields, tick_prices
from rlwb.execution.table import MOST_TOLD, order_columns
from rlwb.market import Calendar, Sessions

_BLOCK = 4096  # orders looked at together


def align_orders(
    orders: pd.DataFrame | Order | Iterable[Order],
    sessions: Sessions,
    rules: ExecutionRules | None = None,
    *,
    on_refused: Literal["raise", "drop"] = "raise",
    forms: Collection[str] = FORMS_OF_FILLS,
) -> OrderBatch:
    """Find the session and window of each order, and refuse what cannot be executed before anything runs.

    Parameters
    ----------
    orders
        A table that `order_table` reads, or `Order` values.
    sessions
        The panel. A window that reaches beyond an early close ends there, which is noted.
    rules
        Refuse amounts below one lot; the default rules have no lots.
    on_refused
        ``"raise"`` refuses them all; ``"drop"`` leaves the orders out, as `OrderBatch.refused` says.
    forms
        Order forms that what fills the orders honours (`Simulator.forms`); orders that state another are refused.

    Raises
    ------
    OrderError
        Naming the first ten orders with their reasons and the number of the others; also when no order is left.
    """
    rules = rules or ExecutionRules()
    calendar = sessions.calendar
    columns = order_columns(orders, calendar)
    order_id, instrument, date, direction, amount, first, last = (columns[name] for name in COLUMNS)
    start, end, latest = window_ticks(columns, calendar)
    date = date.astype("M8[D]")
    row = sessions.rows(instrument, date)
    length = np.where(row >= 0, sessions.num_ticks[row], 0).astype(np.int64)
    alive = np.ones(len(row), dtype=bool)
    refused: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}

    def note(mask: np.ndarray, reason: str, found: dict[str, list[str]] = noted) -> np.ndarray:
        rows = np.flatnonzero(mask & alive)
        if len(rows):
            found[reason] = order_id[rows].tolist()
        return rows

    def refuse(mask: np.ndarray, reason: str) -> None:
        alive[note(mask, reason, refused)] = False

    if (row < 0).any():
        refuse(~pd.Index(instrument).isin(sessions.index.names), "the instrument is not in the data")
        weekday = (date.astype(np.int64) + 3) % 7  # day 0 of datetime64 is a Thursday
        refuse((row < 0) & ~np.isin(weekday, calendar.weekdays), "the date is not a trading weekday")
        refuse(row < 0, "the data hold no session on that date")
    refuse(first >= last, "its end is not after its start")
    for name in sorted(FORMS_OF_FILLS.difference(forms) & columns.keys()):
        refuse(~pd.isna(columns[name]), f"the simulator does not honour its {name}")
    refuse(start >= length, "it starts at or after the session's close")
    refuse(latest < end, "its latest_end is before its end")
    late = ~np.isnat(last) & (latest > length)
    end, latest = np.minimum(end, length), np.minimum(latest, length)
    refuse(start >= end, "its window holds no tick of the session")
    check_data(rules, sessions)
    twap, vwap, volume = _window(sessions, rules, np.where(alive, row, 0), start, end)
    refuse(np.isnan(twap), "its window holds no bar with a price")
    if rules.benchmark == "vwap":
        refuse(np.isnan(vwap), "its window holds no volume, and so no VWAP as its benchmark")
    if (alive & ~np.isnan(columns.get("notional", np.nan))).any():
        amount = amount.copy()
        rows = np.flatnonzero(alive & ~np.isnan(columns["notional"]))
        rows = rows[np.argsort(row[rows], kind="stable")]
        bought = _converted(sessions, rules, columns["notional"][rows], row[rows], start[rows], end[rows])
        apart = np.zeros(len(row), dtype=bool)
        apart[rows] = np.abs(amount[rows] - bought) > TOLERANCE * bought
        refuse(apart, "its amount is not what its notional comes to at the arrival price; give one of the two")
        amount[rows] = bought
        columns["amount"] = amount
    if rules.lot_size:
        refuse(amount < rules.lot_size * (1 - 1e-9), f"its amount is below one lot of {rules.lot_size:g}")
    note(late, "the window ends at the early close")
    note(amount > volume, "the amount exceeds the whole volume of its window")
    if refused and on_refused == "raise":
        dead = np.flatnonzero(~alive)
        why = {name: reason for reason, ids in refused.items() for name in ids}
        told = [
            f"order {order_id[i]} ({instrument[i]}, {date[i]}): {why[order_id[i]]}" for i in dead[:MOST_TOLD].tolist()
        ]
        more = [f"and {len(dead) - MOST_TOLD} more"] if len(dead) > MOST_TOLD else []
        raise OrderError(
            "\n  ".join([f"{len(dead)} of {len(row)} orders cannot be executed; correct or drop them:", *told, *more])
        )
    if not alive.any():
        reasons = "; ".join(f"{reason} ({len(ids)}, first {ids[0]})" for reason, ids in refused.items())
        raise OrderError(f"none of the {len(row)} orders can be executed: {reasons}.")
    keep = np.flatnonzero(alive)
    session, begin, stop, until = (values[keep].astype(np.int32) for values in (row, start, end, latest))
    side = np.where(direction[keep] == "BUY", 1, -1).astype(np.int8)
    return OrderBatch(columns, keep, session, side, amount[keep], begin, stop, refused, noted, until)


def window_ticks(columns: Mapping[str, np.ndarray], calendar: Calendar) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first tick, the end and the latest end of orders' windows on a regular day, int64 of shape (N,) each.

    `columns` are those of `rlwb.execution.table.order_columns`.
    """

    def seconds(name: str) -> np.ndarray:
        stamps = columns.get(name, np.full(len(columns["date"]), "NaT", "M8[ns]"))
        return np.asarray((stamps - columns["date"]) / np.timedelta64(1, "s"))

    opens, closes, until = map(seconds, ("start", "end", "latest_end"))
    start = np.where(np.isnan(opens), 0, calendar.first_ticks(opens))
    end = np.where(np.isnan(closes), calendar.num_ticks, calendar.end_ticks(closes))
    return start, end, np.where(np.isnan(until), end, calendar.end_ticks(until))


def _converted(
    sessions: Sessions,
    rules: ExecutionRules,
    notional: np.ndarray,
    row: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> np.ndarray:
    """Return what amounts in currency come to at the arrival price, in whole lots, float64 of shape (N,)."""
    amount = np.empty(len(row))
    for low in range(0, len(row), _BLOCK):
        block = slice(low, low + _BLOCK)
        rows, place = np.unique(row[block], return_inverse=True)
        price = np.asarray(tick_prices(sessions, rules, rows))
        outer = (np.asarray(each) for each in outer_fields(sessions, rules, price, rows))
        quoted = rules.price_field == "quotes"
        amount[block] = notional[block] / arrival_prices(*outer, price, quoted, place, start[block], end[block])
    lot = rules.lot_size
    return np.floor(amount / lot + TOLERANCE) * lot if lot else amount


def _window(
    sessions: Sessions, rules: ExecutionRules, row: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return TWAP, VWAP and volume of each window, float64 of shape (N,); a price of NaN where it has none."""
    twap, vwap, volume = (np.empty(len(row)) for _ in range(3))
    order = np.argsort(row, kind="stable")  # the panel may lie in a file, which is read once and in its order
    for low in range(0, len(row), _BLOCK):
        block = order[low : low + _BLOCK]
        rows, place = np.unique(row[block], return_inverse=True)
        price, traded = np.asarray(tick_prices(sessions, rules, rows)), np.asarray(sessions.fields["volume"][rows])
        twap[block], vwap[block], volume[block] = window_prices(price, traded, place, start[block], end[block])
    return twap, vwap, volume
