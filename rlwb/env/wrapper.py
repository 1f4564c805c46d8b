"""A gymnasium environment out of simulator, interpreters and reward."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlwb.env.data_queue import DataQueue, Dataset, stream
from rlwb.errors import ConfigError, DataError, InterpreterError, RlwbError
from rlwb.interpreter import ActionInterpreter, StateInterpreter, check_in_space, row_of
from rlwb.reward import AuxiliaryInfoCollector, Reward, sum_parts
from rlwb.simulator import Simulator, State


class ExhaustedError(RlwbError):
    """`EnvWrapper.reset` was called after the last initial state."""


@dataclass
class EnvWrapperStatus:
    """What has happened in the current episode, in the words of reinforcement learning.

    Attributes
    ----------
    initial_state
        What the episode started from.
    cur_step
        Number of decisions made.
    done
        Whether the episode has ended.
    obs_history, action_history, reward_history
        Observations (one more than decisions, from the reset on), the policy's actions, rewards.
    """

    initial_state: Any
    cur_step: int = 0
    done: bool = False
    obs_history: list[Any] = field(default_factory=list)
    action_history: list[Any] = field(default_factory=list)
    reward_history: list[float] = field(default_factory=list)


class EnvWrapper(gym.Env[Any, Any]):
    """One environment: a simulator seen through interpreters and judged by a reward.

    An episode starts from ``options["initial_state"]`` of `reset` if it is given, else from the next state of
    `seed_iterator`. ``reset(seed=…)`` seeds the episode's random numbers and those of the episodes after it, and starts
    `seed_iterator` over (a `DataQueue` with that seed; a plain iterator cannot start over and goes on).

    ``info`` holds ``aux_info`` (from the collector), after a step ``reward_parts`` (the reward's summands), and at the
    last step ``metrics`` (of the simulator).

    Parameters
    ----------
    simulator
        The dynamics.
    state_interpreter, action_interpreter
        Make observations of what is known, and the simulator's actions of the policy's.
    seed_iterator
        The initial states; None when each reset brings its own.
    reward
        The reward; None is 0 at every step.
    aux_info_collector
        Gathers ``info["aux_info"]`` after each step.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        simulator: Simulator[Any],
        state_interpreter: StateInterpreter[Any],
        action_interpreter: ActionInterpreter[Any],
        seed_iterator: Iterable[Any] | Dataset[Any] | None = None,
        reward: Reward[Any] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
    ) -> None:
        self.simulator = simulator
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward = reward
        self.aux_info_collector = aux_info_collector
        self.observation_space = state_interpreter.observation_space
        self.action_space = action_interpreter.action_space
        self._states = seed_iterator
        self.seed_iterator: Iterator[Any] = stream(() if seed_iterator is None else seed_iterator)
        self._state: State | None = None
        self._status: EnvWrapperStatus | None = None
        # A spec, so that gymnasium's tools can make an environment of the same parts.
        parts = (simulator, state_interpreter, action_interpreter, seed_iterator, reward, aux_info_collector)
        self.spec = EnvSpec("rlwb/EnvWrapper-v0", entry_point=functools.partial(EnvWrapper, *parts))

    @property
    def state(self) -> State:
        """The simulator's state of the current episode, of one row."""
        if self._state is None:
            raise ConfigError("The environment has no episode yet; call reset first.")
        return self._state

    @property
    def status(self) -> EnvWrapperStatus:
        """What has happened in the current episode."""
        if self._status is None:
            raise ConfigError("The environment has no episode yet; call reset first.")
        return self._status

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; raise `ExhaustedError` after the last initial state."""
        super().reset(seed=seed)
        if options is not None and "initial_state" in options:
            initial = options["initial_state"]
        else:
            initial = self._next_state(seed)
        own = int(self.np_random.integers(2**63)) if seed is None else seed
        try:
            return self._start(initial, np.array([own], dtype=np.uint64))
        except StopIteration as error:
            raise self._not_the_end("reset") from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Let the policy decide once. An episode ends by itself only: it is never truncated."""
        if self.status.done:
            raise ConfigError(f"The episode of {self.status.initial_state} has ended; call reset before the next step.")
        try:
            return self._advance(action)
        except StopIteration as error:
            raise self._not_the_end("step") from error

    def _start(self, initial_state: Any, seeds: np.ndarray) -> tuple[Any, dict[str, Any]]:
        self._status = EnvWrapperStatus(initial_state)
        self._state = self.simulator.start([initial_state], seeds)
        if self._state.done[0]:
            raise DataError(f"The episode of {initial_state} is over before its first decision; leave it out.")
        return self._observe(), {"aux_info": {}}

    def _advance(self, policy_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        status = self.status
        name = f"the action given to {type(self.action_interpreter).__name__}"
        check_in_space(self.action_space, policy_action, name)
        action = self.action_interpreter.interpret(self.state.known, np.asarray(policy_action)[None])
        status.action_history.append(policy_action)
        status.cur_step += 1
        self._state = self.simulator.step(self.state, action)
        status.done = bool(self._state.done[0])
        obs, outcome = self._observe(), self._state.outcome
        parts = {} if self.reward is None else self.reward.parts(outcome)
        reward = float(sum_parts(parts)[0]) if parts else 0.0
        status.reward_history.append(reward)
        collected = {} if self.aux_info_collector is None else self.aux_info_collector.collect(outcome)
        info: dict[str, Any] = {"aux_info": _first(collected), "reward_parts": _first(parts)}
        if status.done:
            info["metrics"] = _first(self._state.metrics())
        return obs, reward, status.done, False, info

    def _observe(self) -> Any:
        name = type(self.state_interpreter).__name__
        batch = self.state_interpreter.interpret(self.state.known)
        try:
            obs = row_of(batch, 0, self.observation_space)
        except (IndexError, KeyError, TypeError, ValueError):
            raise InterpreterError(
                f"{name}.interpret returned {type(batch).__name__}; return a batch with a row for each episode."
            ) from None
        check_in_space(self.observation_space, obs, name)
        self.status.obs_history.append(obs)
        return obs

    def _next_state(self, seed: int | None) -> Any:
        if self._states is None:
            raise ConfigError(
                'This environment has no seed_iterator; give reset its initial state: options={"initial_state": …}.'
            )
        if seed is not None:
            if isinstance(self._states, DataQueue):
                self._states.reseed(seed)
            self.seed_iterator = stream(self._states)
        try:
            return next(self.seed_iterator)
        except StopIteration:
            raise ExhaustedError(
                "The initial states are used up; reset with a new one, or use DataQueue(repeat=-1)."
            ) from None

    @staticmethod
    def _not_the_end(where: str) -> InterpreterError:
        return InterpreterError(
            f"A StopIteration was raised inside {where} by the simulator, an interpreter or the reward; "
            "see the traceback above and raise another exception there."
        )


def _first(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: values[0] if np.ndim(values[0]) else float(values[0]) for name, values in columns.items()}
