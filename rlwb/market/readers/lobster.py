"""LOBSTER's message and order book files, one pair a symbol and day, as bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rlwb.errors import ConfigError, DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, reader
from rlwb.market.readers.content import MEGABYTES, date_in, matching, read_file
from rlwb.market.readers.delimited import check_rows, first_line, read_numbers
from rlwb.market.readers.lobster_bars import Events, make_bars

_NAME = re.compile(r"(.+)_(\d{4}-\d\d-\d\d)_(\d{1,8})_(\d{1,8})_(message|orderbook)_(\d{1,3})\.csv")
_MESSAGE = ("time", "type", "order", "size", "price", "direction")
_SIDES = ("ask_price", "ask_size", "bid_price", "bid_size")
_SCALE = 10_000
#: LOBSTER writes +-9999999999 where a side of the book is empty.
_NO_PRICE = 9_999_999_999
_DAY_MS = 86_400_000


class _Pair(NamedTuple):
    """The two files of a symbol and day."""

    symbol: str
    date: np.datetime64  # midnight
    start: int  # milliseconds after midnight
    end: int
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
    source
        A folder, or one file of a pair.
    tick_minutes
        Length of a bar in minutes, 1 to 60; bars are counted from midnight.
    max_megabytes
        A file that is larger is refused before it is read further.
    """
    if not 1 <= tick_minutes <= 60:
        raise ConfigError(f"tick_minutes is {tick_minutes}; give a whole number from 1 to 60.")
    for pair in _pairs(source):
        if instruments is not None and pair.symbol not in instruments:
            continue
        events = _events(pair, max_megabytes)
        starts, fields = make_bars(events, pair.start / 1e3, pair.end / 1e3, tick_minutes * 60)
        crossed = np.flatnonzero(events.type == 6)
        if len(crossed):
            report.add("cross_trade", len(crossed), f"{pair.message}, row {crossed[0] + 1}")
        stamps = pair.date + (starts * 10**9).astype("timedelta64[ns]")
        yield bars(pair.symbol, stamps, fields, "America/New_York")


def _events(pair: _Pair, max_megabytes: int) -> Events:
    """Return the checked rows of both files, prices in dollars."""
    where = str(pair.message)
    content = read_file(pair.message, max_megabytes)
    owner = first_line(content).count(b",") == len(_MESSAGE)  # newer files name the market participant
    columns = (*_MESSAGE, "participant") if owner else _MESSAGE
    message = read_numbers(content, columns, where, keep=("time", "type", "size", "price"))
    time, kind, size, price = message.values()
    check_rows(~((time >= pair.start / 1e3) & (time <= pair.end / 1e3)), time, "the time", where)
    check_rows(np.append(False, np.diff(time) < 0), time, "the time goes back and", where)
    check_rows(~np.isin(kind, np.arange(1, 8)), kind, "the type (1 to 7)", where)
    traded = np.isin(kind, (4, 5))
    check_rows(traded & ~((size > 0) & np.isfinite(size)), size, "the size of an execution", where)
    check_rows(traded & ~((price > 0) & (price < _NO_PRICE)), price, "the price of an execution", where)
    check_rows((kind == 7) & ~np.isin(price, (-1, 0, 1)), price, "the state (-1, 0, 1) of a halt", where)
    halts = np.where(kind == 7, price, np.nan)
    return Events(time, kind.astype(np.int64), size, price / _SCALE, halts, *_book(pair, len(time), max_megabytes))


def _book(pair: _Pair, rows: int, max_megabytes: int) -> tuple[np.ndarray, ...]:
    """Return bid, bid_size, ask and ask_size after each message."""
    names = [f"{side}_{level}" for level in range(1, pair.level + 1) for side in _SIDES]
    best = names[: len(_SIDES)]
    values = read_numbers(read_file(pair.book, max_megabytes), names, str(pair.book), keep=best)
    if len(values[best[0]]) != rows:
        raise DataError(
            f"{pair.book} has {len(values[best[0]]):,} rows, {pair.message.name} has {rows:,}; they belong row to row, "
            "fetch both again."
        )
    ask, ask_size, bid, bid_size = values.values()
    there = [(price > 0) & (price < _NO_PRICE) for price in (bid, ask)]
    bid, ask = (np.where(one, price, np.nan) / _SCALE for one, price in zip(there, (bid, ask), strict=True))
    return bid, np.where(there[0], bid_size, np.nan), ask, np.where(there[1], ask_size, np.nan)


def _pairs(source: Path) -> list[_Pair]:
    """Return the pairs of a folder, or of one file and the one beside it, sorted by symbol and date."""
    found = matching(source, _NAME)
    if not found:
        raise DataError(f"{source} holds no LOBSTER file, named AAPL_2012-06-21_34200000_57600000_message_1.csv.")
    pairs: dict[tuple[str, str], _Pair] = {}
    for path, match in found.items():
        symbol, date, start, end, _, level = match.groups()
        message, book = (
            path.with_name(path.name[: match.start(5)] + f"{kind}_{level}.csv") for kind in ("message", "orderbook")
        )
        pair = _Pair(symbol, date_in(path, *date.split("-")), int(start), int(end), int(level), message, book)
        if not 0 <= pair.start < pair.end <= _DAY_MS or pair.level < 1:
            raise DataError(f"{path} names no times of day in milliseconds and no level; rename the file.")
        if pairs.setdefault((symbol, date), pair) != pair:
            raise DataError(f"{pairs[symbol, date].message} and {path} are both {symbol} {date}; keep one of them.")
        for missing in (message, book):
            if not missing.is_file():
                raise DataError(f"{missing} is missing, which belongs to {path.name}; put both into one folder.")
    return [pairs[key] for key in sorted(pairs)]
