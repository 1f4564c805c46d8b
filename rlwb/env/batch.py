"""Batches of observations: one row an episode, in the structure of the observation space.

A batch of a ``Dict`` space is a dict of batches, of a ``Tuple`` space a tuple of batches, of an array space (Box,
Discrete, MultiDiscrete, MultiBinary) an array of shape ``(n, *space.shape)`` and the space's dtype, and of any other
space an object array of shape ``(n,)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

Allocate = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]

ARRAY_SPACES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


def empty_batch(space: gym.Space[Any], n: int, allocate: Allocate = np.zeros) -> Any:
    """Return a batch of `n` rows; `allocate` makes each array from its shape and dtype."""
    if isinstance(space, gym.spaces.Dict):
        return {key: empty_batch(part, n, allocate) for key, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(empty_batch(part, n, allocate) for part in space)
    if isinstance(space, ARRAY_SPACES):
        return allocate((n, *(space.shape or ())), np.dtype(space.dtype))
    return allocate((n,), np.dtype(object))


def write_row(batch: Any, row: int, obs: Any) -> None:
    """Copy one observation into a row of a batch."""
    if isinstance(batch, dict):
        for key, part in batch.items():
            write_row(part, row, obs[key])
    elif isinstance(batch, tuple):
        for part, value in zip(batch, obs, strict=True):
            write_row(part, row, value)
    else:
        batch[row] = obs
