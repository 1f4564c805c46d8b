"""Rewards: what a step is worth to the learner, and information collected beside it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np

from rlwb.errors import ConfigError, InterpreterError

OutcomeT = TypeVar("OutcomeT")


class Reward(ABC, Generic[OutcomeT]):
    """The reward of a step, for N episodes at once."""

    @abstractmethod
    def reward(self, outcome: OutcomeT) -> np.ndarray | dict[str, np.ndarray]:
        """Return the reward of the step that led to `outcome`.

        Returns
        -------
        float64 of shape (N,), or a dict of such
            A dict names summands: the reward is their sum, and logs, metrics and audits show each. `per_order` lifts a
            method that is written for one order.
        """

    def parts(self, outcome: OutcomeT) -> dict[str, np.ndarray]:
        """Return the summands by name, float64 of shape (N,) each, checked; a reward without names has the class's.

        Raises
        ------
        InterpreterError
            When a summand is not a finite number for every episode.
        """
        answer = self.reward(outcome)
        named = answer if isinstance(answer, dict) else {type(self).__name__: answer}
        count, parts = len(outcome), {}  # type: ignore[arg-type]
        for name, value in named.items():
            array = np.asarray(value)
            if array.shape != (count,) or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
                shown = np.array2string(array, threshold=8) if array.size else repr(value)
                raise InterpreterError(
                    f"{type(self).__name__} returned {shown} of shape {array.shape} as {name!r}; a reward must be one "
                    f"finite number for each of {count} episodes."
                )
            parts[name] = array.astype(np.float64)
        return parts


class RewardCombination(Reward[OutcomeT]):
    """The weighted sum of several rewards.

    Parameters
    ----------
    rewards
        Name to ``(reward, weight)``; the name is the one that logs show.
    """

    def __init__(self, rewards: Mapping[str, tuple[Reward[OutcomeT], float]]) -> None:
        if not rewards:
            raise ConfigError("RewardCombination needs at least one reward; give it a name, a reward and a weight.")
        for name, (_, weight) in rewards.items():
            if not math.isfinite(weight):
                raise ConfigError(f"The weight of reward {name!r} is {weight!r}; give a finite number.")
        self.rewards = dict(rewards)

    def reward(self, outcome: OutcomeT) -> dict[str, np.ndarray]:
        return {name: weight * sum_parts(reward.parts(outcome)) for name, (reward, weight) in self.rewards.items()}


def sum_parts(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the sum of a reward's summands, float64 of shape (N,)."""
    return np.asarray(sum(parts.values()), dtype=np.float64)


class AuxiliaryInfoCollector(ABC, Generic[OutcomeT]):
    """Collects figures beside the reward; an environment averages them over each episode."""

    @abstractmethod
    def collect(self, outcome: OutcomeT) -> dict[str, np.ndarray]:
        """Return figures of the step that led to `outcome`, by name, of shape (N,) each; NaN where there is none."""
