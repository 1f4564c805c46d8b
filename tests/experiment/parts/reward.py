"""A reward: the gain over the price at the order's start, in basis points."""

import numpy as np

from rlwb.reward import Reward


class Arrival(Reward):
    """Pays what a step gained over the first price of the window.

    Parameters
    ----------
    scale
        Factor of the reward.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def reward(self, outcome):
        known = outcome.known
        gain = known.side * (1 - outcome.step_price / outcome.arrival) * 1e4
        return {"arrival": self.scale * np.where(outcome.fill > 0, gain * outcome.fill / known.amount, 0.0)}
