"""The simulator of orders: the engine behind the protocol of simulators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.execution.align import align_orders
from rlwb.execution.engine import Engine
from rlwb.execution.order import Order, OrderBatch
from rlwb.execution.state import ExecutionState
from rlwb.simulator import Simulator


class OrderExecution(Simulator[ExecutionState]):
    """Executes orders by the engine; an initial state is an order, an action the amount to trade in the step.

    A simulator of one's own subclasses it and overrides `step`, for example to fill what a liquidity of its own allows
    (`ExecutionState.traded` does the bookkeeping); all interpreters, rewards, baselines and reports work with it.

    Parameters
    ----------
    engine
        What executes the orders.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def align(self, orders: pd.DataFrame | Iterable[Order]) -> OrderBatch:
        """Align orders with the sessions; see `rlwb.execution.align_orders`."""
        return align_orders(orders, self.engine.sessions, self.engine.rules)

    def start(self, initial_states: Sequence[Order], seeds: np.ndarray) -> ExecutionState:
        """Return the state of orders that have not traded yet.

        Raises
        ------
        OrderError
            When an order cannot be executed on the engine's sessions.
        """
        orders = initial_states if isinstance(initial_states, OrderBatch) else self.align(initial_states)
        return ExecutionState.start(self.engine, orders, seeds)

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        """Trade `action` units, float64 of shape (N,), in the next step; see `Engine.step` for what is refused."""
        try:
            request = np.asarray(action, dtype=np.float64).reshape(len(state))
        except (TypeError, ValueError):
            raise OrderError(
                f"{state.orders.label(0)}: the amounts to trade are {action!r}; give one number for each of "
                f"{len(state)} orders."
            ) from None
        return state.after(*self.engine.step(state.orders, state.now, request))
