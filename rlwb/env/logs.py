"""Logs of episodes: collected beside the simulator, written in the main process.

A `LogCollector` gathers named values during a step. They travel with the step to the main process, where every
`LogWriter` whose level they reach gets them. What no writer wants is never sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from rlwb.errors import ConfigError

#: Names that every writer derives from the episode itself.
RESERVED = ("reward", "length")


class LogLevel(IntEnum):
    """How much a logged value matters; a writer takes what reaches its own level."""

    DEBUG = 10
    PERIODIC = 20
    INFO = 30
    CRITICAL = 40


def wanted_level(writers: Iterable[LogWriter]) -> int:
    """Return the level of the least severe writer; one above every level if there is no writer."""
    return min((int(writer.loglevel) for writer in writers), default=LogLevel.CRITICAL + 1)


class LogCollector:
    """Gathers the logged values of one step.

    Parameters
    ----------
    min_loglevel
        Values below this level are not kept. None: the level of the least severe writer, which a vector environment
        sets through `wanted`; `LogLevel.PERIODIC` outside one.
    """

    def __init__(self, min_loglevel: int | LogLevel | None = None) -> None:
        self.min_loglevel = min_loglevel
        self.wanted: int = LogLevel.PERIODIC
        self._logged: dict[str, tuple[int, Any]] = {}

    def reset(self) -> None:
        """Forget what was gathered."""
        self._logged = {}

    def wants(self, loglevel: int) -> bool:
        """Tell whether a value of this level would be kept, to spare work on values that nobody wants."""
        return int(loglevel) >= (self.wanted if self.min_loglevel is None else int(self.min_loglevel))

    def add_scalar(self, name: str, scalar: Any, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        """Log one number, kept as float. NaN means that the value is missing."""
        value = scalar.item() if hasattr(scalar, "item") and getattr(scalar, "size", 1) == 1 else scalar
        if not isinstance(value, (float, int)):
            raise ConfigError(f"add_scalar({name!r}) got {scalar!r}; log one number, or use add_array or add_any.")
        self._add(name, float(value), loglevel)

    def add_string(self, name: str, string: str, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        """Log a text."""
        if not isinstance(string, str):
            raise ConfigError(f"add_string({name!r}) got {string!r}; log a str, or use add_any.")
        self._add(name, string, loglevel)

    def add_array(self, name: str, array: Any, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        """Log an array, or anything NumPy takes for one (a DataFrame, a Series); kept as a copy."""
        if not hasattr(array, "__array__"):
            raise ConfigError(f"add_array({name!r}) got {type(array).__name__}; log an array, or use add_any.")
        if self.wants(loglevel):
            self._add(name, array.copy(), loglevel)

    def add_any(self, name: str, obj: Any, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        """Log any object that can be pickled."""
        self._add(name, obj, loglevel)

    def logs(self) -> dict[str, tuple[int, Any]]:
        """Return name to ``(level, value)`` of what was gathered since `reset`."""
        return dict(self._logged)

    def _add(self, name: str, value: Any, loglevel: int | LogLevel) -> None:
        if name in RESERVED:
            raise ConfigError(f"The name {name!r} is logged for every episode already; choose another name.")
        if name in self._logged:
            raise ConfigError(f"{name!r} is logged twice in one step; log it once or choose another name.")
        if self.wants(loglevel):
            self._logged[name] = (int(loglevel), value)


class LogWriter:
    """Base of what does something with logs; override `log_step`, `log_episode` and the hooks.

    A vector environment calls `on_env_all_ready` when a collect starts, `on_env_step` for every step and
    `on_env_all_done` when the last episode has ended. One that has no single steps to tell of (the batched one) calls
    `on_episode` once for every finished episode instead of `on_env_step`.

    Attributes
    ----------
    episode_count, step_count
        Episodes finished and steps seen in the current collect.
    global_episode, global_step
        The same since the writer was made; part of `state_dict`.
    """

    def __init__(self, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        self.loglevel = loglevel
        self.global_step = 0
        self.global_episode = 0
        self.clear()

    def clear(self) -> None:
        """Start a new collect."""
        self.episode_count = 0
        self.step_count = 0
        self._running: dict[int, tuple[list[float], list[dict[str, Any]]]] = {}

    # Hooks for subclasses.

    def log_step(self, reward: float, contents: dict[str, Any]) -> None:
        """Take one step's reward and logged values."""

    def log_episode(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> None:
        """Take one finished episode.

        Parameters
        ----------
        length
            Number of steps.
        rewards
            The reward of each step.
        contents
            What was logged, in order: at the reset and then at each step where steps are told of, else one dict for
            the whole episode.
        """

    # What vector environments call.

    def on_env_all_ready(self) -> None:
        """Be told that a collect starts."""
        self.clear()

    def on_env_all_done(self) -> None:
        """Be told that the last episode of the collect has ended."""

    def on_env_reset(self, episode: int, log: Mapping[str, tuple[int, Any]]) -> None:
        """Be told that an episode starts; `log` is what was logged while it was set up."""
        self._running[episode] = ([], [self._select(log)])

    def on_env_step(self, episode: int, reward: float, done: bool, log: Mapping[str, tuple[int, Any]]) -> None:
        """Be told that an episode has made a step."""
        values = self._select(log)
        rewards, contents = self._running[episode]
        rewards.append(reward)
        contents.append(values)
        self.log_step(reward, values)
        if done:
            del self._running[episode]
            self.on_episode(len(rewards), rewards, contents)

    def on_episode(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> None:
        """Count a finished episode and hand it to `log_episode`; arguments as there."""
        self.episode_count += 1
        self.step_count += length
        self.global_episode += 1
        self.global_step += length
        self.log_episode(length, rewards, contents)

    # From steps to episodes.

    @staticmethod
    def aggregation(array: Sequence[Any], name: str | None = None) -> Any:
        """Reduce one episode's values to one.

        Numbers give the mean of those that are not NaN (NaN if none is), those named ``"reward"`` their sum, anything
        else the first.
        """
        if not all(isinstance(value, (int, float, np.number)) for value in array):
            return array[0]
        if name == "reward":
            return float(sum(array))
        present = [float(value) for value in array if not math.isnan(value)]
        return sum(present) / len(present) if present else math.nan

    def episode_values(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> dict[str, float]:
        """Return the episode's numbers: reward (sum), length, and everything logged that is a number."""
        series: dict[str, list[Any]] = {}
        for step in contents:
            for name, value in step.items():
                if isinstance(value, (int, float, np.number)):
                    series.setdefault(name, []).append(value)
        values = {"reward": float(self.aggregation(rewards, "reward")), "length": float(length)}
        return values | {name: float(self.aggregation(value, name)) for name, value in series.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, between two collects."""
        return {"global_step": self.global_step, "global_episode": self.global_episode}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.clear()
        self.global_step = int(state_dict["global_step"])
        self.global_episode = int(state_dict["global_episode"])

    def _select(self, log: Mapping[str, tuple[int, Any]]) -> dict[str, Any]:
        return {name: value for name, (level, value) in log.items() if level >= self.loglevel}


class Means:
    """Running means by name that leave missing values (NaN) out, with the number of values in each."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """Take one more value of each name."""
        for name, value in values.items():
            self._sums.setdefault(name, 0.0)
            self.counts.setdefault(name, 0)
            if not math.isnan(value):
                self._sums[name] += value
                self.counts[name] += 1

    def __getitem__(self, name: str) -> float:
        return self._sums[name] / self.counts[name] if self.counts[name] else math.nan

    def as_dict(self) -> dict[str, float]:
        """Return name to mean; NaN where no value was there."""
        return {name: self[name] for name in self.counts}


class LogBuffer(LogWriter):
    """Keeps the numbers of a collect in memory, for callbacks and the trainer.

    Parameters
    ----------
    callback
        Called as ``callback(on_episode, on_collect, buffer)`` after each episode (True, False) and at the end of each
        collect (False, True).
    """

    def __init__(
        self,
        callback: Callable[[bool, bool, LogBuffer], None],
        loglevel: int | LogLevel = LogLevel.PERIODIC,
    ) -> None:
        self.callback = callback
        super().__init__(loglevel)

    def clear(self) -> None:
        super().clear()
        self._latest: dict[str, float] | None = None
        self._means = Means()

    def log_episode(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> None:
        self._latest = self.episode_values(length, rewards, contents)
        self._means.add(self._latest)
        self.callback(True, False, self)

    def on_env_all_done(self) -> None:
        self.callback(False, True, self)

    def episode_metrics(self) -> dict[str, float]:
        """Return the numbers of the latest episode."""
        if self._latest is None:
            raise ConfigError("No episode has ended yet in this collect; ask for its metrics in the callback.")
        return dict(self._latest)

    def collect_metrics(self) -> dict[str, float]:
        """Return the mean of each number over the episodes that have it; NaN if none has."""
        return self._means.as_dict()

    def collect_counts(self) -> dict[str, int]:
        """Return how many episodes each mean of `collect_metrics` stands on."""
        return dict(self._means.counts)
