"""Policies that need no learning. They read the `BatchState` itself and answer with amounts."""

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


class TWAP:
    """Trades evenly over the window; its price advantage is 0 where no rule binds."""

    def act(self, obs: BatchState, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        return obs.now.position * obs.engine.even_share(obs.orders, obs.now)


class VWAP:
    """Trades along the volume profile of the instrument's earlier sessions.

    Parameters
    ----------
    days
        Number of earlier sessions in the profile. An order whose instrument has none yet trades evenly.

    Notes
    -----
    The profile is the mean share of a session's volume that fell into each tick, over sessions strictly
    before the order's.
    """

    def __init__(self, days: int = 20) -> None:
        self.days = days

    def act(self, obs: BatchState, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        stop = obs.engine.step_stop(obs.orders, obs.now)
        profile = self._profile(obs)
        cumulative = np.concatenate([np.zeros((len(profile), 1)), np.cumsum(profile, axis=1)], axis=1)
        rows = np.arange(len(profile))
        now = cumulative[rows, stop] - cumulative[rows, obs.now.tick]
        left = cumulative[rows, obs.orders.end] - cumulative[rows, obs.now.tick]
        even = obs.engine.even_share(obs.orders, obs.now)
        share = np.divide(now, left, out=even, where=left > 0)
        return obs.now.position * np.clip(share, 0.0, 1.0)

    def _profile(self, obs: BatchState) -> np.ndarray:
        """Return the profile of each order's session, float64 of shape (N, T); zeros where there is none."""
        sessions = obs.engine.sessions
        wanted, index = np.unique(obs.orders.session, return_inverse=True)
        total = np.zeros((len(wanted), sessions.calendar.num_ticks))
        row = np.asarray(sessions.previous)[wanted]
        for _ in range(self.days):
            have = np.flatnonzero(row >= 0)
            if not len(have):
                break
            volume = np.nan_to_num(np.asarray(sessions.fields["volume"])[row[have]])
            whole = volume.sum(axis=1, keepdims=True)
            total[have] += np.divide(volume, whole, out=np.zeros_like(volume), where=whole > 0)
            row[have] = np.asarray(sessions.previous)[row[have]]
        return total[index]
