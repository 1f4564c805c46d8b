"""What is fuzzed: each reader with valid inputs to damage, its call, and what its answer is compared with."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from hypothesis.strategies import SearchStrategy

from benchmarks.data_sources import WRITERS
from benchmarks.fuzzing import configurations, plain, runs
from benchmarks.fuzzing.damage import Tree, damaged, write_tree
from rlwb.errors import ConfigError, DataError, OrderError, RlwbError
from rlwb.execution import read_orders
from rlwb.market import Calendar, import_bars, read_bars

#: Megabytes that readers with a limit are given.
LIMIT = 8
#: Characters of a refusal at most.
MOST_WORDS = 2000
_US = Calendar.preset("us", timezone="America/New_York")
Plain = Callable[[Tree], list[plain.Row] | None]


class UnexpectedError(Exception):
    """What a reader may not do; the message says what it did."""


@dataclass(frozen=True)
class Target:
    """One reader under test: valid inputs, a call that reads a folder, and the plain reading of the same files."""

    name: str
    seeds: Callable[[], list[Tree]]
    read: Callable[[Path], pd.DataFrame]
    rows: Plain | None = None
    writes: bool = False

    def inputs(self) -> SearchStrategy[Tree]:
        """Return the strategy that draws inputs."""
        return damaged(self.seeds())

    def check(self, files: Tree, folder: Path) -> str:
        """Read `folder`, which holds `files`; return ``answers`` or ``refusals``, or raise `UnexpectedError`."""
        try:
            frame = self.read(folder)
        except (DataError, OrderError) as error:
            _check_sentence(error, folder)
            return "refusals"
        except Exception as error:
            raise UnexpectedError(f"raises {type(error).__name__}: {str(error)[:300]}") from error
        if "amount" in frame:
            _check_orders(frame)
        elif self.rows is not None:
            try:
                rows = self.rows(files)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise UnexpectedError(f"answers where a plain reading fails: {said}") from error
            if rows is not None:
                _compare(rows, frame[frame["volume"] > 0] if self.name == "lobster" else frame)
        return "answers"


@dataclass(frozen=True)
class Settings(Target):
    """What resolves a configuration: a file, or words of ``--set``, which need no name of a file."""

    def inputs(self) -> SearchStrategy[Tree]:
        return configurations.assignments() if self.name.endswith("--set") else configurations.files()

    def check(self, files: Tree, folder: Path) -> str:
        try:
            configurations.resolve(folder)
        except ConfigError as error:
            if str(error).startswith("defaults"):
                raise UnexpectedError(f"puts the fault on the defaults: {error}") from error
            _check_sentence(error, folder, named="config.yaml" in files)
            return "refusals"
        except Exception as error:
            raise UnexpectedError(f"raises {type(error).__name__}: {str(error)[:300]}") from error
        return "answers"


@dataclass(frozen=True)
class Run(Target):
    """All that reads a run: of a damaged one it refuses a file, wants to make a stage again, or gives the same."""

    def check(self, files: Tree, folder: Path) -> str:
        try:
            seed = self.seeds()[0]
            found = runs.look(folder, [name for name in {*seed, *files} if seed.get(name) != files.get(name)])
        except RlwbError as error:
            _check_sentence(error, folder, also=self.seeds()[0])
            return "refusals"
        except Exception as error:
            raise UnexpectedError(f"raises {type(error).__name__}: {str(error)[:300]}") from error
        if found is not None:
            if any(name.startswith("figures/") for name in files.keys() - seed.keys()):
                del found["page"]  # which shows figures of one's own
            _check_same(found, folder, self.seeds()[0])
        return "answers"


@cache
def _undamaged(folder: Path) -> dict[str, str]:
    whole = folder.with_name("whole") / folder.name  # the page has the folder's name
    write_tree(runs.finished()[0], whole)
    found = runs.look(whole)
    assert found is not None, "a run that nobody touched is kept"
    return found


def _check_same(found: dict[str, str], folder: Path, seed: Tree) -> None:
    expected = _undamaged(folder)
    wrong = [name for name in found if found[name] != expected.get(name)]
    if wrong:
        raise UnexpectedError(f"gives other results without a word: {', '.join(wrong)}")


def _check_sentence(error: Exception, folder: Path, *, named: bool = True, also: Iterable[str] = ()) -> None:
    message = str(error)
    first, *rows = message.split("\n  ")  # of a table with several wrong rows
    ends = (":",) if rows else (".", ".)", "?")
    if any("\n" in line for line in (first, *rows)) or len(message) > MOST_WORDS or not first.endswith(ends):
        raise UnexpectedError(f"refuses with what is not one sentence: {message!r}") from error
    names = {path.name for path in folder.rglob("*")} | {name.rpartition("/")[2] for name in also}
    if named and str(folder) not in message and not any(name in message for name in names):
        raise UnexpectedError(f"refuses without naming the file: {message!r}") from error


def _check_orders(frame: pd.DataFrame) -> None:
    sound = np.isfinite(frame["amount"]) & (frame["amount"] > 0) & frame["direction"].isin(["BUY", "SELL"])
    if not sound.all() or frame["order_id"].duplicated().any() or frame["date"].isna().any():
        raise UnexpectedError(f"answers with orders that cannot be: {frame[~sound].head(1).to_dict('records')}")


def _compare(rows: list[plain.Row], frame: pd.DataFrame) -> None:
    """Compare both sides as bags of bars, in single precision; stamps where the plain reading has all of them."""
    stamped = all(row[1] is not None for row in rows)
    local = frame["datetime"].dt.tz_localize(None).astype("datetime64[ns]")
    if stamped:
        frame, local = frame[local.notna()], local[local.notna()]

    def bag(bars: Iterable[Any]) -> Counter[Any]:
        with np.errstate(over="ignore"):
            return Counter(
                (name, stamp if stamped else None, *(str(np.float32(one) + np.float32(0)) for one in numbers))
                for name, stamp, *numbers in bars
            )

    names = [None if pd.isna(name) else str(name) for name in frame["instrument"]]
    given = bag(zip(names, local.astype("int64"), frame["close"], frame["volume"], strict=True))
    more, less = ([*(one - two).elements()][:2] for one, two in ((given, bag(rows)), (bag(rows), given)))
    if more or less:
        raise UnexpectedError(f"answers with other bars than the source has: too many {more}, missing {less}")


def _market() -> pd.DataFrame:
    at = np.arange(6.0)
    one = pd.DataFrame({"instrument": "000001", "datetime": pd.date_range("2024-01-03 09:30", periods=6, freq="min")})
    one = one.assign(open=10 + at, high=10.5 + at, low=9.5 + at, close=10.25 + at, volume=100 * at)
    return pd.concat([one, one.assign(instrument="BRK.B", close=10.3 + at)], ignore_index=True)


def _written(kind: str, frame: pd.DataFrame) -> Tree:
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[kind][0](frame, Path(folder))
        paths = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@cache
def _seeds(kind: str) -> list[Tree]:
    market = _market()
    if kind == "lobster":  # which is made of some 250 events a bar
        whole = _written(kind, market[:6])
        return [{name: b"".join(content.splitlines(True)[:20]) for name, content in whole.items()}]
    trees = [_written(kind, market), _written(kind, market[:6])]
    if kind in ("csv", "csv.gz", "parquet"):
        stamps = market["datetime"].dt
        trees.append(_written(kind, market.assign(datetime=stamps.tz_localize("UTC"))))
        trees.append(_written(kind, market.assign(bid=9.99, ask=10.01, halted=market["close"] == 12.25)))
        split = market.assign(date=stamps.date, time=stamps.time).drop(columns="datetime")
        trees.append(_written(kind, split))
        (nameless,) = _written(kind, market[:6].drop(columns="instrument")).values()
        trees.append({f"A.{kind}": nameless})
    return trees


@cache
def _orders(kind: str) -> list[Tree]:
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


def _imported(folder: Path) -> pd.DataFrame:
    """Import a folder into a new data set, and return the bars of that."""
    made = folder.with_name("made")
    shutil.rmtree(made, ignore_errors=True)
    with mock.patch.object(os, "sync"):  # which waits for whatever else the machine writes
        import_bars([folder], made, calendar=_US, kind="table")
    return read_bars(made)


def _each_once(rows: Plain) -> Plain:
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


def _unpacked(files: Tree) -> list[plain.Row] | None:
    packed = {name: content for name, content in files.items() if name.lower().endswith(".csv.gz")}
    return plain.table({name[: -len(".gz")]: gzip.decompress(content) for name, content in packed.items()})


def _bars(name: str, kind: str, rows: Plain | None, **options: Any) -> Target:
    files = kind if kind in WRITERS else name
    limited = {} if kind == "table" else {"max_megabytes": LIMIT, **options}
    return Target(name, lambda: _seeds(files), lambda folder: read_bars(folder, kind=kind, options=limited), rows)


def _order_table(kind: str) -> Target:
    return Target(
        f"orders, {kind}",
        lambda: _orders(kind),
        lambda folder: read_orders(next(iter(sorted(folder.iterdir())), folder / f"orders.{kind}"), _US),
    )


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _bars("csv", "table", plain.table),
        _bars("csv.gz", "table", _unpacked),
        _bars("parquet", "table", plain.parquet),
        _bars("binance", "binance", plain.binance),
        _bars("lean", "lean", plain.lean, security="equity", zone="America/New_York"),
        _bars("lobster", "lobster", plain.lobster),
        _bars("qlib", "qlib", plain.qlib),
        _bars("qlib_pickle, trusted", "qlib_pickle", None, trust_pickle=True),
        _bars("qlib_pickle, not trusted", "qlib_pickle", lambda files: []),
        Target("import, csv", lambda: _seeds("csv"), _imported, _each_once(plain.table), writes=True),
        Target("import, parquet", lambda: _seeds("parquet"), _imported, _each_once(plain.parquet), writes=True),
        _order_table("csv"),
        _order_table("parquet"),
        Settings("configuration, file", lambda: [{"config.yaml": b""}], read_bars, writes=True),
        Settings("configuration, --set", lambda: [{"set.json": b"[]"}], read_bars, writes=True),
        Run("run", runs.finished, read_bars, writes=True),
    )
}
