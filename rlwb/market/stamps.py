"""Stamps of bars: from text, through the time zone, onto the clock's grid."""

from __future__ import annotations

import contextlib
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rlwb.errors import ConfigError, DataError

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
