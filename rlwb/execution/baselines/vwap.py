"""The schedule along the usual volume of the day."""

from __future__ import annotations

import numpy as np

from rlwb.execution.baselines.base import Baseline
from rlwb.execution.baselines.history import between, check_days, earlier_volume, running_sum
from rlwb.execution.engine import Engine
from rlwb.execution.state import Known


class VWAP(Baseline):
    """Trades along the volume profile of the instrument's earlier sessions.

    Parameters
    ----------
    days
        Number of earlier sessions in the profile, at least 1. An order whose instrument has none yet trades evenly.

    Raises
    ------
    ConfigError
        When `days` is no whole number of 1 or more.

    Notes
    -----
    The profile is the mean share of a session's volume that fell into each tick, over sessions strictly before the
    order's. The policy is causal: it reads nothing of the order's own session.
    """

    def __init__(self, engine: Engine, days: int = 20) -> None:
        super().__init__(engine)
        self.days = check_days(days)

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        profile, _ = earlier_volume(self.engine.sessions, obs.session, self.days, shares=True)
        cumulative = running_sum(profile)
        now = between(cumulative, obs.tick, self.engine.step_stop(obs, obs))
        left = between(cumulative, obs.tick, obs.end)
        share = np.divide(now, left, out=self.engine.even_share(obs, obs), where=left > 0)
        return obs.position * np.clip(share, 0.0, 1.0)
