"""A simulator: only a random share of each request is filled."""

import numpy as np

from rlwb.execution import Engine, OrderExecution
from rlwb.seeds import uniform_of


class Thin(OrderExecution):
    """Fills a random share of what is requested, until the order's last step takes the rest.

    Parameters
    ----------
    engine
        Executes what the liquidity lets through.
    least
        The smallest share.
    """

    def __init__(self, engine: Engine, least: float = 0.5) -> None:
        super().__init__(engine)
        self.least = least

    def step(self, state, action):
        share = self.least + (1 - self.least) * uniform_of(state.seeds, state.now.step)
        return super().step(state, np.where(state.known.is_last_step, 1.0, share) * action)
