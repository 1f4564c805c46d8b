"""Running a policy on a vector environment, each initial state exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlwb.env import FiniteVectorEnv
from rlwb.errors import RlwbError
from rlwb.seeds import Stream, uniform

#: Episode numbers, observations, actions, rewards and ends of one step.
_Part = tuple[np.ndarray, Any, np.ndarray, np.ndarray, np.ndarray]


class Actor(Protocol):
    """Anything that chooses actions for a batch of observations."""

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return one action a row; `noise` are uniform numbers to explore with, None asks for the best action."""


@dataclass
class Episodes:
    """What a collect gathered.

    Attributes
    ----------
    count
        Number of episodes E.
    length : int64 of shape (E,)
        Steps of each episode.
    returns : float64 of shape (E,)
        Sum of each episode's rewards.
    metrics
        The episodes' figures, each float64 of shape (E,); NaN where an episode lacks one.
    details
        What else the environment tells of each episode: arrays of shape (E, …), for order execution
        ``inventory``. Environments without ``details()`` have none.
    obs, action, reward, done
        The transitions of all episodes laid end to end in the order of the episodes; empty unless kept.
    """

    count: int
    length: np.ndarray
    returns: np.ndarray
    metrics: dict[str, np.ndarray]
    details: dict[str, np.ndarray] = field(default_factory=dict)
    obs: Any = field(default_factory=dict)
    action: np.ndarray = field(default_factory=lambda: np.empty(0))
    reward: np.ndarray = field(default_factory=lambda: np.empty(0))
    done: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool))

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the episodes that have it, and ``<name>_count`` where some lack it."""
        out: dict[str, float] = {}
        for name, values in self.metrics.items():
            have = np.isfinite(values)
            out[name] = float(values[have].mean()) if have.any() else float("nan")
            if not have.all():
                out[f"{name}_count"] = int(have.sum())
        return out


def collect(env: FiniteVectorEnv, actor: Actor, *, seed: Sequence[int] | None = None, keep: bool = False) -> Episodes:
    """Run `actor` on every initial state of `env`.

    Parameters
    ----------
    seed
        Key of the random numbers to explore with, for example the run's seed and the iteration; each depends on its
        episode and step only. None acts greedily.
    keep
        Whether to keep the transitions, for an update.
    """
    active = env.reset()
    parts: list[_Part] = []
    seen: dict[int, dict[str, float]] = {}
    steps = np.zeros(max(len(active.episode), 1), dtype=np.int64)
    returns = np.zeros(len(steps))
    while len(active.episode):
        episode = active.episode
        if episode.max() >= len(steps):
            # At least doubled, so that a long stream does not copy them at every step.
            grow = int(episode.max()) + 1
            steps, returns = np.pad(steps, (0, grow)), np.pad(returns, (0, grow))
        noise = None if seed is None else uniform((*seed, Stream.ACTION), episode, steps[episode])
        action = actor.act(active.obs, noise)
        result, following = env.step(action)
        if keep:
            parts.append((episode, active.obs, np.asarray(action), result.reward, result.done))
        steps[episode] += 1
        returns[episode] += result.reward
        seen.update(result.metrics)
        active = following
    count = int((steps > 0).sum())
    if not (steps[:count] > 0).all():
        skipped = int(np.flatnonzero(steps == 0)[0])
        raise RlwbError(f"the environment gave no step of episode {skipped}; number the episodes 0, 1, 2, … in a row.")
    details: dict[str, np.ndarray] = getattr(env, "details", dict)()
    gathered = Episodes(count, steps[:count], returns[:count], _figures(env, seen, count), details)
    if keep and parts:
        _lay_end_to_end(gathered, parts)
    return gathered


def _figures(env: FiniteVectorEnv, seen: dict[int, dict[str, float]], count: int) -> dict[str, np.ndarray]:
    whole = getattr(env, "metrics", None)
    if whole is not None:
        figures: dict[str, np.ndarray] = whole()
        return figures
    names = list(dict.fromkeys(name for values in seen.values() for name in values))
    return {name: np.array([seen.get(i, {}).get(name, np.nan) for i in range(count)], dtype=float) for name in names}


def _lay_end_to_end(gathered: Episodes, parts: list[_Part]) -> None:
    episode, obs, action, reward, done = zip(*parts, strict=True)
    # A stable sort keeps each episode's steps in time order.
    order = np.argsort(np.concatenate(episode), kind="stable")
    gathered.obs = _join(obs, order)
    gathered.action = np.concatenate(action)[order]
    gathered.reward = np.concatenate(reward)[order]
    gathered.done = np.concatenate(done)[order]


def _join(batches: tuple[Any, ...], order: np.ndarray) -> Any:
    if isinstance(batches[0], dict):
        return {key: _join(tuple(batch[key] for batch in batches), order) for key in batches[0]}
    return np.concatenate(batches)[order]
