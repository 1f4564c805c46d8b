"""Binance's public klines: ZIP or CSV, one file an instrument, interval and day or month."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.content import read_file, read_member
from rlwb.market.readers.frames import STAMP, Part, check_found, join_bars, text
from rlwb.market.readers.names import matching, others
from rlwb.market.readers.numbers import check_rows, first_line, read_numbers
from rlwb.market.report import Report

_UNITS = {"s": 1, "m": 60, "h": 3600}
_NAME = re.compile(r"([^/-]+)-(\d{1,3})([smh])-\d{4}-\d\d(-\d\d)?\.(csv|zip)")
COLUMNS = (
    "open_time",
    "open",
    "high",
    "low",
    "close",
    "volume",
    "close_time",
    "quote_volume",
    "count",
    "taker_buy_volume",
    "taker_buy_quote_volume",
    "ignore",
)
_KEPT = COLUMNS[:8]
#: Futures margined in coins: their volume counts contracts and their value coins, so that no price comes of the two.
_IN_COINS = re.compile(r"USD_(PERP|\d{6})$")
#: Stamps of 2001 to 2191 in milliseconds (until 2024) and in microseconds (spot, since 2025); the two cannot meet.
_MILLI, _MICRO = (1e12, 7e12), (1e15, 7e15)


@dataclass(frozen=True)
class BinanceReader(Reader):
    """Klines as data.binance.vision publishes them; see docs/readers/binance.md.

    Parameters
    ----------
    interval
        ``"1m"``, ``"5m"``: which files of the folder are read. May be left out where they are all of one interval.
    """

    interval: str | None = None

    kind: ClassVar[str] = "binance"
    label: ClassVar[Literal["start", "end"] | None] = "start"
    separable: ClassVar[bool] = True

    @classmethod
    def recognises(cls, source: Path) -> bool:
        return bool(matching(source, _NAME))

    def files(self, source: Path) -> tuple[list[Path], list[str]]:
        found = matching(source, _NAME)
        intervals = sorted({match[2] + match[3] for match in found.values()})
        if not found:
            raise DataError(f"{source} holds no file of klines, named for example BTCUSDT-1m-2024-01.zip.")
        if self.interval is None and len(intervals) > 1:
            raise DataError(f"{source} holds klines of {', '.join(intervals)}; choose interval.")
        if self.interval not in (None, *intervals):
            raise DataError(
                f"{source} holds no klines of {self.interval}; choose interval from {', '.join(intervals)}."
            )
        files = [path for path, match in found.items() if self.interval in (None, match[2] + match[3])]
        sums = [sum_ for path in files if (sum_ := _checksum_of(path)).is_file()]
        return sorted([*files, *sums]), others(source, {*files, *sums})

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        files, ignored = self.files(source)
        report.add("file_ignored", len(ignored), ", ".join(ignored[:5]))
        names = {path: match for path in files if (match := _NAME.fullmatch(path.name))}
        if instruments is not None:
            check_found(instruments, {match[1] for match in names.values()}, source)
        return join_bars(self._parts(names, instruments, report), report, "UTC")

    def _parts(
        self, names: dict[Path, re.Match[str]], instruments: frozenset[str] | None, report: Report
    ) -> Iterator[Part]:
        for path, match in names.items():
            if instruments is None or match[1] in instruments:
                yield self._part(path, match[1], int(match[2]) * _UNITS[match[3]], report)

    def _part(self, path: Path, instrument: str, seconds: int, report: Report) -> Part:
        """Return the klines of one file, which last `seconds` each."""
        content = self._content(path)
        skip = _header_lines(content, path)
        values = read_numbers(content, COLUMNS, str(path), keep=_KEPT, skip=skip)
        opened = _nanoseconds(values["open_time"], "open_time", path, skip)
        closed = _nanoseconds(values["close_time"], "close_time", path, skip)
        end = opened + seconds * 10**9
        late = np.flatnonzero(closed >= end)
        if len(late):
            stamp = text(opened[late].view(STAMP)[0])
            raise DataError(
                f"{path}, row {late[0] + skip + 1}: the bar of {stamp} lasts longer than {seconds} s; rename the file."
            )
        early = closed < end - 10**6
        if early.any():
            report.add("bar_unfinished", int(early.sum()), f"{instrument} {text(opened[early].view(STAMP)[0])}")
        fields = {name: values[name] for name in ("open", "high", "low", "close", "volume")}
        if _IN_COINS.search(instrument):
            return Part(instrument, opened.view(STAMP), fields)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            vwap = np.where(values["volume"] > 0, values["quote_volume"] / values["volume"], np.nan)
        return Part(instrument, opened.view(STAMP), {**fields, "vwap": vwap})

    def _content(self, path: Path) -> bytes:
        sums = _checksum_of(path)
        if sums.is_file():
            wanted = read_file(sums, self.max_bytes).split(maxsplit=1)[:1]
            found = hashlib.sha256(read_file(path, self.max_bytes)).hexdigest().encode()
            if wanted != [found]:
                raise DataError(f"{path} is not the file that {sums.name} was made for; fetch both again.")
        if path.suffix == ".zip":
            return read_member(path, self.max_bytes)[1]
        return read_file(path, self.max_bytes)


def _checksum_of(path: Path) -> Path:
    return path.with_name(path.name + ".CHECKSUM")


def _header_lines(content: bytes, path: Path) -> int:
    """Return 1 where the first line is the header of futures klines, 0 where it is a kline."""
    cells = first_line(content).split(b",")
    try:
        float(cells[0])
        return 0
    except ValueError:
        if [cell.strip() for cell in cells[:7]] != [name.encode() for name in COLUMNS[:7]]:
            raise DataError(f"{path} begins with neither a kline nor the header {','.join(COLUMNS[:7])}.") from None
        return 1


def _nanoseconds(times: np.ndarray, what: str, path: Path, skip: int) -> np.ndarray:
    """Return epoch stamps in milliseconds or microseconds as nanoseconds since 1970, int64."""
    micro = (times >= _MICRO[0]) & (times < _MICRO[1])
    known = (micro | ((times >= _MILLI[0]) & (times < _MILLI[1]))) & (times == np.floor(times))
    check_rows(~known, times, f"{what} (milliseconds or microseconds since 1970)", str(path), skip)
    return times.astype(np.int64) * np.where(micro, 10**3, 10**6)
