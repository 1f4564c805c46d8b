"""One episode at a time: simulator, interpreters and reward as a gymnasium environment, its figures, its trial."""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlwb.env.data_queue import DataQueue, Dataset, stream
from rlwb.errors import ConfigError, DataError, InterpreterError, RlwbError
from rlwb.interpreter import ActionInterpreter, StateInterpreter, as_width_of, check_in_space, row_of
from rlwb.reward import AuxiliaryInfoCollector, Reward, sum_parts
from rlwb.simulator import Episode, Simulator, State

EnvFn = Callable[[], gym.Env[Any, Any]]


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
    render_mode
        ``"ansi"`` lets `render` tell the episode as text.

    Attributes
    ----------
    state
        The simulator's state of the current episode, of one row; from the first reset on.
    status
        What has happened in the current episode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}
    state: State

    def __init__(
        self,
        simulator: Simulator[Any],
        state_interpreter: StateInterpreter[Any],
        action_interpreter: ActionInterpreter[Any],
        seed_iterator: Iterable[Any] | Dataset[Any] | None = None,
        reward: Reward[Any] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
        *,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"render_mode is {render_mode!r}; an episode is told by 'ansi', or by None not at all.")
        self.render_mode = render_mode
        self.simulator = simulator
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward = reward
        self.aux_info_collector = aux_info_collector
        self.observation_space = state_interpreter.observation_space
        self.action_space = action_interpreter.action_space
        self.status = EnvWrapperStatus(None, done=True)
        self._states = seed_iterator
        self.seed_iterator: Iterator[Any] = stream(() if seed_iterator is None else seed_iterator)
        # A spec, so that gymnasium's tools can make an environment of the same parts.
        parts = (simulator, state_interpreter, action_interpreter, seed_iterator, reward, aux_info_collector)
        self.spec = EnvSpec("rlwb/EnvWrapper-v0", entry_point=functools.partial(EnvWrapper, *parts))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; raise `ExhaustedError` after the last initial state."""
        super().reset(seed=seed)
        initial = options["initial_state"] if options and "initial_state" in options else self._next_state(seed)
        own = int(self.np_random.integers(2**63)) if seed is None else seed
        self.status = EnvWrapperStatus(initial)
        self.state = self.simulator.start([initial], np.array([own], dtype=np.uint64))
        if self.state.done[0]:
            raise DataError(f"The episode of {initial} is over before its first decision; leave it out.")
        return self._observe(), {"aux_info": {}}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Let the policy decide once. An episode ends by itself only: it is never truncated."""
        status = self.status
        if status.done:
            raise ConfigError(
                f"No episode is running; the last, of {status.initial_state}, has ended: call reset first."
            )
        of_width = as_width_of(self.action_space, action)
        check_in_space(self.action_space, of_width, f"the action given to {type(self.action_interpreter).__name__}")
        amount = self.action_interpreter.interpret(self.state.known, np.asarray(action)[None])
        status.action_history.append(action)
        status.cur_step += 1
        self.state = self.simulator.step(self.state, amount)
        status.done = bool(self.state.done[0])
        obs, outcome = self._observe(), self.state.outcome
        parts = {} if self.reward is None else self.reward.parts(outcome)
        reward = float(sum_parts(parts)[0]) if parts else 0.0
        status.reward_history.append(reward)
        collected = {} if self.aux_info_collector is None else self.aux_info_collector.collect(outcome)
        info: dict[str, Any] = {"aux_info": _first(collected), "reward_parts": _first(parts)}
        if status.done:
            info["metrics"] = _first(self.state.metrics())
        return obs, reward, status.done, False, info

    def action_masks(self) -> np.ndarray:
        """Return which actions are worth a choice now, bool of shape (n,), as `ActionInterpreter.mask` has it.

        This is the name by which ``MaskablePPO`` of sb3-contrib asks. Actions that are not discrete have none.
        """
        if not isinstance(self.action_space, gym.spaces.Discrete):
            raise ConfigError(f"the actions {self.action_space} are not discrete, so there is nothing to mask.")
        if self.status.initial_state is None:
            raise ConfigError("no episode is running, so there is nothing to mask: call reset first.")
        mask = self.action_interpreter.mask(self.state.known)
        return np.ones(int(self.action_space.n), dtype=bool) if mask is None else np.asarray(mask)[0]

    def render(self) -> str | None:
        """Return the episode as text: the simulator's own words if its states have a method `text`."""
        if self.render_mode is None:
            gym.logger.warn('render needs a mode: make the environment with render_mode="ansi".')
            return None
        status = self.status
        if status.initial_state is None:
            return "no episode is running"
        tell = getattr(self.state, "text", None)
        own = tell() if tell is not None else describe(status.initial_state)
        return f"{own}\n{status.cur_step} decisions, reward {sum(status.reward_history):.6g}"

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
        for state in self.seed_iterator:
            return state
        raise ExhaustedError("The initial states are used up; reset with a new one, or use DataQueue(repeat=-1).")


def _first(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: values[0] if np.ndim(values[0]) else float(values[0]) for name, values in columns.items()}


class EpisodeFigures:
    """The figures of one episode, gathered from the ``info`` of its steps; see `FiniteVectorEnv.metrics`."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._aux: dict[str, list[float]] = {}

    def add(self, info: dict[str, Any]) -> None:
        """Take in one step: each number of ``reward_parts``, and those of ``aux_info`` that are known."""
        for name, value in info.get("reward_parts", {}).items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        for name, value in info.get("aux_info", {}).items():
            if isinstance(value, (int, float, np.number, np.bool_)):
                known = self._aux.setdefault(name, [])
                if math.isfinite(value):
                    known.append(float(value))

    def finish(self, info: dict[str, Any]) -> dict[str, float]:
        """Return the figures; `info` is that of the last step, with the simulator's ``metrics``."""
        figures = {name: float(value) for name, value in info.get("metrics", {}).items()}
        figures |= {f"reward/{name}": value for name, value in self._sums.items()}
        return figures | {
            f"aux/{name}": sum(known) / len(known) if known else math.nan for name, known in self._aux.items()
        }


def describe(initial_state: Any, limit: int = 300) -> str:
    """Return a text of limited length that names an initial state in an error message."""
    text = str(initial_state)
    return text if len(text) <= limit else text[:limit] + "…"


def check_env(env_fn: EnvFn, initial_state: object, *, seed: int = 0, max_steps: int = 100_000) -> dict[str, float]:
    """Run one episode with random actions, and return its figures: ``length``, ``reward`` and its metrics.

    Raises
    ------
    InterpreterError
        Naming class and key, when a simulator, an interpreter or a reward raises or returns something outside its
        contract (a wrong shape or dtype, NaN, None, a missing key), and when the episode does not end within
        `max_steps`. Errors that rlwb itself words (`RlwbError`) are passed on as they are.
    """
    env = env_fn()
    figures, total = EpisodeFigures(), 0.0
    try:
        env.action_space.seed(seed)
        env.reset(seed=seed, options={"initial_state": initial_state})
        for step in range(1, max_steps + 1):
            _, reward, terminated, truncated, info = env.step(env.action_space.sample())
            figures.add(info)
            total += float(reward)
            if terminated or truncated:
                return {"length": float(step), "reward": total, **figures.finish(info)}
    except RlwbError:
        raise
    except Exception as error:
        raise InterpreterError(
            f"{_blame(error.__traceback__)} raised {type(error).__name__} in a trial episode of "
            f"{describe(initial_state)}: {error}; correct it before training."
        ) from error
    finally:
        env.close()
    raise InterpreterError(
        f"The trial episode of {describe(initial_state)} has not ended after {max_steps} steps; check the simulator's "
        "done()."
    )


def _blame(tb: TracebackType | None) -> str:
    """Return class and place of the innermost part of the environment that an exception passed through."""
    place = "env_fn's environment"
    for frame, line in traceback.walk_tb(tb):
        owner = frame.f_locals.get("self")
        if isinstance(owner, (Simulator, Episode, StateInterpreter, ActionInterpreter, Reward, AuxiliaryInfoCollector)):
            place = f"{type(owner).__name__}.{frame.f_code.co_name} (line {line} of {frame.f_code.co_filename})"
    return place
