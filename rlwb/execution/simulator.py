"""Simulators of orders: the engine behind the protocol of simulators, and an example of one of your own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.execution.align import align_orders
from rlwb.execution.engine import Engine
from rlwb.execution.order import FORMS_OF_FILLS, Order, OrderBatch
from rlwb.execution.state import ExecutionState
from rlwb.seeds import uniform_of
from rlwb.simulator import Simulator


class OrderExecution(Simulator[ExecutionState]):
    """Executes orders by the engine; an initial state is an order, an action the amount to trade in the step.

    A simulator of one's own subclasses it and overrides `step`, for example to fill what a liquidity of its own allows
    (`ExecutionState.traded` does the bookkeeping); all interpreters, rewards, baselines and reports work with it. It
    names the order `forms` that it honours; without a word it honours none, while the engine honours all.

    Parameters
    ----------
    engine
        What executes the orders.
    """

    forms = FORMS_OF_FILLS

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls) and "forms" not in vars(cls):
            cls.forms = frozenset()

    def align(self, orders: pd.DataFrame | Iterable[Order]) -> OrderBatch:
        """Align orders with the sessions; see `rlwb.execution.align_orders`."""
        return align_orders(orders, self.engine.sessions, self.engine.rules, forms=self.forms)

    def start(self, initial_states: Sequence[Order], seeds: np.ndarray) -> ExecutionState:
        """Return the state of orders that have not traded yet; one that cannot be executed is an OrderError."""
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

    def record(self) -> dict[str, Any]:
        engine, calendar = self.engine, self.engine.sessions.calendar
        return {
            **super().record(),
            "bar_seconds": calendar.tick_seconds,
            "ticks": calendar.num_ticks,
            "ticks_per_step": int(engine.ticks_per_step),
            "steps": engine.max_step,
            "calendar": {"segments": calendar.segments, "timezone": calendar.timezone},
            "rules": dataclasses.asdict(engine.rules),
            "data": engine.sessions.fingerprint,
        }


class RandomLiquidity(OrderExecution):
    """The engine in a market that is dry in some steps: then only a part of the request is traded.

    Steps are dry independently of each other, drawn from the episode's seed. An order's last step is never dry, so that
    every order completes as under the engine's own rules.

    Parameters
    ----------
    engine
        Executes what the liquidity lets through.
    dry : probability
        Probability that a step is dry, in [0, 1].
    part : share of the request
        Part of the request that a dry step lets through, in [0, 1].
    """

    forms = FORMS_OF_FILLS

    def __init__(self, engine: Engine, dry: float = 0.3, part: float = 0.5) -> None:
        super().__init__(engine)
        if not (0 <= dry <= 1 and 0 <= part <= 1):
            raise ConfigError(f"dry is {dry} and part {part}; both must lie in [0, 1].")
        self.dry, self.part = dry, part

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        is_dry = (uniform_of(state.seeds, state.now.step) < self.dry) & ~state.known.is_last_step
        return super().step(state, np.where(is_dry, self.part * action, action))
