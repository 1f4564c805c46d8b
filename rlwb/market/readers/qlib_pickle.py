"""The pickled tables of Qlib's order execution example and the OPD data set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.content import one_line, read_file
from rlwb.market.readers.decimals import nearest_decimal
from rlwb.market.readers.frames import Part, check_found, join_bars
from rlwb.market.readers.names import matching, others, visible
from rlwb.market.readers.pickled_frame import Frame, NotATableError, read_frame
from rlwb.market.report import Report
from rlwb.market.schema import FIELDS, REQUIRED

_TABLES = (".parquet", ".csv", ".csv.gz")
_NAME = re.compile(r".+\.pkl(\.backtest)?")
#: Names in the tables, without their ``$`` and a closing 0, that are not the schema's own.
_OTHER_NAMES = {"bidv": "bid_size", "askv": "ask_size"}
#: Operations that any pickle may take; of some 100 bytes each, more are allowed as `max_megabytes` grows.
_OPERATIONS = 500_000
_FIRST, _LAST = np.datetime64("1700-01-01"), np.datetime64("2260-01-01")


@dataclass(frozen=True)
class QlibPickleReader(Reader):
    """Tables of prices pickled by pandas, index (instrument, datetime[, date]); see docs/readers/qlib-pickle.md.

    Parameters
    ----------
    trust_pickle
        Must be true. A pickle can be made to run anything when it is read by Python's own means. This reader makes none
        of the objects that it names, but whoever loads such files should know where they come from.
    """

    trust_pickle: bool = False

    kind: ClassVar[str] = "qlib_pickle"
    label: ClassVar[Literal["start", "end"] | None] = None

    @classmethod
    def recognises(cls, source: Path) -> bool:
        # A pickle may be anything: beside Parquet or CSV it is a stray file.
        return bool(matching(source, _NAME)) and not any(
            path.name.lower().endswith(_TABLES) for path in visible(source)
        )

    def files(self, source: Path) -> tuple[list[Path], list[str]]:
        found = list(matching(source, _NAME))
        if not found:
            raise DataError(f"{source} holds no file that ends in .pkl or .pkl.backtest.")
        return found, others(source, set(found))

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        files, ignored = self.files(source)
        if not self.trust_pickle:
            raise DataError(
                f"{files[0]} is a pickle, which can be made to run anything when it is read; set trust_pickle=True if "
                "you know where it comes from."
            )
        tables = [(path, self._table(path)) for path in files]
        prices = [(path, table) for path, table in tables if not _holds_features(table)]
        if not prices:
            raise DataError(f"{files[0]} holds normalised features (today and yesterday) and no prices; read backtest.")
        ignored += [path.name for path, table in tables if _holds_features(table)]
        report.add("file_ignored", len(ignored), ", ".join(ignored[:5]))
        if instruments is not None:
            check_found(instruments, {name for _, table in prices for name in table.levels["instrument"][0]}, source)
        return join_bars(
            [part for path, table in prices for part in _parts(table, path, instruments, report)],
            report,
        )

    def _table(self, path: Path) -> Frame:
        content = read_file(path, self.max_bytes)
        try:
            return read_frame(content, max(_OPERATIONS, self.max_bytes // 32))
        except NotATableError as error:
            raise DataError(f"{path} is not a table of bars pickled by pandas ({one_line(error)[:200]}).") from None


def _holds_features(table: Frame) -> bool:
    return any(name.endswith("_1") for name in table.columns)


def _parts(table: Frame, path: Path, instruments: frozenset[str] | None, report: Report) -> Iterator[Part]:
    """Yield the bars of each instrument."""
    fields = _fields(table, path, report)
    (names, codes), (moments, places) = table.levels["instrument"], table.levels["datetime"]
    if moments.dtype.kind != "M" or names.dtype != object:
        raise DataError(f"{path}: the index levels instrument and datetime are not text and stamps; write them anew.")
    outside = ~np.isnat(moments) & ((moments < _FIRST) | (moments > _LAST))
    if outside.any():
        raise DataError(f"{path}: the stamp {moments[outside][0]} lies outside the years 1700 to 2259; correct it.")
    if len(set(names)) < len(names) or "" in names:
        raise DataError(f"{path}: the index level instrument holds an id twice or an empty one; write it anew.")
    known = np.append(moments.astype("datetime64[ns]"), np.datetime64("NaT"))
    stamps = known[np.where(places < 0, len(moments), places)]
    lost = codes < 0
    if lost.any():
        report.add("instrument_missing", int(lost.sum()), f"{path}, row {int(np.argmax(lost)) + 1}")
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for place, name in enumerate(names):
        rows = order[bounds[place] : bounds[place + 1]]
        if len(rows) and (instruments is None or name in instruments):
            yield Part(name, stamps[rows], {field: column[rows] for field, column in fields.items()})


def _fields(table: Frame, path: Path, report: Report) -> dict[str, np.ndarray]:
    fields: dict[str, np.ndarray] = {}
    ignored = []
    for name, column in table.columns.items():
        plain = name.removeprefix("$").removesuffix("0").lower()
        target = _OTHER_NAMES.get(plain, plain)
        if target not in FIELDS or column.dtype.kind not in "fiu":
            ignored.append(name)
        elif target in fields:
            raise DataError(f"{path}: two columns mean {target}, the second is {name}; keep one of them.")
        else:
            fields[target] = nearest_decimal(column) if column.dtype == np.float32 else column.astype(np.float64)
    report.add("column_ignored", len(ignored), f"{path.name}: {', '.join(ignored[:5])}")
    if "close" not in fields:
        raise DataError(f"{path} has no column $close0 or $close; it has {', '.join(table.columns) or 'none'}.")
    absent = [name for name in REQUIRED[2:] if name not in fields]
    report.add("column_absent", len(absent), f"{path.name}: {', '.join(absent)}")
    return fields
