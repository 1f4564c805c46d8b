"""The measures of stylised facts, on series whose facts are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlwb.market import Calendar, Sessions
from rlwb.market import stylised as facts

CLOCK = Calendar(segments=(("10:00", "11:40"),))
COUNT = 400


def sessions_of(close: np.ndarray, volume: np.ndarray | float = 100.0) -> Sessions:
    dates = np.datetime64("2020-01-01") + np.arange(len(close))
    fields = dict.fromkeys(("open", "high", "low", "close"), close)
    length = np.full(len(close), close.shape[1])
    names = np.full(len(close), "A")
    return Sessions(CLOCK, names, dates, length, {**fields, "volume": np.broadcast_to(volume, close.shape)})


def walk(make: Callable[[np.random.Generator], np.ndarray]) -> Sessions:
    return sessions_of(10 * np.exp(np.cumsum(make(np.random.default_rng(0)), axis=1)))


def test_kurtosis_by_hand_and_of_known_laws() -> None:
    assert facts.excess_kurtosis(np.array([-1.0, 1, -1, 1, np.nan])) == -2.0
    assert np.isnan(facts.excess_kurtosis(np.ones(10)))
    normal = np.random.default_rng(0).normal(size=200_000)
    assert facts.excess_kurtosis(normal) == pytest.approx(0, abs=0.05)


def test_independent_returns_show_nothing() -> None:
    plain = walk(lambda rng: rng.normal(0, 1e-3, (COUNT, 100)))
    assert np.abs(facts.volatility_autocorrelation(plain, 5)).max() < 0.02
    assert abs(facts.return_autocorrelation(plain, 5)) < 0.03
    assert facts.variance_ratio(plain, 10) == pytest.approx(1, abs=0.05)
    np.testing.assert_allclose(facts.volatility_profile(plain), 1, atol=0.2)


def test_clustering_is_told_from_the_u() -> None:
    shape = 1 + np.abs(np.linspace(-1, 1, 100)) * 2
    only_u = walk(lambda rng: rng.normal(0, 1e-3, (COUNT, 100)) * shape)
    assert np.abs(facts.volatility_autocorrelation(only_u, 5)).max() < 0.02
    assert facts.volatility_profile(only_u)[[0, -1]].mean() > 2 * facts.volatility_profile(only_u)[45:55].mean()
    clustered = walk(lambda rng: rng.normal(0, 1e-3, (COUNT, 100)) * np.exp(0.8 * rng.normal(size=(COUNT, 1))))
    assert facts.volatility_autocorrelation(clustered, 3).min() > 0.2


def test_an_autoregression_is_measured() -> None:
    def reverting(rng: np.random.Generator) -> np.ndarray:
        noise, level = rng.normal(0, 1e-3, (COUNT, 101)), np.zeros((COUNT, 101))
        for tick in range(1, 101):
            level[:, tick] = 0.8 * level[:, tick - 1] + noise[:, tick]
        return np.diff(level, axis=1)

    market = walk(reverting)
    # corr(x[t] - x[t-1], x[t-1] - x[t-2]) of an AR(1) is -(1 - rho) / 2
    assert facts.return_autocorrelation(market, 1) == pytest.approx(-0.1, abs=0.02)
    # var(x[t] - x[t-k]) / (k var(x[t] - x[t-1])) = (1 - rho^k) / (k (1 - rho))
    assert facts.variance_ratio(market, 10) == pytest.approx((1 - 0.8**10) / 2, rel=0.05)


def test_volume_that_follows_moves_is_seen() -> None:
    rng = np.random.default_rng(0)
    moves = rng.normal(0, 1e-3, (COUNT, 100))
    close = 10 * np.exp(np.cumsum(moves, axis=1))
    follows = sessions_of(close, 100 * np.exp(np.abs(moves) * 500 + rng.normal(0, 0.1, moves.shape)))
    ignores = sessions_of(close, 100 * np.exp(rng.normal(0, 1, moves.shape)))
    assert facts.volume_volatility_correlation(follows) > 0.8
    assert abs(facts.volume_volatility_correlation(ignores)) < 0.02
    assert facts.volume_profile(ignores).mean() == pytest.approx(1)


def test_missing_ticks_are_left_out_and_nothing_gives_nan() -> None:
    market = walk(lambda rng: rng.normal(0, 1e-3, (COUNT, 100)))
    close = market.fields["close"].copy()
    close[:, ::7] = np.nan
    thin = facts.stylised_facts(sessions_of(close))
    assert thin["excess_kurtosis"] == pytest.approx(0, abs=0.1)
    nothing = facts.stylised_facts(sessions_of(np.full((2, 100), np.nan), np.nan))
    assert all(np.isnan(value) for value in nothing.values())
