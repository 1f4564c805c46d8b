"""A gymnasium environment out of simulator, interpreters and reward."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rlwb.bound import Bound
from rlwb.env.data_queue import DataQueue, Dataset, stream
from rlwb.env.logs import LogCollector, LogLevel
from rlwb.errors import ConfigError, DataError, InterpreterError, RlwbError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.simulator import Simulator

InitialStateT = TypeVar("InitialStateT")
StateT = TypeVar("StateT")
ObsT = TypeVar("ObsT")
PolicyActionT = TypeVar("PolicyActionT")
ActionT = TypeVar("ActionT")


class ExhaustedError(RlwbError):
    """`EnvWrapper.reset` was called after the last initial state."""


@dataclass
class EnvWrapperStatus(Generic[InitialStateT, ObsT, PolicyActionT]):
    """What has happened in the current episode, in the words of reinforcement learning.

    Attributes
    ----------
    cur_step
        Number of decisions made.
    done
        Whether the episode has ended.
    initial_state
        What the episode started from.
    obs_history, action_history, reward_history
        Observations (one more than decisions, from the reset on), the policy's actions, rewards.
    """

    initial_state: InitialStateT
    cur_step: int = 0
    done: bool = False
    obs_history: list[ObsT] = field(default_factory=list)
    action_history: list[PolicyActionT] = field(default_factory=list)
    reward_history: list[float] = field(default_factory=list)


class EnvWrapper(gym.Env[Any, Any], Generic[InitialStateT, StateT, ActionT, ObsT, PolicyActionT]):
    """One environment: a simulator seen through interpreters and judged by a reward.

    An episode starts from ``options["initial_state"]`` of `reset` if it is given, else from the next state of
    `seed_iterator`. ``reset(seed=…)`` seeds `np_random`, which simulators find at ``self.env.np_random``, and starts
    `seed_iterator` over (a `DataQueue` with that seed; a plain iterator cannot start over and goes on).

    ``info`` holds ``log`` (what was logged, for `LogWriter`s), ``aux_info`` (from the collector) and, at the last
    step, ``metrics`` (of the simulator).

    Parameters
    ----------
    simulator_fn
        Makes the simulator of an episode from its initial state.
    state_interpreter, action_interpreter
        Make observations out of states, and the simulator's actions out of the policy's.
    seed_iterator
        The initial states; None when each reset brings its own.
    reward_fn
        The reward; None is 0 at every step.
    aux_info_collector
        Gathers ``info["aux_info"]``.
    logger
        Gathers ``info["log"]``; simulators and interpreters find it at ``self.env.logger``.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        simulator_fn: Callable[[InitialStateT], Simulator[InitialStateT, StateT, ActionT]],
        state_interpreter: StateInterpreter[StateT, ObsT],
        action_interpreter: ActionInterpreter[StateT, PolicyActionT, ActionT],
        seed_iterator: Iterable[InitialStateT] | Dataset[InitialStateT] | None = None,
        reward_fn: Reward[StateT] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[StateT] | None = None,
        logger: LogCollector | None = None,
    ) -> None:
        self.simulator_fn = simulator_fn
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward_fn = reward_fn
        self.aux_info_collector = aux_info_collector
        self.logger = logger if logger is not None else LogCollector()
        self.observation_space = state_interpreter.observation_space
        self.action_space = action_interpreter.action_space
        self._states = seed_iterator
        self.seed_iterator: Iterator[InitialStateT] = stream(() if seed_iterator is None else seed_iterator)
        self._simulator: Simulator[InitialStateT, StateT, ActionT] | None = None
        self._status: EnvWrapperStatus[InitialStateT, ObsT, PolicyActionT] | None = None
        # A spec, so that gymnasium's tools can make an environment of the same parts.
        again = functools.partial(
            EnvWrapper,
            simulator_fn,
            state_interpreter,
            action_interpreter,
            seed_iterator,
            reward_fn,
            aux_info_collector,
            logger,
        )
        self.spec = EnvSpec("rlwb/EnvWrapper-v0", entry_point=again)

    @property
    def simulator(self) -> Simulator[InitialStateT, StateT, ActionT]:
        """The simulator of the current episode."""
        if self._simulator is None:
            raise ConfigError("The environment has no episode yet; call reset first.")
        return self._simulator

    @property
    def status(self) -> EnvWrapperStatus[InitialStateT, ObsT, PolicyActionT]:
        """What has happened in the current episode."""
        if self._status is None:
            raise ConfigError("The environment has no episode yet; call reset first.")
        return self._status

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode; raise `ExhaustedError` after the last initial state."""
        super().reset(seed=seed)
        if options is not None and "initial_state" in options:
            state = options["initial_state"]
        else:
            state = self._next_state(seed)
        try:
            return self._start(state)
        except StopIteration as error:
            raise self._not_the_end("reset") from error

    def step(self, action: PolicyActionT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Let the policy decide once. An episode ends by itself only: it is never truncated."""
        if self.status.done:
            raise ConfigError(f"The episode of {self.simulator.describe()} has ended; call reset before the next step.")
        try:
            return self._advance(action)
        except StopIteration as error:
            raise self._not_the_end("step") from error

    def _start(self, initial_state: InitialStateT) -> tuple[ObsT, dict[str, Any]]:
        self.logger.reset()
        self._status = EnvWrapperStatus(initial_state)
        self._simulator = self.simulator_fn(initial_state)
        self._bind()
        if self._simulator.done():
            raise DataError(
                f"The episode of {self._simulator.describe()} is over before its first decision; leave it out."
            )
        state = self._simulator.get_state()
        obs = self.state_interpreter(state)
        self._status.obs_history.append(obs)
        return obs, self._info(state)

    def _advance(self, policy_action: PolicyActionT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        simulator, status = self.simulator, self.status
        self._bind()
        self.logger.reset()
        action = self.action_interpreter(simulator.get_state(), policy_action)
        status.action_history.append(policy_action)
        # Rewards and interpreters see the step already counted, and know whether it was the last.
        status.cur_step += 1
        simulator.step(action)
        status.done = bool(simulator.done())
        state = simulator.get_state()
        obs = self.state_interpreter(state)
        status.obs_history.append(obs)
        reward = 0.0 if self.reward_fn is None else self.reward_fn(state)
        status.reward_history.append(reward)
        if self.logger.wants(LogLevel.DEBUG):
            self.logger.add_any("obs", obs, LogLevel.DEBUG)
            self.logger.add_any("policy_act", policy_action, LogLevel.DEBUG)
        info = self._info(state)
        if status.done:
            info["metrics"] = self._metrics()
        return obs, reward, status.done, False, info

    def _info(self, state: StateT) -> dict[str, Any]:
        aux_info = {} if self.aux_info_collector is None else self.aux_info_collector(state)
        return {"log": self.logger.logs(), "aux_info": aux_info}

    def _metrics(self) -> dict[str, float]:
        metrics = self.simulator.metrics()
        if not isinstance(metrics, dict):
            raise InterpreterError(
                f"{type(self.simulator).__name__}.metrics returned {metrics!r}; return a dict of names and numbers."
            )
        result = {}
        for name, value in metrics.items():
            try:
                result[name] = float(value)
            except (TypeError, ValueError):
                raise InterpreterError(
                    f"{type(self.simulator).__name__}.metrics[{name!r}] is {value!r}; return a number, NaN if missing."
                ) from None
        return result

    def _next_state(self, seed: int | None) -> InitialStateT:
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

    def _bind(self) -> None:
        # At every step: parts may be shared by several environments, and none may keep an environment alive.
        proxy = weakref.proxy(self)
        parts = (self._simulator, self.state_interpreter, self.action_interpreter)
        for part in (*parts, self.reward_fn, self.aux_info_collector):
            if isinstance(part, Bound):
                part.bind(proxy)

    def _not_the_end(self, where: str) -> InterpreterError:
        return InterpreterError(
            f"A StopIteration was raised inside {where} by the simulator, an interpreter or the reward; "
            "see the traceback above and raise another exception there."
        )
