"""The schedule along the usual volume of the day."""

from __future__ import annotations

import numpy as np

from rlwb.execution.baselines.history import between, check_days, earlier_volume, running_sum
from rlwb.execution.state import BatchState


class VWAP:
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

    def __init__(self, days: int = 20) -> None:
        self.days = check_days(days)

    def act(self, obs: BatchState, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        profile, _ = earlier_volume(obs.engine.sessions, obs.orders.session, self.days, shares=True)
        cumulative = running_sum(profile)
        now = between(cumulative, obs.now.tick, obs.engine.step_stop(obs.orders, obs.now))
        left = between(cumulative, obs.now.tick, obs.orders.end)
        even = obs.engine.even_share(obs.orders, obs.now)
        share = np.divide(now, left, out=even, where=left > 0)
        return obs.now.position * np.clip(share, 0.0, 1.0)
