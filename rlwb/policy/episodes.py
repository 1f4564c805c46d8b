"""Batches of whole episodes, laid end to end: cutting them, and their advantages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlwb.batch import count_rows
from rlwb.errors import ConfigError, RlwbError


def gae(
    reward: np.ndarray, value: np.ndarray, done: np.ndarray, gamma: float, gae_lambda: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return advantages and returns of episodes laid end to end, each float64 of shape (N,).

    ``delta_t = r_t + gamma v_{t+1} - v_t``, ``A_t = delta_t + gamma lambda A_{t+1}``, with v and A zero
    beyond an episode's end (arXiv 1506.02438, equation 16). The return is ``A_t + v_t``.
    """
    advantage = np.zeros(len(reward))
    following, next_value = 0.0, 0.0
    for t in range(len(reward) - 1, -1, -1):
        if done[t]:
            following = next_value = 0.0
        following = reward[t] + gamma * next_value - value[t] + gamma * gae_lambda * following
        next_value = value[t]
        advantage[t] = following
    return advantage, advantage + value


def cut(rows: np.ndarray, done: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Cut rows of whole episodes after the first episode end at or beyond each `size` rows.

    A last piece of under half the size joins the one before.
    """
    ends = np.flatnonzero(done[rows]) + 1
    start = 0
    while start < len(rows):
        stop = int(ends[min(int(np.searchsorted(ends, start + size)), len(ends) - 1)])
        if len(rows) - stop < size / 2:
            stop = len(rows)
        yield rows[start:stop]
        start = stop


def shuffled(done: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return all rows with the episodes in a random order, int64 of shape (N,); each episode stays in one piece."""
    ends = np.flatnonzero(done) + 1
    starts = np.concatenate([[0], ends[:-1]])
    order = rng.permutation(len(ends))
    return np.concatenate([np.arange(a, b) for a, b in zip(starts[order], ends[order], strict=True)])


def last_rows(done: np.ndarray) -> np.ndarray:
    """Return the last row of each row's episode, int64 of shape (N,)."""
    ends = np.flatnonzero(done)
    return np.repeat(ends, np.diff(ends, prepend=-1))


def dial_settings(obs: Any, done: np.ndarray) -> np.ndarray | None:
    """Return each episode's setting of the objective's dial, int64 of shape (episodes,); None where there is none."""
    if not isinstance(obs, dict) or "aversion" not in obs:
        return None
    return np.asarray(np.asarray(obs["aversion"])[np.append(True, done[:-1])].argmax(axis=1))


def merge_statistics(count: int, mean: float, variance: float, new: np.ndarray) -> tuple[int, float, float]:
    """Return number, mean and variance of numbers after adding `new`, of shape (N,) (Chan et al., 1979)."""
    total, delta = count + len(new), new.mean() - mean
    squares = variance * count + new.var() * len(new) + delta**2 * count * len(new) / total
    return total, float(mean + delta * len(new) / total), float(squares / total)


def check_episodes(obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> None:
    """Check what a learner is given.

    Raises
    ------
    ConfigError
        When the rows are no whole episodes laid end to end.
    RlwbError
        When a reward is not finite.
    """
    if not len(done) or not done[-1] or not len(done) == len(action) == len(reward) == count_rows(obs):
        raise ConfigError(
            f"learn got {count_rows(obs)} observations, {len(action)} actions, {len(reward)} rewards and "
            f"{int(done.sum())} episode ends in {len(done)} rows; give whole episodes, one row a transition."
        )
    if not np.isfinite(reward).all():
        row = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise RlwbError(f"the reward of transition {row} is {reward[row]}; a reward must be a finite number.")
