"""LOBSTER's message and order book files, one pair a symbol and day, as bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.errors import ConfigError, DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, reader
from rlwb.market.readers.content import MEGABYTES, check_rows, date_in, first_cells, matching, read_file, read_numbers

_NAME = re.compile(r"(.+)_(\d{4}-\d\d-\d\d)_(\d{1,8})_(\d{1,8})_(message|orderbook)_(\d{1,3})\.csv")
_MESSAGE = ("time", "type", "order", "size", "price", "direction")
_SIDES = ("ask", "ask_size", "bid", "bid_size")
_SCALE = 10_000
#: LOBSTER writes +-9999999999 where a side of the book is empty.
_NO_PRICE = 9_999_999_999


class _Pair(NamedTuple):
    """The two files of a symbol and day."""

    symbol: str
    date: np.datetime64  # midnight
    start: float  # seconds after midnight
    end: float
    level: int
    message: Path
    book: Path


@reader(
    "lobster",
    files=lambda source: sorted(path for pair in _pairs(source) for path in (pair.message, pair.book)),
    recognises=lambda source: bool(matching(source, _NAME)),
    label="start",
)
def read_lobster(
    source: Path,
    *,
    tick_minutes: int = 1,
    max_megabytes: int = MEGABYTES,
    instruments: frozenset[str] | None = None,
    report: Report,
) -> Iterator[pa.Table]:
    """Make bars from LOBSTER's events: best quotes at the end of each bar, prices and volume of executions.

    See docs/readers/lobster.md.

    Parameters
    ----------
    tick_minutes : minutes
        Length of a bar in minutes, 1 to 60; bars are counted from midnight.
    max_megabytes : MB
        A file that is larger is refused before it is read further.
    """
    if not 1 <= tick_minutes <= 60:
        raise ConfigError(f"tick_minutes is {tick_minutes}; give a whole number from 1 to 60.")
    for pair in _pairs(source):
        if instruments is not None and pair.symbol not in instruments:
            continue
        events = _messages(pair, max_megabytes) | _best_quotes(pair, max_megabytes)
        if len(events["time"]) != len(events["bid"]):
            raise DataError(
                f"{pair.book} has {len(events['bid']):,} rows, {pair.message.name} has {len(events['time']):,}; they "
                "belong row to row, fetch both again."
            )
        crossed = np.flatnonzero(events["type"] == 6)
        if len(crossed):
            report.add("cross_trade", len(crossed), f"{pair.message}, row {crossed[0] + 1}")
        starts, fields = make_bars(events, pair.start, pair.end, tick_minutes * 60)
        stamps = pair.date + (starts * 10**9).astype("timedelta64[ns]")
        yield bars(pair.symbol, stamps, fields, "America/New_York")


def _pairs(source: Path) -> list[_Pair]:
    """Return the pairs of a folder, or of one file and the one beside it, sorted by symbol and date."""
    found = matching(source, _NAME)
    if not found:
        raise DataError(f"{source} holds no LOBSTER file, named AAPL_2012-06-21_34200000_57600000_message_1.csv.")
    pairs: dict[tuple[str, str], _Pair] = {}
    for path, match in found.items():
        symbol, date, start, end, _, level = match.groups()
        files = [
            path.with_name(f"{symbol}_{date}_{start}_{end}_{kind}_{level}.csv") for kind in ("message", "orderbook")
        ]
        pair = _Pair(symbol, date_in(path, date), int(start) / 1e3, int(end) / 1e3, int(level), *files)
        if not 0 <= pair.start < pair.end <= 86_400 or pair.level < 1:
            raise DataError(f"{path} names no times of day in milliseconds and no level; rename the file.")
        if pairs.setdefault((symbol, date), pair) != pair:
            raise DataError(f"{pairs[symbol, date].message} and {path} are both {symbol} {date}; keep one of them.")
        for missing in files:
            if not missing.is_file():
                raise DataError(f"{missing} is missing, which belongs to {path.name}; put both into one folder.")
    return [pairs[key] for key in sorted(pairs)]


def _messages(pair: _Pair, max_megabytes: int) -> dict[str, np.ndarray]:
    """Return time, type, size, price in dollars and halt (the state that a message of type 7 says) of each message."""
    where, content = str(pair.message), read_file(pair.message, max_megabytes)
    owner = ("participant",) * (len(first_cells(content)) == len(_MESSAGE) + 1)  # which newer files name
    events = read_numbers(content, (*_MESSAGE, *owner), where, keep=("time", "type", "size", "price"))
    time, kind, size, price = events.values()
    check_rows(~((time >= pair.start) & (time <= pair.end)), time, "the time", where)
    check_rows(np.append(False, np.diff(time) < 0), time, "the time goes back and", where)
    check_rows(~np.isin(kind, np.arange(1, 8)), kind, "the type (1 to 7)", where)
    traded = np.isin(kind, (4, 5))
    check_rows(traded & ~((size > 0) & np.isfinite(size)), size, "the size of an execution", where)
    check_rows(traded & ~((price > 0) & (price < _NO_PRICE)), price, "the price of an execution", where)
    check_rows((kind == 7) & ~np.isin(price, (-1, 0, 1)), price, "the state (-1, 0, 1) of a halt", where)
    return {**events, "price": price / _SCALE, "halt": np.where(kind == 7, price, np.nan)}


def _best_quotes(pair: _Pair, max_megabytes: int) -> dict[str, np.ndarray]:
    """Return bid, bid_size, ask and ask_size after each message; both of a side that is empty are missing."""
    names = [*_SIDES, *(f"{side}_{level}" for level in range(2, pair.level + 1) for side in _SIDES)]
    book = read_numbers(read_file(pair.book, max_megabytes), names, str(pair.book), keep=_SIDES)
    for side in ("bid", "ask"):
        there = (book[side] > 0) & (book[side] < _NO_PRICE)
        book[side] = np.where(there, book[side], np.nan) / _SCALE
        book[f"{side}_size"] = np.where(there, book[f"{side}_size"], np.nan)
    return book


def make_bars(
    events: dict[str, np.ndarray], start: float, end: float, length: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the bars' start times and columns.

    A bar covers ``[k length, (k + 1) length)`` seconds after midnight; there is one for each that meets
    ``[start, end)`` and does not end before the first event. Visible and hidden executions make open, high, low,
    close, volume and vwap, without one the prices are missing and the volume is 0. Quotes are those after the last
    event before the bar's end, carried on where nothing happens. A bar is halted when it lies in a halt as a whole.

    `events` are messages in time order with the best quotes after each, arrays of shape ``(events,)``: time (seconds
    after midnight), type (4 visible, 5 hidden execution, others change no price), size (shares), price, halt (of a halt
    message -1 halted, 0 quotes resume, 1 trading resumes; else NaN), bid, bid_size, ask, ask_size. They cover `start`
    to `end`, seconds after midnight; those at `end` belong to the last bar. A bar has `length` seconds. Start times are
    seconds after midnight, int64 of shape ``(bars,)``, columns those of the schema, float64, halted bool.
    """
    place = events["time"] // length
    last = int(np.ceil(end / length)) - 1
    first = max(int(start // length), min(int(place[0]), last))
    count = last - first + 1
    bar = np.minimum(place.astype(np.int64) - first, count - 1)
    traded = np.isin(events["type"], (4, 5))
    at, price, size = bar[traded], events["price"][traded], events["size"][traded]
    prices = pd.Series(price).groupby(at).ohlc().reindex(range(count))
    fields = {name: prices[name].to_numpy(dtype=float) for name in prices}
    fields["volume"] = np.bincount(at, size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        fields["vwap"] = np.bincount(at, price * size, count) / fields["volume"]
    latest = np.searchsorted(bar, np.arange(count), side="right") - 1
    fields |= {name: events[name][latest] for name in _SIDES}
    fields["halted"] = np.zeros(count, dtype=bool)
    begin: int | None = None
    for row in np.flatnonzero(np.isfinite(events["halt"])):
        when = events["time"][row] / length - first
        if events["halt"][row] == -1 and begin is None:
            begin = int(np.ceil(when))
        elif events["halt"][row] == 1 and begin is not None:
            fields["halted"][begin : int(when)] = True
            begin = None
    if begin is not None:
        fields["halted"][begin:] = True
    return (first + np.arange(count, dtype=np.int64)) * length, fields
