"""Novelty of inputs: by hand, and that it tells changed days from those of training."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.market import MarketFeatures, Normaliser, Sessions
from rlwb.market.novelty import FLOOR, Novelty, level_and_spread
from tests.execution.markets import sessions_of

DAYS, TICKS = 40, 12


def panel(values: np.ndarray) -> tuple[MarketFeatures, Sessions]:
    """Return features with these values, float of shape (S, T, C), and sessions of their shape."""
    sessions = sessions_of([[10.0] * values.shape[1]] * len(values))
    normaliser = Normaliser(tuple("ab"[: values.shape[2]]), np.zeros(values.shape[2]), np.ones(values.shape[2]))
    return MarketFeatures(normaliser.columns, values, np.arange(len(values)) - 1, normaliser), sessions


@pytest.fixture(scope="module")
def market() -> tuple[MarketFeatures, Sessions, Novelty]:
    features, sessions = panel(np.random.default_rng(0).standard_normal((DAYS, TICKS, 2)))
    return features, sessions, Novelty(features, sessions, np.arange(30))


def by_hand(values: np.ndarray, training: np.ndarray, tick: int) -> float:
    """Return the novelty of one session, float of shape (T, C), with a loop over statistics."""
    profile = training.mean(axis=0)

    def statistics(one: np.ndarray) -> list[float]:
        found = []
        for column in range(one.shape[1]):
            away = (one - profile)[:tick, column]
            change = np.sum(np.diff(one[:tick, column]) ** 2) / (tick - 1)
            found += [away.mean(), np.log(away.var() + FLOOR**2), np.log(change + FLOOR**2)]
        return found

    known = np.array([statistics(one) for one in training])
    return float(np.max(np.abs(statistics(values) - known.mean(axis=0)) / known.std(axis=0)))


@pytest.mark.parametrize("tick", [2, 5, TICKS])
def test_the_novelty_of_a_session_is_that_of_a_loop(
    market: tuple[MarketFeatures, Sessions, Novelty], tick: int
) -> None:
    features, _, novelty = market
    found = novelty.score(features, np.array([35, 35, 31]), np.array([tick, 0, tick]))
    training = features.today[:30].astype(float)
    assert found[0] == pytest.approx(by_hand(features.today[35].astype(float), training, tick), rel=1e-6)
    assert found[1] == 0.0  # nothing was seen yet
    assert found[2] == pytest.approx(by_hand(features.today[31].astype(float), training, tick), rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [lambda one: one + 3.0, lambda one: 4.0 * one, lambda one: 0.0 * one, lambda one: np.sort(one, axis=1)],
    ids=["level", "spread", "frozen", "smooth"],
)
def test_days_that_are_unlike_those_of_training_are_new(
    market: tuple[MarketFeatures, Sessions, Novelty],
    change,  # type: ignore[no-untyped-def]
) -> None:
    features, _, novelty = market
    rows, ticks = np.arange(30, DAYS), np.full(DAYS - 30, TICKS)
    usual = novelty.score(features, rows, ticks)
    changed, _ = panel(change(features.today.astype(float)))
    assert (novelty.score(changed, rows, ticks) > usual.max()).mean() >= 0.8


def test_level_and_spread_are_mean_and_logarithm_of_the_variance() -> None:
    values = np.array([[1.0], [3.0], [5.0]])
    found = level_and_spread(values.mean(axis=0)[None], (values**2).mean(axis=0)[None])
    assert found.ravel() == pytest.approx([3.0, np.log(8 / 3 + FLOOR**2)])


def test_a_single_training_session_is_refused() -> None:
    features, sessions = panel(np.zeros((3, TICKS, 1)))
    with pytest.raises(DataError, match="1 training"):
        Novelty(features, sessions, np.array([0]))
