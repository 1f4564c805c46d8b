"""A baseline: trade faster than the even schedule until the order is filled."""

import numpy as np

from rlwb.execution import Baseline, Engine


class Hurry(Baseline):
    """Trades at a multiple of the even rate.

    Parameters
    ----------
    engine
        Knows the even rate.
    speed
        The multiple; 1 is TWAP.
    """

    def __init__(self, engine: Engine, speed: float = 2.0) -> None:
        super().__init__(engine)
        self.speed = speed

    def act(self, obs, noise=None):
        return np.minimum(self.speed * self.even(obs), obs.position)
