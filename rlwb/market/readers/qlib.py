"""Qlib's binary directories, without Qlib."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.decimals import nearest_decimal
from rlwb.market.readers.frames import Part, check_found, join_bars, text
from rlwb.market.readers.qlib_layout import read_calendar, read_column, read_instruments
from rlwb.market.report import Report
from rlwb.market.schema import FIELDS, PRICES, REQUIRED, SIZES

_NEEDED = REQUIRED[2:]
_FACTOR = "factor"
#: Qlib's prefix of folders that Windows would take for a device.
_DEVICE = "_qlib_"


@dataclass(frozen=True)
class QlibReader(Reader):
    """Bars of a Qlib data directory (`calendars`, `instruments`, `features`); see docs/readers/qlib.md.

    Parameters
    ----------
    freq
        ``"day"``, ``"1min"``, ``"5min"``: the middle of the files' names. May be left out where the calendars hold one.
    market
        Which list of ``instruments/`` is read.
    prices
        ``"stored"`` leaves prices and volumes as they are, mostly adjusted. ``"raw"`` divides prices by the column
        `factor` and multiplies volumes by it, which gives what was traded, and keeps the factor for comparisons across
        days (`rlwb.market.factors`).
    """

    freq: str | None = None
    market: str = "all"
    prices: Literal["stored", "raw"] = "stored"

    kind: ClassVar[str] = "qlib"
    label: ClassVar[Literal["start", "end"] | None] = None

    @classmethod
    def recognises(cls, source: Path) -> bool:
        return all((source / part).is_dir() for part in ("calendars", "instruments", "features"))

    def files(self, source: Path) -> tuple[list[Path], list[str]]:
        calendar, listing = self._lists(source)
        parts = {"calendars", "instruments", "features"}
        bins = [path for columns in self._columns(source, calendar.stem).values() for path in columns.values()]
        ignored = [entry.name for entry in sorted(source.iterdir()) if entry.name not in parts]
        return [calendar, listing, *sorted(bins)], ignored

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        calendar_file, listing = self._lists(source)
        steps = read_calendar(calendar_file, self.max_bytes)
        spans, padded = read_instruments(listing, self.max_bytes)
        folders = self._columns(source, calendar_file.stem)
        at = _folders_of(list(spans), list(folders), listing)
        report.add("instrument_padded", len(padded), ", ".join(padded[:5]))
        unlisted = sorted(set(folders) - set(at.values()))
        report.add("instrument_unlisted", len(unlisted), ", ".join(unlisted[:5]))
        self._note_other_fields(source, calendar_file.stem, report)
        bare = sorted(name for name in spans if not set(_NEEDED) & set(folders.get(at.get(name, ""), {})))
        if instruments is not None:
            check_found(instruments, set(spans) - set(bare), source)
        report.add("instrument_without_bars", len(bare), ", ".join(bare[:5]))
        if len(bare) == len(spans):
            raise DataError(f"{source / 'features'} holds no {calendar_file.stem} prices of {listing}; check freq.")
        names = [name for name in spans if name not in bare and (instruments is None or name in instruments)]
        return join_bars(self._parts(names, at, folders, steps, spans, report), report)

    def _lists(self, source: Path) -> tuple[Path, Path]:
        if not self.recognises(source):
            raise DataError(f"{source} is not a Qlib directory with calendars, instruments and features.")
        calendars = {path.stem: path for path in _texts(source / "calendars") if not path.stem.endswith("_future")}
        markets = {path.stem.lower(): path for path in _texts(source / "instruments")}
        freq = self.freq or (next(iter(calendars)) if len(calendars) == 1 else None)
        if freq not in calendars:
            asked = f"no {freq}" if freq else "not one calendar alone"
            raise DataError(f"{source / 'calendars'} holds {asked}; choose freq from {', '.join(calendars) or 'none'}.")
        if self.market.lower() not in markets:
            choices = ", ".join(markets) or "none"
            raise DataError(f"{source / 'instruments'} has no list {self.market!r}; choose market from {choices}.")
        return calendars[freq], markets[self.market.lower()]

    def _columns(self, source: Path, freq: str) -> dict[str, dict[str, Path]]:
        """Return the files of the schema's columns of each folder of features, by lower-case field."""
        wanted = {f"{field}.{freq}.bin".lower(): field for field in (*FIELDS, _FACTOR)}
        return {
            folder.name: {
                wanted[path.name.lower()]: path for path in sorted(folder.iterdir()) if path.name.lower() in wanted
            }
            for folder in sorted((source / "features").iterdir())
            if folder.is_dir() and not folder.name.startswith(".")
        }

    def _note_other_fields(self, source: Path, freq: str, report: Report) -> None:
        ending = f".{freq}.bin".lower()
        names = {path.name.lower() for path in (source / "features").glob("*/*") if path.name.lower().endswith(ending)}
        known = (*FIELDS, _FACTOR)
        other = sorted(field for name in names if (field := name.removesuffix(ending)) not in known)
        report.add("column_ignored", len(other), ", ".join(other[:5]))

    def _parts(
        self,
        names: list[str],
        at: Mapping[str, str],
        folders: Mapping[str, Mapping[str, Path]],
        steps: np.ndarray,
        spans: Mapping[str, list[tuple[np.datetime64, np.datetime64]]],
        report: Report,
    ) -> Iterator[Part]:
        for name in names:
            paths = folders[at[name]]
            absent = [field for field in _NEEDED if field not in paths]
            if absent:
                raise DataError(
                    f"{next(iter(paths.values())).parent} has no {absent[0]}, so {name} is without; add the file or "
                    "take the instrument off the list."
                )
            part = _read_part(name, paths, steps, report)
            listed = np.zeros(len(part.stamps), dtype=bool)
            for first, last in spans[name]:
                listed |= (part.stamps >= first) & (part.stamps <= last)
            outside = part.stamps[~listed]
            if len(outside):
                report.add("outside_listing", len(outside), f"{name} {text(outside[0])}")
            yield self._priced(_take(part, listed), report)

    def _priced(self, part: Part, report: Report) -> Part:
        """Return bars without their factor, adjusted as asked."""
        fields = dict(part.fields)
        factor = fields.pop(_FACTOR, None)
        if factor is None:
            if self.prices == "raw":
                raise DataError(f"{part.instrument} has no factor, so raw prices cannot be computed; use 'stored'.")
            return Part(part.instrument, part.stamps, fields)
        known = np.isfinite(factor) & (factor > 0)
        changed = known & (factor != 1)
        if changed.any():
            reason = "factor_applied" if self.prices == "raw" else "price_adjusted"
            report.add(reason, int(changed.sum()), f"{part.instrument} {text(part.stamps[np.argmax(changed)])}")
        if self.prices == "raw":
            if not known.all():
                report.add(
                    "factor_missing", int((~known).sum()), f"{part.instrument} {text(part.stamps[np.argmin(known)])}"
                )
            factor = np.where(known, factor, np.nan)
            with np.errstate(over="ignore"):
                fields.update({name: fields[name] / factor for name in PRICES if name in fields})
                fields.update({name: fields[name] * factor for name in SIZES if name in fields})
            fields[_FACTOR] = factor
        return Part(part.instrument, part.stamps, fields)


def _texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.txt") if path.is_file() and not path.name.startswith("."))


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


def _read_part(name: str, paths: Mapping[str, Path], steps: np.ndarray, report: Report) -> Part:
    """Return the steps of one instrument at which any column of `REQUIRED` has a value."""
    columns = {field: read_column(path, len(steps)) for field, path in paths.items()}
    filled = [column for column in columns.values() if len(column.values)]
    first = min((column.start for column in filled), default=0)
    last = max((column.start + len(column.values) for column in filled), default=0)
    fields = {field: np.full(last - first, np.nan) for field in columns}
    for field, column in columns.items():
        begin = column.start - first
        fields[field][begin : begin + len(column.values)] = nearest_decimal(column.values)
    part = Part(name, steps[first:last], fields)
    there = ~np.logical_and.reduce([np.isnan(fields[field]) for field in _NEEDED])
    if not there.all():
        report.add("no_bar", int((~there).sum()), f"{name} {text(part.stamps[np.argmin(there)])}")
    return _take(part, there)


def _take(part: Part, mask: np.ndarray) -> Part:
    return Part(part.instrument, part.stamps[mask], {name: column[mask] for name, column in part.fields.items()})
