"""What a policy may know of volumes and prices: sessions before the order's, and today's ticks before now."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine
from rlwb.execution.state import Known
from rlwb.market import Sessions
from rlwb.market.actions import price_ratio


def check_days(days: int) -> int:
    """Return a number of earlier sessions.

    Raises
    ------
    ConfigError
        Unless it is a whole number of 1 or more.
    """
    if isinstance(days, bool) or not isinstance(days, (int, np.integer)) or days < 1:
        raise ConfigError(f"days is {days!r}; give the number of earlier sessions to look back to, 1 or more.")
    return int(days)


def earlier_volume(
    sessions: Sessions, session: np.ndarray, days: int, *, shares: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the volume of the instrument's earlier sessions, tick by tick.

    Parameters
    ----------
    session : int of shape (N,)
        Rows of the orders' sessions.
    days
        Most sessions to look back; they lie strictly before the order's.
    shares
        Give each session's volume as shares of its sum, so that busy days weigh no more than others.

    Returns
    -------
    total, count
        Sum over the sessions in shares of the order's, float64 of shape (N, T), a missing volume counting 0; and their
        number, int64 of shape (N,). With `shares`, a session without volume is counted and adds nothing.
    """
    wanted, index = np.unique(session, return_inverse=True)
    total = np.zeros((len(wanted), sessions.calendar.num_ticks))
    count = np.zeros(len(wanted), dtype=np.int64)
    row = np.asarray(sessions.previous)[wanted]
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
        row[have] = np.asarray(sessions.previous)[row[have]]
    return total[index], count[index]


def between(cumulative: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the sums over ``[start, stop)`` of rows, float64 of shape (N,).

    Parameters
    ----------
    cumulative : float64 of shape (N, T + 1)
        Sums over the first 0, 1, … ticks; see `running_sum`.
    start, stop : int of shape (N,)
    """
    rows = np.arange(len(cumulative))
    result: np.ndarray = cumulative[rows, stop] - cumulative[rows, start]
    return result


def running_sum(values: np.ndarray) -> np.ndarray:
    """Return the sums over the first 0, 1, … ticks, float64 of shape (N, T + 1)."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def seen_volume(known: Known) -> np.ndarray:
    """Return today's volume before each order's next tick, float64 of shape (N, T); 0 from there on and where none."""
    volume = known.bars("volume")
    return np.where(volume > 0, volume, 0.0)


def seen_price(engine: Engine, known: Known) -> np.ndarray:
    """Return today's prices before each order's next tick, float64 of shape (N, T); NaN from there on, and for none."""
    price = engine.price[known.session]
    seen = np.arange(price.shape[1]) < known.tick[:, None]
    return np.where(seen & (price > 0) & (price < np.inf), price, np.nan)
