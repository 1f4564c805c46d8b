"""The market in the peer's own files: one pickled table an instrument for features and one for prices."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from qlib.backtest.decision import Order, OrderDir
from qlib.rl.data import pickle_styled

_COLUMNS = ["$high", "$low", "$open", "$close", "$volume"]


def write_files(folder: Path) -> None:
    """Write ``processed/`` and ``backtest/`` in `folder`.

    These are the files of the peer's simple simulator; of its two ways to read data this is the faster one,
    which keeps an instrument's table in memory in place of unpickling it for each order.
    """
    with np.load(folder / "market.npz") as market:
        arrays = dict(market)
    for name in ("processed", "backtest"):
        (folder / name).mkdir(exist_ok=True)
    offsets = pd.to_timedelta(arrays["tick_seconds"], unit="s")
    for instrument in np.unique(arrays["instruments"]):
        rows = np.flatnonzero(arrays["instruments"] == instrument)
        dates = pd.DatetimeIndex(arrays["dates"][rows])
        stamps = np.concatenate([(date + offsets).to_numpy() for date in dates])
        index = pd.MultiIndex.from_arrays(
            [np.repeat(instrument, len(stamps)), stamps, np.repeat(dates.to_numpy(), len(offsets))],
            names=["instrument", "datetime", "date"],
        )
        prices = {"$close0": arrays["close"][rows].ravel(), "$volume0": arrays["volume"][rows].ravel()}
        pd.DataFrame(prices, index=index).to_pickle(folder / "backtest" / f"{instrument}.pkl.backtest")
        blocks = np.concatenate([arrays["today"][rows], arrays["previous"][rows]], axis=2)
        names = _COLUMNS + [f"{name}_1" for name in _COLUMNS]
        table = pd.DataFrame(blocks.reshape(len(stamps), -1), index=index, columns=names)
        table.to_pickle(folder / "processed" / f"{instrument}.pkl")


def keep_all_files() -> None:
    """Let the peer keep the tables of all instruments in memory.

    As it ships it keeps 10, two an instrument, and reads the others again for each order, which halves its speed
    on markets of more than 5 instruments.
    """
    pickle_styled._read_pickle = lru_cache(maxsize=None)(pickle_styled._read_pickle.__wrapped__)


def read_orders(folder: Path, part: str = "train") -> list[Order]:
    """Return the orders of one part, each over the whole session."""
    with np.load(folder / "market.npz") as market:
        seconds = market["tick_seconds"]
        columns = [market[f"{part}_{name}"] for name in ("instrument", "date", "amount", "buy")]
    start = pd.Timedelta(seconds=int(seconds[0]))
    end = pd.Timedelta(seconds=int(seconds[-1] + seconds[1] - seconds[0]))
    return [
        Order(
            str(instrument),
            float(amount),
            OrderDir.BUY if buy else OrderDir.SELL,
            pd.Timestamp(date) + start,
            pd.Timestamp(date) + end,
        )
        for instrument, date, amount, buy in zip(*columns, strict=True)
    ]
