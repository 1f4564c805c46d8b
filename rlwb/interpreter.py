"""Interpreters: from what is known of N episodes to observations, and from a policy's actions to the simulator's."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np

from rlwb.errors import InterpreterError

KnownT = TypeVar("KnownT")


class StateInterpreter(ABC, Generic[KnownT]):
    """Turns what is known of N episodes into what a policy sees."""

    @property
    @abstractmethod
    def observation_space(self) -> gym.Space[Any]:
        """The space of one episode's observation."""

    @abstractmethod
    def interpret(self, known: KnownT) -> Any:
        """Return the N observations as a batch.

        A batch of a ``Dict`` space is a dict of batches, of a ``Tuple`` space a tuple of batches, of any other space an
        array of shape ``(N, *space.shape)`` and the space's dtype. `per_order` lifts a method that is written for one.
        """

    def refer(self, known: KnownT) -> Any:
        """Return the observations for a policy in this process, which may name large arrays instead of copying them."""
        return self.interpret(known)

    def record(self) -> dict[str, Any]:
        """Return what checkpoints keep of what a policy sees, by names of `rlwb.record.TrainingRecord`."""
        space = self.observation_space
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {"space": space}
        told = {"interpreter": type(self).__qualname__, **{str(key): repr(part) for key, part in parts.items()}}
        return {"observation": told}


class ActionInterpreter(ABC, Generic[KnownT]):
    """Turns a policy's actions into those of the simulator."""

    @property
    @abstractmethod
    def action_space(self) -> gym.Space[Any]:
        """The space of one episode's action."""

    @abstractmethod
    def interpret(self, known: KnownT, action: np.ndarray) -> np.ndarray:
        """Return the simulator's actions, of shape (N, …), for the policy's, likewise."""

    def mask(self, known: KnownT) -> np.ndarray | None:
        """Return which of n discrete actions are worth a choice, bool of shape (N, n), at least one a row.

        None, as by default, where all are, or where the actions are not discrete.
        """
        return None

    def record(self) -> dict[str, Any]:
        """Return what checkpoints keep of what a policy's actions mean, by names of `rlwb.record.TrainingRecord`."""
        return {"action": {"interpreter": type(self).__qualname__, "space": repr(self.action_space)}}


Method = TypeVar("Method", bound=Callable[..., Any])


def per_order(method: Method) -> Method:
    """Lift a method of one order to N: it is called row by row, and its answers are stacked.

    For `StateInterpreter.interpret`, `ActionInterpreter.interpret`, `Reward.reward` and
    `AuxiliaryInfoCollector.collect`::

        @per_order
        def reward(self, outcome):
            return outcome.step_fill / outcome.known.amount if outcome.done else 0.0
    """

    @functools.wraps(method)
    def lifted(self: Any, states: Any, *arrays: np.ndarray) -> Any:
        return stack_rows(method(self, states[i], *(array[i] for array in arrays)) for i in range(len(states)))

    return lifted  # type: ignore[return-value]


def stack_rows(rows: Iterable[Any]) -> Any:
    """Stack values of one structure along a new first axis; dicts and tuples are stacked part by part."""
    rows = list(rows)
    if rows and isinstance(rows[0], tuple):
        return tuple(stack_rows(part) for part in zip(*rows, strict=True))
    if rows and isinstance(rows[0], dict):
        return {key: stack_rows(row[key] for row in rows) for key in rows[0]}
    return np.stack([np.asarray(row) for row in rows]) if rows else np.empty(0)


def row_of(batch: Any, row: int, space: gym.Space[Any]) -> Any:
    """Return one row of a batch of observations as `space` has it: arrays for boxes, numbers for discrete spaces."""
    if isinstance(batch, dict):
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
        return {key: row_of(part, row, parts.get(key, space)) for key, part in batch.items()}
    if isinstance(batch, tuple):
        parts = space.spaces if isinstance(space, gym.spaces.Tuple) else [space] * len(batch)
        return tuple(row_of(part, row, own) for part, own in zip(batch, parts, strict=True))
    value = batch[row]
    return np.asarray(value) if isinstance(space, gym.spaces.Box) else value


def as_width_of(space: gym.Space[Any], values: Any) -> Any:
    """Return floats in the width of a box of floats, so that an action is judged by its value alone."""
    is_float = isinstance(space, gym.spaces.Box) and np.asarray(values).dtype.kind == space.dtype.kind == "f"
    return np.asarray(values, dtype=space.dtype) if is_float else values


def check_rows_in_space(space: gym.Space[Any], values: np.ndarray, name: str) -> None:
    """Raise `InterpreterError` naming the first row of N values, of shape ``(N, ...)``, that is not in `space`."""
    if isinstance(space, gym.spaces.Box):
        fits = values.shape[1:] == space.shape and values.dtype == space.dtype
        inside = (values >= space.low) & (values <= space.high) if fits else np.zeros(len(values), dtype=bool)
    elif isinstance(space, gym.spaces.Discrete):
        fits = values.ndim == 1 and values.dtype.kind in "iu"
        inside = (
            (values >= space.start) & (values < space.start + space.n) if fits else np.zeros(len(values), dtype=bool)
        )
    else:
        inside = np.array([space.contains(value) for value in values], dtype=bool)
    if not inside.all():
        row = int(np.argmin(inside.reshape(len(values), -1).all(axis=1)))
        check_in_space(space, values[row], f"{name}, row {row},")


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
    elif isinstance(space, gym.spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        for place, (part, entry) in enumerate(zip(space, value, strict=True)):
            check_in_space(part, entry, f"{name}[{place}]")
    elif isinstance(space, gym.spaces.Box):
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
            at = tuple(np.argwhere(outside)[0].tolist())
            raise InterpreterError(
                f"{name} is {array[at]!s} at index {at}, outside [{space.low[at]!s}, {space.high[at]!s}]; "
                "correct the value or the space."
            )
    elif not space.contains(value):
        raise InterpreterError(f"{name} returned {value!r}, which is not in {space}; correct the value or the space.")
