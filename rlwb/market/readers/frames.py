"""Bars of many files as one canonical frame."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.report import Report
from rlwb.market.schema import FIELDS, REQUIRED

STAMP = np.dtype("datetime64[ns]")


class Part(NamedTuple):
    """Bars of one instrument, in the order of their file."""

    instrument: str
    stamps: np.ndarray  # datetime64[ns] of shape (bars,), local to the session's zone
    fields: Mapping[str, np.ndarray]  # columns of the schema, of shape (bars,); what is absent is missing


def join_bars(parts: Iterable[Part], report: Report, zone: str | None = None) -> pd.DataFrame:
    """Return the canonical frame of `parts`: sorted by instrument and stamp, with the schema's types.

    Parameters
    ----------
    parts
        In any order. Those of one instrument are put in the order of their first bars; where they overlap, bars are
        counted as ``unsorted``, and of bars with one stamp those of the later part come last.
    report
        Counts ``unsorted``, and ``datetime_missing`` for bars without a stamp or at a local time that `zone` skips or
        repeats, which are dropped.
    zone
        IANA zone of the stamps; None leaves them without one.

    Returns
    -------
    pandas.DataFrame
        instrument (category of text), datetime (datetime64[ns], with `zone`), the required columns and whichever
        optional ones a part has: float64, halted bool.
    """
    parts = sorted(parts, key=lambda part: (part.instrument, part.stamps[:1].astype(np.int64).tolist()))
    names = sorted({part.instrument for part in parts})
    lengths = [len(part.stamps) for part in parts]
    code = np.repeat([names.index(part.instrument) for part in parts], lengths).astype(np.int64)
    stamps = np.concatenate([part.stamps for part in parts]).astype(STAMP) if parts else np.empty(0, STAMP)
    columns = {name: _column(parts, name) for name in _present(parts)}
    order = np.argsort(code, kind="stable")
    back = (np.diff(stamps[order]) < np.timedelta64(0)) & (np.diff(code[order]) == 0)
    if back.any():
        first = order[1:][back][0]
        report.add("unsorted", int(back.sum()), f"{names[code[first]]} {text(stamps[first])}")
        order = np.lexsort((stamps, code))
    frame = pd.DataFrame(
        {
            "instrument": pd.Categorical.from_codes(code[order], categories=pd.Index(names, dtype=object)),
            "datetime": stamps[order],
            **{name: column[order] for name, column in columns.items()},
        }
    )
    if zone is not None:
        frame["datetime"] = _in_zone(frame["datetime"], zone)
    lost = frame["datetime"].isna().to_numpy()
    if lost.any():
        first = int(np.argmax(lost))
        report.add(
            "datetime_missing", int(lost.sum()), f"{frame['instrument'].iloc[first]} {text(stamps[order][first])}"
        )
        frame = frame[~lost].reset_index(drop=True)
    return frame


def text(stamp: np.datetime64) -> str:
    """Return a stamp for a message."""
    return str(pd.Timestamp(stamp))


def canonical_fault(frame: pd.DataFrame) -> str | None:
    """Return what keeps a frame from being what `join_bars` describes, in words, or None."""
    names = list(frame.columns)
    absent = [name for name in REQUIRED if name not in names]
    if absent or len(set(names)) < len(names):
        return f"its columns are {', '.join(map(str, names))}"
    instrument, stamps = frame["instrument"], frame["datetime"]
    if not isinstance(instrument.dtype, pd.CategoricalDtype) or instrument.isna().any():
        return f"instrument is {instrument.dtype} and not a category without gaps"
    odd = [name for name in instrument.cat.categories if not isinstance(name, str) or not name]
    if odd:
        return f"the instrument {odd[0]!r} is not text"
    kind = stamps.dt.tz_localize(None).dtype if isinstance(stamps.dtype, pd.DatetimeTZDtype) else stamps.dtype
    if kind != STAMP or stamps.isna().any():
        return f"datetime is {stamps.dtype} and not datetime64[ns] without gaps"
    for name in names[names.index("datetime") + 1 :]:
        wanted = bool if name == "halted" else np.float64
        if name not in (*FIELDS, "halted", "factor") or frame[name].dtype != wanted:
            return f"column {name} of type {frame[name].dtype} is not the schema's"
    text = instrument.cat.categories.to_numpy(dtype=np.str_)
    rank = np.argsort(np.argsort(text)) if len(text) else np.empty(0, dtype=np.int64)
    place = rank[instrument.cat.codes.to_numpy()] if len(frame) else np.empty(0, dtype=np.int64)
    later = np.diff(stamps.astype("int64").to_numpy()) >= 0
    if not ((np.diff(place) > 0) | ((np.diff(place) == 0) & later)).all():
        return "its rows are not sorted by instrument and datetime"
    return None


def check_found(wanted: Iterable[str], present: Iterable[str], source: str | os.PathLike[str]) -> None:
    """Raise `DataError` that names the instruments of `wanted` which `source` lacks."""
    present = set(present)
    missing = sorted(set(wanted) - present)
    if missing:
        near = difflib.get_close_matches(missing[0], sorted(map(str, present)), n=1, cutoff=0.0)
        hint = f"; the nearest of its {len(present)} names is {near[0]}" if near else ""
        raise DataError(f"{source} has no instrument {', '.join(missing)}{hint}.")


def keep_last(key: np.ndarray, fields: Mapping[str, np.ndarray], report: Report, where: str) -> np.ndarray:
    """Return an index that sorts rows by `key` and keeps the last of each; what it moves or drops is counted."""
    back = np.diff(key) < 0
    if back.any():
        report.add("unsorted", int(back.sum()), f"{where}, row {int(np.argmax(back)) + 2}")
    order = np.argsort(key, kind="stable")
    again = np.append(np.diff(key[order]) == 0, False) if len(key) else np.zeros(0, dtype=bool)
    if again.any():
        dropped = np.flatnonzero(again)
        same = np.ones(len(dropped), dtype=bool)
        for column in fields.values():
            one, two = column[order[dropped]], column[order[dropped + 1]]
            same &= (one == two) | (np.isnan(one) & np.isnan(two))
        for reason, rows in (("duplicate_identical", dropped[same]), ("duplicate_conflicting", dropped[~same])):
            if len(rows):
                report.add(reason, len(rows), f"{where}, row {order[rows[0]] + 1}")
    return order[~again]


def _present(parts: Sequence[Part]) -> list[str]:
    found = {name for part in parts for name in part.fields} | set(REQUIRED[2:])
    return [name for name in (*FIELDS, "halted", "factor") if name in found]


def _column(parts: Sequence[Part], name: str) -> np.ndarray:
    dtype, empty = (np.dtype(bool), False) if name == "halted" else (np.dtype(np.float64), np.nan)
    pieces = [
        part.fields[name].astype(dtype) if name in part.fields else np.full(len(part.stamps), empty) for part in parts
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def _in_zone(stamps: pd.Series, zone: str) -> pd.Series:
    try:
        return stamps.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"the time zone {zone!r} is unknown; give an IANA name such as UTC.") from None
