"""Schedules along the clock or the market's volume: TWAP, VWAP and POV."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines import Schedule
from rlwb.execution.engine import Engine
from rlwb.execution.state import Known
from rlwb.market import Sessions
from rlwb.market.actions import price_ratio


class TWAP(Schedule):
    """Trades evenly over the window; its price advantage is 0 where no rule binds.

    Evenly means over the ticks that have a price, and which those are is taken as known, here and in every baseline
    that trades evenly or counts time: a schedule that does not know it has a price advantage by chance.

    Parameters
    ----------
    engine
        See `Baseline`.
    skip_open, skip_close : minutes
        Minutes after the session's open and before its close in which nothing is asked for; see `Schedule`.
    """

    def amounts(self, known: Known) -> np.ndarray:
        return self.even(known)


class VWAP(Schedule):
    """Trades along the volume profile of the instrument's earlier sessions.

    The profile is the mean share of a session's volume that fell into each tick, over sessions strictly before the
    order's: nothing of the order's own session is read.

    Parameters
    ----------
    days : sessions
        Number of earlier sessions in the profile, at least 1. An order whose instrument has none yet trades evenly.
    skip_open, skip_close : minutes
        Minutes after the session's open and before its close in which nothing is asked for; see `Schedule`.

    Raises
    ------
    ConfigError
        When `days` is no such number.
    """

    def __init__(self, engine: Engine, days: int = 20, skip_open: float = 0.0, skip_close: float = 0.0) -> None:
        super().__init__(engine, skip_open, skip_close)
        self.days = check_days(days)

    def amounts(self, known: Known) -> np.ndarray:
        profile, _ = _earlier_volume(self.engine.sessions, known.session, self.days, shares=True)
        cumulative = _running_sum(profile)
        now = _between(cumulative, known.tick, self.engine.step_stop(known, known))
        left = _between(cumulative, known.tick, known.end)
        share = np.divide(now, left, out=self.engine.even_share(known, known), where=left > 0)
        return known.position * np.clip(share, 0.0, 1.0)


class POV(Schedule):
    """Participates at a rate of the market's volume, from the order's start until it is filled.

    Parameters
    ----------
    rate : share of the volume
        Share of the market's volume to trade, in (0, 1]. None takes each order's own: its amount over the volume
        that its window is expected to have as its start is reached, so that it ends with the window on a day that goes
        on as it began, and sooner or in a hurry on others.
    days : sessions
        Number of earlier sessions that the forecast looks back to, at least 1.
    cap : share of the volume
        Largest share of a step's forecast volume to ask for, in (0, 1], at least `rate`; none for no cap. What it cuts
        is made up for in later steps, within the cap. A step whose volume cannot be forecast asks for nothing.
    skip_open, skip_close : minutes
        Minutes after the session's open and before its close in which nothing is asked for; see `Schedule`.

    Raises
    ------
    ConfigError
        For a rate or cap outside (0, 1], a cap below the rate, or days that are no whole number of 1 or more.

    Notes
    -----
    What is due after the step to come is ``rate * (V + F)``: V is the volume from the order's start to now, F the
    forecast volume of the step; the ask is what is due less what is filled, so each step makes up for the error of
    the last forecast. The forecast is the mean volume of the same ticks over earlier sessions, times today's volume so
    far over the earlier sessions' until the same tick (1 before either has any). Without earlier sessions it is today's
    mean volume a tick; before the first tick nothing is known, and the order trades evenly. Where the rules complete
    orders at the end, the order's last step asks for everything, whatever the cap. From the end on, an order with a
    later latest end goes on at its rate.
    """

    def __init__(
        self,
        engine: Engine,
        rate: float | None = None,
        days: int = 20,
        cap: float | None = None,
        skip_open: float = 0.0,
        skip_close: float = 0.0,
    ) -> None:
        super().__init__(engine, skip_open, skip_close)
        if rate is not None and not 0 < rate <= 1:
            raise ConfigError(
                f"the participation rate is {rate!r}; give a share in (0, 1], or none for each order's own."
            )
        if cap is not None and not (0 < cap <= 1 and cap >= (rate or 0)):
            raise ConfigError(f"the cap is {cap!r}; give a share in (0, 1] that is not below the rate, or none.")
        self.rate = rate
        self.cap = cap
        self.days = check_days(days)

    def amounts(self, known: Known) -> np.ndarray:
        tick, today = known.tick, volume_so_far(known)
        usual = usual_volume(self.engine.sessions, known.session, self.days)
        stop = self.engine.step_stop(known, known)
        rate: float | np.ndarray
        with np.errstate(over="ignore", invalid="ignore"):  # volumes next to nothing; what is no number trades evenly
            if self.rate is None:
                first = _running_sum(expected_volume(usual, today, known.start))
                expected = _between(first, known.start, known.end)
                rate = np.divide(known.amount, expected, out=np.full(len(known), np.nan), where=expected > 0)
            else:
                rate = self.rate
            to_come = _between(_running_sum(expected_volume(usual, today, tick)), tick, stop)
            due = rate * (_between(_running_sum(today), known.start, tick) + to_come)
            most = np.inf if self.cap is None else self.cap * np.nan_to_num(to_come)
        asked = np.where(np.isnan(due), self.even(known), due - known.filled)
        return np.clip(asked, 0.0, np.minimum(known.position, most))


def check_days(days: int) -> int:
    """Return a number of earlier sessions; refuse what is none."""
    if isinstance(days, bool) or not isinstance(days, (int, np.integer)) or days < 1:
        raise ConfigError(f"days is {days!r}; give the number of earlier sessions to look back to, 1 or more.")
    return int(days)


def _earlier_volume(
    sessions: Sessions, session: np.ndarray, days: int, *, shares: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the volume of up to `days` earlier sessions by tick, and their number.

    The sum is float64 of shape (N, T), a missing volume counting 0, in shares of the order's own session. With `shares`
    each session's volume is in shares of its own sum, so that busy days weigh no more than others; a session without
    volume is counted and adds nothing.
    """
    wanted, index = np.unique(session, return_inverse=True)
    total = np.zeros((len(wanted), sessions.calendar.num_ticks))
    count = np.zeros(len(wanted), dtype=np.int64)
    previous, row = np.asarray(sessions.previous), np.asarray(sessions.previous)[wanted]
    for _ in range(days):
        have = np.flatnonzero(row >= 0)
        if not len(have):
            break
        volume = np.nan_to_num(np.asarray(sessions.fields["volume"])[row[have]])
        if shares:
            whole = volume.sum(axis=1, keepdims=True)
            volume = np.divide(volume, whole, out=np.zeros_like(volume), where=whole > 0)
        else:
            volume = volume / price_ratio(sessions, row[have], wanted[have])[:, None]
        total[have] += volume
        count[have] += 1
        row[have] = previous[row[have]]
    return total[index], count[index]


def _running_sum(values: np.ndarray) -> np.ndarray:
    """Return the sums over the first 0, 1, … ticks, float64 of shape (N, T + 1)."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _between(cumulative: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the sums over ``[start, stop)``, float64 of shape (N,), of rows of running sums."""
    rows = np.arange(len(cumulative))
    return np.asarray(cumulative[rows, stop] - cumulative[rows, start])


def volume_so_far(known: Known) -> np.ndarray:
    """Return today's volume by tick, float64 of shape (N, T); 0 from the next tick on and where none is stated."""
    volume = known.bars("volume")
    return np.where(volume > 0, volume, 0.0)


def usual_volume(sessions: Sessions, session: np.ndarray, days: int) -> np.ndarray:
    """Return the mean volume of up to `days` earlier sessions by tick, float64 of shape (N, T); 0 without any."""
    total, count = _earlier_volume(sessions, session, days)
    return np.divide(total, count[:, None], out=total, where=count[:, None] > 0)


def expected_volume(usual: np.ndarray, today: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the volume by tick that is expected when tick `at` is next, float64 of shape (N, T); NaN for unknown.

    `usual` and `today` are volumes by tick; of `today` only the first `at` ticks are read. It is the usual volume,
    scaled by today's so far over the usual one until then; without a usual one, today's mean of a tick.
    """
    past = np.arange(usual.shape[1]) < at[:, None]
    so_far, usual_so_far = (np.where(past, volume, 0.0).sum(axis=1) for volume in (today, usual))
    busy = np.divide(so_far, usual_so_far, out=np.ones(len(at)), where=(usual_so_far > 0) & (so_far > 0))
    rate = np.divide(so_far, at, out=np.full(len(at), np.nan), where=at > 0)
    return np.where(usual.sum(axis=1, keepdims=True) > 0, busy[:, None] * usual, rate[:, None])
