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
from rlwb.market.readers.content import MEGABYTES, check_rows, date_in, read_member, read_numbers
from rlwb.market.schema import PRICES

_NAME = re.compile(r"(\d{8})_(trade|quote)\.zip")
_SIDE = ("open", "high", "low", "close", "size")
_COLUMNS = {
    "trade": ("milliseconds", "open", "high", "low", "close", "volume"),
    "quote": ("milliseconds", *(f"{side}_{name}" for side in ("bid", "ask") for name in _SIDE)),
}
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
    """Return the minute files at any level of Lean's layout, ``data/security/market/minute/symbol/file``, in order.

    Those of seconds and ticks are none. All are of one kind of security and market, each day of a symbol once.
    """
    files = []
    for path in [source] if source.is_file() else source.rglob("*.zip"):
        match, above = _NAME.fullmatch(path.name), path.absolute().parts[:-1]
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
        if match and not hidden and above[-2] not in ("second", "tick"):
            known = len(above) > 3 and above[-2] == "minute"
            security, market = (above[-4].lower(), above[-3].lower()) if known else (None, None)
            files.append(_File(path, security, market, above[-1].upper(), match[1], match[2]))
    if not files:
        raise DataError(f"{source} holds no minute file of Lean, named for example spy/20131007_trade.zip.")
    places = sorted({f"{file.security or '?'}/{file.market or '?'}" for file in files})
    if len(places) > 1:
        raise DataError(f"{source} holds files of {', '.join(places)}; read one of these folders at a time.")
    files.sort(key=lambda file: (file.symbol, file.date, file.path))
    for one, two in pairwise(files):
        if one[3:] == two[3:]:
            raise DataError(f"{one.path} and {two.path} are both {one.symbol} {one.date} {one.kind}; keep one of them.")
    return files


def _holds_lean(source: Path) -> bool:
    if source.is_file():
        return _NAME.fullmatch(source.name) is not None
    below = (source.glob("*/" * level + "[0-9]*_*.zip") for level in range(5))
    return any(_NAME.fullmatch(path.name) for paths in below for path in paths)


@reader("lean", files=lambda source: [file.path for file in _found(source)], recognises=_holds_lean, label="start")
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
    max_megabytes : MB
        A file that is larger, packed or unpacked, is refused before it is read further.
    """
    files = _found(source)
    scale, zone = _market(files[0], security, zone)
    for (symbol, date), of_day in groupby(files, key=lambda file: (file.symbol, file.date)):
        if instruments is not None and symbol not in instruments:
            continue
        day = list(of_day)
        midnight = date_in(day[0].path, f"{date[:4]}-{date[4:6]}-{date[6:]}")
        tables = [_minutes(file, scale, max_megabytes, report) for file in day]
        # Trades and quotes side by side; what one of them lacks at a time is missing.
        times = np.unique(np.concatenate([table["milliseconds"] for table in tables]))
        fields = {}
        for table in tables:
            at = np.searchsorted(times, table.pop("milliseconds"))
            for name, values in table.items():
                fields[name] = np.full(len(times), np.nan)
                fields[name][at] = values
        yield bars(symbol, midnight + times.astype("timedelta64[ms]"), fields, zone)


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


def _minutes(file: _File, scale: int, max_megabytes: int, report: Report) -> dict[str, np.ndarray]:
    """Return one file's columns of the schema, and milliseconds since midnight: sorted, the last row of each.

    What is moved or dropped is counted.
    """
    name, content = read_member(file.path, max_megabytes)
    match = re.fullmatch(r"(\d{8})_(.+)_minute_(trade|quote)\.csv", name)
    if match is None or (match[1], match[2].upper(), match[3]) != (file.date, file.symbol, file.kind):
        raise DataError(f"{file.path} holds {name[:80]!r}, which its own name denies; fetch it again.")
    where = str(file.path)
    table = read_numbers(content, _COLUMNS[file.kind], where)
    times = table["milliseconds"]
    bad = ~((times >= 0) & (times < 86_400_000) & (times == np.floor(times)))
    check_rows(bad, times, "the time in milliseconds since midnight", where)
    if file.kind == "quote":  # the last quote of each bar
        names = {"bid": "bid_close", "bid_size": "bid_size", "ask": "ask_close", "ask_size": "ask_size"}
        table = {"milliseconds": times, **{ours: table[theirs] for ours, theirs in names.items()}}
    order = np.argsort(times, kind="stable")
    again = np.append(np.diff(times[order]) == 0, False)
    dropped, follower = order[again], order[1:][again[:-1]]
    cells = np.stack(list(table.values()))
    one, two = cells[:, dropped], cells[:, follower]
    same = ((one == two) | (np.isnan(one) & np.isnan(two))).all(axis=0)
    for reason, rows in (
        ("unsorted", np.flatnonzero(np.diff(times) < 0) + 1),
        ("duplicate_identical", dropped[same]),
        ("duplicate_conflicting", dropped[~same]),
    ):
        if len(rows):
            report.add(reason, len(rows), f"{where}, row {rows[0] + 1}")
    kept = order[~again]
    # A division, because 6450600 * 1e-4 is not 645.06 to the last digit.
    return {name: values[kept] / scale if name in PRICES else values[kept] for name, values in table.items()}
