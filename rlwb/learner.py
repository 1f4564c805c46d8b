"""Policies: what chooses actions, and what learns to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from rlwb.record import TrainingRecord


class Actor(Protocol):
    """Anything that chooses actions for a batch of observations.

    One that remembers something of each episode has an attribute ``by_episode`` that is true; `act` is then told the
    numbers of the rows' episodes as well, under ``episode``, int64 of shape (N,).
    """

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return one action a row; `noise` are uniform numbers to explore with, None asks for the best action."""


class Expectation(NamedTuple):
    """The expectation of a policy at each of N decisions; None where it has no notion of a part.

    A policy that has one tells it by a method ``expectation(obs)``, for people to see why it acts: nothing acts by it.

    Attributes
    ----------
    waiting : float64 of shape (N,), bp
        By how much the price is expected to be worse for the order later than in the step to come: what waiting costs.
    threshold : float64 of shape (N,), bp
        What waiting may cost at most before the policy trades.
    chances : float64 of shape (N, A)
        The chance of each action.
    values : float64 of shape (N, A)
        What each action is expected to earn from here on, in units of the reward.
    """

    waiting: np.ndarray | None = None
    threshold: np.ndarray | None = None
    chances: np.ndarray | None = None
    values: np.ndarray | None = None


class Cut(NamedTuple):
    """The ends of episodes that were cut off from outside, for example by a time limit, though they were not over.

    What would have come after is worth what the policy expects from the last observation on, not nothing.

    Attributes
    ----------
    rows : int64 of shape (K,)
        The last transition of each of K such episodes among N transitions, rising.
    obs
        What was seen after them, a batch of K observations.
    """

    rows: np.ndarray
    obs: Any


class Learner(ABC):
    """A policy that learns from episodes.

    Attributes
    ----------
    figures
        Names of the metrics that `learn` returns, so that callbacks which watch one are checked before training; None
        where they are not known before.
    head
        What the run puts on a network to make the learner's ``network``: it is called with the network, the number of
        actions, ``mask`` and ``start``. None where the learner takes something else.
    number_head
        What it puts there instead where an action is a number, called with ``high`` as well, the largest. None where
        the learner takes no such actions, or takes them by `head`.
    trained_for
        The `rlwb.record.TrainingRecord` of its training, by which `rlwb.trainer.backtest` refuses to let it act on
        something else; None before it is trained or restored.
    """

    figures: tuple[str, ...] | None = None
    head: ClassVar[type[Any] | None] = None
    number_head: ClassVar[type[Any] | None] = None
    trained_for: TrainingRecord | None = None

    @abstractmethod
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose an action for each of N observations, an array of shape (N, …).

        Parameters
        ----------
        obs
            A batch of N observations: an array of shape (N, …), or a dict of such.
        noise : float64 of shape (N,), optional
            Uniform numbers in [0, 1) to explore with. Without them the policy does what it holds best.
        """

    @abstractmethod
    def learn(self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> dict[str, float]:
        """Update on whole episodes laid end to end; return metrics of the update.

        A learner that also trains where episodes are cut off has one more parameter, ``cut: Cut | None = None``; it is
        given where there is such an end.

        Parameters
        ----------
        obs
            A batch of N observations; what they share with all rows, like ``features``, comes with them.
        action : of shape (N, …)
        reward : float64 of shape (N,)
        done : bool of shape (N,)
            The last transition of each episode.
        """

    def prepare(self, initial_states: Sequence[Any]) -> None:  # noqa: B027 - most need none
        """Take the initial states of the episodes that `learn` is given next, in their order."""

    def record(self) -> dict[str, Any]:
        """Return what checkpoints keep of the learner, by names of `rlwb.record.TrainingRecord`."""
        return {"algorithm": type(self).__qualname__}

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that an exact resume needs, in plain values, arrays and tensors."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; raise `CheckpointError` for another policy's state."""

    def weights(self) -> dict[str, Any]:
        """Return what the policy acts by, for a bundle (`rlwb.serving`): text, numbers, lists, dicts and tensors.

        By default it is all of `state_dict`; a learner that keeps more than it acts by, such as the state of an
        optimiser, gives the part.
        """
        return self.state_dict()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Act as the policy of which `weights` are; raise `CheckpointError` for those of another policy.

        Tuples have become lists by then, and arrays tensors.
        """
        self.load_state_dict(weights)

    def acting(self) -> Actor:
        """Return what acts as this policy does now, to be sent to other processes; it need not be able to learn.

        A learner that keeps more than it acts by, such as a buffer, gives a copy without.
        """
        return self

    def check(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:  # noqa: B027 - may stay
        """Raise `ConfigError` unless the policy can act in these spaces; by default any will do."""
