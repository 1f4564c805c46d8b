"""From simulator states to observations, and from policy actions to simulator actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np

from rlwb.bound import Bound
from rlwb.errors import InterpreterError

StateT = TypeVar("StateT")
ObsT = TypeVar("ObsT")
PolicyActionT = TypeVar("PolicyActionT")
ActionT = TypeVar("ActionT")


def check_in_space(space: gym.Space[Any], value: Any, name: str) -> None:
    """Raise `InterpreterError` naming the first entry of `value` that is not in `space`."""
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(value, dict):
            raise InterpreterError(f"{name} must return a dict, not {type(value).__name__}; check its return value.")
        missing, unknown = space.keys() - value.keys(), value.keys() - space.keys()
        if missing or unknown:
            raise InterpreterError(
                f"{name} returned keys that differ from its observation space: missing {sorted(missing)}, "
                f"unknown {sorted(unknown)}; return exactly the keys of the space."
            )
        for key, part in space.items():
            check_in_space(part, value[key], f"{name}[{key!r}]")
        return
    if isinstance(space, gym.spaces.Box):
        array = np.asarray(value)
        if array.shape != space.shape or array.dtype != space.dtype:
            raise InterpreterError(
                f"{name} has shape {array.shape} and dtype {array.dtype}, its space asks for {space.shape} "
                f"and {space.dtype}; convert it in the interpreter."
            )
        if np.isnan(array).any():
            raise InterpreterError(f"{name} holds NaN; replace what is missing before it reaches a policy.")
        outside = (array < space.low) | (array > space.high)
        if outside.any():
            index = tuple(int(place) for place in np.argwhere(outside)[0])
            raise InterpreterError(
                f"{name} is {array[index]!s} at index {index}, outside [{space.low[index]!s}, {space.high[index]!s}]; "
                "correct the value or the space."
            )
        return
    if isinstance(space, gym.spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        for place, (part, entry) in enumerate(zip(space, value, strict=True)):
            check_in_space(part, entry, f"{name}[{place}]")
        return
    if not space.contains(value):
        raise InterpreterError(f"{name} returned {value!r}, which is not in {space}; correct the value or the space.")


def stack_observations(observations: Iterable[Any]) -> Any:
    """Stack observations of one space along a new first axis; dicts and tuples are stacked part by part."""
    rows = list(observations)
    if rows and isinstance(rows[0], tuple):
        return tuple(stack_observations(part) for part in zip(*rows, strict=True))
    if rows and isinstance(rows[0], dict):
        return {key: stack_observations(row[key] for row in rows) for key in rows[0]}
    return np.stack([np.asarray(row) for row in rows])


class StateInterpreter(Bound, ABC, Generic[StateT, ObsT]):
    """Turns a state into what a policy sees.

    Write `observation_space` and `interpret` for one state. `interpret_batch` lifts that over a
    batch; a built-in interpreter overrides it with one array operation that gives the same bits.
    """

    @property
    @abstractmethod
    def observation_space(self) -> gym.Space[Any]:
        """The space that every observation lies in."""

    @abstractmethod
    def interpret(self, state: StateT) -> ObsT:
        """Return the observation of one state."""

    def interpret_batch(self, states: Sequence[StateT]) -> Any:
        """Return the observations of `states`, stacked along a new first axis."""
        return stack_observations(self.interpret(state) for state in states)

    def __call__(self, state: StateT) -> ObsT:
        """Interpret one state and check the result against the space."""
        obs = self.interpret(state)
        check_in_space(self.observation_space, obs, type(self).__name__)
        return obs


class ActionInterpreter(Bound, ABC, Generic[StateT, PolicyActionT, ActionT]):
    """Turns a policy's action into one that the simulator understands."""

    @property
    @abstractmethod
    def action_space(self) -> gym.Space[Any]:
        """The space that the policy's actions lie in."""

    @abstractmethod
    def interpret(self, state: StateT, action: PolicyActionT) -> ActionT:
        """Return the simulator's action for one state and one action of the policy."""

    def interpret_batch(self, states: Sequence[StateT], actions: np.ndarray) -> np.ndarray:
        """Return the simulator's actions for `states` and `actions`, of shape ``(N, ...)``."""
        pairs = zip(states, actions, strict=True)
        return np.stack([np.asarray(self.interpret(state, action)) for state, action in pairs])

    def __call__(self, state: StateT, action: PolicyActionT) -> ActionT:
        """Check the policy's action against the space, then interpret it."""
        check_in_space(self.action_space, action, f"the action given to {type(self).__name__}")
        return self.interpret(state, action)
