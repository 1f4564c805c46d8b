"""QuantConnect Lean's minute files: a ZIP of trades and one of quotes for each symbol and day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, reader
from rlwb.market.readers.content import MEGABYTES, date_in, read_member
from rlwb.market.readers.delimited import check_rows, read_numbers
from rlwb.market.schema import PRICES

_NAME = re.compile(r"(\d{8})_(trade|quote)\.zip")
_MEMBER = re.compile(r"(\d{8})_(.+)_minute_(trade|quote)\.csv")
#: data / security / market / minute / symbol / file
_DEPTH = 5
_DAY_MS = 86_400_000
_SIDE = ("open", "high", "low", "close", "size")
_COLUMNS = {
    "trade": ("milliseconds", "open", "high", "low", "close", "volume"),
    "quote": ("milliseconds", *(f"{side}_{name}" for side in ("bid", "ask") for name in _SIDE)),
}
#: Of a quote bar, the last quote.
_QUOTED = {"bid_close": "bid", "bid_size": "bid_size", "ask_close": "ask", "ask_size": "ask_size"}
_SCALE = {"equity": 10_000, "crypto": 1}
_ZONES = {("equity", "usa"): "America/New_York", ("equity", "india"): "Asia/Kolkata"}


class _File(NamedTuple):
    """One file of trades or quotes of one symbol and day."""

    path: Path
    security: str | None  # equity, crypto, forex …; None where the folders do not say
    market: str | None
    symbol: str  # the folder's name in capitals
    date: str  # YYYYMMDD
    kind: str  # trade or quote


def _found(source: Path) -> list[_File]:
    """Return the minute files at any level of Lean's layout; those of seconds and ticks are none."""
    paths = [source] if source.is_file() else sorted(source.rglob("*.zip"))
    files = []
    for path in paths:
        match, above = _NAME.fullmatch(path.name), path.absolute().parts[:-1]
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
        if match and not hidden and above[-2] not in ("second", "tick"):
            known = len(above) > 3 and above[-2] == "minute"
            security, market = (above[-4].lower(), above[-3].lower()) if known else (None, None)
            files.append(_File(path, security, market, above[-1].upper(), match[1], match[2]))
    return sorted(files, key=lambda file: (file.symbol, file.date, file.path))


def minute_files(source: Path) -> list[Path]:
    """Return the minute files below `source`, of one kind of security and market, each day of a symbol once."""
    files = _found(source)
    if not files:
        raise DataError(f"{source} holds no minute file of Lean, named for example spy/20131007_trade.zip.")
    places = sorted({(file.security or "?", file.market or "?") for file in files})
    if len(places) > 1:
        shown = ", ".join("/".join(place) for place in places)
        raise DataError(f"{source} holds files of {shown}; read one of these folders at a time.")
    for one, two in pairwise(files):
        if one[3:] == two[3:]:
            raise DataError(f"{one.path} and {two.path} are both {one.symbol} {one.date} {one.kind}; keep one of them.")
    return [file.path for file in files]


def _holds_lean(source: Path) -> bool:
    if source.is_file():
        return _NAME.fullmatch(source.name) is not None
    patterns = ("*/" * level + f"[0-9]*_{kind}.zip" for level in range(_DEPTH) for kind in ("trade", "quote"))
    return any(_NAME.fullmatch(path.name) for pattern in patterns for path in source.glob(pattern))


@reader("lean", files=minute_files, recognises=_holds_lean, label="start")
def read_lean(
    source: Path,
    *,
    security: Literal["equity", "crypto"] | None = None,
    zone: str | None = None,
    max_megabytes: int = MEGABYTES,
    instruments: frozenset[str] | None = None,
    report: Report,
) -> Iterator[pa.Table]:
    """Read minute bars of equities and crypto in Lean's layout; see docs/readers/lean.md.

    Parameters
    ----------
    source
        A folder at any level of the layout, or one file.
    security
        ``"equity"`` (prices are whole numbers of 1/10,000) or ``"crypto"`` (prices are as they are). May be left out
        where the files lie in Lean's own folders, which say so. Forex and the rest are not supported.
    zone
        IANA zone of the milliseconds since midnight. May be left out for equities of the USA and India and for crypto.
    max_megabytes
        A file that is larger, packed or unpacked, is refused before it is read further.
    """
    minute_files(source)
    files = _found(source)
    scale, zone = _market(files[0], security, zone)
    for (symbol, date), group in groupby(files, key=lambda file: (file.symbol, file.date)):
        if instruments is None or symbol in instruments:
            of_day = list(group)
            tables = [_table(file, scale, max_megabytes, report) for file in of_day]
            midnight = date_in(of_day[0].path, date[:4], date[4:6], date[6:])
            times, fields = _beside(tables)
            yield bars(symbol, midnight + (times * 1e6).astype("timedelta64[ns]"), fields, zone)


def _market(file: _File, security: str | None, zone: str | None) -> tuple[int, str]:
    """Return what prices are divided by, and the zone."""
    security = security or file.security
    if security is None:
        raise DataError(
            f"{file.path} does not lie in Lean's folders (equity/usa/minute/spy/), so its prices could be scaled or "
            "not; give security."
        )
    if security not in _SCALE or file.security not in (None, security):
        raise DataError(f"{file.path} is of {file.security}, not of {' or '.join(_SCALE)}; it cannot be read.")
    market = file.market or "usa"
    zone = zone or ("UTC" if security == "crypto" else _ZONES.get((security, market)))
    if zone is None:
        raise DataError(f"{file.path} is of the market {market}, whose time zone is not known; give zone.")
    return _SCALE[security], zone


def _table(file: _File, scale: int, max_megabytes: int, report: Report) -> dict[str, np.ndarray]:
    """Return one file's columns of the schema and its milliseconds, sorted, each minute once."""
    name, content = read_member(file.path, max_megabytes)
    match = _MEMBER.fullmatch(name)
    if match is None or (match[1], match[2].upper(), match[3]) != (file.date, file.symbol, file.kind):
        raise DataError(f"{file.path} holds {name[:80]!r}, which its own name denies; fetch it again.")
    where = str(file.path)
    table = read_numbers(content, _COLUMNS[file.kind], where)
    times = table["milliseconds"]
    check_rows(
        ~((times >= 0) & (times < _DAY_MS) & (times == np.floor(times))),
        times,
        "the time in milliseconds since midnight",
        where,
    )
    if file.kind == "quote":
        table = {"milliseconds": times, **{target: table[column] for column, target in _QUOTED.items()}}
    kept = _last_of_each(table, report, where)
    # A division, because 6450600 * 1e-4 is not 645.06 to the last digit.
    return {name: values[kept] / scale if name in PRICES else values[kept] for name, values in table.items()}


def _last_of_each(table: dict[str, np.ndarray], report: Report, where: str) -> np.ndarray:
    """Return an index that sorts rows by time and keeps the last of each; what it moves or drops is counted."""
    times = table["milliseconds"]
    back = np.diff(times) < 0
    if back.any():
        report.add("unsorted", int(back.sum()), f"{where}, row {int(np.argmax(back)) + 2}")
    order = np.argsort(times, kind="stable")
    again = np.append(np.diff(times[order]) == 0, False)
    one, two = order[again], np.append(order[1:], 0)[again]
    same = np.ones(len(one), dtype=bool)
    for column in table.values():
        same &= (column[one] == column[two]) | (np.isnan(column[one]) & np.isnan(column[two]))
    for reason, rows in (("duplicate_identical", one[same]), ("duplicate_conflicting", one[~same])):
        if len(rows):
            report.add(reason, len(rows), f"{where}, row {rows[0] + 1}")
    return order[~again]


def _beside(tables: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the times of a day's trades and quotes, and both side by side; what one of them lacks is missing."""
    times = np.unique(np.concatenate([table["milliseconds"] for table in tables]))
    fields = {}
    for table in tables:
        at = np.searchsorted(times, table.pop("milliseconds"))
        for name, values in table.items():
            fields[name] = np.full(len(times), np.nan)
            fields[name][at] = values
    return times, fields
