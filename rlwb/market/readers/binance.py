"""Binance's public klines: ZIP or CSV, one file an instrument, interval and day or month."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, clock, reader
from rlwb.market.readers.content import (
    MEGABYTES,
    check_rows,
    first_cells,
    matching,
    read_file,
    read_member,
    read_numbers,
)

_UNITS = {"s": 1, "m": 60, "h": 3600}
_NAME = re.compile(r"([^/-]+)-(\d{1,3})([smh])-\d{4}-\d\d(-\d\d)?\.(csv|zip)")
_COLUMNS = (
    *("open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count"),
    *("taker_buy_volume", "taker_buy_quote_volume", "ignore"),
)
#: Futures margined in coins: their volume counts contracts and their value coins, so that no price comes of the two.
_IN_COINS = re.compile(r"USD_(PERP|\d{6})$")


def _checksum_of(path: Path) -> Path:
    return path.with_name(path.name + ".CHECKSUM")


def klines(source: Path, *, interval: str | None = None) -> list[Path]:
    """Return the files of one interval, each with its checksum where there is one, sorted."""
    found = {path: match[2] + match[3] for path, match in matching(source, _NAME).items()}
    intervals = sorted(set(found.values()))
    if not found:
        raise DataError(f"{source} holds no file of klines, named for example BTCUSDT-1m-2024-01.zip.")
    if interval is None and len(intervals) > 1:
        raise DataError(f"{source} holds klines of {', '.join(intervals)}; choose interval.")
    if interval not in (None, *intervals):
        raise DataError(f"{source} holds no klines of {interval}; choose interval from {', '.join(intervals)}.")
    files = [path for path, own in found.items() if interval in (None, own)]
    return sorted([*files, *(sums for path in files if (sums := _checksum_of(path)).is_file())])


@reader("binance", files=klines, recognises=lambda source: bool(matching(source, _NAME)), label="start", by_file=True)
def read_binance(
    source: Path,
    *,
    interval: str | None = None,
    max_megabytes: int = MEGABYTES,
    instruments: frozenset[str] | None = None,
    report: Report,
) -> Iterator[pa.Table]:
    """Read a file of klines as data.binance.vision publishes them; see docs/readers/binance.md.

    Parameters
    ----------
    source
        The file, whose name says instrument and interval.
    interval
        ``"1m"``, ``"5m"``: which files of a folder are read. May be left out where they are all of one interval.
    max_megabytes : MB
        A file that is larger, packed or unpacked, is refused before it is read further.
    """
    (match,) = matching(source, _NAME).values()
    instrument, seconds = match[1], int(match[2]) * _UNITS[match[3]]
    if instruments is not None and instrument not in instruments:
        return
    sums = _checksum_of(source)
    if sums.is_file():
        stated = read_file(sums, max_megabytes).split(maxsplit=1)[:1]
        if stated != [hashlib.sha256(read_file(source, max_megabytes)).hexdigest().encode()]:
            raise DataError(f"{source} is not the file that {sums.name} was made for; fetch both again.")
    packed = source.suffix == ".zip"
    content = read_member(source, max_megabytes)[1] if packed else read_file(source, max_megabytes)
    skip = _header_lines(content, source)
    values = read_numbers(content, _COLUMNS, str(source), keep=_COLUMNS[:8], skip=skip)
    opened, closed = (_nanoseconds(values.pop(name), name, source, skip) for name in ("open_time", "close_time"))
    end, stamps = opened + seconds * 10**9, opened.view("datetime64[ns]")
    late = np.flatnonzero(closed >= end)
    if len(late):
        where = f"{source}, row {late[0] + skip + 1}: the bar of {clock(stamps[late[0]])}"
        raise DataError(f"{where} lasts longer than {seconds} s; rename the file.")
    early = closed < end - 10**6
    if early.any():
        report.add("bar_unfinished", int(early.sum()), f"{instrument} {clock(stamps[early][0])}")
    value = values.pop("quote_volume")
    if not _IN_COINS.search(instrument):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            values["vwap"] = np.where(values["volume"] > 0, value / values["volume"], np.nan)
    yield bars(instrument, stamps, values, "UTC")


def _header_lines(content: bytes, path: Path) -> int:
    """Return 1 where the first line is the header of futures klines, 0 where it is a kline."""
    cells = first_cells(content)
    if cells[:7] == [name.encode() for name in _COLUMNS[:7]]:
        return 1
    try:
        float(cells[0])
    except ValueError:
        raise DataError(f"{path} begins with neither a kline nor the header {','.join(_COLUMNS[:7])}.") from None
    return 0


def _nanoseconds(times: np.ndarray, what: str, path: Path, skip: int) -> np.ndarray:
    """Return epoch stamps as nanoseconds since 1970, int64.

    They are in milliseconds (until 2024) or microseconds (spot, since 2025): those of 2001 to 2191 cannot meet.
    """
    milli, micro = (times >= 1e12) & (times < 7e12), (times >= 1e15) & (times < 7e15)
    bad = ~((milli | micro) & (times == np.floor(times)))
    check_rows(bad, times, f"{what} (milliseconds or microseconds since 1970)", str(path), skip)
    return times.astype(np.int64) * np.where(micro, 10**3, 10**6)
