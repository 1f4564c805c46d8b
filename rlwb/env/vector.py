"""Many episodes at once, each initial state exactly once; natively all of them step together, as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.interpreter import ActionInterpreter, StateInterpreter, as_width_of, check_rows_in_space
from rlwb.learner import Cut
from rlwb.reward import AuxiliaryInfoCollector, Reward, sum_parts
from rlwb.seeds import episode_seeds
from rlwb.simulator import Simulator, State


@dataclass
class Active:
    """The episodes that wait for an action.

    Attributes
    ----------
    episode
        Numbers of the episodes, int64 of shape ``(n,)``: the position of each one's initial state in the stream.
    obs
        Their observations: a batch of ``n`` rows (see `rlwb.batch`), in arrays of its own; empty for no episode.
    """

    episode: np.ndarray
    obs: Any

    def __len__(self) -> int:
        return len(self.episode)


@dataclass
class StepResult:
    """What the step of each row of an `Active` led to.

    Attributes
    ----------
    episode
        Numbers of the episodes that were stepped, int64 of shape ``(n,)``.
    reward
        Rewards, float64 of shape ``(n,)``.
    done
        Whether each episode has ended, bool of shape ``(n,)``.
    cut
        Which of them were cut off though they were not over, and what was seen then; None for none.
    """

    episode: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    cut: Cut | None = None


class FiniteVectorEnv(ABC):
    """Runs one episode for every initial state of a stream, several at a time, then has nothing more to do.

    ``active = env.reset()``; then ``result, active = env.step(actions)`` with one action a row of `active`, until
    ``len(active) == 0``. An episode that ends makes room for the next state of the stream at once.

    Attributes
    ----------
    initial_states, seed
        What the next reset starts: the stream, and the seed of the episodes' own random numbers. Both may be changed
        between runs, so that one environment, with its workers, serves many.
    first_episode
        What to add to an episode's number for its random numbers, where the stream goes on with another's episodes.
    """

    initial_states: Any
    seed: int
    first_episode: int = 0

    @abstractmethod
    def reset(self) -> Active:
        """Start the stream, from its beginning where it can be started again."""

    @abstractmethod
    def step(self, action: Any) -> tuple[StepResult, Active]:
        """Act: `action` is of shape ``(n, ...)``, a row for each row of the last `Active`."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called twice."""

    @abstractmethod
    def metrics(self) -> dict[str, np.ndarray]:
        """Return the figures of the E episodes by name, float64 of shape (E,) each; NaN where an episode has none.

        Those of the simulator, the sum of each summand of the reward under ``reward/<name>``, and the mean of each
        auxiliary figure over the steps that have it under ``aux/<name>``.
        """

    def details(self) -> dict[str, np.ndarray]:
        """Return what else is known of the E episodes: arrays of shape (E, …)."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_actions(action: Any, count: int) -> np.ndarray:
    """Return `action` as an array; raise `ConfigError` unless it has a row for each of `count` > 0 episodes."""
    actions = np.asarray(action)
    if not count or actions.shape[:1] != (count,):
        raise ConfigError(
            f"step got actions of shape {actions.shape} for {count} active episodes; give a row each, and call reset "
            "when none is left."
        )
    return actions


class NativeVectorEnv(FiniteVectorEnv):
    """Runs N episodes at once, in this process, by the simulator's arrays; episode i starts from initial state i.

    Parameters
    ----------
    simulator, state_interpreter, action_interpreter, reward, aux_info_collector
        As in `EnvWrapper`.
    initial_states
        What the episodes start from, for example an `OrderBatch`.
    by_reference
        Whether observations may name large arrays instead of copying them; see `StateInterpreter.refer`.
    seed
        Episode i draws random numbers seeded by (seed, i).
    """

    def __init__(
        self,
        simulator: Simulator[Any],
        initial_states: Sequence[Any],
        *,
        state_interpreter: StateInterpreter[Any],
        action_interpreter: ActionInterpreter[Any],
        reward: Reward[Any] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
        by_reference: bool = True,
        seed: int = 0,
    ) -> None:
        self.simulator = simulator
        self.initial_states = initial_states
        self.action_interpreter = action_interpreter
        self._action_space = action_interpreter.action_space
        self.reward = reward
        self.aux_info_collector = aux_info_collector
        self.seed = seed
        self._observe = state_interpreter.refer if by_reference else state_interpreter.interpret

    def reset(self) -> Active:
        self._finished: list[tuple[np.ndarray, State]] = []  # those of an earlier run make room first
        count = len(self.initial_states)
        seeds = episode_seeds(self.seed, self.first_episode + np.arange(count))
        self.state: State = self.simulator.start(self.initial_states, seeds)
        self._rows = np.arange(count)
        self._sums: dict[str, np.ndarray] = {}
        self._seen: dict[str, np.ndarray] = {}
        if self.state.done.any():
            first = self.initial_states[int(np.flatnonzero(self.state.done)[0])]
            raise DataError(f"The episode of {first} is over before its first decision; leave it out.")
        return self._active()

    def step(self, action: np.ndarray) -> tuple[StepResult, Active]:
        rows, acts = self._rows, self.action_interpreter
        actions = check_actions(action, len(rows))
        of_width = as_width_of(self._action_space, actions)
        check_rows_in_space(self._action_space, of_width, f"the actions given to {type(acts).__name__}")
        amounts = acts.interpret(self.state.known, actions)
        self.state = self.simulator.step(self.state, amounts)
        outcome, done = self.state.outcome, self.state.done
        reward = np.zeros(len(rows))
        if self.reward is not None:
            parts = self.reward.parts(outcome)
            reward = sum_parts(parts)
            for name, values in parts.items():
                self._column(self._sums, f"reward/{name}")[rows] += values
        if self.aux_info_collector is not None:
            for name, values in self.aux_info_collector.collect(outcome).items():
                there = rows[np.isfinite(values)]
                self._column(self._sums, f"aux/{name}")[there] += np.asarray(values)[np.isfinite(values)]
                self._column(self._seen, f"aux/{name}")[there] += 1
        if done.any():
            ended, left = np.flatnonzero(done), np.flatnonzero(~done)
            self._finished.append((rows[ended], self.state if done.all() else self.state.take(ended)))
            self.state, self._rows = self.state.take(left), rows[left]
        return StepResult(rows, reward, done), self._active()

    def close(self) -> None:
        """Release nothing: there are no workers."""

    def metrics(self) -> dict[str, np.ndarray]:
        with np.errstate(invalid="ignore"):  # of what was never seen there is no mean
            means = {name: self._sums[name] / seen for name, seen in self._seen.items()}
        figures = self._laid_out([(rows, state.metrics()) for rows, state in self._finished])
        return {**figures, **self._sums, **means}

    def details(self) -> dict[str, np.ndarray]:
        return self._laid_out([(rows, state.details()) for rows, state in self._finished])

    def _laid_out(self, parts: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
        """Return figures by name with a row an episode, of those that have ended at different steps; NaN for others."""
        columns: dict[str, np.ndarray] = {}
        for rows, figures in parts:
            for name, values in figures.items():
                if name not in columns:
                    columns[name] = np.full((len(self.initial_states), *values.shape[1:]), np.nan)
                columns[name][rows] = values
        return columns

    def _column(self, columns: dict[str, np.ndarray], name: str) -> np.ndarray:
        return columns.setdefault(name, np.zeros(len(self.initial_states)))

    def _active(self) -> Active:
        return Active(self._rows, self._observe(self.state.known) if len(self._rows) else {})
