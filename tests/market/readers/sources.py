"""Small sources of every kind, written as their makers write them, with the bars that they hold."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PRICES = ("open", "high", "low", "close")


def write_bin(path: Path, values: Sequence[float], start: float = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.array([start, *values], dtype="<f4").tofile(path)


def write_qlib(
    folder: Path,
    columns: Mapping[str, Mapping[str, Sequence[float]]],
    steps: Sequence[str],
    *,
    freq: str = "1min",
    listing: str | None = None,
) -> Path:
    """Write ``{instrument: {field: values}}`` on the calendar `steps`, all from the first step on."""
    (folder / "calendars").mkdir(parents=True)
    (folder / "instruments").mkdir()
    (folder / "features").mkdir()
    (folder / "calendars" / f"{freq}.txt").write_text("\n".join(steps) + "\n")
    lines = [f"{name}\t{steps[0]}\t{steps[-1]}" for name in columns]
    (folder / "instruments" / "all.txt").write_text("\n".join(lines) + "\n" if listing is None else listing)
    for name, fields in columns.items():
        for field, values in fields.items():
            write_bin(folder / "features" / name.lower() / f"{field}.{freq}.bin", values)
    return folder


def flat(close: Sequence[float], volume: Sequence[float]) -> dict[str, Sequence[float]]:
    """Return the columns of bars with one price each."""
    return {**dict.fromkeys(PRICES, close), "volume": volume}


def qlib(folder: Path) -> Path:
    steps = [f"2024-01-03 09:3{minute}:00" for minute in range(4)]
    nan = np.nan
    columns = {
        "SH600000": flat([10.5, nan, 11.53, 10.25], [100, nan, 300, 0]),
        "SZ000001": flat([1.5, 1.75, 2.0, 2.25], [1, 2, 3, 4]),
    }
    return write_qlib(folder / "mine", columns, steps)


def kline(stamp: int, price: float, volume: float, unit: int = 1000) -> str:
    """Return one line of Binance's 1-minute klines; `stamp` in seconds, `unit` stamps a second."""
    first, last = stamp * unit, (stamp + 60) * unit - 1
    return f"{first},{price},{price},{price},{price},{volume},{last},{price * volume},7,0.5,{price / 2},0"


#: 2024-01-01 00:00 UTC.
NEW_YEAR = 1_704_067_200


def write_zip(path: Path, name: str, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def binance(folder: Path) -> Path:
    source = folder / "spot"
    lines = [kline(NEW_YEAR + 60 * minute, 42_000.5 + minute, 0.25) for minute in range(3)]
    write_zip(source / "BTCUSDT-1m-2024-01-01.zip", "BTCUSDT-1m-2024-01-01.csv", "\n".join(lines))
    later = [kline(NEW_YEAR + 366 * 86_400 + 60 * minute, 90_000.0, 2.0, 10**6) for minute in range(2)]
    write_zip(source / "BTCUSDT-1m-2025-01-01.zip", "BTCUSDT-1m-2025-01-01.csv", "\n".join(later))
    header = "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,taker,ignore"
    (source / "ETHUSDT-1m-2024-01-01.csv").write_text(header + "\n" + kline(NEW_YEAR, 2_300.0, 4.0) + "\n")
    return source


def lean(folder: Path) -> Path:
    source = folder / "equity"
    place = source / "usa" / "minute" / "spy"
    trades = ["34200000,1000000,1010000,990000,1005000,300", "34260000,1005000,1005000,1005000,1005000,200"]
    quotes = [
        "34200000,999000,999100,998000,999900,4,1000100,1000200,1000000,1000100,6",
        "34320000,1,1,1,999800,2,,,,,",
    ]
    write_zip(place / "20240103_trade.zip", "20240103_spy_minute_trade.csv", "\n".join(trades))
    write_zip(place / "20240103_quote.zip", "20240103_spy_minute_quote.csv", "\n".join(quotes))
    return source


LOBSTER_NAME = "AAPL_2012-06-21_34200000_34440000_{}_1.csv"
#: 09:30 to 09:34. A visible and a hidden trade in the first minute, nothing in the second, a halt from 09:32:30.
MESSAGES = [
    "34200.5,1,11,100,1000000,1",
    "34201.25,4,11,40,1000000,1",
    "34210.75,5,0,20,1000500,-1",
    "34330.0,3,11,60,1000000,1",
    "34350.0,7,0,0,-1,-1",
]
BOOK = [
    "1001000,50,1000000,100",
    "1001000,50,1000000,60",
    "1001000,50,1000000,60",
    "1001000,50,-9999999999,0",
    "9999999999,0,-9999999999,0",
]


def lobster(folder: Path) -> Path:
    source = folder / "events"
    source.mkdir()
    (source / LOBSTER_NAME.format("message")).write_text("\n".join(MESSAGES) + "\n")
    (source / LOBSTER_NAME.format("orderbook")).write_text("\n".join(BOOK) + "\n")
    return source


def price_table(instruments: Sequence[str], close: Sequence[float], dtype: Any = np.float32) -> pd.DataFrame:
    """Return a table of prices of one day as Qlib's order execution pickles it; every instrument has the same."""
    stamps = pd.date_range("2024-01-03 09:30", periods=len(close), freq="min")
    index = pd.MultiIndex.from_product([list(instruments), stamps], names=["instrument", "datetime"])
    values = np.tile(np.asarray(close, dtype=dtype), len(instruments))
    volume = np.arange(len(values), dtype=dtype)
    return pd.DataFrame({"$close0": values, "$volume0": volume}, index=index)


def qlib_pickle(folder: Path) -> Path:
    source = folder / "backtest"
    source.mkdir()
    for name in ("SH600000", "000001"):
        price_table([name], [10.5, 11.53, np.nan]).to_pickle(source / f"{name}.pkl.backtest")
    return source


def table(folder: Path) -> Path:
    source = folder / "tables"
    source.mkdir()
    row = "2024-01-03 09:30:00,10,11,9,10,100"
    for name in ("000001", "BRK.B"):
        (source / f"{name}.csv").write_text(f"datetime,open,high,low,close,volume\n{row}\n")
    return source


#: Every kind with its maker, its options, the bars of its source, and what the report counts.
SOURCES: dict[str, tuple[Callable[[Path], Path], dict[str, Any], int, dict[str, int]]] = {
    "qlib": (qlib, {}, 7, {"no_bar": 1}),
    "binance": (binance, {}, 6, {}),
    "lean": (lean, {}, 3, {}),
    "lobster": (lobster, {}, 4, {}),
    "qlib_pickle": (qlib_pickle, {"trust_pickle": True}, 6, {"column_absent": 6}),
    "table": (table, {}, 2, {}),
}
