"""Qlib's binary directories, without Qlib."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import bars, clock, reader
from rlwb.market.readers.content import MEGABYTES
from rlwb.market.readers.delimited import nearest_decimal
from rlwb.market.readers.qlib_layout import read_calendar, read_column, read_instruments
from rlwb.market.schema import FIELDS, PRICES, REQUIRED, SIZES

_PARTS = ("calendars", "instruments", "features")
_NEEDED = REQUIRED[2:]
#: Qlib's prefix of folders that Windows would take for a device.
_DEVICE = "_qlib_"


class _Bars(NamedTuple):
    """Bars of one instrument: stamps and columns of shape ``(bars,)``."""

    name: str
    stamps: np.ndarray
    fields: dict[str, np.ndarray]

    def take(self, mask: np.ndarray) -> _Bars:
        return _Bars(self.name, self.stamps[mask], {name: column[mask] for name, column in self.fields.items()})

    def example(self, mask: np.ndarray) -> str:
        """Return the first bar of `mask` for a message."""
        return f"{self.name} {clock(self.stamps[mask][0])}"


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
    source
        The directory.
    freq
        ``"day"``, ``"1min"``, ``"5min"``: the middle of the files' names. May be left out where the calendars hold one.
    market
        Which list of ``instruments/`` is read.
    prices
        ``"stored"`` leaves prices and volumes as they are, mostly adjusted. ``"raw"`` divides prices by the column
        `factor` and multiplies volumes by it, which gives what was traded, and keeps the factor for comparisons across
        days (`rlwb.market.actions`).
    max_megabytes
        A calendar or list that is larger is refused before it is read further.
    """
    calendar, listing = _lists(source, freq, market)
    steps = read_calendar(calendar, max_megabytes)
    spans, padded = read_instruments(listing, max_megabytes)
    every, known = _columns(source, calendar.stem), {*FIELDS, "factor"}
    columns = {folder: {name: path for name, path in paths.items() if name in known} for folder, paths in every.items()}
    at = _folders_of(list(spans), list(columns), listing)
    others = sorted({name for paths in every.values() for name in paths} - known)
    unlisted = sorted(set(columns) - set(at.values()))
    bare = sorted(name for name in spans if not set(_NEEDED) & set(columns.get(at.get(name, ""), {})))
    for reason, found in (
        ("instrument_padded", padded),
        ("instrument_unlisted", unlisted),
        ("column_ignored", others),
        ("instrument_without_bars", bare),
    ):
        report.add(reason, len(found), ", ".join(found[:5]))
    if len(bare) == len(spans):
        raise DataError(f"{source / 'features'} holds no {calendar.stem} prices of {listing}; check freq.")
    for name in sorted(set(spans) - set(bare)):
        if instruments is None or name in instruments:
            found_bars = _read(name, columns[at[name]], steps, report)
            listed = np.zeros(len(found_bars.stamps), dtype=bool)
            for first, last in spans[name]:
                listed |= (found_bars.stamps >= first) & (found_bars.stamps <= last)
            if not listed.all():
                report.add("outside_listing", int((~listed).sum()), found_bars.example(~listed))
            found_bars = _priced(found_bars.take(listed), prices == "raw", report)
            yield bars(name, found_bars.stamps, found_bars.fields)


def _lists(source: Path, freq: str | None, market: str) -> tuple[Path, Path]:
    """Return the calendar and the list of instruments."""
    if not _is_qlib(source):
        raise DataError(f"{source} is not a Qlib directory with calendars, instruments and features.")
    calendars = {path.stem: path for path in _texts(source / "calendars") if not path.stem.endswith("_future")}
    markets = {path.stem.lower(): path for path in _texts(source / "instruments")}
    freq = freq or (next(iter(calendars)) if len(calendars) == 1 else None)
    if freq not in calendars:
        asked = f"no {freq}" if freq else "not one calendar alone"
        raise DataError(f"{source / 'calendars'} holds {asked}; choose freq from {', '.join(calendars) or 'none'}.")
    if market.lower() not in markets:
        choices = ", ".join(markets) or "none"
        raise DataError(f"{source / 'instruments'} has no list {market!r}; choose market from {choices}.")
    return calendars[freq], markets[market.lower()]


def _texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.txt") if path.is_file() and not path.name.startswith("."))


def _columns(source: Path, freq: str) -> dict[str, dict[str, Path]]:
    """Return the files of the frequency in each folder of features, by lower-case field."""
    ending = f".{freq}.bin".lower()
    return {
        folder.name: {
            path.name.lower().removesuffix(ending): path
            for path in sorted(folder.iterdir())
            if path.name.lower().endswith(ending)
        }
        for folder in sorted((source / "features").iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    }


def _folders_of(names: list[str], folders: list[str], listing: Path) -> dict[str, str]:
    """Return the folder of each id that has one; ids and folders match without regard to case."""
    doubled = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if doubled:
        raise DataError(f"{listing} lists {doubled[0]} in two spellings, which share one folder; keep one of them.")
    by_name: dict[str, str] = {}
    for folder in folders:
        name = folder.lower().removeprefix(_DEVICE)
        if name in by_name:
            raise DataError(f"the folders {by_name[name]} and {folder} beside {listing.parent} differ by case alone.")
        by_name[name] = folder
    return {name: by_name[name.lower()] for name in names if name.lower() in by_name}


def _read(name: str, paths: Mapping[str, Path], steps: np.ndarray, report: Report) -> _Bars:
    """Return the steps of one instrument at which any column of `REQUIRED` has a value."""
    absent = [field for field in _NEEDED if field not in paths]
    if absent:
        raise DataError(
            f"{next(iter(paths.values())).parent} has no {absent[0]}, so {name} is without; add the file or take the "
            "instrument off the list."
        )
    columns = {field: read_column(path, len(steps)) for field, path in paths.items()}
    filled = [column for column in columns.values() if len(column.values)]
    first = min((column.start for column in filled), default=0)
    last = max((column.start + len(column.values) for column in filled), default=0)
    fields = {field: np.full(last - first, np.nan) for field in columns}
    for field, column in columns.items():
        begin = column.start - first
        fields[field][begin : begin + len(column.values)] = nearest_decimal(column.values)
    found = _Bars(name, steps[first:last], fields)
    there = ~np.logical_and.reduce([np.isnan(fields[field]) for field in _NEEDED])
    if not there.all():
        report.add("no_bar", int((~there).sum()), found.example(~there))
    return found.take(there)


def _priced(found: _Bars, raw: bool, report: Report) -> _Bars:
    """Return bars with prices as stored and no factor, or as traded and with it."""
    fields = dict(found.fields)
    factor = fields.pop("factor", None)
    if factor is None:
        if raw:
            raise DataError(f"{found.name} has no factor, so raw prices cannot be computed; use 'stored'.")
        return found
    known = np.isfinite(factor) & (factor > 0)
    changed = known & (factor != 1)
    if changed.any():
        report.add("factor_applied" if raw else "price_adjusted", int(changed.sum()), found.example(changed))
    if raw:
        if not known.all():
            report.add("factor_missing", int((~known).sum()), found.example(~known))
        factor = np.where(known, factor, np.nan)
        with np.errstate(over="ignore"):
            fields.update({name: fields[name] / factor for name in PRICES if name in fields})
            fields.update({name: fields[name] * factor for name in SIZES if name in fields})
        fields["factor"] = factor
    return found._replace(fields=fields)
