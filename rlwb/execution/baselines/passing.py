"""What lets a policy be written on states and amounts: interpreters that pass both through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.execution.state import BatchState, OrderState
from rlwb.interpreter import ActionInterpreter, StateInterpreter


class StateItself(StateInterpreter[OrderState, Any]):
    """Passes the state through, for policies that are written on states."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        return gym.spaces.Dict({})

    def interpret(self, state: OrderState) -> Any:
        return state.batch

    def interpret_batch(self, states: Sequence[OrderState]) -> Any:
        return states


class AmountItself(ActionInterpreter[OrderState, Any, float]):
    """Takes the amount to trade as the action; cut to the position, everything in the order's last step."""

    @property
    def action_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0.0, np.inf, (), np.float64)

    def interpret(self, state: OrderState, action: Any) -> float:
        return float(self.interpret_batch(state.batch, np.array([action], dtype=np.float64))[0])

    def interpret_batch(self, states: Sequence[OrderState], actions: np.ndarray) -> np.ndarray:
        batch: BatchState = states  # type: ignore[assignment]
        position = batch.now.position
        return np.where(batch.is_last_step, position, np.clip(actions, 0.0, position))
