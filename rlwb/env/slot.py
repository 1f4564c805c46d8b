"""One environment of a vector environment: an episode at a time, each told apart, errors and figures as values."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from rlwb.errors import ConfigError, WorkerError

EnvFn = Callable[[], gym.Env[Any, Any]]

_ARRAY_SPACES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


@dataclass
class Task:
    """An episode to run: its number and its initial state, which any worker can receive."""

    episode: int
    state: Any

    def __reduce__(self) -> Any:
        # By cloudpickle: states may be of classes that exist in a script or a notebook only.
        return _load_task, (cloudpickle.dumps((self.episode, self.state)),)

    def __str__(self) -> str:
        return f"episode {self.episode} ({describe(self.state)})"


def _load_task(data: bytes) -> Task:
    return Task(*cloudpickle.loads(data))


@dataclass
class SlotResult:
    """A slot's answer to a reset or a step: the reward, whether the episode has ended, its figures, or an error.

    Attributes
    ----------
    reward
        The step's reward; 0 after a reset.
    done
        Whether the episode has ended.
    metrics
        The figures of an episode that has ended; see `EpisodeFigures`.
    error
        What the environment raised.
    """

    reward: float = 0.0
    done: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    error: WorkerError | None = None


class EpisodeFigures:
    """The figures of one episode, gathered from the ``info`` of its steps.

    ``info["metrics"]`` of the last step as it is, each summand in ``info["reward_parts"]`` as its sum under
    ``reward/<name>``, and each number in ``info["aux_info"]`` as its mean over the steps that have it, NaN left out,
    under ``aux/<name>``.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._aux: dict[str, list[float]] = {}

    def add(self, info: dict[str, Any]) -> None:
        """Take in one step."""
        for name, value in info.get("reward_parts", {}).items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
        for name, value in info.get("aux_info", {}).items():
            if isinstance(value, (int, float, np.number, np.bool_)):
                self._aux.setdefault(name, []).append(float(value))

    def finish(self, info: dict[str, Any]) -> dict[str, float]:
        """Return the figures; `info` is that of the last step."""
        figures = {name: float(value) for name, value in info.get("metrics", {}).items()}
        figures |= {f"reward/{name}": value for name, value in self._sums.items()}
        for name, values in self._aux.items():
            have = [value for value in values if not np.isnan(value)]
            figures[f"aux/{name}"] = sum(have) / len(have) if have else float("nan")
        return figures


class Slot(gym.Env[Any, Any]):
    """An environment as gymnasium's vector environments need it to run a stream of episodes.

    They step all their environments at once. So a slot without an episode rests, and for gymnasium no slot ever ends:
    what an episode did is an `SlotResult` in ``info["outcome"]``.

    Parameters
    ----------
    env_fn
        Makes the environment: an `EnvWrapper`, or any `gymnasium.Env` that takes
        ``reset(options={"initial_state": …})``.

    Attributes
    ----------
    task
        What the next reset starts.
    """

    def __init__(self, env_fn: EnvFn) -> None:
        self.env = env_fn()
        if not isinstance(self.env, gym.Env):
            raise ConfigError(f"env_fn returned {type(self.env).__name__}; return a gymnasium environment.")
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        _refuse_other_spaces(self.observation_space)
        self.task: Task | None = None
        self._running: Task | None = None
        self._obs: Any = None
        self._closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start the episode of `task`."""
        self._running = self.task
        self._figures = EpisodeFigures()
        return self._guarded("reset", self._start, seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step of the episode, if there is one."""
        if self._running is None:
            return self._obs, 0.0, False, False, {}
        obs, info = self._guarded("step", self._advance, action)
        return obs, 0.0, False, False, info

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.env.close()

    def fault_of_closing(self) -> str:
        """Close the environment; return what it raised, as text."""
        try:
            self.close()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _start(self, seed: int | None) -> SlotResult:
        assert self._running is not None
        self._obs, _ = self.env.reset(seed=seed, options={"initial_state": self._running.state})
        return SlotResult()

    def _advance(self, action: Any) -> SlotResult:
        self._obs, reward, terminated, truncated, info = self.env.step(action)
        self._figures.add(info)
        done = bool(terminated or truncated)
        return SlotResult(float(reward), done, self._figures.finish(info) if done else {})

    def _guarded(self, verb: str, act: Callable[[Any], SlotResult], argument: Any) -> tuple[Any, dict[str, Any]]:
        try:
            outcome = act(argument)
        except (Exception, SystemExit) as error:
            outcome = SlotResult(error=_told(error, f"{verb} of {self._running}"))
            if self._obs is None:  # gymnasium needs one
                self._obs = self.observation_space.sample()
        if outcome.done or outcome.error is not None:
            self._running = None
        return self._obs, {"outcome": outcome}


def describe(initial_state: Any, limit: int = 300) -> str:
    """Return a text of limited length that names an initial state in an error message."""
    text = str(initial_state)
    return text if len(text) <= limit else text[:limit] + "…"


def _told(error: BaseException, what: str) -> WorkerError:
    text = f"{type(error).__name__} in {what}: {error}"
    if multiprocessing.parent_process() is not None:
        # A cause does not travel between processes.
        text += "\n\n" + "".join(traceback.format_exception(error)).rstrip()
    told = WorkerError(text)
    told.__cause__ = error
    return told


def _refuse_other_spaces(space: gym.Space[Any]) -> None:
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        for part in space.values() if isinstance(space, gym.spaces.Dict) else space:
            _refuse_other_spaces(part)
    elif not isinstance(space, _ARRAY_SPACES):
        raise ConfigError(
            f"The observation space {space} has no fixed shape; build it of Box, Discrete, MultiDiscrete and "
            "MultiBinary spaces, in Dict or Tuple spaces."
        )
