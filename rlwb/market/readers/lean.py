"""QuantConnect Lean's minute files: a ZIP of trades and one of quotes for each symbol and day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.content import read_member
from rlwb.market.readers.frames import Part, check_found, join_bars, keep_last
from rlwb.market.readers.lean_layout import LeanFile, check_one_market, holds_lean, lean_files
from rlwb.market.readers.names import date_in
from rlwb.market.readers.numbers import check_rows, read_numbers
from rlwb.market.report import Report
from rlwb.market.schema import PRICES

_DAY_MS = 86_400_000
_TRADE = ("milliseconds", "open", "high", "low", "close", "volume")
_SIDE = ("open", "high", "low", "close", "size")
_QUOTE = ("milliseconds", *(f"bid_{name}" for name in _SIDE), *(f"ask_{name}" for name in _SIDE))
#: Of a quote bar, the last quote.
_QUOTED = {"bid": "bid_close", "bid_size": "bid_size", "ask": "ask_close", "ask_size": "ask_size"}
_SCALE = {"equity": 1e-4, "crypto": 1.0}
_ZONES = {("equity", "usa"): "America/New_York", ("equity", "india"): "Asia/Kolkata"}
_MEMBER = re.compile(r"(\d{8})_(.+)_minute_(trade|quote)\.csv")


@dataclass(frozen=True)
class LeanReader(Reader):
    """Minute bars of equities and crypto in Lean's layout; see docs/readers/lean.md.

    Parameters
    ----------
    security
        ``"equity"`` (prices are whole numbers of 1/10,000) or ``"crypto"`` (prices are as they are). May be left out
        where the files lie in Lean's own folders, which say so. Forex and the rest are not supported.
    zone
        IANA zone of the milliseconds since midnight. May be left out for equities of the USA and India and for crypto.
    """

    security: Literal["equity", "crypto"] | None = None
    zone: str | None = None

    kind: ClassVar[str] = "lean"
    label: ClassVar[Literal["start", "end"] | None] = "start"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        return holds_lean(source)

    def files(self, source: Path) -> tuple[list[Path], list[str]]:
        found, ignored = lean_files(source)
        if not found:
            raise DataError(f"{source} holds no minute file of Lean, named for example spy/20131007_trade.zip.")
        check_one_market(found, source)
        return [file.path for file in found], ignored

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        _, ignored = self.files(source)
        report.add("file_ignored", len(ignored), ", ".join(ignored[:5]))
        files, _ = lean_files(source)
        security, zone = self._market(files[0])
        if instruments is not None:
            check_found(instruments, {file.symbol for file in files}, source)
            files = [file for file in files if file.symbol in instruments]
        return join_bars(self._parts(files, _SCALE[security], report), report, zone)

    def _market(self, file: LeanFile) -> tuple[str, str]:
        """Return the kind of security and the zone."""
        security = self.security or file.security
        if security is None:
            raise DataError(
                f"{file.path} does not lie in Lean's folders (equity/usa/minute/spy/), so its prices could be scaled "
                "or not; give security."
            )
        if security not in _SCALE or file.security not in (None, security):
            raise DataError(f"{file.path} is of {file.security}, not of {' or '.join(_SCALE)}; it cannot be read.")
        market = file.market or "usa"
        zone = self.zone or ("UTC" if security == "crypto" else _ZONES.get((security, market)))
        if zone is None:
            raise DataError(f"{file.path} is of the market {market}, whose time zone is not known; give zone.")
        return security, zone

    def _parts(self, files: list[LeanFile], scale: float, report: Report) -> Iterator[Part]:
        for (symbol, date), group in groupby(files, key=lambda file: (file.symbol, file.date)):
            of_day = list(group)
            tables = {file.kind: self._table(file, scale, report) for file in of_day}
            yield _part(symbol, date_in(of_day[0].path, date[:4], date[4:6], date[6:]), tables)

    def _table(self, file: LeanFile, scale: float, report: Report) -> dict[str, np.ndarray]:
        """Return one file's columns of the schema and its milliseconds, sorted, each minute once."""
        name, content = read_member(file.path, self.max_bytes)
        match = _MEMBER.fullmatch(name)
        if match is None or (match[1], match[2].upper(), match[3]) != (file.date, file.symbol, file.kind):
            raise DataError(f"{file.path} holds {name[:80]!r}, which its own name denies; fetch it again.")
        table = read_numbers(content, _TRADE if file.kind == "trade" else _QUOTE, str(file.path))
        times = table.pop("milliseconds")
        inside = (times >= 0) & (times < _DAY_MS) & (times == np.floor(times))
        check_rows(~inside, times, "the time in milliseconds since midnight", str(file.path))
        if file.kind == "quote":
            table = {target: table[column] for target, column in _QUOTED.items()}
        fields = {column: _scaled(values, scale) if column in PRICES else values for column, values in table.items()}
        kept = keep_last(times, fields, report, str(file.path))
        return {"milliseconds": times[kept], **{column: values[kept] for column, values in fields.items()}}


def _scaled(prices: np.ndarray, scale: float) -> np.ndarray:
    # A division, because 6450600 * 1e-4 is not 645.06 to the last digit.
    return prices / round(1 / scale)


def _part(instrument: str, midnight: np.datetime64, tables: dict[str, dict[str, np.ndarray]]) -> Part:
    """Return the trades and quotes of a day side by side; what one of them lacks is missing."""
    times = np.unique(np.concatenate([table["milliseconds"] for table in tables.values()]))
    fields = {}
    for table in tables.values():
        at = np.searchsorted(times, table.pop("milliseconds"))
        for name, values in table.items():
            fields[name] = np.full(len(times), np.nan)
            fields[name][at] = values
    return Part(instrument, midnight + (times * 1e6).astype("timedelta64[ns]"), fields)
