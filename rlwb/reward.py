"""What a step is worth to the learner."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from rlwb.bound import Bound
from rlwb.errors import ConfigError, InterpreterError

StateT = TypeVar("StateT")


class Reward(Bound, ABC, Generic[StateT]):
    """The reward of the step that led to a state.

    Write `reward` for one state. `parts` names what the reward is made of, for logs and audits;
    the parts sum to the reward. The batch forms lift both by a loop.
    """

    @abstractmethod
    def reward(self, state: StateT) -> float:
        """Return the reward of the step that led to `state`."""

    def parts(self, state: StateT) -> dict[str, float]:
        """Return the named summands of the reward."""
        return {type(self).__name__: self.reward(state)}

    def reward_batch(self, states: Sequence[StateT]) -> np.ndarray:
        """Return the rewards of `states` as float64 of shape ``(N,)``."""
        return np.array([self(state) for state in states], dtype=np.float64)

    def parts_batch(self, states: Sequence[StateT]) -> dict[str, np.ndarray]:
        """Return the named summands for `states`, each float64 of shape ``(N,)``."""
        rows = [self.parts(state) for state in states]
        return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else {})}

    def __call__(self, state: StateT) -> float:
        """Compute the reward of one state and refuse anything but a finite number."""
        value = self.reward(state)
        if not isinstance(value, (int, float, np.integer, np.floating)) or not math.isfinite(value):
            raise InterpreterError(f"{type(self).__name__} returned {value!r}; a reward must be one finite number.")
        return float(value)


class RewardCombination(Reward[StateT]):
    """The weighted sum of several rewards.

    Parameters
    ----------
    rewards
        Name to ``(reward, weight)``; the name is the one that logs show.
    """

    def __init__(self, rewards: Mapping[str, tuple[Reward[StateT], float]]) -> None:
        if not rewards:
            raise ConfigError("RewardCombination needs at least one reward; give it a name, a reward and a weight.")
        for name, (_, weight) in rewards.items():
            if not math.isfinite(weight):
                raise ConfigError(f"The weight of reward {name!r} is {weight!r}; give a finite number.")
        self.rewards = dict(rewards)

    def bind(self, env: Any) -> None:
        super().bind(env)
        for reward, _ in self.rewards.values():
            reward.bind(env)

    def reward(self, state: StateT) -> float:
        return sum(self.parts(state).values())

    def parts(self, state: StateT) -> dict[str, float]:
        return {name: weight * reward(state) for name, (reward, weight) in self.rewards.items()}

    def reward_batch(self, states: Sequence[StateT]) -> np.ndarray:
        return np.asarray(sum(self.parts_batch(states).values()), dtype=np.float64)

    def parts_batch(self, states: Sequence[StateT]) -> dict[str, np.ndarray]:
        return {name: weight * reward.reward_batch(states) for name, (reward, weight) in self.rewards.items()}


class AuxiliaryInfoCollector(Bound, ABC, Generic[StateT]):
    """Collects information beside the observation, for logs and for algorithms that need it."""

    @abstractmethod
    def collect(self, state: StateT) -> dict[str, Any]:
        """Return the extra information on `state`."""

    def __call__(self, state: StateT) -> dict[str, Any]:
        return self.collect(state)
