"""The random numbers that actions are drawn with."""

from __future__ import annotations

import numpy as np

_ROWS, _COLUMNS = 1024, 16
#: Names the stream apart from others of the same seed: numpy fills up short seeds with zeros, so that the numbers of
#: [seed, iteration, 0, 0] would be those of [seed, epoch] which order the initial states.
_STREAM = 0x6E6F6973


class ActionNoise:
    """Uniform numbers by (episode, step), so that a draw depends on neither workers nor batches.

    Parameters
    ----------
    seed
        Non-negative integers that name the stream, for example the run's seed and the iteration.
    """

    def __init__(self, *seed: int) -> None:
        self.seed = seed
        self._blocks: dict[tuple[int, int], np.ndarray] = {}

    def draw(self, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return the numbers of the given episodes and steps, float64 of shape (N,), in [0, 1)."""
        out = np.empty(len(episode))
        key = (episode.astype(np.int64) // _ROWS << 32) + step // _COLUMNS
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        for rows in np.split(order, starts[1:]) if len(order) else ():
            block = self._block((int(key[rows[0]]) >> 32, int(key[rows[0]]) & 0xFFFFFFFF))
            out[rows] = block[episode[rows] % _ROWS, step[rows] % _COLUMNS]
        return out

    def _block(self, key: tuple[int, int]) -> np.ndarray:
        if key not in self._blocks:
            self._blocks[key] = np.random.default_rng([*self.seed, *key, _STREAM]).random((_ROWS, _COLUMNS))
        return self._blocks[key]
