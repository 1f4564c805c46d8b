"""Slow plain readings of folders by the standard library, one cell at a time, to compare rlwb's answers with.

They refuse nothing, so they are asked only where rlwb gave an answer; None where they cannot say.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
import struct
import zipfile
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing.damage import Tree

#: Instrument, local stamp in nanoseconds (None where it is not read), close and volume.
Row = tuple[str | None, int | None, float, float]
_NAN = float("nan")
_MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "-"}
_DAY = 86_400 * 10**9
_HIDDEN = (".", "_", "~")


def _lines(content: bytes) -> list[list[str]]:
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    return [line.split(",") for line in re.split(r"\r\n|\n|\r", text) if line]


def _unzipped(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(archive.infolist()[0])


def _number(cell: str) -> float:
    return _NAN if cell.strip() == "" else float(cell)


def _stamp(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (moment.days * 86_400 + moment.seconds) * 10**9 + moment.microseconds * 1000


def _once(stamp: int, zone: ZoneInfo) -> bool:
    """Tell whether a local time is neither skipped nor repeated by its zone."""
    local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=stamp // 1000)
    return len({local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}) == 1


def binance(files: Tree) -> list[Row]:
    rows: list[Row] = []
    for name, content in files.items():
        match = re.fullmatch(r"([^/-]+)-\d{1,3}[smh]-\d{4}-\d\d(-\d\d)?\.(csv|zip)", name)
        if match and not name.startswith(_HIDDEN):
            lines = _lines(_unzipped(content) if match[3] == "zip" else content)
            for cells in lines[1:] if lines[0][0].strip() == "open_time" else lines:
                opened = float(cells[0])
                stamp = int(opened) * (10**3 if opened >= 1e15 else 10**6)
                rows.append((match[1], stamp, _number(cells[4]), _number(cells[5])))
    return rows


def lean(files: Tree) -> list[Row]:
    """Of rows with one time, the last."""
    bars: dict[tuple[str, int], tuple[float, float]] = {}
    for name, content in files.items():
        *folders, file = name.split("/")
        match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)_(trade|quote)\.zip", file)
        if match and folders[-2:-1] not in (["second"], ["tick"]) and not any(one.startswith(".") for one in folders):
            for cells in _lines(_unzipped(content)):
                stamp = _stamp("-".join(match.groups()[:3])) + int(float(cells[0])) * 10**6
                trade = match[4] == "trade"
                found = (_number(cells[4]) / 10_000, _number(cells[5])) if trade else (_NAN, _NAN)
                if trade or (folders[-1].upper(), stamp) not in bars:
                    bars[folders[-1].upper(), stamp] = found
    zone = ZoneInfo("America/New_York")
    return [(*key, *values) for key, values in bars.items() if _once(key[1], zone)]


def lobster(files: Tree) -> list[Row]:
    """Minutes in which something was executed: the last price, and the sizes together."""
    bars: dict[tuple[str, int], tuple[float, float]] = {}
    for name, content in files.items():
        match = re.fullmatch(r"(.+)_(\d{4}-\d\d-\d\d)_\d{1,8}_(\d{1,8})_message_\d{1,3}\.csv", name)
        if match and not name.startswith(_HIDDEN):
            last = -(-int(match[3]) // 60_000) - 1
            for cells in _lines(content):
                if float(cells[1]) in (4, 5):
                    key = match[1], _stamp(match[2]) + min(int(float(cells[0]) // 60), last) * 60 * 10**9
                    bars[key] = float(cells[4]) / 10_000, bars.get(key, (0, 0))[1] + float(cells[3])
    zone = ZoneInfo("America/New_York")
    return [(*key, *values) for key, values in bars.items() if _once(key[1], zone)]


def qlib(files: Tree) -> list[Row]:
    """Every step of the calendar, inside the listing, at which one of the five columns has a value."""
    calendar = next(
        name for name in files if re.fullmatch(r"calendars/[^/.][^/]*\.txt", name) and "_future" not in name
    )
    freq = calendar.split("/")[1].removesuffix(".txt").lower()
    steps = [line.strip() for line in files[calendar].decode("utf-8-sig").splitlines() if line.strip()]
    listing = next(name for name in files if name.lower() == "instruments/all.txt")
    spans: dict[str, list[tuple[int, int]]] = {}
    for line in files[listing].decode("utf-8-sig").splitlines():
        if line.strip():
            name, begin, stop = (cell.strip() for cell in line.split("\t")[:3])
            spans.setdefault(name, []).append((_stamp(begin), _stamp(stop) + (_DAY - 10**9) * (len(stop) == 10)))
    columns: dict[str, dict[str, tuple[float, ...]]] = {}
    for name, content in files.items():
        match = re.fullmatch(r"features/([^/.][^/]*)/(open|high|low|close|volume)\.(.+)\.bin", name.lower())
        if match is not None and match[3] == freq:
            values = struct.unpack(f"<{len(content) // 4}f", content[: len(content) // 4 * 4])
            columns.setdefault(match[1].removeprefix("_qlib_"), {})[match[2]] = values
    rows: list[Row] = []
    for name, listed in spans.items():
        for step, text in enumerate(steps):
            found = {
                field: values[place] if 1 <= (place := step - int(values[0]) + 1) < len(values) else _NAN
                for field, values in columns.get(name.lower(), {}).items()
            }
            is_listed = any(begin <= _stamp(text) <= stop for begin, stop in listed)
            if is_listed and any(value == value for value in found.values()):
                rows.append((name, _stamp(text), found["close"], found["volume"]))
    return rows


def _tables(files: Tree) -> list[tuple[str, bytes]]:
    endings = (".parquet", ".csv", ".csv.gz")
    top = [name for name in sorted(files) if "/" not in name and not name.startswith(_HIDDEN)]
    return [(name, files[name]) for name in top if name.lower().endswith(endings)]


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
    rows: list[Row] = []
    wanted = {"instrument": [pa.string()], "datetime": [pa.timestamp("us"), pa.timestamp("ns")]}
    wanted |= {field: [pa.float64(), pa.int64()] for field in ("close", "volume")}
    for name, content in _tables(files):
        if not name.lower().endswith(".parquet"):
            return None
        made = pq.read_table(io.BytesIO(content))
        if any(made.column_names.count(one) != 1 or made.schema.field(one).type not in wanted[one] for one in wanted):
            return None
        stamps = made["datetime"].cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
        numbers = (
            [_NAN if one is None else float(one) for one in made[field].to_pylist()] for field in ("close", "volume")
        )
        rows += zip(made["instrument"].to_pylist(), stamps, *numbers, strict=True)
    return rows
