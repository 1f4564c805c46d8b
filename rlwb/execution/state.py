"""What interpreters, rewards and policies read: a batch of orders, or one order that reads like a book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from rlwb.execution.engine import Benchmarks, Engine, EngineState, Fills
from rlwb.execution.order import Order, OrderBatch


@dataclass(frozen=True, eq=False)
class BatchState(Sequence["OrderState"]):
    """N orders in flight. A sequence of `OrderState`, so that code for one state serves a batch by a loop.

    Attributes
    ----------
    engine, orders
        What executes, and what is executed.
    now
        Where the orders stand.
    fills
        What the last step did; zeros before the first.
    benchmarks
        Prices of the windows. They know the future: for rewards and reports, never for observations.
    num_steps : int32 of shape (N,)
    history : float64 of shape (N, max_step + 1)
        Position before step 0, 1, 2, … as far as the order has come; NaN beyond.
    """

    engine: Engine
    orders: OrderBatch
    now: EngineState
    fills: Fills
    benchmarks: Benchmarks
    num_steps: np.ndarray
    history: np.ndarray

    @classmethod
    def start(cls, engine: Engine, orders: OrderBatch) -> BatchState:
        """Return the state of orders that have not traded yet."""
        zero = np.zeros(len(orders))
        history = np.full((len(orders), engine.max_step + 1), np.nan)
        history[:, 0] = orders.amount
        return cls(
            engine,
            orders,
            engine.reset(orders),
            Fills(zero, zero, zero, zero, zero),
            engine.benchmarks(orders),
            engine.num_steps(orders),
            history,
        )

    def advance(self, now: EngineState, fills: Fills) -> BatchState:
        """Return the state after a step."""
        history = self.history.copy()
        moved = np.flatnonzero(~self.now.done)
        history[moved, now.step[moved]] = now.position[moved]
        return replace(self, now=now, fills=fills, history=history)

    def take(self, rows: np.ndarray) -> BatchState:
        """Return the rows `rows` as a batch of their own."""

        def pick(value: object) -> dict[str, np.ndarray]:
            return {name: array[rows] for name, array in vars(value).items()}

        return BatchState(
            self.engine,
            self.orders[rows],
            EngineState(**pick(self.now)),
            Fills(**pick(self.fills)),
            Benchmarks(**pick(self.benchmarks)),
            self.num_steps[rows],
            self.history[rows],
        )

    def __len__(self) -> int:
        return len(self.orders)

    def __getitem__(self, index: int) -> OrderState:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return OrderState(self.take(np.array([index])))

    @cached_property
    def is_last_step(self) -> np.ndarray:
        """Whether the step to come is the order's last, bool of shape (N,)."""
        return self.now.step >= self.num_steps - 1


class OrderState:
    """One order in flight.

    Parameters
    ----------
    batch
        The same as a batch of one.
    """

    def __init__(self, batch: BatchState) -> None:
        self.batch = batch

    @property
    def order(self) -> Order:
        """The order."""
        order: Order = self.batch.orders[0]
        return order

    @property
    def cur_step(self) -> int:
        """Number of steps taken."""
        return int(self.batch.now.step[0])

    @property
    def num_steps(self) -> int:
        """Number of steps of the whole order."""
        return int(self.batch.num_steps[0])

    @property
    def cur_tick(self) -> int:
        """Next tick, counted from the session's open."""
        return int(self.batch.now.tick[0])

    @property
    def cur_time(self) -> pd.Timestamp:
        """Start of the next tick; the close when the session is over."""
        seconds = self.batch.engine.sessions.calendar.seconds_at(self.cur_tick)
        return pd.Timestamp(self.order.date).normalize() + pd.Timedelta(seconds=seconds)

    @property
    def position(self) -> float:
        """Amount left to trade."""
        return float(self.batch.now.position[0])

    @property
    def position_history(self) -> np.ndarray:
        """Position before each step so far and after the last, of shape (cur_step + 1,)."""
        history: np.ndarray = self.batch.history[0, : self.cur_step + 1]
        return history

    @property
    def ticks_left(self) -> int:
        """Trading ticks left in the window; a lunch break counts for nothing."""
        return int(self.batch.orders.end[0]) - self.cur_tick

    @property
    def step_fill(self) -> float:
        """Amount filled in the last step."""
        return float(self.batch.fills.fill[0])

    @property
    def step_price(self) -> float:
        """Average price of the last step; NaN when it filled nothing."""
        fill = self.step_fill
        return float(self.batch.fills.notional[0]) / fill if fill > 0 else float("nan")

    @property
    def bars(self) -> pd.DataFrame:
        """The bars of the session seen so far, one row a tick; missing ticks are NaN."""
        sessions, row, stop = self.batch.engine.sessions, int(self.batch.orders.session[0]), self.cur_tick
        times = [sessions.calendar.time_of(tick) for tick in range(stop)]
        return pd.DataFrame({name: np.asarray(f[row, :stop]) for name, f in sessions.fields.items()}, index=times)
