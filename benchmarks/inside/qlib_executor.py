"""Orders executed inside Qlib's nested executor by `rlwb.serving.qlib.BundleStrategy`; needs pyqlib and rlwb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import qlib
from qlib.backtest import backtest
from qlib.backtest.decision import Order, TradeDecisionWO, TradeRangeByTime
from qlib.backtest.executor import NestedExecutor, SimulatorExecutor
from qlib.strategy.base import BaseStrategy

from rlwb.serving.qlib import BundleStrategy


class DayOrders(BaseStrategy):
    """The outer strategy: asks each day for the orders of a table, which have the same window."""

    def __init__(self, orders: pd.DataFrame) -> None:
        super().__init__()
        self.orders = orders
        last = orders["end"].iloc[0] - pd.Timedelta("1s")  # Qlib's ranges are closed
        self.window = TradeRangeByTime(orders["start"].iloc[0].time(), last.time())

    def generate_trade_decision(self, execute_result: Any = None) -> TradeDecisionWO:
        first, last = self.trade_calendar.get_step_time()
        today = self.orders[self.orders["date"] == first.normalize()]
        asked = [
            Order(row.instrument, row.amount, Order.BUY if row.direction == "BUY" else Order.SELL, first, last)
            for row in today.itertuples()
        ]
        return TradeDecisionWO(asked, self, self.window)


def _passes(orders: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the orders in parts that have one order an instrument and day, as Qlib's reports want them."""
    number = orders.groupby(["instrument", "date"]).cumcount()
    for value in sorted(number.unique()):
        yield orders[number == value]


def run(folder: Path, freq: str) -> dict[str, Any]:
    """Execute ``orders.parquet`` by ``bundle`` on the bars of ``bars``; write ``theirs.parquet``, a row a decision."""
    bars = str(folder / "bars")
    qlib.init(provider_uri={freq: bars, "day": bars}, region="us", kernels=1, expression_cache=None, dataset_cache=None)
    rows, refused = [], 0
    for orders in _passes(pd.read_parquet(folder / "orders.parquet")):
        inner = BundleStrategy(folder / "bundle")
        executor = NestedExecutor("day", SimulatorExecutor(freq), inner)
        first, last = orders["date"].min(), orders["date"].max()
        exchange = {"freq": freq, "deal_price": "$close", "trade_unit": None, "limit_threshold": None, "min_cost": 0.0}
        exchange |= {"open_cost": 0.0, "close_cost": 0.0, "end_time": last + pd.Timedelta("23h")}
        backtest(first, last, DayOrders(orders), executor, None, 1e9, exchange_kwargs=exchange, pos_type="InfPosition")
        ids = {f"{one.instrument} {one.date:%Y-%m-%d} {one.direction}": one.order_id for one in orders.itertuples()}
        for one in inner.decisions:
            instrument, date, _, side, _ = one.order_id.split(" ")
            rows.append((ids[f"{instrument} {date} {side}"], one.step, one.tick, one.position, one.amount))
        refused += inner.refused.total()
    columns = ["order_id", "step", "tick", "position", "amount"]
    pd.DataFrame(rows, columns=columns).to_parquet(folder / "theirs.parquet")
    return {"refused_bars": refused, "qlib": qlib.__version__, "numpy": np.__version__}


JOBS = {"run": run}
