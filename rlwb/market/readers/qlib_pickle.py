"""The pickled tables of Qlib's order execution example and the OPD data set."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.readers.base import reader
from rlwb.market.readers.content import MEGABYTES, matching, nearest_decimal, one_line, read_file, visible
from rlwb.market.readers.table import suffix_of
from rlwb.market.schema import FIELDS, KEYS, REQUIRED

_NAME = re.compile(r".+\.pkl(\.backtest)?")
#: Names in the tables, without their ``$`` and a closing 0, that are not the schema's own.
_OTHER_NAMES = {"bidv": "bid_size", "askv": "ask_size"}
#: What a pickled table of numbers and stamps is made of, by pandas 1.0 to 2.3: names that only make values.
_ALLOWED = """
    builtins:slice __builtin__:slice _codecs:encode datetime:date datetime:datetime datetime:timedelta numpy:dtype
    numpy:ndarray numpy.core.multiarray:_reconstruct numpy.core.multiarray:scalar numpy._core.multiarray:_reconstruct
    numpy._core.multiarray:scalar numpy.core.numeric:_frombuffer numpy._core.numeric:_frombuffer
    pandas.core.frame:DataFrame pandas.core.internals.managers:BlockManager pandas._libs.internals:_unpickle_block
    pandas.core.indexes.base:Index pandas.core.indexes.base:_new_Index pandas.core.indexes.multi:MultiIndex
    pandas.core.indexes.datetimes:DatetimeIndex pandas.core.indexes.datetimes:_new_DatetimeIndex
    pandas.core.indexes.range:RangeIndex pandas.core.arrays.datetimes:DatetimeArray
    pandas._libs.arrays:__pyx_unpickle_NDArrayBacked pandas._libs.tslibs.timestamps:_unpickle_timestamp
    pandas._libs.tslibs.offsets:Minute pandas._libs.tslibs.offsets:Second pandas._libs.tslibs.offsets:Hour
    pandas._libs.tslibs.offsets:Day pandas.tseries.offsets:Minute pandas.tseries.offsets:Second
    pandas.tseries.offsets:Hour pandas.tseries.offsets:Day
    pandas.core.dtypes.dtypes:DatetimeTZDtype pytz:_p pytz:_UTC datetime:timezone
"""


def pickles(source: Path) -> list[Path]:
    """Return the files that end in .pkl or .pkl.backtest."""
    found = list(matching(source, _NAME))
    if not found:
        raise DataError(f"{source} holds no file that ends in .pkl or .pkl.backtest.")
    return found


def _recognises(source: Path) -> bool:
    # A pickle may be anything: beside Parquet or CSV it is a stray file.
    return bool(matching(source, _NAME)) and not any(map(suffix_of, visible(source)))


@reader("qlib_pickle", files=pickles, recognises=_recognises)
def read_qlib_pickle(
    source: Path, *, trust_pickle: bool = False, max_megabytes: int = MEGABYTES, report: Report
) -> Iterator[pa.Table]:
    """Read tables of prices pickled by pandas, index (instrument, datetime[, date]); see docs/readers/qlib-pickle.md.

    Parameters
    ----------
    trust_pickle
        Must be true. A pickle can be made to run anything when it is read. Only names that a table needs are looked up
        here, but whoever loads such files should know where they come from.
    max_megabytes : MB
        A file that is larger is refused before it is read further.
    """
    files = pickles(source)
    features = []
    for path in files:
        table = read_pickled_table(path, trust_pickle=trust_pickle, max_megabytes=max_megabytes)
        if any(name.endswith("_1") for name in table.columns):
            features.append(path.name)
        else:
            yield _bars(table, path, report)
    if len(features) == len(files):
        raise DataError(
            f"{files[0]} holds normalised features (today and yesterday) and no prices; read backtest as bars, and "
            "these by rlwb.market.read_qlib_features."
        )
    report.add("file_ignored", len(features), ", ".join(features[:5]))


class _OfQlib(pickle.UnpicklingError):
    """A pickle that holds an object of Qlib's."""


class _Unpickler(pickle._Unpickler):  # the one in Python: the one in C reserves memory for any place that it reads
    """Looks up the names that a pickled table needs, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "qlib":
            raise _OfQlib(f"{module}.{name}"[:80])
        if f"{module}:{name}" not in _ALLOWED.split():
            raise pickle.UnpicklingError(f"it names {f'{module}.{name}'[:80]!r}, which no table needs")
        return super().find_class(module, name)


def read_pickled_table(
    path: Path, *, keys: Sequence[str] = KEYS, trust_pickle: bool = False, max_megabytes: int = MEGABYTES
) -> pd.DataFrame:
    """Return a table that pandas has pickled, with text for names of columns.

    Parameters
    ----------
    keys
        Levels that its index must have.
    trust_pickle, max_megabytes
        As in `read_qlib_pickle`.

    Raises
    ------
    DataError
        When it is not trusted, damaged, or something else; one of Qlib's data sets by its name and with the way out.
    """
    if not trust_pickle:
        raise DataError(
            f"{path} is a pickle, which can be made to run anything when it is read; set trust_pickle=True if you "
            "know where it comes from."
        )
    content = read_file(path, max_megabytes)
    try:
        table = _Unpickler(io.BytesIO(content)).load()
        if not isinstance(table, pd.DataFrame):
            raise pickle.UnpicklingError(f"it holds a {type(table).__name__}")
        if lacking := [name for name in keys if name not in table.index.names]:
            raise pickle.UnpicklingError(f"its index lacks {' and '.join(lacking)}")
        table.columns = [str(name) for name in table.columns]
        return table
    except _OfQlib as error:
        raise DataError(
            f"{path} is a pickled {error}, which Qlib alone can open; write its table where Qlib is installed, "
            "dataset.handler.fetch().to_pickle(…), and read that (docs/qlib.md)."
        ) from None
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"{path} is not a table pickled by pandas ({one_line(error)[:200]}).") from None


def _bars(table: pd.DataFrame, path: Path, report: Report) -> pa.Table:
    columns: dict[str, Any] = {}
    ignored = []
    for place, name in enumerate(table.columns):
        plain = name.removeprefix("$").removesuffix("0").lower()
        target = _OTHER_NAMES.get(plain, plain)
        values = table.iloc[:, place].to_numpy()
        if target not in FIELDS or values.dtype.kind not in "fiu":
            ignored.append(name)
        elif target in columns:
            raise DataError(f"{path}: two columns mean {target}, the second is {name}; keep one of them.")
        else:
            columns[target] = nearest_decimal(values) if values.dtype == np.float32 else values.astype(np.float64)
    report.add("column_ignored", len(ignored), f"{path.name}: {', '.join(ignored[:5])}")
    if "close" not in columns:
        raise DataError(f"{path} has no column $close0 or $close; it has {', '.join(table.columns) or 'none'}.")
    absent = [name for name in REQUIRED if name not in (*KEYS, *columns)]
    report.add("column_absent", len(absent), f"{path.name}: {', '.join(absent)}")
    try:
        keys = {name: pa.array(table.index.get_level_values(name), from_pandas=True) for name in KEYS}
        return pa.table({**keys, **columns})
    except (pa.ArrowException, ValueError, TypeError) as error:
        what = one_line(error)[:120]
        raise DataError(f"{path}: the index levels {' and '.join(KEYS)} are not text and stamps ({what}).") from None
