"""An action interpreter: each action is a share of what is left, not of the whole order."""

import gymnasium as gym
import numpy as np

from rlwb.interpreter import ActionInterpreter


class ShareOfRest(ActionInterpreter):
    """Trades a share of the position; everything that is left in the order's last step.

    Parameters
    ----------
    count
        Number of actions: 0, 1/(count-1), …, 1.
    """

    def __init__(self, count: int = 5) -> None:
        self.shares = np.linspace(0.0, 1.0, count)

    @property
    def action_space(self):
        return gym.spaces.Discrete(len(self.shares))

    def interpret(self, known, action):
        return np.where(known.is_last_step, known.position, self.shares[action] * known.position)
