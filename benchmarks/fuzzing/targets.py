"""What is fuzzed: each reader with valid inputs to damage, its call, and what its answer is compared with."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from benchmarks.data_sources import WRITERS
from benchmarks.fuzzing import plain
from benchmarks.fuzzing.damage import Tree
from rlwb.errors import DataError, OrderError
from rlwb.execution import read_orders
from rlwb.market import Calendar, import_bars, read_bars

#: Megabytes that readers with a limit are given.
LIMIT = 8
_US = Calendar.preset("us", timezone="America/New_York")


class UnexpectedError(Exception):
    """What a reader may not do; the message says what it did."""


@dataclass(frozen=True)
class Target:
    """One reader under test: valid inputs, a call that reads a folder, and the plain reading of the same files."""

    name: str
    seeds: Callable[[], list[Tree]]
    read: Callable[[Path], pd.DataFrame]
    rows: Callable[[Tree], list[plain.Row] | None] | None = None
    writes: bool = False

    def check(self, files: Tree, folder: Path) -> tuple[str, str]:
        """Read `folder`, which holds `files`; return answer or refusal and its kind, or raise `UnexpectedError`."""
        try:
            frame = self.read(folder)
        except (DataError, OrderError) as error:
            message, trace = str(error), error.__traceback__
            if "\n" in message or not message.endswith((".", ".)")):
                raise UnexpectedError(f"refuses with what is not one sentence: {message!r}") from error
            if str(folder) not in message and not any(path.name in message for path in folder.rglob("*")):
                raise UnexpectedError(f"refuses without naming the file: {message!r}") from error
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            return "refusal", "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        except Exception as error:
            raise UnexpectedError(f"raises {type(error).__name__}: {str(error)[:300]}") from error
        self._compare(files, frame)
        return "answer", str(len(frame).bit_length())

    def _compare(self, files: Tree, frame: pd.DataFrame) -> None:
        """Compare both sides as bags of bars, stamps only where the plain reading has all of them."""
        if "amount" in frame:
            sound = np.isfinite(frame["amount"]) & (frame["amount"] > 0) & frame["direction"].isin(["BUY", "SELL"])
            if not sound.all() or frame["order_id"].duplicated().any() or frame["date"].isna().any():
                raise UnexpectedError(f"answers with orders that cannot be: {frame[~sound].head(1).to_dict('records')}")
            return
        try:
            rows = None if self.rows is None else self.rows(files)
        except Exception as error:
            raise UnexpectedError(f"answers where a plain reading fails: {type(error).__name__}: {error}") from error
        if rows is None:
            return
        stamped = all(row[1] is not None for row in rows)
        local = frame["datetime"].dt.tz_localize(None).astype("datetime64[ns]")
        if stamped:
            frame, local = frame[local.notna()], local[local.notna()]
        if self.name == "lobster":
            traded = frame["volume"] > 0
            frame, local = frame[traded], local[traded]
        names = [None if pd.isna(name) else str(name) for name in frame["instrument"]]
        columns = (frame["close"].tolist(), frame["volume"].tolist())
        given = Counter(map(_bag, zip(names, local.astype("int64"), *columns, strict=True), [stamped] * len(frame)))
        wanted = Counter(map(_bag, rows, [stamped] * len(rows)))
        if given != wanted:
            raise UnexpectedError(
                f"answers with other bars than the source has: too many {list((given - wanted).elements())[:2]}, "
                f"missing {list((wanted - given).elements())[:2]}"
            )


def _bag(row: Any, stamped: bool) -> tuple[Any, ...]:
    """Return a row in single precision, in which NaN equals NaN, without its stamp where that does not count."""
    name, stamp, *numbers = row
    with np.errstate(over="ignore"):
        return (name, stamp if stamped else None, *(str(np.float32(number) + np.float32(0)) for number in numbers))


@cache
def _market() -> pd.DataFrame:
    stamps = pd.date_range("2024-01-03 09:30", periods=6, freq="min")
    at = np.arange(6.0)
    one = pd.DataFrame({"instrument": "000001", "datetime": stamps, "open": 10 + at, "high": 10.5 + at})
    one = one.assign(low=9.5 + at, close=10.25 + at, volume=100 * at)
    return pd.concat([one, one.assign(instrument="BRK.B", close=10.3 + at)], ignore_index=True)


def _written(kind: str, frame: pd.DataFrame | None = None) -> Tree:
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[kind][0](_market() if frame is None else frame, Path(folder))
        paths = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _seeds(kind: str) -> Callable[[], list[Tree]]:
    def make() -> list[Tree]:
        market = _market()
        if kind == "lobster":  # which is made of some 250 events a bar
            whole = {name: content.splitlines(True) for name, content in _written(kind).items() if name < "1"}
            return [{name: b"".join(lines[:20]) for name, lines in whole.items()}]
        if kind not in ("csv", "csv.gz", "parquet"):
            return [_written(kind), _written(kind, market[:6])]
        aware = market.assign(datetime=market["datetime"].dt.tz_localize("UTC"))
        quotes = market.assign(bid=9.99, ask=10.01, halted=market["close"] == 12.25)
        stamps = market["datetime"].dt
        split = market.assign(date=stamps.date, time=stamps.time).drop(columns="datetime")
        texts = [_written(kind, frame) for frame in (market, aware, quotes, split)]
        alone = _written(kind, market[:6].drop(columns="instrument"))
        return [*texts, {f"A{next(iter(alone)).removeprefix('bars')}": next(iter(alone.values()))}]

    return cache(make)


def _orders(kind: str) -> Callable[[], list[Tree]]:
    def make() -> list[Tree]:
        plainly = pd.DataFrame({"instrument": ["000001", "A"], "date": "2024-01-03", "direction": ["BUY", "sell"]})
        plainly = plainly.assign(amount=[100.0, 0.5])
        windows = plainly.assign(start="09:30", end=["10:30:00", "16:00"], order_id=["x", "y"])
        stamps = plainly.drop(columns="date").assign(start="2024-01-03 09:30:00", end="2024-01-03 10:00:00")
        trees = []
        for one in (plainly, windows, stamps):
            file = io.BytesIO()
            one.to_parquet(file, index=False) if kind == "parquet" else one.to_csv(file, index=False)
            trees.append({f"orders.{kind}": file.getvalue()})
        return trees

    return cache(make)


def _by(kind: str, **options: Any) -> Callable[[Path], pd.DataFrame]:
    limited = {} if kind == "table" else {"max_megabytes": LIMIT}
    return lambda folder: read_bars(folder, kind=kind, options={**limited, **options})


def _imported(folder: Path) -> pd.DataFrame:
    """Import a folder into a new data set, and return the bars of that."""
    made = folder.with_name("made")
    shutil.rmtree(made, ignore_errors=True)
    with mock.patch.object(os, "sync"):  # which waits for whatever else the machine writes
        import_bars([folder], made, calendar=_US, kind="table")
    return read_bars(made)


def _each_once(rows: Callable[[Tree], list[plain.Row] | None]) -> Callable[[Tree], list[plain.Row] | None]:
    """Return a plain reading in which a bar of each stamp is left: the last of a file, the first of several files'."""

    def read(files: Tree) -> list[plain.Row] | None:
        kept: dict[Any, plain.Row] = {}
        for name in sorted(files):
            found = rows({name: files[name]})
            if found is None or any(row[1] is None for row in found):
                return None
            kept = {**{row[:2]: row for row in found if row[0]}, **kept}
        return list(kept.values())

    return read


_LEAN = {"security": "equity", "zone": "America/New_York"}
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("csv", _seeds("csv"), _by("table"), plain.table),
        Target("csv.gz", _seeds("csv.gz"), _by("table"), lambda files: plain.table(_unpacked(files))),
        Target("parquet", _seeds("parquet"), _by("table"), plain.parquet),
        Target("binance", _seeds("binance"), _by("binance"), plain.binance),
        Target("lean", _seeds("lean"), _by("lean", **_LEAN), plain.lean),
        Target("lobster", _seeds("lobster"), _by("lobster"), plain.lobster),
        Target("qlib", _seeds("qlib"), _by("qlib"), plain.qlib),
        Target("qlib_pickle, trusted", _seeds("qlib_pickle"), _by("qlib_pickle", trust_pickle=True)),
        Target("qlib_pickle, not trusted", _seeds("qlib_pickle"), _by("qlib_pickle"), lambda files: []),
        Target("import, csv", _seeds("csv"), _imported, _each_once(plain.table), writes=True),
        Target("import, parquet", _seeds("parquet"), _imported, _each_once(plain.parquet), writes=True),
        Target("orders, csv", _orders("csv"), lambda folder: read_orders(_first(folder), _US)),
        Target("orders, parquet", _orders("parquet"), lambda folder: read_orders(_first(folder), _US)),
    )
}


def _first(folder: Path) -> Path:
    return next(iter(sorted(folder.iterdir())), folder / "orders.csv")


def _unpacked(files: Tree) -> Tree:
    return {
        name.removesuffix(".gz"): gzip.decompress(files[name]) if name.endswith(".gz") else files[name]
        for name in files
    }
