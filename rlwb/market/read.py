"""All bars of a source as one pandas table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.errors import ConfigError, DataError
from rlwb.market.clock import day_of
from rlwb.market.dataset.state import is_dataset
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import Report
from rlwb.market.readers.base import canonical
from rlwb.market.schema import COLUMNS
from rlwb.market.source import open_source

#: The bars are held some three times while they are joined and sorted.
_COPIES = 3


def read_bars(
    source: str | os.PathLike[str],
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    timezone: str | None = None,
    source_timezone: str | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    report: Report | None = None,
) -> pd.DataFrame:
    """Return all bars of a source in the schema's columns, sorted by instrument and stamp; nothing is repaired here.

    Parameters
    ----------
    source
        What one of the readers reads (`rlwb.market.source.open_source`, whose parameters are `kind` to
        `datetime_format`), or a data set (`rlwb.market.dataset`).
    instruments
        Ids to keep, as text; one that the source lacks is a `DataError`.
    start, end
        First and last date to keep, both included.
    timezone
        Zone whose dates `start` and `end` are, for stamps that carry an offset.
    report
        Where what is ignored, dropped or changed is counted, ``unsorted`` bars among them.

    Returns
    -------
    pandas.DataFrame
        instrument (category of text), datetime (datetime64[ns], with a zone where the source's stamps have one), the
        required columns and whichever optional ones are there: float64, NaN is missing; halted bool. Bars without an
        instrument or a stamp come last.
    """
    report = report if report is not None else Report()
    if is_dataset(source) and kind is None:
        asked = {"options": options, "columns": columns, "instrument_pattern": instrument_pattern}
        asked |= {"source_timezone": source_timezone, "datetime_format": datetime_format}
        unused = next((name for name, value in asked.items() if value), None)
        if unused is not None:
            raise ConfigError(f"{source} is a data set, where {unused} has no effect; drop it, or set kind.")
        stored = Stored(Path(source), instruments=instruments, start=start, end=end)
        report.absorb(stored.told())
        return stored.frame()
    opened = open_source(
        source,
        kind,
        options,
        instruments=instruments,
        columns=columns,
        instrument_pattern=instrument_pattern,
        datetime_format=datetime_format,
        source_timezone=source_timezone,
        report=report,
    )
    bars = _sorted(_frame(opened.batches(), Path(source)), report)
    return _between(bars, start, end, timezone).reset_index(drop=True)


def _frame(batches: Iterable[pa.Table], source: Path) -> pd.DataFrame:
    """Return all tables as one, refused before they fill the memory."""
    memory, held, tables = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0, []
    none = canonical(pa.table({"instrument": pa.nulls(0), "datetime": pa.nulls(0)}), str(source))
    for table in chain([none], batches):
        tables.append(table.set_column(0, "instrument", table["instrument"].dictionary_encode()))
        held += tables[-1].nbytes
        if held * _COPIES > memory:
            raise DataError(
                f"{source} holds over {held / 1e9:,.1f} GB of bars, of which some {_COPIES} times is needed, and this "
                f"machine has {memory / 1e9:,.1f} GB of memory; read some instruments at a time, or import them "
                "(rlwb data import)."
            )
    kind = tables[-1]["datetime"].type  # stamps that are all missing may have none
    tables = [table.set_column(1, "datetime", table["datetime"].cast(kind)) for table in tables]
    whole = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
    del tables
    columns = {name: whole[name] for name in COLUMNS if name in whole.column_names}
    if "halted" in columns:
        columns["halted"] = columns["halted"].fill_null(False)
    del whole
    return pa.table(columns).to_pandas(split_blocks=True, self_destruct=True)


def _sorted(bars: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Return the bars by instrument and stamp, those of one stamp in the order of the source."""
    names = bars["instrument"].cat.categories
    bars["instrument"] = bars["instrument"].cat.reorder_categories(sorted(names))
    code = bars["instrument"].cat.codes.to_numpy().astype(np.int64)
    stamps = bars["datetime"].astype("int64").to_numpy()
    code = np.where((code < 0) | bars["datetime"].isna(), len(names), code)
    order = np.argsort(code, kind="stable")
    back = (np.diff(stamps[order]) < 0) & (np.diff(code[order]) == 0) & (code[order][1:] < len(names))
    if back.any():
        first = bars.iloc[order[1:][back][0]]
        report.add("unsorted", int(back.sum()), f"{first['instrument']} {first['datetime']}")
        order = np.lexsort((stamps, code))
    return bars if (order == np.arange(len(order))).all() else bars.iloc[order]


def _between(bars: pd.DataFrame, start: Any, end: Any, timezone: str | None) -> pd.DataFrame:
    if start is None and end is None:
        return bars
    first = pd.Timestamp.min if start is None else pd.Timestamp(day_of(start))
    after = pd.Timestamp.max if end is None else pd.Timestamp(day_of(end)) + pd.Timedelta(days=1)
    if first >= after:
        raise ConfigError(f"start {start} is after end {end}; give the first date first.")
    stamps = bars["datetime"]
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        stamps = stamps.dt.tz_convert(timezone or stamps.dtype.tz).dt.tz_localize(None)
    return bars[(stamps >= first) & (stamps < after)]
