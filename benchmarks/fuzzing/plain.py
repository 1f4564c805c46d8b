"""Slow plain readers: the bars that a folder holds, by the standard library alone, one cell at a time.

Each answers with rows of instrument, local stamp in nanoseconds (None where it does not read the stamp) and fields by
name, or with None where it cannot say. They refuse nothing, so they are asked only where rlwb gave an answer.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import re
import struct
import zipfile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from benchmarks.fuzzing.tree import Tree

NAN = float("nan")
_PRICES = ("open", "high", "low", "close")
_NEEDED = (*_PRICES, "volume")
_MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"}
_DAY = 86_400 * 10**9


class Row(NamedTuple):
    """A bar."""

    instrument: str | None
    stamp: int | None
    fields: dict[str, float]


def _lines(content: bytes) -> list[list[str]]:
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").rstrip("\r\n")
    return [line.split(",") for line in re.split(r"\r\n|\n|\r", text) if line]


def _number(cell: str) -> float:
    return NAN if cell.strip() == "" else float(cell)


def _midnight(text: str) -> int:
    return (dt.date.fromisoformat(text).toordinal() - 719_163) * _DAY


def _stamp(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (moment.days * 86_400 + moment.seconds) * 10**9 + moment.microseconds * 1000


def _exists_once(stamp: int, zone: ZoneInfo) -> bool:
    """Tell whether a local time is neither skipped nor repeated by its zone."""
    local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=stamp // 1000)
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return first == second


def binance(tree: Tree) -> list[Row]:
    """Klines: open time, four prices, volume, close time, value …"""
    rows = []
    for name, content in tree.files.items():
        match = re.fullmatch(r"([^/-]+)-\d{1,3}[smh]-\d{4}-\d\d(-\d\d)?\.(csv|zip)", name)
        if match is None or name.startswith((".", "_", "~")):
            continue
        if match[3] == "zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                content = archive.read(archive.infolist()[0])
        lines = _lines(content)
        for cells in lines[1:] if lines[0][0].strip() == "open_time" else lines:
            opened = float(cells[0])
            fields = dict(zip(_NEEDED, map(_number, cells[1:6]), strict=True))
            volume, value = fields["volume"], _number(cells[7])
            if not re.search(r"USD_(PERP|\d{6})$", match[1]):
                fields["vwap"] = value / volume if volume > 0 else NAN
            rows.append(Row(match[1], int(opened) * (10**3 if opened >= 1e15 else 10**6), fields))
    return rows


def lean(tree: Tree) -> list[Row]:
    """Minute files of one symbol and day: of rows with one time, the last."""
    zone = ZoneInfo("America/New_York")
    bars: dict[tuple[str, int], dict[str, float]] = {}
    for name, content in tree.files.items():
        folder, _, file = name.rpartition("/")
        match = re.fullmatch(r"(\d{8})_(trade|quote)\.zip", file)
        if match is None or any(part.startswith(".") for part in name.split("/")):
            continue
        if folder.split("/")[-2:-1] and folder.split("/")[-2] in ("second", "tick"):
            continue
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(archive.infolist()[0])
        date = f"{match[1][:4]}-{match[1][4:6]}-{match[1][6:]}"
        for cells in _lines(content):
            key = (folder.rpartition("/")[2].upper(), _midnight(date) + int(float(cells[0])) * 10**6)
            numbers = list(map(_number, cells))
            if match[2] == "trade":
                fields = {name: numbers[place] / 10_000 for place, name in enumerate(_PRICES, 1)}
                fields["volume"] = numbers[5]
            else:
                fields = {"bid": numbers[4] / 10_000, "bid_size": numbers[5], "ask": numbers[9] / 10_000}
                fields["ask_size"] = numbers[10]
            bars.setdefault(key, {}).update(fields)
    columns = {name for fields in bars.values() for name in fields} | set(_NEEDED)
    return [
        Row(symbol, stamp, {name: fields.get(name, NAN) for name in columns})
        for (symbol, stamp), fields in bars.items()
        if _exists_once(stamp, zone)
    ]


def lobster(tree: Tree) -> list[Row]:
    """Bars of a minute from messages and the book after each."""
    rows: list[Row] = []
    for name, content in tree.files.items():
        match = re.fullmatch(r"(.+)_(\d{4}-\d\d-\d\d)_(\d{1,8})_(\d{1,8})_message_(\d{1,3})\.csv", name)
        if match is not None and "/" not in name and not name.startswith((".", "_", "~")):
            book = tree.files[name.replace("_message_", "_orderbook_")]
            bars = _minutes(_lines(content), _lines(book), int(match[3]) / 1e3, int(match[4]) / 1e3)
            stamps = ((_midnight(match[2]) + minute * 60 * 10**9, fields) for minute, fields in bars.items())
            zone = ZoneInfo("America/New_York")
            rows += [Row(match[1], stamp, fields) for stamp, fields in stamps if _exists_once(stamp, zone)]
    return rows


def _minutes(
    messages: list[list[str]], books: list[list[str]], start: float, end: float
) -> dict[int, dict[str, float]]:
    last = math.ceil(end / 60) - 1
    first = max(int(start // 60), min(int(float(messages[0][0]) // 60), last))
    bars: dict[int, dict[str, float]] = {}
    quote: dict[str, float] = {}
    halts: list[tuple[float, float]] = []
    event = 0
    for minute in range(first, last + 1):
        prices, sizes, value = [], [], 0.0
        while event < len(messages) and min(int(float(messages[event][0]) // 60), last) <= minute:
            time, kind, size, price = (_number(messages[event][place]) for place in (0, 1, 3, 4))
            if kind in (4, 5):
                prices.append(price / 10_000)
                sizes.append(size)
                value += price / 10_000 * size
            elif kind == 7 and price == -1 and (not halts or halts[-1][1] < math.inf):
                halts.append((time, math.inf))
            elif kind == 7 and price == 1 and halts and halts[-1][1] == math.inf:
                halts[-1] = (halts[-1][0], time)
            ask, ask_size, bid, bid_size = map(_number, books[event][:4])
            quote = {}
            for side, quoted, quantity in (("bid", bid, bid_size), ("ask", ask, ask_size)):
                there = 0 < quoted < 9_999_999_999
                quote |= {side: quoted / 10_000 if there else NAN, f"{side}_size": quantity if there else NAN}
            event += 1
        volume = 0.0
        for size in sizes:
            volume += size
        traded = [prices[0], max(prices), min(prices), prices[-1]] if prices else [NAN] * 4
        vwap = value / volume if prices else NAN
        bars[minute] = {**dict(zip(_PRICES, traded, strict=True)), "volume": volume, "vwap": vwap, **quote}
    for minute, fields in bars.items():
        fields["halted"] = float(any(begin <= minute * 60 and (minute + 1) * 60 <= stop for begin, stop in halts))
    return bars


def qlib(tree: Tree) -> list[Row]:
    """Every step of the calendar, inside the listing, at which one of the five columns has a value; float32."""
    calendar = next(
        name for name in tree.files if re.fullmatch(r"calendars/[^/.][^/]*\.txt", name) and "_future." not in name
    )
    freq = calendar.split("/")[1].removesuffix(".txt")
    steps = [line.strip() for line in tree.files[calendar].decode("utf-8-sig").splitlines() if line.strip()]
    listing = next(name for name in tree.files if name.lower() == "instruments/all.txt")
    spans: dict[str, list[tuple[int, int]]] = {}
    for line in tree.files[listing].decode("utf-8-sig").splitlines():
        if line.strip():
            name, begin, stop = (cell.strip() for cell in line.split("\t")[:3])
            spans.setdefault(name, []).append((_stamp(begin), _stamp(stop) + (_DAY - 10**9) * (len(stop) == 10)))
    columns: dict[str, dict[str, tuple[float, ...]]] = {}
    for name, content in tree.files.items():
        match = re.fullmatch(r"features/([^/.][^/]*)/([a-z_]+)\.(.+)\.bin", name.lower())
        if match is not None and match[3] == freq.lower():
            folder = match[1].removeprefix("_qlib_")
            count = len(content) // 4
            columns.setdefault(folder, {})[match[2]] = struct.unpack(f"<{count}f", content[: 4 * count])
    rows = []
    for name, listed in spans.items():
        fields = columns.get(name.lower(), {})
        for step, text in enumerate(steps):
            stamp = _stamp(text)
            values = {}
            for field, column in fields.items():
                place = step - int(column[0]) + 1
                values[field] = column[place] if 1 <= place < len(column) else NAN
            present = any(not math.isnan(values.get(field, NAN)) for field in _NEEDED)
            if present and any(begin <= stamp <= stop for begin, stop in listed):
                rows.append(Row(name, stamp, {field: value for field, value in values.items() if field != "factor"}))
    return rows


def table(tree: Tree) -> list[Row] | None:
    """CSV with the schema's own names; stamps in ISO 8601 without a zone."""
    rows = []
    for name, content in tables_in(tree):
        if not name.lower().endswith(".csv"):
            return None
        lines = _cells(content.decode("utf-8-sig", "surrogateescape"))
        if not lines:
            return None
        header = lines[0]
        if not set(_NEEDED) <= set(header) or len(set(header)) < len(header) or "datetime" not in header:
            return None
        for cells in lines[1:]:
            given = dict(zip(header, [*cells, *[None] * (len(header) - len(cells))], strict=False))
            fields = {
                field: NAN if (cell := given[field]) is None or cell in _MISSING else float(cell) for field in _NEEDED
            }
            instrument = given["instrument"] if "instrument" in header else name[:-4]
            rows.append(Row(instrument, _moment(given["datetime"]), fields))
    return rows


def tables_in(tree: Tree) -> list[tuple[str, bytes]]:
    """Return the files that are read as Parquet or CSV, by name."""
    return [
        (name, content)
        for name, content in sorted(tree.files.items())
        if "/" not in name
        and name.lower().endswith((".parquet", ".csv", ".csv.gz"))
        and not name.startswith((".", "_", "~"))
    ]


def _cells(text: str) -> list[list[str]] | None:
    if '"' not in text:
        return [line.split(",") for line in re.split(r"\r\n|\n|\r", text) if line.strip(" \t")]
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:  # quotes within a value, of which readers make what they like
        return None
    return [row for row in rows if len(row) > 1 or "".join(row).strip(" \t")]


def _moment(cell: str | None) -> int | None:
    if cell is not None and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", cell):
        return _stamp(cell)
    return None
