"""Qlib's binary directories, without Qlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, clock, reader
from rlwb.market.readers.content import MEGABYTES, nearest_decimal, read_file
from rlwb.market.schema import FIELDS, KEYS, PRICES, REQUIRED, SIZES

_PARTS = ("calendars", "instruments", "features")
_NEEDED = REQUIRED[len(KEYS) :]
_STAMP = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?")
#: What nanoseconds reach.
_FIRST, _LAST = np.datetime64("1700-01-01", "s"), np.datetime64("2260-01-01", "s")
#: Bars of one instrument: stamps and columns of shape ``(bars,)``.
_Bars = tuple[np.ndarray, dict[str, np.ndarray]]


def qlib_files(source: Path, *, freq: str | None = None, market: str = "all") -> list[Path]:
    """Return the calendar, the list of instruments, and all columns of the frequency."""
    calendar, listing = _lists(source, freq, market)
    columns = _columns(source, calendar.stem)
    return [calendar, listing, *sorted(path for paths in columns.values() for path in paths.values())]


def _is_qlib(source: Path) -> bool:
    return all((source / part).is_dir() for part in _PARTS)


@reader("qlib", files=qlib_files, recognises=_is_qlib)
def read_qlib(
    source: Path,
    *,
    freq: str | None = None,
    market: str = "all",
    prices: Literal["stored", "raw"] = "stored",
    max_megabytes: int = MEGABYTES,
    instruments: frozenset[str] | None = None,
    report: Report,
) -> Iterator[pa.Table]:
    """Read a Qlib data directory (`calendars`, `instruments`, `features`); see docs/readers/qlib.md.

    Parameters
    ----------
    freq
        ``"day"``, ``"1min"``, ``"5min"``: the middle of the files' names. May be left out where the calendars hold one.
    market
        Which list of ``instruments/`` is read.
    prices
        ``"stored"`` leaves prices and volumes as they are, mostly adjusted. ``"raw"`` divides prices by the column
        `factor` and multiplies volumes by it, which gives what was traded, and keeps the factor for comparisons across
        days (`rlwb.market.actions`).
    max_megabytes : MB
        A calendar or list that is larger is refused before it is read further.
    """
    calendar, listing = _lists(source, freq, market)
    steps = _steps(calendar, max_megabytes)
    spans, padded = _spans(listing, max_megabytes)
    columns, known = _columns(source, calendar.stem), {*FIELDS, "factor"}
    bare = {name for name in spans if not set(_NEEDED) & set(columns.get(name.lower(), {}))}
    for reason, found in (
        ("instrument_padded", padded),
        ("instrument_unlisted", sorted(set(columns) - {name.lower() for name in spans})),
        ("column_ignored", sorted({field for paths in columns.values() for field in paths} - known)),
        ("instrument_without_bars", sorted(bare)),
    ):
        report.add(reason, len(found), ", ".join(found[:5]))
    if len(bare) == len(spans):
        raise DataError(f"{source / 'features'} holds no {calendar.stem} prices of {listing}; check freq.")
    for name in sorted(set(spans) - bare):
        if instruments is not None and name not in instruments:
            continue
        paths = {field: path for field, path in columns[name.lower()].items() if field in known}
        stamps, fields = _read(name, paths, steps)
        empty = np.logical_and.reduce([np.isnan(fields[field]) for field in _NEEDED])
        listed = np.logical_or.reduce([(stamps >= first) & (stamps <= last) for first, last in spans[name]])
        for reason, left_out in (("no_bar", empty), ("outside_listing", ~empty & ~listed)):
            _tell(report, reason, left_out, name, stamps)
        kept = ~empty & listed
        fields = {field: values[kept] for field, values in fields.items()}
        yield bars(name, stamps[kept], _priced(name, stamps[kept], fields, prices == "raw", report))


def _tell(report: Report, reason: str, found: np.ndarray, name: str, stamps: np.ndarray) -> None:
    if found.any():
        report.add(reason, int(found.sum()), f"{name} {clock(stamps[found][0])}")


def _lists(source: Path, freq: str | None, market: str) -> tuple[Path, Path]:
    """Return the calendar and the list of instruments."""
    if not _is_qlib(source):
        raise DataError(f"{source} is not a Qlib directory with calendars, instruments and features.")
    of_calendars, of_markets = (sorted((source / part).glob("[!.]*.txt")) for part in _PARTS[:2])
    calendars = {path.stem: path for path in of_calendars if not path.stem.endswith("_future")}
    markets = {path.stem.lower(): path for path in of_markets}
    freq = freq or (next(iter(calendars)) if len(calendars) == 1 else None)
    if freq not in calendars:
        asked = f"no {freq}" if freq else "not one calendar alone"
        raise DataError(f"{source / 'calendars'} holds {asked}; choose freq from {', '.join(calendars) or 'none'}.")
    if market.lower() not in markets:
        choices = ", ".join(markets) or "none"
        raise DataError(f"{source / 'instruments'} has no list {market!r}; choose market from {choices}.")
    return calendars[freq], markets[market.lower()]


def _columns(source: Path, freq: str) -> dict[str, dict[str, Path]]:
    """Return the files of the frequency by lower-case instrument and field."""
    ending = f".{freq}.bin".lower()
    folders: dict[str, Path] = {}
    for folder in sorted(path for path in (source / "features").glob("[!.]*") if path.is_dir()):
        name = folder.name.lower().removeprefix("_qlib_")  # Qlib's prefix of what Windows would take for a device
        if folders.setdefault(name, folder) != folder:
            raise DataError(
                f"{folders[name].name} and {folder.name} in {folder.parent} differ by case alone; keep one."
            )
    return {
        name: {
            path.name.lower().removesuffix(ending): path
            for path in sorted(folder.iterdir())
            if path.name.lower().endswith(ending)
        }
        for name, folder in folders.items()
    }


def _lines(path: Path, max_megabytes: int) -> list[tuple[int, str]]:
    """Return the lines of a file that are not blank, with their rows."""
    try:
        lines = read_file(path, max_megabytes).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; it is not of a Qlib directory, or damaged.") from None
    return [(row, line) for row, line in enumerate(lines, 1) if line.strip()]


def _stamps(lines: list[tuple[int, str]], path: Path) -> np.ndarray:
    """Return the stamps that lines hold as datetime64[s]."""
    try:
        if all(_STAMP.fullmatch(text) for _, text in lines):
            return np.array([text for _, text in lines], dtype="datetime64[s]")
    except ValueError:
        pass
    if len(lines) > 1:  # one by one, so that the first that cannot be is named
        return np.concatenate([_stamps([line], path) for line in lines])
    row, text = lines[0]
    raise DataError(f"{path}, row {row}: {text[:40]!r} is not YYYY-MM-DD HH:MM:SS; correct it.")


def _steps(path: Path, max_megabytes: int) -> np.ndarray:
    """Return the steps of ``calendars/<freq>.txt``, datetime64[ns] and strictly increasing."""
    lines = _lines(path, max_megabytes)
    if not lines:
        raise DataError(f"{path} holds no date; write it again.")
    steps = _stamps([(row, line.strip()) for row, line in lines], path)
    for bad, what in (
        ((steps < _FIRST) | (steps > _LAST), "lies outside the years 1700 to 2259"),
        (
            np.append(False, np.diff(steps) <= np.timedelta64(0)),
            "does not follow the line before it, which shifts every bar behind it",
        ),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            raise DataError(f"{path}, row {lines[first][0]}: {steps[first]} {what}; correct the calendar.")
    return steps.astype("datetime64[ns]")


def _spans(path: Path, max_megabytes: int) -> tuple[dict[str, list[tuple[np.datetime64, np.datetime64]]], list[str]]:
    """Return the listed dates of each instrument of ``instruments/<market>.txt``, and ids that had blanks around them.

    A last date without a time of day includes that day.
    """
    spans: dict[str, list[tuple[np.datetime64, np.datetime64]]] = {}
    padded: list[str] = []
    spellings: dict[str, str] = {}
    for row, line in _lines(path, max_megabytes):
        name, *dates = (cell.strip() for cell in line.split("\t"))
        if spellings.setdefault(name.lower(), name) != name:
            raise DataError(f"{path} lists {name.lower()} in two spellings, which share one folder; keep one of them.")
        if len(dates) < 2 or not name:
            raise DataError(f"{path}, row {row}: {line[:60]!r} is not an id and two dates between tabs; correct it.")
        if not line.startswith(f"{name}\t"):
            padded.append(name)
        first, last = _stamps([(row, date) for date in dates[:2]], path)
        if len(dates[1]) == len("YYYY-MM-DD"):
            last = last + np.timedelta64(86_399, "s")
        # An open end is often written as a year that nanoseconds do not reach.
        spans.setdefault(name, []).append((min(max(first, _FIRST), _LAST), min(max(last, _FIRST), _LAST)))
    if not spans:
        raise DataError(f"{path} lists no instrument; write it again.")
    return spans, padded


def _read(name: str, paths: Mapping[str, Path], steps: np.ndarray) -> _Bars:
    """Return the steps of one instrument from its first value to its last, and the columns on them."""
    absent = [field for field in _NEEDED if field not in paths]
    if absent:
        raise DataError(
            f"{next(iter(paths.values())).parent} has no {absent[0]}, so {name} is without; add the file or take the "
            "instrument off the list."
        )
    columns = {field: _column(path, len(steps)) for field, path in paths.items()}
    first = min((start for start, values in columns.values() if len(values)), default=0)
    last = max((start + len(values) for start, values in columns.values() if len(values)), default=0)
    fields = {field: np.full(last - first, np.nan) for field in columns}
    for field, (start, values) in columns.items():
        fields[field][start - first : start - first + len(values)] = nearest_decimal(values)
    return steps[first:last], fields


def _column(path: Path, steps: int) -> tuple[int, np.ndarray]:
    """Return the calendar step of the first value of a ``.bin`` file, and its values, float32.

    The file is little-endian float32: the index of that step, then a value a step. One that reaches beyond the `steps`
    of the calendar is refused: it was written for another calendar, on which its values had other dates.
    """
    try:
        size = path.stat().st_size
        content = np.fromfile(path, "<f4", count=min(size // 4, steps + 1))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights.") from None
    if not size or size % 4:
        raise DataError(f"{path} has {size:,} bytes, not a whole number of float32 values; it was cut, copy it again.")
    start = float(content[0])
    if not (0 <= start < 2**24 and start.is_integer()):  # float32 counts no further without gaps
        raise DataError(f"{path}: the start index is {start:g}, not a whole number from 0; write the file again.")
    count = size // 4 - 1
    if start + count > steps:
        raise DataError(
            f"{path} holds {count:,} values from step {start:.0f} of a calendar of {steps:,} steps; it was written for "
            "another calendar, so its dates are unknown: write it again."
        )
    return int(start), content[1:]


def _priced(
    name: str, stamps: np.ndarray, fields: dict[str, np.ndarray], raw: bool, report: Report
) -> dict[str, np.ndarray]:
    """Return columns with prices as stored and no factor, or as traded and with it."""
    factor = fields.pop("factor", None)
    if factor is None:
        if raw:
            raise DataError(f"{name} has no factor, so raw prices cannot be computed; use 'stored'.")
        return fields
    known = np.isfinite(factor) & (factor > 0)
    _tell(report, "factor_applied" if raw else "price_adjusted", known & (factor != 1), name, stamps)
    if not raw:
        return fields
    _tell(report, "factor_missing", ~known, name, stamps)
    factor = np.where(known, factor, np.nan)
    with np.errstate(over="ignore"):
        traded = {
            field: values / factor if field in PRICES else values * factor if field in SIZES else values
            for field, values in fields.items()
        }
    return {**traded, "factor": factor}
