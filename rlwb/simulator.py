"""The environment's dynamics, without observations, actions' encoding or rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from rlwb.bound import Bound

InitialStateT = TypeVar("InitialStateT")
StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")


class Simulator(Bound, ABC, Generic[InitialStateT, StateT, ActionT]):
    """One episode of one initial state; thrown away at its end, never reset.

    Parameters
    ----------
    initial
        What the episode starts from, for example an order.
    """

    def __init__(self, initial: InitialStateT) -> None:
        self.initial = initial

    @abstractmethod
    def step(self, action: ActionT) -> None:
        """Advance by one decision. `action` is the simulator's own, already interpreted."""

    @abstractmethod
    def get_state(self) -> StateT:
        """Return the state that interpreters and rewards read."""

    @abstractmethod
    def done(self) -> bool:
        """Tell whether the episode has ended."""

    def metrics(self) -> dict[str, float]:
        """Return the figures of a finished episode; a figure that cannot be computed is NaN."""
        return {}

    def describe(self) -> str:
        """Return a short text that names the episode in an error message."""
        return str(self.initial)
