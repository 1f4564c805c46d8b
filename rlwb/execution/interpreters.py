"""Observations and actions of order execution.

Every interpreter here computes on a `BatchState`; one state is a batch of one, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.errors import ConfigError, InterpreterError
from rlwb.execution.state import BatchState, OrderState
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.market import MarketFeatures, Sessions

Observation = dict[str, Any]


def _as_batch(states: Sequence[OrderState]) -> BatchState:
    if isinstance(states, BatchState):
        return states
    raise ConfigError("the built-in interpreters read a BatchState; pass one, or call the interpreter state by state.")


class CurrentStepStateInterpreter(StateInterpreter[OrderState, Observation]):
    """The scalars of the order alone.

    ============== ======= ========================================
    key            dtype   meaning
    ============== ======= ========================================
    acquiring      int64   1 buy, 0 sell
    cur_step       int32   steps taken, 0 … max_step
    num_step       int32   steps of the whole order, 1 … max_step
    target         float32 amount of the order
    position       float32 amount left
    ============== ======= ========================================

    Parameters
    ----------
    max_step
        Largest number of steps an order may have; `Engine.max_step` of the engine in use.
    """

    def __init__(self, max_step: int) -> None:
        self.max_step = max_step

    @property
    def observation_space(self) -> gym.spaces.Dict:
        big = np.finfo(np.float32).max
        return gym.spaces.Dict(
            {
                "acquiring": gym.spaces.Discrete(2),
                "cur_step": gym.spaces.Box(0, self.max_step, (), np.int32),
                "num_step": gym.spaces.Box(1, self.max_step, (), np.int32),
                "target": gym.spaces.Box(0, big, (), np.float32),
                "position": gym.spaces.Box(0, big, (), np.float32),
            }
        )

    def interpret(self, state: OrderState) -> Observation:
        obs = {key: np.asarray(value[0]) for key, value in self.interpret_batch(state.batch).items()}
        # gymnasium's checker wants a number for a Discrete and an array for a Box.
        return {**obs, "acquiring": obs["acquiring"][()]}

    def interpret_batch(self, states: Sequence[OrderState]) -> Observation:
        batch = _as_batch(states)
        self.check_steps(batch)
        return {
            "acquiring": (batch.orders.side > 0).astype(np.int64),
            "cur_step": batch.now.step,
            "num_step": batch.num_steps,
            "target": batch.orders.amount.astype(np.float32),
            "position": batch.now.position.astype(np.float32),
        }

    def check_steps(self, batch: BatchState) -> None:
        """Raise `ConfigError` when an order has more steps than `max_step`."""
        longest = int(batch.num_steps.max(initial=0))
        if longest > self.max_step:
            raise ConfigError(
                f"max_step is {self.max_step} but an order has {longest} steps; "
                f"set max_step to {batch.engine.max_step}, the most that this clock allows."
            )


class FullHistoryStateInterpreter(CurrentStepStateInterpreter):
    """The order's scalars, its inventory path, and the session's bars so far.

    Beside the keys of `CurrentStepStateInterpreter`:

    =================== ======= ============ ================================================
    key                 dtype   shape        meaning
    =================== ======= ============ ================================================
    data_processed      float32 (T, C)       features of today before the current tick, then 0
    data_processed_prev float32 (T, C)       features of the previous session
    cur_tick            int32   ()           next tick
    position_history    float32 (max_step,)  position before steps 0 … cur_step, then 0
    =================== ======= ============ ================================================

    Parameters
    ----------
    features
        Normalised features of the panel that the orders are bound to.
    max_step
        See `CurrentStepStateInterpreter`.
    """

    def __init__(self, features: MarketFeatures, max_step: int) -> None:
        super().__init__(max_step)
        self.features = features
        self._checked: Sessions | None = None
        _, self.ticks, self.channels = features.shape

    @property
    def observation_space(self) -> gym.spaces.Dict:
        big = np.finfo(np.float32).max
        block = gym.spaces.Box(-big, big, (self.ticks, self.channels), np.float32)
        return gym.spaces.Dict(
            {
                **super().observation_space.spaces,
                "data_processed": block,
                "data_processed_prev": block,
                "cur_tick": gym.spaces.Box(0, self.ticks, (), np.int32),
                "position_history": gym.spaces.Box(0, big, (self.max_step,), np.float32),
            }
        )

    def interpret_batch(self, states: Sequence[OrderState]) -> Observation:
        batch = _as_batch(states)
        reference = self.refer_batch(batch)
        session = reference.pop("session")
        del reference["features"]
        return {
            **reference,
            "data_processed": self.features.block(session, reference["cur_tick"]),
            "data_processed_prev": self.features.block_previous(session),
        }

    def refer_batch(self, batch: BatchState) -> Observation:
        """Return the observation with ``session``, int32 of shape (N,), and ``features`` in place of the two blocks.

        A network reads the blocks of the panel under ``features`` by session and tick, so that no step copies them.
        """
        sessions = batch.engine.sessions
        if self._checked is not sessions:
            self.features.check_matches(sessions)
            self._checked = sessions
        history = np.zeros((len(batch), self.max_step), dtype=np.float32)
        steps = min(self.max_step, batch.history.shape[1])
        history[:, :steps] = np.nan_to_num(batch.history[:, :steps])
        return {
            **super().interpret_batch(batch),
            "cur_tick": batch.now.tick,
            "position_history": history,
            "session": batch.orders.session,
            "features": self.features,
        }


class CategoricalActionInterpreter(ActionInterpreter[OrderState, int, float]):
    """A choice among fixed shares of the order's amount.

    Parameters
    ----------
    values
        The shares, in [0, 1]; an integer n means 0, 1/n, …, 1.

    Notes
    -----
    The share is cut to the position; the order's own last step asks for everything that is left.
    """

    def __init__(self, values: int | Sequence[float]) -> None:
        if isinstance(values, (int, np.integer)) and values >= 1:
            shares = np.linspace(0.0, 1.0, int(values) + 1)
        else:
            shares = np.asarray(values, dtype=np.float64)
        if shares.ndim != 1 or len(shares) < 2 or not ((shares >= 0) & (shares <= 1)).all():
            raise ConfigError(f"action values {values!r} are not two or more shares in [0, 1]; give them, or n >= 1.")
        self.shares = shares

    @property
    def action_space(self) -> gym.spaces.Discrete:
        return gym.spaces.Discrete(len(self.shares))

    def interpret(self, state: OrderState, action: int) -> float:
        return float(self.interpret_batch(state.batch, np.array([action]))[0])

    def interpret_batch(self, states: Sequence[OrderState], actions: np.ndarray) -> np.ndarray:
        batch = _as_batch(states)
        position = batch.now.position
        chosen = np.asarray(actions)
        if chosen.dtype.kind not in "iu" or ((chosen < 0) | (chosen >= len(self.shares))).any():
            raise InterpreterError(
                f"the actions {chosen} are not whole numbers from 0 to {len(self.shares) - 1}; "
                "each names one of the action interpreter's shares."
            )
        ask = np.minimum(self.shares[chosen] * batch.orders.amount, position)
        return np.where(batch.is_last_step, position, ask)


class TwapRelativeActionInterpreter(ActionInterpreter[OrderState, Any, float]):
    """A ratio of the rate that would finish the order evenly: 1 is TWAP.

    Parameters
    ----------
    max_ratio
        Upper bound of the action space.

    Notes
    -----
    The even rate is the position times `Engine.even_share`. The order's own last step asks for everything
    that is left.
    """

    def __init__(self, max_ratio: float = 10.0) -> None:
        self.max_ratio = max_ratio

    @property
    def action_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0.0, self.max_ratio, (), np.float32)

    def interpret(self, state: OrderState, action: Any) -> float:
        return float(self.interpret_batch(state.batch, np.array([action], dtype=np.float64))[0])

    def interpret_batch(self, states: Sequence[OrderState], actions: np.ndarray) -> np.ndarray:
        batch = _as_batch(states)
        position = batch.now.position
        share = batch.engine.even_share(batch.orders, batch.now)
        ask = np.clip(np.asarray(actions, dtype=np.float64) * position * share, 0.0, position)
        return np.where(batch.is_last_step, position, ask)
