"""Percentage of volume: follow the market's volume at a rate."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines.base import Baseline
from rlwb.execution.baselines.history import between, check_days, earlier_volume, running_sum, seen_volume
from rlwb.execution.engine import Engine
from rlwb.execution.state import Known


class POV(Baseline):
    """Participates at a rate of the market's volume, from the order's start until it is filled.

    Parameters
    ----------
    rate
        Share of the market's volume to trade, in (0, 1]. None takes each order's own: its amount over the volume
        that its window is expected to have as its start is reached, so that it ends with the window on a day that goes
        on as it began, and sooner or in a hurry on others.
    days
        Number of earlier sessions that the forecast looks back to, at least 1.

    Raises
    ------
    ConfigError
        For a rate outside (0, 1], or days that are no whole number of 1 or more.

    Notes
    -----
    What is due after the step to come is ``rate * (V + F)``: V is the volume from the order's start to now, F the
    forecast volume of the step; the ask is what is due less what is filled, so each step makes up for the error of
    the last forecast. The policy is causal: it reads today's volume before the next tick, and earlier sessions. The
    forecast is the mean volume of the same ticks over earlier sessions, times today's volume so far over the earlier
    sessions' until the same tick (1 before either has any). Without earlier sessions it is today's mean volume a tick;
    before the first tick nothing is known, and the order trades evenly. The order's last step asks for everything.
    """

    def __init__(self, engine: Engine, rate: float | None = None, days: int = 20) -> None:
        super().__init__(engine)
        if rate is not None and not 0 < rate <= 1:
            raise ConfigError(
                f"the participation rate is {rate!r}; give a share in (0, 1], or none for each order's own."
            )
        self.rate = rate
        self.days = check_days(days)

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        tick = obs.tick
        total, count = earlier_volume(self.engine.sessions, obs.session, self.days)
        usual = running_sum(np.divide(total, count[:, None], out=total, where=count[:, None] > 0))
        today = running_sum(seen_volume(obs))
        stop = self.engine.step_stop(obs, obs)
        with np.errstate(over="ignore", invalid="ignore"):  # volumes next to nothing; what is no number trades evenly
            rate: float | np.ndarray
            if self.rate is None:
                expected = _forecast(usual, today, obs.start, obs.start, obs.end)
                rate = np.divide(obs.amount, expected, out=np.full(len(obs), np.nan), where=expected > 0)
            else:
                rate = self.rate
            due = rate * (between(today, obs.start, tick) + _forecast(usual, today, tick, tick, stop))
        return np.clip(np.where(np.isnan(due), self.even(obs), due - obs.filled), 0.0, obs.position)


def _forecast(usual: np.ndarray, today: np.ndarray, at: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the volume of ``[start, stop)`` expected when tick `at` is next, float64 of shape (N,); NaN for unknown.

    `usual` and `today` are running sums of shape (N, T + 1); of `today` only the first `at` ticks are read.
    """
    zero = np.zeros_like(at)
    so_far, usual_so_far = between(today, zero, at), between(usual, zero, at)
    busy = np.divide(so_far, usual_so_far, out=np.ones(len(at)), where=(usual_so_far > 0) & (so_far > 0))
    rate = np.divide(so_far, at, out=np.full(len(at), np.nan), where=at > 0)
    return np.where(usual[:, -1] > 0, busy * between(usual, start, stop), rate * (stop - start))
