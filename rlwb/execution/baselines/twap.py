"""The even schedule."""

from __future__ import annotations

import numpy as np

from rlwb.execution.state import BatchState


class TWAP:
    """Trades evenly over the window; its price advantage is 0 where no rule binds.

    Evenly means over the ticks that have a price, and which those are is taken as known, here and in every baseline
    that trades evenly or counts time: with bars missing, a schedule that does not know it has a price advantage by
    chance. What prices and volumes will be is not known.
    """

    def act(self, obs: BatchState, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        return obs.now.position * obs.engine.even_share(obs.orders, obs.now)
