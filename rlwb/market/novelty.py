"""How unlike its training days the features of a session so far are, as one number."""

from __future__ import annotations

import numpy as np

from rlwb.errors import DataError
from rlwb.market.features import MarketFeatures
from rlwb.market.references import blocks
from rlwb.market.sessions import Sessions

#: What is added to a mean square before its logarithm, so that a feature without any spread has one; also the least
#: deviation of a statistic. In units of normalised features, whose deviation is about 1.
FLOOR = 1e-3


def level_and_spread(mean: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Return level and spread of sessions, float64 of shape ``(N, 2, C)``.

    Parameters
    ----------
    mean, square : float64 of shape (N, C)
        Mean distance of the session's features from the training's mean at each tick, and mean squared distance.
    """
    return np.stack([mean, np.log(np.maximum(square - mean**2, 0.0) + FLOOR**2)], axis=1)


class Novelty:
    """How far level, spread and roughness of a session's features so far lie from those of the training sessions.

    Of the bars of a session before a tick there are three statistics of each feature: the mean distance from the
    training's mean at the same ticks (the level); the logarithm of that distance's variance (the spread), as in
    `rlwb.serving.drift`, which tests whole days; and the logarithm of the mean squared change from bar to bar (the
    roughness). Each is compared with the training sessions' at the same tick: less their mean, over their deviation.
    The novelty is the largest of these in absolute value. Before the first bar of a day it is 0.

    Parameters
    ----------
    features
        Features of the panel that the training sessions are of.
    sessions
        That panel.
    rows
        Numbers of the training sessions, int of shape ``(N,)``.

    Raises
    ------
    DataError
        With fewer than two training sessions.
    """

    def __init__(self, features: MarketFeatures, sessions: Sessions, rows: np.ndarray) -> None:
        if len(rows) < 2:
            raise DataError(f"{len(rows)} training sessions tell nothing of how sessions differ; give two or more.")
        _, ticks, columns = features.shape
        total, count = np.zeros((ticks, columns)), np.zeros((ticks, 1))
        for part in blocks(rows, ticks):
            inside = sessions.in_session[part][:, :, None]
            total += features.rows(part).sum(axis=0, where=inside, dtype=np.float64)
            count += inside.sum(axis=0)
        self._profile = total / np.maximum(count, 1)
        sums = np.zeros((2, ticks + 1, 3, columns))
        for part in blocks(rows, ticks):
            found = self._statistics(features, part)
            sums += found.sum(axis=0), (found**2).sum(axis=0)
        self._mean = sums[0] / len(rows)
        self._deviation = np.sqrt(np.maximum(sums[1] / len(rows) - self._mean**2, FLOOR**2))

    def score(self, features: MarketFeatures, sessions: np.ndarray, ticks: np.ndarray) -> np.ndarray:
        """Return the novelty of the features of sessions before the ticks, float64 of shape (N,).

        Parameters
        ----------
        features
            Features of the same columns and clock, of the same panel or another.
        sessions, ticks : integers of shape (N,)
            Row of each session in that panel, and the next tick.
        """
        rows, place = np.unique(sessions, return_inverse=True)
        found = np.empty(len(place))
        for part in blocks(np.arange(len(rows)), features.shape[1]):
            far = np.abs(self._statistics(features, rows[part]) - self._mean) / self._deviation
            mine = (place >= part[0]) & (place <= part[-1])
            found[mine] = far.max(axis=(2, 3))[place[mine] - part[0], np.asarray(ticks)[mine]]
        return found

    def _statistics(self, features: MarketFeatures, rows: np.ndarray) -> np.ndarray:
        """Return the statistics of sessions before each tick, float64 of shape ``(N, T + 1, 3, C)``; 0 at the open."""
        values = features.rows(rows).astype(np.float64)
        distance = values - self._profile
        count, ticks, columns = distance.shape
        number = np.arange(1, ticks + 1)[None, :, None]
        mean, square = (np.cumsum(one, axis=1) / number for one in (distance, distance**2))
        change = np.cumsum(np.diff(values, axis=1) ** 2, axis=1) / number[:, : ticks - 1]
        found = np.zeros((count, ticks + 1, 3, columns))
        flat = level_and_spread(mean.reshape(-1, columns), square.reshape(-1, columns))
        found[:, 1:, :2] = flat.reshape(count, ticks, 2, columns)
        found[:, 2:, 2] = np.log(change + FLOOR**2)
        return found
