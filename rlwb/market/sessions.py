"""`Sessions`: the dense panel of all bars, one row a session, one column a tick."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar, day_of
from rlwb.market.findings import Report
from rlwb.market.schema import FIELDS
from rlwb.market.store import Arrays, checksum_of, new_arrays, open_arrays

_TYPES: dict[str, Any] = {
    "instruments": np.str_,
    "dates": "datetime64[D]",
    "num_ticks": np.int32,
    "halted": bool,
    "factor": np.float64,
}

_HALF = 1 << 31


class SessionIndex(NamedTuple):
    """Where the sessions of each instrument lie, by which they are found at 8 bytes a session."""

    names: np.ndarray  # the distinct instruments, sorted, text of shape (I,)
    first: np.ndarray  # their rows are `first` up to, not including, `stop`; int64 of shape (I,)
    stop: np.ndarray
    codes: dict[str, int]  # the number of each name
    keys: np.ndarray  # of each session one that sorts as (instrument, date) does, int64 of shape (S,)


@dataclass(frozen=True, eq=False, repr=False)
class Sessions:
    """All sessions (one instrument on one day) of a market on one clock; immutable.

    Parameters
    ----------
    calendar
        The clock; ``T = calendar.num_ticks``.
    instruments
        Instrument of each session, text of shape ``(S,)``; rows are sorted by (instrument, date).
    dates
        Date of each session, datetime64[D] of shape ``(S,)``.
    num_ticks
        Length of each session in ticks, int32 of shape ``(S,)``, at most ``T`` (early closes).
    fields
        Arrays of shape ``(S, T)``, float64, by name: open, high, low, close, volume and whichever of bid, ask,
        bid_size, ask_size, vwap the bars have. Prices per share, volume in shares. NaN = missing; a price is
        never 0 or negative; ticks at and after ``num_ticks`` are NaN.
    halted
        Bool of shape ``(S, T)``, or None when the bars do not say.
    factor
        Adjustment factor of each session, float64 of shape ``(S,)``, or None when the bars do not say; what is compared
        across sessions goes by it (`rlwb.market.actions`).
    report
        What was dropped, repaired and noticed on the way here.
    directory
        Where the arrays are mapped from, when they are.
    """

    calendar: Calendar
    instruments: np.ndarray
    dates: np.ndarray
    num_ticks: np.ndarray
    fields: Mapping[str, np.ndarray]
    halted: np.ndarray | None = field(default=None, kw_only=True)
    factor: np.ndarray | None = field(default=None, kw_only=True)
    report: Report = field(default_factory=Report, kw_only=True)
    directory: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, _read_only(np.asarray(values, dtype=kind)))
        given = {name: np.asarray(self.fields[name], dtype=np.float64) for name in FIELDS if name in self.fields}
        fields = MappingProxyType({name: _read_only(values) for name, values in given.items()})
        object.__setattr__(self, "fields", fields)
        self._check()

    def _check(self) -> None:
        count, ticks = len(self.instruments), self.calendar.num_ticks
        for name, array in (*self.fields.items(), ("halted", self.halted)):
            if array is not None and array.shape != (count, ticks):
                raise DataError(f"field {name} has shape {array.shape}; {count} sessions of {ticks} ticks are needed.")
        if self.dates.shape != (count,) or self.num_ticks.shape != (count,):
            raise DataError(f"dates {self.dates.shape} and num_ticks {self.num_ticks.shape} must have {count} rows.")
        if self.factor is not None and (self.factor.shape != (count,) or not (self.factor > 0).all()):
            raise DataError(f"factor of shape {self.factor.shape} must be {count} numbers above 0.")
        same = self.instruments[1:] == self.instruments[:-1]
        later = (self.instruments[1:] > self.instruments[:-1]) | (same & (self.dates[1:] > self.dates[:-1]))
        if not later.all():
            row = int(np.argmin(later)) + 1
            raise DataError(
                f"session {row} ({self.instruments[row]} {self.dates[row]}) is not after the one before it; "
                "sort the rows by instrument and date, without doubles."
            )

    def __len__(self) -> int:
        return len(self.instruments)

    def __repr__(self) -> str:
        span = f", {self.dates.min()}..{self.dates.max()}" if len(self) else ""
        names = len(self.index.names)
        return f"Sessions({len(self)} sessions, {names} instruments{span}, {self.calendar.num_ticks} ticks)"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.directory is not None:  # other processes map the same files instead of holding copies
            return _reopen, (self.directory, self.fingerprint)
        return _of_arrays, (self.as_arrays(), self.calendar, self.report, None)

    @cached_property
    def index(self) -> SessionIndex:
        """Where each instrument and date lies; ``index.names`` are the distinct instruments, sorted."""
        first = np.flatnonzero(np.append(True, self.instruments[1:] != self.instruments[:-1])[: len(self)])
        stop = np.append(first[1:], len(self))[: len(first)]
        names = self.instruments[first]
        code = np.repeat(np.arange(len(first)), stop - first)
        codes = {name: number for number, name in enumerate(names.tolist())}
        return SessionIndex(names, first, stop, codes, _key(code, self.dates.astype(np.int64)))

    @cached_property
    def first(self) -> np.ndarray:
        """Row of the same instrument's first session, int64 of shape ``(S,)``."""
        return _read_only(np.repeat(self.index.first, self.index.stop - self.index.first))

    @cached_property
    def previous(self) -> np.ndarray:
        """Row of the same instrument's previous session, int32 of shape ``(S,)``; -1 where there is none."""
        rows = np.arange(len(self), dtype=np.int32) - 1
        rows[self.index.first] = -1
        return _read_only(rows)

    @property
    def in_session(self) -> np.ndarray:
        """Bool of shape ``(S, T)``: True before the session's end. Made anew each time, a byte a bar."""
        return _read_only(np.arange(self.calendar.num_ticks)[None, :] < self.num_ticks[:, None])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the calendar, the sessions and every value in them."""
        return _fingerprint(self.calendar, {name: checksum_of(values) for name, values in self.as_arrays().items()})

    def rows(self, instruments: Iterable[str], dates: Iterable[Any]) -> np.ndarray:
        """Return the row of each (instrument, date), int64; -1 where there is no such session."""
        keys = self.index.keys
        given = dates if isinstance(dates, np.ndarray) else list(dates)
        days = np.asarray(given, dtype="datetime64[D]").astype(np.int64)
        codes = np.array([self.index.codes.get(name, -1) for name in instruments], dtype=np.int64)
        if len(codes) != len(days):
            raise ValueError(f"{len(codes)} instruments and {len(days)} dates are given; give one date an instrument.")
        if not len(self):
            return np.full(len(codes), -1)
        known = (codes >= 0) & (days >= -_HALF) & (days < _HALF)
        wanted = _key(codes, np.where(known, days, 0))
        found = np.minimum(np.searchsorted(keys, wanted), len(self) - 1)
        return np.where(known & (keys[found] == wanted), found, -1)

    def row(self, instrument: str, date: Any) -> int:
        """Return the row of one session, of a date in any form; one that is not there is a `DataError`."""
        if not isinstance(instrument, str):
            raise DataError(f"instrument {instrument!r} is not text; quote it, so that 000001 keeps its zeros.")
        try:
            day = day_of(date)
        except ConfigError:
            raise DataError(f"the date {date!r} of {instrument} cannot be read; write it as YYYY-MM-DD.") from None
        code = self.index.codes.get(instrument)
        if code is None:
            near = difflib.get_close_matches(instrument, self.index.codes, n=1, cutoff=0.0)
            hint = f"the nearest name is {near[0]}" if near else "there are no sessions at all"
            raise DataError(f"instrument {instrument} has no session; {hint}.")
        found = int(self.rows([instrument], [day])[0])
        if found >= 0:
            return found
        own = self.dates[self.index.first[code] : self.index.stop[code]]
        nearest = own[np.argmin(np.abs(own - day))]
        raise DataError(
            f"{instrument} has no session on {day}; the nearest is {nearest} (it has {len(own)}, "
            f"{own[0]} to {own[-1]}). Its report says which were dropped."
        )

    def select(self, rows: np.ndarray) -> Sessions:
        """Return the sessions of `rows` (bool of shape ``(S,)`` or row numbers), in the order of the panel.

        Each session's previous one is looked up within the selection.
        """
        rows = np.asarray(rows)
        keep = np.zeros(len(self), dtype=bool)
        keep[rows if len(rows) else rows.astype(np.int64)] = True
        arrays = {name: array[keep] for name, array in self.as_arrays().items()}
        return _of_arrays(arrays, self.calendar, self.report, None)

    def without_fields(self) -> Sessions:
        """Return the sessions without their bars: instruments, dates, lengths and factors."""
        return Sessions(self.calendar, self.instruments, self.dates, self.num_ticks, {}, factor=self.factor)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by the names under which they are stored."""
        arrays = {"instruments": self.instruments, "dates": self.dates.astype(np.int64), "num_ticks": self.num_ticks}
        arrays |= {f"field_{name}": values for name, values in self.fields.items()}
        optional = {"halted": self.halted, "factor": self.factor}
        return arrays | {name: values for name, values in optional.items() if values is not None}

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the panel to `directory`, whole or not at all, replacing a panel that is there."""
        return save_parts([self], directory)

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, verify: bool = True) -> Sessions:
        """Map a saved panel into memory; a damaged one is a `DataError` (checksums are computed when `verify`)."""
        meta, arrays = open_arrays(directory, verify=verify)
        path = Path(directory).absolute()
        try:
            report, calendar = Report.from_dict(meta["report"]), Calendar(**meta["calendar"])
            sessions = _of_arrays(arrays, calendar, report, path)
            sessions.__dict__["fingerprint"] = meta["fingerprint"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the panel in {path} is damaged ({error}); delete it and build it again.") from None
        return sessions


def save_parts(
    parts: Iterable[Sessions],
    directory: str | os.PathLike[str],
    *,
    conclude: Callable[[Sessions], Report] | None = None,
    **extra: Any,
) -> Path:
    """Write one panel that comes in parts and need not fit into memory.

    Parts are of one calendar and with the same fields, all in all sorted by instrument and date. `conclude` takes the
    whole panel, mapped, and returns its report, else those of the parts are added; `extra` goes into the JSON file too.
    """
    calendar: Calendar | None = None
    report = Report()
    with new_arrays(directory) as writer:
        for part in parts:
            if calendar not in (None, part.calendar):
                raise DataError("the parts of a panel differ in calendar or fields; save them as panels of their own.")
            calendar = part.calendar
            report.absorb(part.report)
            writer.add(part.as_arrays())
        arrays, checksums = writer.finish()
        assert calendar is not None
        panel = _of_arrays(arrays, calendar, report, None)
        found = report if conclude is None else conclude(panel)
        fingerprint = _fingerprint(calendar, checksums)
        writer.conclude(
            {"fingerprint": fingerprint, "calendar": calendar.as_dict(), "report": found.as_dict(), **extra}
        )
    return Path(directory).absolute()


def join_sessions(parts: Sequence[Sessions], report: Report) -> Sessions:
    """Return one panel of several, of one calendar and with the same fields, sorted by instrument and date."""
    arrays = [part.as_arrays() for part in parts]
    whole = {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
    return _of_arrays(whole, parts[0].calendar, report, None)


def _key(code: np.ndarray, day: np.ndarray) -> np.ndarray:
    return code.astype(np.int64) * (2 * _HALF) + (day + _HALF)


def _of_arrays(arrays: Arrays, calendar: Calendar, report: Report, directory: Path | None) -> Sessions:
    return Sessions(
        calendar,
        np.array(arrays["instruments"]),
        np.array(arrays["dates"]).astype("datetime64[D]"),
        np.array(arrays["num_ticks"]),
        {name[6:]: array for name, array in arrays.items() if name.startswith("field_")},
        halted=arrays.get("halted"),
        factor=np.array(arrays["factor"]) if "factor" in arrays else None,
        report=report,
        directory=directory,
    )


def _fingerprint(calendar: Calendar, checksums: Mapping[str, str]) -> str:
    content = json.dumps([calendar.as_dict(), dict(sorted(checksums.items()))], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view(np.ndarray)  # a plain view: indexing a memmap is slow
    view.setflags(write=False)
    return view


def _reopen(directory: Path, fingerprint: str) -> Sessions:
    sessions = Sessions.open(directory, verify=False)
    if sessions.fingerprint != fingerprint:
        raise DataError(f"the panel in {directory} was replaced by another since it was opened; open it again.")
    return sessions
