"""A state interpreter: the full history, and the price move since the first bar of the order."""

import gymnasium as gym
import numpy as np

from rlwb.execution import FullHistoryStateInterpreter


class WithMove(FullHistoryStateInterpreter):
    """Adds ``move``: the log of the last price over the first one of the order's window so far; 0 before there are two.

    Parameters
    ----------
    features, max_step
        See `FullHistoryStateInterpreter`.
    limit
        The move is cut to ±limit.
    """

    def __init__(self, features, max_step, limit: float = 0.1) -> None:
        super().__init__(features, max_step)
        self.limit = limit

    @property
    def observation_space(self):
        move = gym.spaces.Box(-self.limit, self.limit, (), np.float32)
        return gym.spaces.Dict({**super().observation_space.spaces, "move": move})

    def interpret(self, known):
        return {**super().interpret(known), "move": self.move(known)}

    def refer(self, known):
        return {**super().refer(known), "move": self.move(known)}

    def move(self, known):
        close = known.bars("close")  # (N, T), NaN from the next tick on
        rows, last = np.arange(len(known)), np.maximum(known.tick - 1, known.start)
        move = np.log(close[rows, last] / close[rows, known.start])
        return np.clip(np.nan_to_num(move), -self.limit, self.limit).astype(np.float32)
