"""Binance's public archive of klines (data.binance.vision): a ZIP a month, or a day, each with its checksum."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from rlwb.errors import ConfigError, DataError
from rlwb.files import atomic_path
from rlwb.market.download.fetch import Fetcher, NotThereError
from rlwb.market.findings import counted
from rlwb.market.readers.content import digest_of
from rlwb.values import suggestion

BASE_URL = "https://data.binance.vision"
INTERVALS = ("1s", "1m", "3m", "5m", "15m", "30m", "1h")
_FOLDERS = {"spot": "data/spot", "um": "data/futures/um", "cm": "data/futures/cm"}


@dataclass
class BinanceArchive:
    """Files of the archive to download."""

    symbols: tuple[str, ...]  # such as BTCUSDT; written in capitals, as the archive does
    interval: str  # length of a bar: 1s (spot alone), 1m, 3m, 5m, 15m, 30m or 1h
    start: str  # first month (YYYY-MM) or day (YYYY-MM-DD)
    end: str  # last month or day, included
    market: Literal["spot", "um", "cm"] = "spot"  # um and cm are futures, margined in USDT and in coins
    base_url: str = BASE_URL  # the server, or a mirror
    first: dt.date = field(init=False)
    last: dt.date = field(init=False)

    def __post_init__(self) -> None:
        self.symbols = tuple(dict.fromkeys(symbol.upper() for symbol in self.symbols))
        self.base_url = self.base_url.rstrip("/")
        for symbol in self.symbols:
            if not re.fullmatch(r"\w{2,40}", symbol):
                raise ConfigError(f"{symbol!r} is no symbol of the archive; write for example BTCUSDT.")
        if not self.symbols:
            raise ConfigError("no symbol is named; write for example BTCUSDT.")
        if self.interval not in INTERVALS:
            hint = suggestion(self.interval, INTERVALS)
            raise ConfigError(f"interval is {self.interval!r}, which is not among those that rlwb reads; {hint}")
        if self.market not in _FOLDERS:
            raise ConfigError(f"market is {self.market!r}; choose one of {', '.join(_FOLDERS)}.")
        if urlsplit(self.base_url).scheme not in ("http", "https"):
            raise ConfigError(f"base URL {self.base_url!r} begins with neither https:// nor http://; correct it.")
        self.first, self.last = _day(self.start, "from", last=False), _day(self.end, "to", last=True)
        if self.first > self.last:
            raise ConfigError(f"from {self.start} is after to {self.end}; exchange them.")

    def months(self) -> list[list[dt.date]]:
        """Return the days asked for, month by month."""
        days = (self.first + dt.timedelta(days=number) for number in range((self.last - self.first).days + 1))
        return [list(month) for _, month in groupby(days, key=lambda day: (day.year, day.month))]

    def name(self, symbol: str, period: str) -> str:
        """Return the name of the file of a month (``2024-01``) or day."""
        return f"{symbol}-{self.interval}-{period}.zip"

    def url(self, symbol: str, period: str) -> str:
        """Return where that file lies."""
        span = "monthly" if len(period) == len("2024-01") else "daily"
        path = f"{_FOLDERS[self.market]}/{span}/klines/{symbol}/{self.interval}/{self.name(symbol, period)}"
        return f"{self.base_url}/{quote(path)}"


@dataclass
class Outcome:
    """The result of a download."""

    fetched: list[str] = field(default_factory=list)  # names of files that came now
    present: list[str] = field(default_factory=list)  # of those that were there whole
    missing: list[str] = field(default_factory=list)  # a sentence a symbol and month of which the archive lacks days


def download_binance(
    archive: BinanceArchive,
    directory: Path,
    *,
    fetcher: Fetcher | None = None,
    echo: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Bring the files of `archive` into `directory`, for the reader of kind ``binance``.

    A month that is asked for whole comes as one file where the archive has it, else day by day, as do months asked for
    in part and those of which days are there already. A file that is there and fits its checksum is not asked for.

    `echo` receives a line on each symbol and month. A `DataError` tells when the server cannot be reached or keeps
    failing, a file does not fit its checksum, or the archive holds nothing at all of a symbol in these months.
    """
    outcome = Outcome()
    bring = partial(_bring, archive, directory, fetcher or Fetcher(), outcome)
    for symbol in archive.symbols:
        before = len(outcome.fetched) + len(outcome.present)
        for days in archive.months():
            month = f"{days[0]:%Y-%m}"
            whole = len(days) == calendar.monthrange(days[0].year, days[0].month)[1]
            split = any(directory.glob(archive.name(symbol, f"{month}-[0-9][0-9]")))
            how = bring(symbol, month) if whole and not split else None
            absent = [] if how else [day for day in days if not bring(symbol, str(day))]
            line = f"{symbol} {month}: {how or counted(len(days), 'days') + ', one file each'}"
            if absent:
                listed = f"{absent[0]}" if len(absent) == 1 else f"{absent[0]} to {absent[-1]}"
                line = f"{symbol} {month}: {len(absent)} of {len(days)} days are not in the archive ({listed})"
                outcome.missing.append(line)
            echo(line)
        if len(outcome.fetched) + len(outcome.present) == before:
            raise DataError(
                f"the archive at {archive.base_url} holds no {archive.interval} klines of {symbol} ({archive.market}) "
                f"from {archive.first} to {archive.last}; check the symbol, the market and the dates."
            )
    return outcome


def _bring(
    archive: BinanceArchive, directory: Path, fetcher: Fetcher, outcome: Outcome, symbol: str, period: str
) -> str | None:
    """Bring one file and its checksum; return in words how, None when the archive does not hold it."""
    target = directory / archive.name(symbol, period)
    sums = target.with_name(f"{target.name}.CHECKSUM")
    if target.exists() and sums.exists() and _stated(sums.read_bytes()) == digest_of(target):
        outcome.present.append(target.name)
        return "there already"
    url = archive.url(symbol, period)
    try:
        content = fetcher.small(f"{url}.CHECKSUM")
    except NotThereError:
        return None
    stated = _stated(content)
    if stated is None:
        raise DataError(f"{url}.CHECKSUM holds no SHA-256; check that {archive.base_url} is a mirror of the archive.")
    known = target.exists() and digest_of(target) == stated
    try:
        if not known:
            fetcher.file(url, target, stated)
    except NotThereError:
        raise DataError(f"{archive.base_url} has the checksum of {target.name} and not the file itself.") from None
    with atomic_path(sums) as path:
        path.write_bytes(content)
    (outcome.present if known else outcome.fetched).append(target.name)
    return "there already" if known else f"{target.stat().st_size / 1e6:.1f} MB"


def _stated(content: bytes) -> str | None:
    match = re.match(rb"\s*([0-9a-fA-F]{64})\b", content)
    return match[1].decode().lower() if match else None


def _day(text: str, what: str, *, last: bool) -> dt.date:
    """Return the first (or last) day that a month or day names."""
    plain = text.strip()
    try:
        if re.fullmatch(r"\d{4}-\d\d", plain):
            first = dt.date.fromisoformat(f"{plain}-01")
            return first.replace(day=calendar.monthrange(first.year, first.month)[1]) if last else first
        if re.fullmatch(r"\d{4}-\d\d-\d\d", plain):
            return dt.date.fromisoformat(plain)
    except ValueError:
        pass
    raise ConfigError(
        f"{what} is {text!r}, which is no month or day; write YYYY-MM or YYYY-MM-DD, for example 2024-01."
    )
