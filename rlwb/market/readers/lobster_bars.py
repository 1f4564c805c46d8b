"""Bars from the events of an order book."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Events(NamedTuple):
    """Messages in time order with the best quotes after each: arrays of shape ``(events,)``."""

    time: np.ndarray  # seconds after midnight
    type: np.ndarray  # 4 visible, 5 hidden, 6 auction execution, 7 halt, others change the book alone
    size: np.ndarray  # shares
    price: np.ndarray
    halt: np.ndarray  # of a halt message: -1 halted, 0 quotes resume, 1 trading resumes; else NaN
    bid: np.ndarray
    bid_size: np.ndarray
    ask: np.ndarray
    ask_size: np.ndarray


def make_bars(events: Events, start: float, end: float, length: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the bars' start times and columns.

    A bar covers ``[k length, (k + 1) length)`` seconds after midnight; there is one for each that meets
    ``[start, end)`` and does not end before the first event. Visible and hidden executions make open, high, low,
    close, volume and vwap, without one the prices are missing and the volume is 0. Quotes are those after the last
    event before the bar's end, carried on where nothing happens. A bar is halted when it lies in a halt as a whole.

    Parameters
    ----------
    start, end
        Seconds after midnight that the events cover; those at `end` belong to the last bar.
    length
        Seconds of a bar.

    Returns
    -------
    starts : numpy.ndarray
        int64 of shape ``(bars,)``, seconds after midnight.
    fields : dict of numpy.ndarray
        Columns of the schema, float64 of shape ``(bars,)``; halted bool.
    """
    last = int(np.ceil(end / length)) - 1
    first = max(int(start // length), min(int(events.time[0] // length), last))
    starts = np.arange(first, last + 1, dtype=np.int64) * length
    count = len(starts)
    bar = np.minimum((events.time // length).astype(np.int64) - first, count - 1)
    fields = _trades(events, bar, count)
    latest = np.searchsorted(bar, np.arange(count), side="right") - 1
    for name in ("bid", "ask", "bid_size", "ask_size"):
        fields[name] = getattr(events, name)[latest]
    fields["halted"] = _halted(events, first, count, length)
    return starts, fields


def _trades(events: Events, bar: np.ndarray, count: int) -> dict[str, np.ndarray]:
    traded = np.isin(events.type, (4, 5))
    at, price, size = bar[traded], events.price[traded], events.size[traded]
    fields = {name: np.full(count, np.nan) for name in ("open", "high", "low", "close", "vwap")}
    fields["volume"] = np.bincount(at, size, count)
    if len(at):
        begins = np.flatnonzero(np.append(True, np.diff(at) > 0))
        ends = np.append(begins[1:], len(at)) - 1
        bars = at[begins]
        fields["open"][bars], fields["close"][bars] = price[begins], price[ends]
        fields["high"][bars] = np.maximum.reduceat(price, begins)
        fields["low"][bars] = np.minimum.reduceat(price, begins)
        with np.errstate(over="ignore", invalid="ignore"):
            fields["vwap"][bars] = np.bincount(at, price * size, count)[bars] / fields["volume"][bars]
    return fields


def _halted(events: Events, first: int, count: int, length: int) -> np.ndarray:
    """Return where trading stood still from a bar's start to its end."""
    halted = np.zeros(count, dtype=bool)
    begin: int | None = None
    for row in np.flatnonzero(np.isfinite(events.halt)):
        place = events.time[row] / length - first
        if events.halt[row] == -1 and begin is None:
            begin = int(np.ceil(place))
        elif events.halt[row] == 1 and begin is not None:
            halted[begin : int(place)] = True
            begin = None
    if begin is not None:
        halted[begin:] = True
    return halted
