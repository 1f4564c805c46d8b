"""Simulators: the world's answer to decisions, for N episodes at once or for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from rlwb.errors import InterpreterError


class State(Protocol):
    """Where N episodes stand.

    Attributes
    ----------
    known
        What interpreters and policies may see: N rows, with ``len()`` and integer indexing.
    outcome
        What rewards and metrics may see beside that; N rows as well.
    done : bool of shape (N,)
        Whether each episode has ended.
    """

    @property
    def known(self) -> Any: ...

    @property
    def outcome(self) -> Any: ...

    @property
    def done(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def take(self, rows: np.ndarray) -> Self:
        """Return the given rows, int64 of shape (n,), as a state of their own."""

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the figures of the episodes as they stand, float64 of shape (N,) each; NaN where there is none."""

    def details(self) -> dict[str, np.ndarray]:
        """Return what else a report shows of the episodes: arrays of shape (N, …); may be empty."""


StateT = TypeVar("StateT", bound=State)


class Simulator(ABC, Generic[StateT]):
    """The dynamics of an environment, without observations, actions' encoding or rewards.

    A simulator holds no episode: `start` and `step` return states and change none. So one definition serves a single
    environment (N = 1) and the native one, which steps thousands of episodes together.
    """

    #: Order forms that the simulator honours, of `rlwb.execution.order.FORMS_OF_FILLS`: orders that state another one
    #: are refused as they are aligned.
    forms: Collection[str] = frozenset()

    @abstractmethod
    def start(self, initial_states: Sequence[Any], seeds: np.ndarray) -> StateT:
        """Return the state before the first decision.

        Parameters
        ----------
        initial_states
            What the N episodes start from, for example orders.
        seeds : uint64 of shape (N,)
            Seed of each episode's random numbers, which must depend on nothing else: then the episode is the same in
            every environment. See `rlwb.seeds.uniform`.
        """

    @abstractmethod
    def step(self, state: StateT, action: np.ndarray) -> StateT:
        """Return the state after one decision of every episode that is not done.

        Parameters
        ----------
        action : of shape (N, …)
            What the action interpreter made of the policy's actions.
        """

    def record(self) -> dict[str, Any]:
        """Return what checkpoints keep of this simulator, by names of `rlwb.record.TrainingRecord`."""
        return {"simulator": type(self).__qualname__}


class Episode(ABC):
    """One episode of a simulator that is written for one at a time; see `EpisodeSimulator`.

    It is made of what it starts from and of its random numbers.
    """

    #: As of a `Simulator`.
    forms: Collection[str] = frozenset()

    def __init__(self, initial: Any, rng: np.random.Generator) -> None:
        self.initial = initial
        self.rng = rng

    @abstractmethod
    def step(self, action: Any) -> None:
        """Advance by one decision."""

    @abstractmethod
    def get_state(self) -> Any:
        """Return what the interpreters and the reward read of this episode."""

    @abstractmethod
    def done(self) -> bool:
        """Tell whether the episode has ended."""

    def metrics(self) -> dict[str, float]:
        """Return the figures of the finished episode; NaN for one that cannot be computed."""
        return {}


@dataclass(frozen=True)
class EpisodeStates:
    """The `State` of episodes that are objects of their own."""

    episodes: tuple[Episode, ...]

    @property
    def known(self) -> list[Any]:
        return [episode.get_state() for episode in self.episodes]

    @property
    def outcome(self) -> list[Any]:
        return self.known

    @property
    def done(self) -> np.ndarray:
        return np.array([episode.done() for episode in self.episodes], dtype=bool)

    def __len__(self) -> int:
        return len(self.episodes)

    def take(self, rows: np.ndarray) -> EpisodeStates:
        return EpisodeStates(tuple(self.episodes[int(row)] for row in rows))

    def metrics(self) -> dict[str, np.ndarray]:
        rows: list[dict[str, float]] = []
        for episode in self.episodes:
            metrics = episode.metrics()
            try:
                rows.append({name: float(value) for name, value in metrics.items()})
            except (AttributeError, TypeError, ValueError):
                raise InterpreterError(
                    f"{type(episode).__name__}.metrics returned {metrics!r}; return a dict of numbers by name, NaN if "
                    "missing."
                ) from None
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}

    def details(self) -> dict[str, np.ndarray]:
        return {}


class EpisodeSimulator(Simulator[EpisodeStates]):
    """Lifts a simulator of one episode to N: episodes are made and stepped one after the other.

    They change as they step, so a state of this simulator is of use until the next step only.

    Parameters
    ----------
    episode
        Makes an `Episode` from its initial state and its random numbers, usually a subclass of it.
    """

    def __init__(self, episode: Callable[[Any, np.random.Generator], Episode]) -> None:
        self.episode = episode
        self.forms = getattr(episode, "forms", frozenset())

    def start(self, initial_states: Sequence[Any], seeds: np.ndarray) -> EpisodeStates:
        pairs = zip(initial_states, seeds.tolist(), strict=True)
        return EpisodeStates(tuple([self.episode(initial, np.random.default_rng(seed)) for initial, seed in pairs]))

    def step(self, state: EpisodeStates, action: np.ndarray) -> EpisodeStates:
        for episode, own in zip(state.episodes, action, strict=True):
            if not episode.done():
                episode.step(own)
        return state

    def record(self) -> dict[str, Any]:
        return {"simulator": getattr(self.episode, "__qualname__", type(self.episode).__qualname__)}
