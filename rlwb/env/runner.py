"""Running one environment, episode by episode; the same code in the main process and in workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.env.logs import LogCollector, LogLevel
from rlwb.errors import ConfigError

EnvFn = Callable[[], gym.Env[Any, Any]]
Log = dict[str, tuple[int, Any]]


@dataclass
class Outcome:
    """What a reset or a step led to.

    Attributes
    ----------
    obs
        The observation; None where it is handed over by other means, or where the episode has ended.
    reward
        The step's reward; 0 after a reset.
    done
        Whether the episode has ended.
    metrics
        The figures of an episode that has ended.
    log
        Name to ``(level, value)``.
    """

    obs: Any
    reward: float
    done: bool
    metrics: dict[str, float]
    log: Log


def describe(initial_state: Any, limit: int = 300) -> str:
    """Return a text of limited length that names an initial state in an error message."""
    text = str(initial_state)
    return text if len(text) <= limit else text[:limit] + "…"


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of an episode's random numbers: it depends on nothing but `seed` and `episode`."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


class EpisodeRunner:
    """One environment with a uniform face.

    Parameters
    ----------
    env_fn
        Makes the environment: an `EnvWrapper`, or any `gymnasium.Env` that takes
        ``reset(options={"initial_state": …})``.
    loglevel
        The level of the least severe writer; nothing below it is gathered.
    """

    def __init__(self, env_fn: EnvFn, loglevel: int) -> None:
        self.env = env_fn()
        if not isinstance(self.env, gym.Env):
            raise ConfigError(f"env_fn returned {type(self.env).__name__}; return a gymnasium environment.")
        self.loglevel = loglevel
        logger = getattr(self.env.unwrapped, "logger", None)
        if isinstance(logger, LogCollector):
            logger.wanted = loglevel

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The space of the environment's observations."""
        return self.env.observation_space

    def reset(self, initial_state: Any, seed: int) -> Outcome:
        """Start an episode."""
        obs, info = self.env.reset(seed=seed, options={"initial_state": initial_state})
        return Outcome(obs, 0.0, False, {}, self._log(info))

    def step(self, action: Any) -> Outcome:
        """Make one step of the episode."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        done = bool(terminated or truncated)
        metrics = dict(info.get("metrics", {})) if done else {}
        log = self._log(info)
        if done and self.loglevel <= LogLevel.PERIODIC:
            twice = log.keys() & metrics.keys()
            if twice:
                raise ConfigError(f"{sorted(twice)} are both logged and metrics; every metric is logged, rename one.")
            log |= {name: (int(LogLevel.PERIODIC), value) for name, value in metrics.items()}
        return Outcome(None if done else obs, float(reward), done, metrics, log)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _log(self, info: dict[str, Any]) -> Log:
        return {name: entry for name, entry in info.get("log", {}).items() if entry[0] >= self.loglevel}
