"""The even schedule."""

from __future__ import annotations

import numpy as np

from rlwb.execution.baselines.base import Baseline
from rlwb.execution.state import Known


class TWAP(Baseline):
    """Trades evenly over the window; its price advantage is 0 where no rule binds.

    Evenly means over the ticks that have a price, and which those are is taken as known, here and in every baseline
    that trades evenly or counts time: with bars missing, a schedule that does not know it has a price advantage by
    chance. What prices and volumes will be is not known.
    """

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        return self.even(obs)
