"""Features that Qlib has processed, read as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.cleaning import place
from rlwb.market.features import MarketFeatures, Normaliser
from rlwb.market.readers.qlib_pickle import read_pickled_table
from rlwb.market.schema import KEYS
from rlwb.market.sessions import Sessions


def read_qlib_features(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    sessions: Sessions,
    columns: Sequence[str] | None = None,
    *,
    trust_pickle: bool = False,
) -> MarketFeatures:
    """Return the processed features of Qlib's order execution tables, aligned with `sessions`, values as they are.

    Parameters
    ----------
    path
        Pickles or Parquet files of tables with the index levels instrument and datetime, a column a feature, and one
        of the same name with ``_1`` behind it for the day before; a folder stands for all such files in it.
    sessions
        The panel that orders are executed in. Each of its sessions must be in the tables; rows of others are not used.
    columns
        The features of today, in the order that the network reads them, Qlib's ``feature_columns_today``; all that
        have a ``_1`` beside them by default.
    trust_pickle
        Must be true for pickles; see docs/readers/qlib-pickle.md.

    Returns
    -------
    MarketFeatures
        A tick without a row holds 0. Its normaliser changes nothing.

    Raises
    ------
    DataError
        Naming the file, column, stamp or session at fault.
    """
    paths = [Path(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)]
    files = [file for one in paths for file in (sorted(one.iterdir()) if one.is_dir() else [one])]
    files = [file for file in files if file.suffix in (".pkl", ".parquet") or file in paths]
    if not files:
        raise DataError(f"{paths[0]} holds no .pkl and no .parquet file.")
    shape = (len(sessions), sessions.calendar.num_ticks)
    values: np.ndarray | None = None
    filled = np.zeros(shape, dtype=bool)
    for file in files:
        table = _read(file, trust_pickle)
        if columns is None:
            columns = [name for name in table.columns if f"{name}_1" in table.columns]
        both = [*columns, *(f"{name}_1" for name in columns)]
        if missing := [name for name in both if name not in table.columns] or ([] if columns else ["…_1"]):
            raise DataError(f"{file} has no column {missing[0]}; it has {', '.join(table.columns)}.")
        if values is None:
            values = np.zeros((*shape, len(both)), dtype=np.float32)
        row, tick = _place(table, sessions, file)
        used = row >= 0
        cells = row[used] * shape[1] + tick[used]
        if filled[row[used], tick[used]].any() or len(np.unique(cells)) < len(cells):
            raise DataError(f"{file} holds bars that a file before it, or itself, holds as well; keep one of them.")
        filled[row[used], tick[used]] = True
        values[row[used], tick[used]] = np.nan_to_num(table[both].to_numpy(np.float32)[used])
    assert values is not None
    assert columns is not None
    if (bare := ~filled.any(axis=1)).any():
        first = int(np.argmax(bare))
        raise DataError(
            f"the tables have no features of {int(bare.sum())} sessions, the first {sessions.instruments[first]} on "
            f"{sessions.dates[first]}; give the other files too, or leave those out: sessions.select(…)."
        )
    count = len(columns)
    identity = Normaliser(tuple(columns), np.zeros(count), np.ones(count))
    today, yesterday = values[:, :, :count].copy(), values[:, :, count:].copy()
    return MarketFeatures(
        tuple(columns), today, sessions.previous, identity, sessions.fingerprint, previous_day=True, yesterday=yesterday
    )


def _read(file: Path, trust_pickle: bool) -> pd.DataFrame:
    """Return one table with instrument and datetime as its index."""
    if file.suffix != ".parquet":
        return read_pickled_table(file, trust_pickle=trust_pickle)
    try:
        table = pd.read_parquet(file)
    except Exception as error:  # a damaged file may raise anything
        raise DataError(f"{file} cannot be read as Parquet ({' '.join(str(error).split())[:120]}).") from error
    if not set(KEYS) <= set(table.index.names):
        table = table.set_index([name for name in KEYS if name in table.columns])
    if not set(KEYS) <= set(table.index.names):
        raise DataError(f"{file} lacks {' or '.join(KEYS)}; it has {', '.join(map(str, table.columns))}.")
    return table.rename(columns=str)


def _place(table: pd.DataFrame, sessions: Sessions, file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return row and tick of each of a table's rows; row -1 where the panel has no such session."""
    stamps = pd.DatetimeIndex(table.index.get_level_values("datetime"))
    at = place(stamps.as_unit("us").asi8, sessions.calendar)
    row = sessions.rows(table.index.get_level_values("instrument"), at.day.astype("datetime64[D]"))
    if (wrong := ~(at.inside & at.on_grid) & (row >= 0)).any():
        raise DataError(
            f"{file}: {stamps[int(np.argmax(wrong))]} is no tick of the calendar; set its label to what stamps mark."
        )
    return row, at.tick
