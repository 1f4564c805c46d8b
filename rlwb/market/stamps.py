"""Stamps of bars: from text, through the time zone, onto the clock's grid."""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.clock import DAY_SECONDS

SECOND = 1_000_000_000
MISSING = np.iinfo(np.int64).min
_OFFSET = r"[T ]\d.*(?:Z|[+-]\d{1,2}(?::?\d{1,2})?)$|(?:UTC|GMT)$"


def parse_stamps(
    text: pa.Array | pa.ChunkedArray, where: str, datetime_format: str | None = None, row: int = 1
) -> pa.Array | pa.ChunkedArray:
    """Return stamps read from text as timestamp[ns]: without a zone, or in UTC when all of them carry an offset.

    ISO 8601 is understood, anything else needs `datetime_format` (strptime). Empty text is missing.

    Parameters
    ----------
    where, row
        The file, and the row of the first stamp in it, for messages.

    Raises
    ------
    DataError
        For a mix of stamps with and without an offset, and for text that cannot be read.
    """
    if datetime_format is None and len(text):  # Arrow reads plain forms ten times as fast as pandas, and no others
        with contextlib.suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("ns", "UTC" if has_offset(str(text[0])) else None))
    text = pc.utf8_trim_whitespace(text.cast(pa.string()))
    text = pc.if_else(pc.equal(text, ""), None, text)
    stamps = _parse_any(text.to_pandas().astype("string"), where, datetime_format, row)
    zone = None if stamps.dt.tz is None else "UTC"
    return pa.array(stamps.dt.tz_localize(None).astype("datetime64[ns]")).cast(pa.timestamp("ns", zone))


def _parse_any(text: pd.Series, where: str, datetime_format: str | None, row: int) -> pd.Series:
    present = text.dropna()
    if datetime_format is None:
        aware = present.str.contains(_OFFSET, regex=True)
    elif "%" in datetime_format:
        aware = pd.Series("%z" in datetime_format, index=present.index)
    else:
        raise ConfigError(
            f"datetime_format {datetime_format!r} is no strptime format; write for example '%d/%m/%Y %H:%M'."
        )
    if aware.any() and not aware.all():
        raise DataError(
            f"{where}: some stamps carry a zone ({present[aware].iloc[0]}) and some do not "
            f"({present[~aware].iloc[0]}); write all of them one way."
        )
    form = datetime_format or "ISO8601"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of a zone that the pattern above does not know
            return pd.to_datetime(text, format=form, utc=bool(aware.any()))
    except (ValueError, OverflowError, FutureWarning) as error:
        try:
            parsed = pd.to_datetime(present, format=form, utc=True, errors="coerce")
        except ValueError:
            raise ConfigError(f"datetime_format {form!r} is no strptime format ({error}); correct it.") from None
        bad = np.flatnonzero(text.notna())[parsed.isna()]
        if not len(bad):
            raise DataError(f"{where}: the stamps carry zones of different forms; write all of them one way.") from None
        raise DataError(
            f"{where}, row {bad[0] + row}: the stamp {text.iloc[bad[0]]!r} cannot be read; write YYYY-MM-DD HH:MM:SS "
            "or give datetime_format."
        ) from None


def has_offset(text: str) -> bool:
    """Tell whether the text of a stamp carries an offset or names UTC."""
    return re.search(_OFFSET, text) is not None


def local_nanoseconds(stamps: pd.Series, timezone: str | None) -> np.ndarray:
    """Return session-local stamps as nanoseconds since 1970, int64; `MISSING` where there is none.

    Stamps with a zone are converted to `timezone`, those without are taken as being in it.
    """
    if pd.api.types.is_numeric_dtype(stamps.dtype) or stamps.dtype == bool:
        raise DataError(
            f"column datetime holds numbers ({stamps.iloc[0] if len(stamps) else stamps.dtype}); convert them to "
            "timestamps first, for example with pandas.to_datetime(..., unit='ms')."
        )
    if not isinstance(stamps.dtype, pd.DatetimeTZDtype) and stamps.dtype.kind != "M":
        stamps = parse_stamps(pa.array(stamps, from_pandas=True), "column datetime").to_pandas()
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        if timezone is None:
            raise DataError(
                f"the bars are stamped in the zone {stamps.dtype.tz} and the calendar has none (orders are local "
                "wall-clock time); set Calendar.timezone to the exchange's zone, for example America/New_York."
            )
        stamps = stamps.dt.tz_convert(timezone).dt.tz_localize(None)
    if stamps.dtype != "datetime64[ns]":  # other units reach years that nanoseconds do not
        stamps = stamps.where((stamps > pd.Timestamp.min) & (stamps < pd.Timestamp.max))
    return stamps.to_numpy().astype("datetime64[ns]").view(np.int64)


class Placed(NamedTuple):
    """Where each bar lies: arrays of shape ``(bars,)``."""

    day: np.ndarray  # days since 1970
    tick: np.ndarray  # tick of the session, valid where inside and on_grid
    segment: np.ndarray  # the segment that the stamp lies in, or whose edge it names
    inside: np.ndarray  # within a segment
    on_grid: np.ndarray  # at the start of a tick
    edge: np.ndarray  # outside, but exactly at the edge that the other label would use


def place(local: np.ndarray, calendar: Calendar) -> Placed:
    """Find day and tick of local stamps (ns), read as the calendar's label says."""
    tick_ns = calendar.tick_seconds * SECOND
    start = local - tick_ns if calendar.label == "end" else local
    day, inner = np.divmod(start, DAY_SECONDS * SECOND)
    first = np.searchsorted(calendar.segment, np.arange(len(calendar.segments)))
    last = np.append(first[1:], calendar.num_ticks) - 1
    opens = calendar.tick_start[first] * SECOND
    closes = calendar.tick_start[last] * SECOND + tick_ns
    segment = np.maximum(np.searchsorted(opens, inner, side="right") - 1, 0)
    inside = (inner >= opens[segment]) & (inner < closes[segment])
    if calendar.label == "start":
        edge = ~inside & (inner == closes[segment])
    else:
        following = np.searchsorted(opens, inner, side="left").clip(max=len(opens) - 1)
        edge = ~inside & (inner == opens[following] - tick_ns)
        segment = np.where(edge, following, segment)
    offset, rest = np.divmod(inner - opens[segment], tick_ns)
    return Placed(day, first[segment] + offset, segment, inside, rest == 0, edge)


def text(nanoseconds: int) -> str:
    """Return a local stamp as text for messages."""
    return str(pd.Timestamp(nanoseconds))
