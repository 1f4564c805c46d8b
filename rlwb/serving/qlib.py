"""Execution by a bundle inside Qlib's nested executor: the strategy of an inner level, which splits orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError, RlwbError
from rlwb.execution import Direction, Order
from rlwb.execution.kernel import TOLERANCE
from rlwb.market.readers.content import nearest_decimal
from rlwb.serving.bundle import open_bundle
from rlwb.serving.policy import BundlePolicy, Decision

try:
    from qlib.backtest.decision import Order as QlibOrder
    from qlib.backtest.decision import TradeDecisionWO
    from qlib.backtest.utils import get_start_end_idx
    from qlib.data import D
    from qlib.strategy.base import BaseStrategy
except ImportError as error:
    raise ConfigError(f"BundleStrategy needs the package pyqlib ({error}); pip install 'rlwb[qlib]'.") from error

_SECOND = pd.Timedelta(seconds=1)


@dataclass
class _Working:
    """An order at work: its window and `filled` shares; of its step the end, what was `decided`, asked for, filled."""

    order_id: str
    order: QlibOrder
    start: int
    end: int
    row: int
    filled: float = 0.0
    stop: int = -1
    decided: float = 0.0
    asked: float = 0.0
    filled_in_step: float = 0.0

    @property
    def left(self) -> float:
        """Amount that is open; 0 where it is no more than rounding."""
        left = self.order.amount - self.filled
        return left if left > TOLERANCE * self.order.amount else 0.0


class BundleStrategy(BaseStrategy):
    """Splits the orders of an outer strategy by the policy of a bundle, for Qlib's ``NestedExecutor``.

    At the start of each of its steps the policy sees the bars before it, which are read from Qlib's data, and the
    amount that Qlib's exchange has left open. What it decides is asked for evenly over the bars of the step; in an
    order's last step what the exchange cuts is asked for again. Fills, costs and limits are the exchange's.

    Parameters
    ----------
    bundle
        The directory of a bundle.
    backend
        What evaluates the network; see `rlwb.serving.BundlePolicy`.
    history_days
        Calendar days before an order's date whose bars are read, for yesterday's bars and closes.
    trust_code
        Whether parts of the bundle that are somebody's own code may run.
    settings
        What Qlib gives every strategy.

    Attributes
    ----------
    decisions
        What was decided so far, in the order of the decisions. The id of an order is its instrument, start, direction
        and number in the outer strategy's decision.
    refused
        How many of Qlib's bars the market refused, by reason.

    Raises
    ------
    BundleError
        When the bundle cannot be opened.
    DataError
        When Qlib's calendar has a step that does not start at a tick of the bundle's calendar.
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        backend: Literal["onnx", "torch"] = "torch",
        history_days: int = 10,
        trust_code: bool = False,
        **settings: Any,
    ) -> None:
        self.policy = BundlePolicy(open_bundle(bundle, trust_code=trust_code), backend=backend)
        self.history_days = history_days
        self.decisions: list[Decision] = []
        self.refused: Counter[str] = Counter()
        self._working: list[_Working] | None = None
        self._asked: dict[int, _Working] = {}
        self._read_until: pd.Timestamp | None = None
        super().__init__(**settings)

    def reset(self, *args: Any, outer_trade_decision: Any = None, **settings: Any) -> None:
        """Take the orders of a new decision of the outer strategy; those of the one before are over."""
        super().reset(*args, outer_trade_decision=outer_trade_decision, **settings)
        if outer_trade_decision is not None:
            self.post_upper_level_exe_step()

    def alter_outer_trade_decision(self, outer_trade_decision: Any) -> Any:
        """Refuse orders that are changed while they are executed."""
        raise ConfigError(
            "the outer strategy changed its orders while BundleStrategy was executing them; let it decide once a step."
        )

    def generate_trade_decision(self, execute_result: list[Any] | None = None) -> TradeDecisionWO:
        """Return what to ask the exchange for in the coming bar."""
        begin, last = self.trade_calendar.get_step_time()
        tick, after = self._tick(begin), self._tick_after(begin, last)
        if self._working is None:
            self._working = self._register(begin)
        live = [work for work in self._working if work.start <= tick < work.end and work.left > 0]
        due = [work for work in live if tick >= work.stop]
        if due:
            self._decide(due, begin, tick)
        orders = []
        for work in live:
            if self.trade_exchange.check_stock_suspended(work.order.stock_id, begin, last):
                continue  # Qlib's strategies know as much; what is decided goes to the step's other bars
            amount = self._share(work, tick, after)
            if amount > 0:
                orders.append(QlibOrder(work.order.stock_id, amount, work.order.direction, begin, last))
                self._asked[id(orders[-1])] = work
                work.asked += amount
        return TradeDecisionWO(orders, self)

    def post_exe_step(self, execute_result: list[Any] | None) -> None:
        """Book the fills of the bar."""
        for order, *_ in execute_result or ():
            work = self._asked[id(order)]
            work.filled += order.deal_amount
            work.filled_in_step += order.deal_amount
        self._asked.clear()

    def post_upper_level_exe_step(self) -> None:
        """Forget the orders of the outer step, which is over."""
        for work in self._working or ():
            self.policy.forget(work.order_id)
        self._working, self._read_until = None, None
        self._asked.clear()

    def _tick(self, stamp: pd.Timestamp) -> int:
        """Return the tick that the stamp of a bar names."""
        calendar = self.policy.bundle.calendar
        tick = self._tick_after(stamp, stamp - _SECOND)
        shift = calendar.tick_seconds if calendar.label == "end" else 0
        if tick == calendar.num_ticks or stamp.normalize() + (calendar.tick_start[tick] + shift) * _SECOND != stamp:
            raise DataError(f"Qlib's step at {stamp} is not on the calendar of the bundle; use bars of the same clock.")
        return tick

    def _tick_after(self, begin: pd.Timestamp, last: pd.Timestamp) -> int:
        """Return the first tick after `last`, the last second of a step of Qlib's, in the session of `begin`."""
        calendar = self.policy.bundle.calendar
        shift = calendar.tick_seconds if calendar.label == "end" else 0
        return int(calendar.first_ticks(np.array((last - begin.normalize()) // _SECOND + 1 - shift)))

    def _register(self, begin: pd.Timestamp) -> list[_Working]:
        """Take the outer strategy's orders into flight; their window is the range that it may state."""
        found = [order for order in self.outer_trade_decision.get_decision() if order.amount > 0]
        if not found:
            return []
        first, final = get_start_end_idx(self.trade_calendar, self.outer_trade_decision)
        start = self._tick(self.trade_calendar.get_step_time(first)[0])
        end = self._tick_after(*self.trade_calendar.get_step_time(final))
        self._read(sorted({order.stock_id for order in found}), begin)
        time_of, date = self.policy.bundle.calendar.time_of, begin.normalize()
        working = []
        for number, order in enumerate(found):
            side = Direction.BUY if order.direction == QlibOrder.BUY else Direction.SELL
            name = f"{order.stock_id} {begin:%Y-%m-%d %H:%M} {side.name} {number}"
            given = Order(order.stock_id, date, side, order.amount, time_of(start), time_of(end), order_id=name)
            self.policy.register([given])
            working.append(_Working(name, order, start, end, self.policy.market.row(order.stock_id, date)))
        return working

    def _decide(self, due: Sequence[_Working], begin: pd.Timestamp, tick: int) -> None:
        self._read(sorted({work.order.stock_id for work in self._working or ()}), begin)
        for work in due:
            self.policy.market.reach(work.row, tick)
        cell, names = self.policy.engine.cell, [work.order_id for work in due]
        for work, one in zip(due, self.policy.decide_many(names, [work.left for work in due]), strict=True):
            if isinstance(one, RlwbError):
                raise one
            self.decisions.append(one)
            work.stop = min(work.end, int(np.searchsorted(cell, cell[tick], side="right")))
            work.decided, work.asked, work.filled_in_step = one.amount, 0.0, 0.0

    def _share(self, work: _Working, tick: int, after: int) -> float:
        """Return what to ask for in the bars from `tick` to `after`: the same for every bar that the step has left."""
        if after > work.stop:
            raise ConfigError(f"a step of Qlib's ends at tick {after}, one of the bundle at {work.stop}; use its bars.")
        again = work.stop == work.end and (self.policy.engine.rules.catch_up or after == work.end)
        spent = work.filled_in_step if again else work.asked
        return float(work.decided - spent) * (after - tick) / (work.stop - tick)

    def _read(self, instruments: list[str], until: pd.Timestamp) -> None:
        """Give the market the bars before `until` that it has not been given yet."""
        today = until.normalize()
        since = self._read_until or today - pd.Timedelta(days=self.history_days)
        if since >= until:
            return
        market, fields = self.policy.market, list(self.policy.bundle.spec.bars.fields)
        columns = [f"${name}" for name in fields]
        frame = D.features(instruments, columns, since, until - _SECOND, freq=self.trade_exchange.freq)
        frame = frame.dropna(how="all")
        bars = pd.DataFrame({name: nearest_decimal(frame[f"${name}"].to_numpy()) for name in fields})
        for name in ("instrument", "datetime"):
            bars.insert(0, name, frame.index.get_level_values(name))
        for name in instruments:
            market.open(name, today)
        earlier = (bars["datetime"] < today).to_numpy()
        for take, part in ((market.load_history, bars[earlier]), (market.add, bars[~earlier])):
            if part.empty:
                continue
            try:
                self.refused.update(reason for _, reason in take(part).refused)
            except DataError:  # of none of these instruments is there a session with enough bars
                self.refused["sparse_session"] += len(part)
        self._read_until = until
