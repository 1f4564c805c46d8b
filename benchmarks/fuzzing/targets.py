"""What is fuzzed: each reader with its seeds, its mutations, its call and what its answer is compared with."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from benchmarks.fuzzing import plain
from benchmarks.fuzzing.mutate import Change, mutate, pack
from benchmarks.fuzzing.tables import change_parquet, change_pickle, parquet_rows, pickle_rows, repickled
from benchmarks.fuzzing.tree import Tree
from rlwb.execution import read_orders
from rlwb.market import Calendar, import_bars, read_bars

#: Megabytes that readers with a limit are given; small, so that inputs can reach it.
LIMIT = 8
_FREQUENCIES = ("1min", "5min", "day")
_STAMPS = [f"2024-01-03 09:3{minute}:00" for minute in range(6)]
_NAMES = ("datetime", "open", "high", "low", "close", "volume")


@dataclass(frozen=True)
class Target:
    """One reader under test.

    Attributes
    ----------
    seeds
        Valid inputs to begin with.
    read
        Reads a folder; its answer is a frame.
    rows
        The slow plain reading of the same folder; None where nothing is compared.
    changes
        Mutations by a file's ending, beside the general ones.
    calendar
        Lays the answer out as sessions; None for orders.
    fat
        Small files that unpack to as much as the limit admits, or to more.
    writes
        Whether it writes, beside the folder that it reads.
    share
        Its part of the time, beside others with 1.
    """

    name: str
    seeds: Callable[[], list[Tree]]
    read: Callable[[Path], pd.DataFrame]
    rows: Callable[[Tree], list[plain.Row] | None] | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)
    calendar: Calendar | None = None
    fat: Callable[[random.Random], Tree] | None = None
    writes: bool = False
    share: float = 1.0

    def mutate(self, tree: Tree, rng: random.Random, others: list[Tree]) -> Tree:
        """Return a changed tree; the same where a library refuses to write what was asked."""
        try:
            return self._mutate(tree, rng, others)
        except Exception:  # pandas and pyarrow raise whatever a cell of another type makes them
            return tree

    def _mutate(self, tree: Tree, rng: random.Random, others: list[Tree]) -> Tree:
        if self.fat is not None and rng.random() < 0.001:
            return self.fat(rng)
        if tree.pure and "pkl" in self.changes and rng.random() < 0.5:
            name = rng.choice(sorted(tree.files))
            return tree.replace(name, repickled(tree.files[name], rng), pure=True)
        return mutate(tree, rng, others, dict(self.changes))


def _by(kind: str, **options: Any) -> Callable[[Path], pd.DataFrame]:
    limited = {"max_megabytes": LIMIT, **options} if kind != "table" else {}
    if kind == "table":
        return lambda folder: read_bars(folder, kind=kind)
    return lambda folder: read_bars(folder, kind=kind, options=limited).dropna(subset="datetime", ignore_index=True)


def _orders(folder: Path) -> pd.DataFrame:
    return read_orders(next(iter(sorted(folder.iterdir())), folder / "orders.csv"), _US)


def _lines(rows: list[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def _imported(folder: Path) -> pd.DataFrame:
    """Import a folder into a new data set, whatever is in the folder, and return the bars of that."""
    made = folder.with_name("made")
    shutil.rmtree(made, ignore_errors=True)
    with mock.patch.object(os, "sync"):  # which waits for whatever else the machine writes
        import_bars([folder], made, calendar=_US, kind="table")
    return read_bars(made)


def _csv() -> list[Tree]:
    bars = [f"{stamp},{10 + at},{10.5 + at},{9.5 + at},{10.25 + at},{100 * at}" for at, stamp in enumerate(_STAMPS)]
    header = ",".join(_NAMES)
    long = [f"{name},{bar}" for name in ("000001", "BRK.B") for bar in bars]
    split = [bar.replace(" ", ",", 1) for bar in bars]
    aware = [bar.replace(":00,", ":00+00:00,", 1) for bar in bars]
    quotes = [f"{bar},{9.99},{10.01},5,7,{int(at == 2)}" for at, bar in enumerate(bars)]
    return [
        Tree({"A.csv": _lines([header, *bars])}),
        Tree({"A.csv": _lines([header, *bars]), "600000.SH.csv": _lines([header, *bars[:3]])}),
        Tree({"all.csv": _lines([f"instrument,{header}", *long])}),
        Tree({"A.csv": _lines([header.replace("datetime", "date,time"), *split])}),
        Tree({"A.csv": _lines([header, *aware])}),
        Tree({"A.csv": _lines([f"{header},bid,ask,bid_size,ask_size,halted", *quotes])}),
    ]


def _csv_gz() -> list[Tree]:
    return [Tree({f"{name}.gz": gzip.compress(text, 1) for name, text in tree.files.items()}) for tree in _csv()]


def _parquet() -> list[Tree]:
    at = np.arange(6.0)
    frame = pd.DataFrame(
        {"instrument": "000001", "datetime": pd.to_datetime(_STAMPS).astype("datetime64[us]"), "open": 10 + at}
    )
    frame = frame.assign(high=10.5 + at, low=9.5 + at, close=10.25 + at, volume=(100 * at).astype(np.int64))
    quotes = frame.assign(bid=9.99, ask=10.01, bid_size=5, ask_size=7, halted=at == 2)
    aware = frame.assign(datetime=frame["datetime"].dt.tz_localize("UTC"))
    text = frame.assign(datetime=_STAMPS)
    single = frame.drop(columns="instrument")
    return [Tree({"A.parquet": _parquet_of(one)}) for one in (frame, quotes, aware, text, single)]


def _parquet_of(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file, index=False)
    return file.getvalue()


def _kline(at: int, unit: int) -> str:
    opened = (1_704_067_200 + 60 * at) * unit
    return f"{opened},{10 + at},{10.5 + at},{9.5 + at},{10.25 + at},{at}.5,{opened + 60 * unit - 1},{11 * at},7,0,0,0"


def _binance() -> list[Tree]:
    name = "BTCUSDT-1m-2024-01-01"
    lines = _lines([_kline(at, 1000) for at in range(5)])
    micro = _lines([_kline(at, 10**6) for at in range(5)])
    header = b"open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,taker,ignore\n"
    return [
        Tree({f"{name}.zip": pack([(f"{name}.csv", lines)]), "ETHUSDT-1m-2024-01.csv": header + lines}),
        Tree({f"{name}.zip": pack([(f"{name}.csv", micro)])}),
        Tree({f"{name}.csv": lines, "BTCUSDT-1m-2024-01-02.csv": micro}),
    ]


_LEAN = "equity/usa/minute/spy/20240103"


def _lean() -> list[Tree]:
    trades = _lines(
        [f"{34_200_000 + 60_000 * at},{100 + at}0000,1010000,990000,{100 + at}5000,3{at}" for at in range(5)]
    )
    quotes = _lines([f"{34_200_000 + 60_000 * at},9,9,9,{99 + at}0000,4,9,9,9,{101 + at}0000,6" for at in range(1, 6)])
    one_sided = _lines(["34200000,1,1,1,1,1,,,,,", "34260000,,,,,,2,2,2,2,2"])
    trade = {f"{_LEAN}_trade.zip": pack([("20240103_spy_minute_trade.csv", trades)])}
    quote = {f"{_LEAN}_quote.zip": pack([("20240103_spy_minute_quote.csv", quotes)])}
    spring = {
        "equity/usa/minute/spy/20240310_trade.zip": pack([("20240310_spy_minute_trade.csv", b"9000000,1,2,1,1,5\n")]),
        "equity/usa/minute/brk.b/20240103_quote.zip": pack([("20240103_brk.b_minute_quote.csv", one_sided)]),
    }
    return [Tree({**trade, **quote}), Tree(trade), Tree(quote), Tree({**trade, **spring})]


def _lobster() -> list[Tree]:
    messages = ["34200.5,1,11,100,1000000,1", "34201.25,4,11,40,1000000,1", "34210.75,5,0,20,1000500,-1"]
    messages += ["34330.0,3,11,60,1000000,1", "34350.0,7,0,0,-1,-1", "34440,4,11,5,1000300,1"]
    book = ["1001000,50,1000000,100"] * 3 + ["1001000,50,-9999999999,0", "9999999999,0,-9999999999,0"]
    book += ["1001100,5,1000100,7"]
    deep = [f"{line},{line}" for line in book]
    name = "AAPL_2012-06-21_34200000_{}_{}_{}.csv"
    owners = [f"{line},null" for line in messages]
    return [
        Tree(
            {name.format(34440000, "message", 1): _lines(messages), name.format(34440000, "orderbook", 1): _lines(book)}
        ),
        Tree(
            {name.format(34800000, "message", 2): _lines(messages), name.format(34800000, "orderbook", 2): _lines(deep)}
        ),
        Tree(
            {name.format(34441000, "message", 1): _lines(owners), name.format(34441000, "orderbook", 1): _lines(book)}
        ),
    ]


def _qlib() -> list[Tree]:
    days = ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"]
    trees = []
    for freq, steps in zip(_FREQUENCIES, (_STAMPS, _STAMPS, days), strict=True):
        files = {
            f"calendars/{freq}.txt": _lines(steps),
            "instruments/all.txt": _lines([f"SH600000\t{steps[0]}\t{steps[-1]}", f"000001\t{steps[1]}\t{steps[3]}"]),
        }
        for folder in ("sh600000", "000001"):
            for place, name in enumerate((*_NAMES[1:], "factor")):
                values = [0.0, *(round(10.25 + at + place, 2) for at in range(6))]
                values[2] = float("nan") if folder == "000001" else values[2]
                files[f"features/{folder}/{name}.{freq}.bin"] = struct.pack(f"<{len(values)}f", *values)
        trees.append(Tree(files))
    return trees


def _pickles() -> list[Tree]:
    trees = []
    for protocol, dtype in ((4, np.float32), (2, np.float64), (5, np.float32)):
        index = pd.MultiIndex.from_product(
            [["SH600000", "000001"], pd.to_datetime(_STAMPS)], names=["instrument", "datetime"]
        )
        values = np.arange(12, dtype=dtype)
        made = pd.DataFrame({"$close0": values + dtype(10.1), "$volume0": values}, index=index)
        trees.append(Tree({"A.pkl": pickle.dumps(made, protocol=protocol)}))
    return trees


def _order_tables() -> list[pd.DataFrame]:
    plain_ = pd.DataFrame({"instrument": ["000001", "A"], "date": "2024-01-03", "direction": ["BUY", "sell"]})
    plain_ = plain_.assign(amount=[100.0, 0.5])
    windows = plain_.assign(start="09:30", end=["10:30:00", "16:00"], order_id=["x", "y"])
    stamps = plain_.drop(columns="date").assign(start="2024-01-03 09:30:00", end="2024-01-03 10:00:00")
    return [plain_, windows, stamps]


def _orders_csv() -> list[Tree]:
    return [Tree({"orders.csv": table.to_csv(index=False).encode()}) for table in _order_tables()]


def _orders_parquet() -> list[Tree]:
    return [Tree({"orders.parquet": _parquet_of(table)}) for table in _order_tables()]


#: Parts of the limit that a fat input's text has. BZ2 packs such text some hundred times slower than DEFLATE does.
_SHARES = (0.5, 0.99, 1.01, 10)


@cache
def _fat_zip(member: str, row: str, share: float, method: int) -> bytes:
    """Return an archive of as many short rows as the limit admits, or some more; readers make most of those."""
    return pack([(member, f"{row}\n".encode() * int(share * LIMIT * 1e6 / (len(row) + 1)))], method)


def _fat_row(rng: random.Random, columns: int) -> str:
    sparse = ",".join(["1"] * columns), "," * (columns - 1), "0" * 10, "34200000" + "," * (columns - 1)
    return rng.choice((*sparse, "34200000" + ",10" * (columns - 1)))


def _fat_binance(rng: random.Random) -> Tree:
    row = rng.choice(("1704067200000,1,1,1,1,1,1704067259999,1,,,,", _fat_row(rng, 12)))
    packed = zipfile.ZIP_DEFLATED, rng.choice(_SHARES)
    method, share = rng.choice((packed, packed, (zipfile.ZIP_BZIP2, 1.01)))
    return Tree({"B-1m-2024-01.zip": _fat_zip("B-1m-2024-01.csv", row, share, method)}, False)


def _fat_lean(rng: random.Random) -> Tree:
    name, columns = rng.choice((("trade", 6), ("quote", 11)))
    share, member = rng.choice(_SHARES), f"20240103_spy_minute_{name}.csv"
    content = _fat_zip(member, _fat_row(rng, columns), share, zipfile.ZIP_DEFLATED)
    return Tree({f"{_LEAN}_{name}.zip": content}, False)


def _fat_lobster(rng: random.Random) -> Tree:
    row, book = "34200,1,1,1,1,1", rng.choice((",,,", "1000100,9,1000000,9"))
    count = int(rng.choice((0.3, 0.75, 0.99, 1.01)) * LIMIT * 1e6 / (max(len(row), len(book)) + 1))
    name = "A_2012-06-21_34200000_34440000_{}_1.csv"
    return Tree(
        {name.format("message"): _lines([row] * count), name.format("orderbook"): _lines([book] * count)}, False
    )


def _fat_pickle(rng: random.Random) -> Tree:
    count = rng.choice((10_000, 400_000, 1_000_000))
    index = pd.MultiIndex.from_product(
        [["A"], pd.date_range("2024-01-03", periods=count, freq="s")], names=["instrument", "datetime"]
    )
    made = pd.DataFrame({"$close0": np.ones(count, np.float32)}, index=index)
    harm = (
        b"\x80\x04" + rng.choice((b"]" * 4_000_000, b"(" * 7_000_000, b"N0" * 3_000_000, b"]\x94" * 3_000_000)) + b"."
    )
    return Tree({"A.pkl": rng.choice((pickle.dumps(made, protocol=4), harm))}, False)


def _once(rows: Callable[[Tree], list[plain.Row] | None]) -> Callable[[Tree], list[plain.Row] | None]:
    """Return a plain reading in which a bar of each stamp is left: the last of a file, the first of several files'."""

    def read(tree: Tree) -> list[plain.Row] | None:
        kept: dict[tuple[str | None, int], plain.Row] = {}
        for name in sorted(tree.files):
            found = rows(Tree({name: tree.files[name]}))
            if found is None or any(row.stamp is None for row in found):
                return None
            last = {(row.instrument, row.stamp): row for row in found if row.instrument}
            kept = {**last, **kept}
        return list(kept.values())

    return read


_US = Calendar.preset("us", timezone="America/New_York")
_UTC = Calendar.preset("crypto", timezone="UTC")

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("csv", _csv, _by("table"), plain.table, {}, _US),
        Target("csv.gz", _csv_gz, _by("table"), None, {}, _US),
        Target("parquet", _parquet, _by("table"), parquet_rows, {"parquet": change_parquet}, _US),
        Target("binance", _binance, _by("binance"), plain.binance, {}, _UTC, _fat_binance),
        Target("lean", _lean, _by("lean", security="equity", zone="America/New_York"), plain.lean, {}, _US, _fat_lean),
        Target("lobster", _lobster, _by("lobster"), plain.lobster, {}, _US, _fat_lobster),
        Target("qlib", _qlib, _by("qlib"), plain.qlib, {}, _US),
        Target(
            "qlib_pickle, trusted",
            _pickles,
            _by("qlib_pickle", trust_pickle=True),
            pickle_rows,
            {"pkl": change_pickle},
            _US,
            _fat_pickle,
        ),
        Target(
            "qlib_pickle, not trusted", _pickles, _by("qlib_pickle"), lambda tree: [], {"pkl": change_pickle}, share=0.2
        ),
        Target("import, csv", _csv, _imported, _once(plain.table), {}, _US, writes=True),
        Target(
            "import, parquet", _parquet, _imported, _once(parquet_rows), {"parquet": change_parquet}, _US, writes=True
        ),
        Target("orders, csv", _orders_csv, _orders),
        Target("orders, parquet", _orders_parquet, _orders, None, {"parquet": change_parquet}),
    )
}
