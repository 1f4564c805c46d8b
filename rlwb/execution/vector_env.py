"""The native vector environment: the engine with thousands of orders behind the finite environments' protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.env import Active, FiniteVectorEnv, LogWriter, StepResult
from rlwb.execution.engine import Engine, TickRecord
from rlwb.execution.metrics import order_metrics
from rlwb.execution.order import OrderBatch
from rlwb.execution.state import BatchState
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward


class BatchedOrderExecution(FiniteVectorEnv):
    """Executes N orders at once; episode i is order i.

    Parameters
    ----------
    engine, orders
        What executes, and what is executed.
    state_interpreter, action_interpreter, reward
        As in `EnvWrapper`; a user's own are lifted over the batch by a loop.
    by_reference
        Observations name their session in place of copying its features, where the interpreter can
        (`FullHistoryStateInterpreter.refer_batch`).
    record
        Keep what every tick did, for an audit.
    loggers
        Writers told of every finished episode.
    """

    def __init__(
        self,
        engine: Engine,
        orders: OrderBatch,
        *,
        state_interpreter: StateInterpreter[Any, Any],
        action_interpreter: ActionInterpreter[Any, Any, Any],
        reward: Reward[Any] | None = None,
        by_reference: bool = True,
        record: bool = False,
        loggers: Sequence[LogWriter] = (),
    ) -> None:
        self.engine = engine
        self.orders = orders
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward = reward
        self.loggers = tuple(loggers)
        refer = getattr(state_interpreter, "refer_batch", None)
        self._observe = refer if by_reference and refer is not None else state_interpreter.interpret_batch
        self._record_ticks = record
        self.record: TickRecord | None = None
        #: Parts of the last step's reward, for an audit; filled when ticks are recorded.
        self.last_parts: dict[str, np.ndarray] = {}

    def reset(self) -> Active:
        n = len(self.orders)
        self.state = BatchState.start(self.engine, self.orders)
        self.returns = np.zeros(n)
        self._rewards: list[list[float]] = [[] for _ in range(n)] if self.loggers else []
        self.record = TickRecord.empty(n, self.engine.sessions.calendar.num_ticks) if self._record_ticks else None
        for logger in self.loggers:
            logger.on_env_all_ready()
        return self._active(np.arange(n))

    def step(self, action: np.ndarray) -> tuple[StepResult, Active]:
        rows, acting = self._rows, self._acting
        asks = np.asarray(self.action_interpreter.interpret_batch(acting, action), dtype=np.float64)
        ask = np.zeros(len(self.orders))
        ask[rows] = asks
        now, fills = self.engine.step(self.orders, self.state.now, ask, self.record)
        self.state = self.state.advance(now, fills)
        reward = np.zeros(len(rows))
        if self.reward is not None:
            acted = self.state if len(rows) == len(self.orders) else self.state.take(rows)
            reward = np.asarray(self.reward.reward_batch(acted), dtype=np.float64)
            if self._record_ticks:
                self.last_parts = self.reward.parts_batch(acted)
        self.returns[rows] += reward
        done = now.done[rows]
        metrics = self._log(rows, reward, done) if self.loggers else {}
        return StepResult(rows, reward, done, metrics), self._active(rows[~done])

    def close(self) -> None:
        """Release nothing: there are no workers."""

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the figures of all orders as they stand; see `order_metrics`."""
        return order_metrics(self.orders, self.state.now, self.state.benchmarks, self.engine.rules)

    def results(self) -> pd.DataFrame:
        """Return one row an order: the order, its figures and its reward."""
        figures = self.metrics()
        figures["num_steps"] = figures["num_steps"].astype(np.int64)
        return self.orders.table.assign(**figures, reward=self.returns)

    def details(self) -> dict[str, np.ndarray]:
        """Return what is known of each order beside its figures: the ``inventory``."""
        return {"inventory": self.inventory()}

    def inventory(self) -> np.ndarray:
        """Return the share of the amount left after 0, 1, … steps, float64 of shape (N, max_step + 1).

        After its end an order keeps its last value.
        """
        share = self.state.history / self.orders.amount[:, None]
        last = np.maximum.accumulate(np.where(np.isnan(share), 0, np.arange(share.shape[1])), axis=1)
        return np.take_along_axis(share, last, axis=1)

    def _active(self, rows: np.ndarray) -> Active:
        self._rows = rows
        self._acting = self.state if len(rows) == len(self.orders) else self.state.take(rows)
        if not len(rows):
            for logger in self.loggers:
                logger.on_env_all_done()
            return Active(rows, {})
        return Active(rows, self._observe(self._acting))

    def _log(self, rows: np.ndarray, reward: np.ndarray, done: np.ndarray) -> dict[int, dict[str, float]]:
        for i, value in zip(rows, reward, strict=True):
            self._rewards[i].append(float(value))
        ended = rows[done]
        if not len(ended):
            return {}
        figures = self.metrics()
        metrics = {int(i): {name: float(values[i]) for name, values in figures.items()} for i in ended}
        for i, episode in metrics.items():
            for logger in self.loggers:
                logger.on_episode(len(self._rewards[i]), self._rewards[i], [episode])
        return metrics
