"""Slow plain readings of folders by the standard library, one cell at a time, to compare rlwb's answers with.

They refuse nothing, so they are asked only where rlwb gave an answer; None where they cannot say. A row is the
instrument, the local stamp in nanoseconds (None where it is not read), close and volume.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
import struct
import zipfile
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing.damage import Tree

Row = tuple[str | None, int | None, float, float]
_NAN = float("nan")
_MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"}
_MINUTE, _DAY = 60 * 10**9, 86_400 * 10**9


def _named(files: Tree, pattern: str) -> Iterator[tuple[re.Match[str], list[list[str]]]]:
    """Yield the visible files whose path matches `pattern`, as the match and their lines' cells."""
    for name, content in sorted(files.items()):
        match = re.fullmatch(pattern, name)
        if match and not any(part.startswith((".", "_", "~")) for part in name.split("/")):
            if name.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    content = archive.read(archive.infolist()[0])
            text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
            yield match, [line.split(",") for line in re.split(r"\r\n|\n|\r", text) if line]


def _number(cell: str) -> float:
    return _NAN if cell.strip() == "" else float(cell)


def _stamp(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (moment.days * 86_400 + moment.seconds) * 10**9 + moment.microseconds * 1000


def _in_new_york(bars: dict[tuple[str, int], tuple[float, float]]) -> list[Row]:
    """Return the bars at local times that are neither skipped nor repeated."""
    zone, rows = ZoneInfo("America/New_York"), []
    for (name, stamp), values in bars.items():
        local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=stamp // 1000)
        if len({local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}) == 1:
            rows.append((name, stamp, *values))
    return rows


def binance(files: Tree) -> list[Row]:
    rows: list[Row] = []
    for match, lines in _named(files, r"([^/-]+)-\d{1,3}[smh]-\d{4}-\d\d(-\d\d)?\.(csv|zip)"):
        for cells in lines[1:] if lines[0][0].strip() == "open_time" else lines:
            stamp = int(float(cells[0])) * (10**3 if float(cells[0]) >= 1e15 else 10**6)
            rows.append((match[1], stamp, _number(cells[4]), _number(cells[5])))
    return rows


def lean(files: Tree) -> list[Row]:
    """Of rows with one time, the last."""
    bars: dict[tuple[str, int], tuple[float, float]] = {}
    for match, lines in _named(files, r"(.*/)?([^/]+)/(\d{4})(\d\d)(\d\d)_(trade|quote)\.zip"):
        if (match[1] or "").endswith(("second/", "tick/")):
            continue
        for cells in lines:
            key = match[2].upper(), _stamp(f"{match[3]}-{match[4]}-{match[5]}") + int(float(cells[0])) * 10**6
            if match[6] == "trade":
                bars[key] = _number(cells[4]) / 10_000, _number(cells[5])
            bars.setdefault(key, (_NAN, _NAN))
    return _in_new_york(bars)


def lobster(files: Tree) -> list[Row]:
    """Minutes in which something was executed: the last price, and the sizes together."""
    bars: dict[tuple[str, int], tuple[float, float]] = {}
    for match, lines in _named(files, r"([^/]+)_(\d{4}-\d\d-\d\d)_\d{1,8}_(\d{1,8})_message_\d{1,3}\.csv"):
        last = -(-int(match[3]) // 60_000) - 1
        for cells in lines:
            if float(cells[1]) in (4, 5):
                key = match[1], _stamp(match[2]) + min(int(float(cells[0]) // 60), last) * _MINUTE
                bars[key] = float(cells[4]) / 10_000, bars.get(key, (0, 0))[1] + float(cells[3])
    return _in_new_york(bars)


def qlib(files: Tree) -> list[Row]:
    """Every step of the calendar, inside the listing, at which one of the five columns has a value."""
    texts = {name.lower(): content.decode("utf-8-sig") for name, content in files.items() if name.endswith(".txt")}
    calendar = next(name for name in texts if re.fullmatch(r"calendars/[^/.][^/]*(?<!_future)\.txt", name))
    steps = [line.strip() for line in texts[calendar].splitlines() if line.strip()]
    spans: dict[str, list[tuple[int, int]]] = {}
    for line in filter(str.strip, texts["instruments/all.txt"].splitlines()):
        name, begin, stop = (cell.strip() for cell in line.split("\t")[:3])
        spans.setdefault(name, []).append((_stamp(begin), _stamp(stop) + (_DAY - 10**9) * (len(stop) == 10)))
    columns: dict[str, dict[str, tuple[float, ...]]] = {}
    for name, content in files.items():
        match = re.fullmatch(r"features/(?:_qlib_)?([^/.][^/]*)/(open|high|low|close|volume)\.(.+)\.bin", name.lower())
        if match is not None and f"calendars/{match[3]}.txt" == calendar:
            columns.setdefault(match[1], {})[match[2]] = struct.unpack(f"<{len(content) // 4}f", content)
    rows: list[Row] = []
    for name, listed in spans.items():
        for step, stamp in enumerate(map(_stamp, steps)):
            found = {
                field: values[place] if 1 <= (place := step - int(values[0]) + 1) < len(values) else _NAN
                for field, values in columns.get(name.lower(), {}).items()
            }
            if any(value == value for value in found.values()) and any(one <= stamp <= two for one, two in listed):
                rows.append((name, stamp, found["close"], found["volume"]))
    return rows


def _tables(files: Tree) -> list[tuple[str, bytes]]:
    """Return the files that are read as Parquet or CSV."""
    pattern = r"(?![._~])[^/]+\.(parquet|csv|csv\.gz)"
    return [(name, files[name]) for name in sorted(files) if re.fullmatch(pattern, name, re.IGNORECASE)]


def table(files: Tree) -> list[Row] | None:
    """CSV without quotes and with the schema's own names; stamps in plain ISO 8601."""
    rows: list[Row] = []
    for name, content in _tables(files):
        text = content.decode("utf-8-sig", "surrogateescape")
        lines = [line for line in re.split(r"\r\n|\n|\r", text) if line]
        if not name.lower().endswith(".csv") or '"' in text or not lines:
            return None
        header, *cells = csv.reader(lines)
        if not {"datetime", "close", "volume"} <= set(header) or len(set(header)) < len(header):
            return None
        for row in (dict(zip(header, values, strict=False)) for values in cells):
            plain = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row["datetime"])
            numbers = (_NAN if row[one] in _MISSING else float(row[one]) for one in ("close", "volume"))
            rows.append((row.get("instrument", name[:-4]), _stamp(row["datetime"]) if plain else None, *numbers))
    return rows


def parquet(files: Tree) -> list[Row] | None:
    """Parquet files with the schema's own names, plain numbers, text, and stamps without a zone."""
    number = [pa.float64(), pa.int64()]
    wanted = {"instrument": [pa.string()], "datetime": [pa.timestamp("ns")], "close": number, "volume": number}
    rows: list[Row] = []
    for name, content in _tables(files):
        if not name.lower().endswith(".parquet"):
            return None
        made = pq.read_table(io.BytesIO(content))
        if any(made.column_names.count(one) != 1 or made.schema.field(one).type not in wanted[one] for one in wanted):
            return None
        stamps = made["datetime"].cast(pa.int64()).to_pylist()
        both = (made["close"].to_pylist(), made["volume"].to_pylist())
        numbers = ([_NAN if one is None else float(one) for one in cells] for cells in both)
        rows += zip(made["instrument"].to_pylist(), stamps, *numbers, strict=True)
    return rows
