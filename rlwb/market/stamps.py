"""Stamps of bars, read from text."""

from __future__ import annotations

import contextlib
import re
import warnings

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

    A mix of stamps with and without an offset is a `DataError`, as is text that cannot be read; it names the file
    `where` and the row, `row` being that of the first stamp.
    """
    if datetime_format is None and len(text):  # Arrow reads plain forms ten times as fast as pandas, and no others
        with contextlib.suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("ns", "UTC" if re.search(_OFFSET, str(text[0])) else None))
    words = pc.utf8_trim_whitespace(text.cast(pa.string())).to_pandas().astype("string").replace("", pd.NA)
    words.index = range(row, row + len(words))
    stamps = _parse_any(words.dropna(), where, datetime_format).reindex(words.index)
    zone = None if stamps.dt.tz is None else "UTC"
    return pa.array(stamps.dt.tz_localize(None).astype("datetime64[ns]")).cast(pa.timestamp("ns", zone))


def _parse_any(words: pd.Series, where: str, datetime_format: str | None) -> pd.Series:
    """Return the stamps of text, none of it missing, that has the rows of a file for its index."""
    if datetime_format is None:
        aware = words.str.contains(_OFFSET, regex=True)
    elif "%" in datetime_format:
        aware = pd.Series("%z" in datetime_format, index=words.index)
    else:
        raise ConfigError(
            f"datetime_format {datetime_format!r} is no strptime format; write for example '%d/%m/%Y %H:%M'."
        )
    if aware.any() and not aware.all():
        raise DataError(
            f"{where}: some stamps carry a zone ({words[aware].iloc[0]}) and some do not ({words[~aware].iloc[0]}); "
            "write all of them one way."
        )
    form = datetime_format or "ISO8601"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of a zone that the pattern above does not know
            return pd.to_datetime(words, format=form, utc=bool(aware.any()))
    except (ValueError, OverflowError, FutureWarning) as error:
        try:
            parsed = pd.to_datetime(words, format=form, utc=True, errors="coerce")
        except ValueError:
            raise ConfigError(f"datetime_format {form!r} is no strptime format ({error}); correct it.") from None
        bad = words[parsed.isna()]
        if not len(bad):
            raise DataError(f"{where}: the stamps carry zones of different forms; write all of them one way.") from None
        raise DataError(
            f"{where}, row {bad.index[0]}: the stamp {bad.iloc[0]!r} cannot be read; write YYYY-MM-DD HH:MM:SS or give "
            "datetime_format."
        ) from None
