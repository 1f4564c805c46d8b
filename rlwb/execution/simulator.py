"""The simulator of one order, and the factory that makes it or the batched environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.align import align_orders
from rlwb.execution.audit import step_audit, tick_audit
from rlwb.execution.engine import Engine, TickRecord
from rlwb.execution.metrics import order_metrics
from rlwb.execution.order import Order, OrderBatch
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.state import BatchState, OrderState
from rlwb.market import Sessions
from rlwb.simulator import Simulator


class SingleAssetOrderExecution(Simulator[Order, OrderState, float]):
    """Executes one order: the engine with N = 1.

    Parameters
    ----------
    order
        The order.
    engine
        What executes it.

    Raises
    ------
    OrderError
        When the order cannot be executed on the engine's sessions.
    """

    def __init__(self, order: Order, engine: Engine) -> None:
        super().__init__(order)
        self.engine = engine
        self.orders = align_orders([order], engine.sessions, engine.rules)
        self.state = BatchState.start(engine, self.orders)
        self.record = TickRecord.empty(1, engine.sessions.calendar.num_ticks)
        self._steps: list[dict[str, float]] = []

    def step(self, action: float) -> None:
        """Trade `action` units in the next step; see `Engine.step` for what is refused."""
        before = self.state
        try:
            ask = np.array([float(action)])
        except (TypeError, ValueError):
            raise OrderError(f"{self.orders.label(0)}: the amount to trade is {action!r}, not one number.") from None
        now, fills = self.engine.step(self.orders, before.now, ask, self.record)
        self.state = before.advance(now, fills)
        self._steps.append(
            {
                "step": int(before.now.step[0]),
                "start_tick": int(before.now.tick[0]),
                "end_tick": int(now.tick[0]),
                "ask": float(fills.ask[0]),
                "fill": float(fills.fill[0]),
                "price": OrderState(self.state).step_price,
                "position": float(now.position[0]),
            }
        )

    def get_state(self) -> OrderState:
        return OrderState(self.state)

    def done(self) -> bool:
        return bool(self.state.now.done[0])

    def metrics(self) -> dict[str, float]:
        figures = order_metrics(self.orders, self.state.now, self.state.benchmarks, self.engine.rules)
        return {name: float(values[0]) for name, values in figures.items()}

    @property
    def history_exec(self) -> pd.DataFrame:
        """One row a tick of the steps so far: time, asked, filled, price, left, bound."""
        return tick_audit(self.engine, self.orders, self.record, stop=int(self.state.now.tick[0]))

    @property
    def history_steps(self) -> pd.DataFrame:
        """One row a step so far: asked, filled, price, left."""
        return step_audit(self._steps)


class OrderExecutionFactory:
    """Makes the simulator of one order, or the batched environment of many.

    Parameters
    ----------
    sessions, ticks_per_step, rules
        See `Engine`.
    """

    def __init__(self, sessions: Sessions, ticks_per_step: int, rules: ExecutionRules | None = None) -> None:
        self.engine = Engine(sessions, ticks_per_step, rules)

    def __call__(self, order: Order) -> SingleAssetOrderExecution:
        return SingleAssetOrderExecution(order, self.engine)

    def bind(self, orders: pd.DataFrame | Iterable[Order]) -> OrderBatch:
        """Align orders with the sessions; see `align_orders`."""
        return align_orders(orders, self.engine.sessions, self.engine.rules)

    def vectorize(self, orders: OrderBatch, **parts: Any) -> Any:
        """Return the batched environment of `orders`; see `BatchedOrderExecution`."""
        from rlwb.execution.vector_env import BatchedOrderExecution

        return BatchedOrderExecution(self.engine, orders, **parts)
