"""Forecasts by earlier days, t statistics by days, and the correction for several tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtr

from rlwb.errors import DataError
from rlwb.evaluation.screen import BLOCKS, FIRST, GAP, PENALTIES, DayMoments, block_edges, clustered_t, holm


def drawn(seed: int, days: int = 40, each: int = 12, columns: int = 3, slope: float = 0.0) -> DayMoments:
    """Draw samples whose days have a common part, and where the first column may foretell the target."""
    rng = np.random.default_rng(seed)
    day = np.repeat(np.arange(days), each)
    values = rng.standard_t(5, (len(day), columns)) + rng.standard_normal((days, columns))[day]
    target = slope * values[:, 0] + rng.standard_t(4, len(day)) + 0.5 * rng.standard_normal(days)[day]
    return DayMoments(values, target, day, days)


def t_of(moments: DayMoments, columns: list[int]) -> tuple[float, float]:
    """Return the statistic of a forecast, and the chance of a larger one."""
    forecast, mean = moments.forecast(columns)
    there = np.isfinite(forecast)
    product = (moments.target - mean)[there] * (forecast - mean)[there]
    t, days = clustered_t(product, moments.day[there])
    return t, float(stdtr(days - 1, -t))


def test_t_by_hand() -> None:
    # three days with the sums 3, 1 and 5 over 2, 1 and 3 samples: mean 1.5, deviations of the days 0, -0.5 and 0.5
    values, day = np.array([1.0, 2.0, 1.0, 1.0, 2.0, 2.0]), np.array([4, 4, 7, 9, 9, 9])
    t, days = clustered_t(values, day)
    assert days == 3
    assert t == pytest.approx(1.5 / np.sqrt(3 / 2 * (0.25 + 0.25) / 36))


def test_t_of_days_with_one_sample_is_students() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 50)
    expected = values.mean() / (values.std(ddof=1) / np.sqrt(50))
    assert clustered_t(values, np.arange(50))[0] == pytest.approx(expected)
    repeated = clustered_t(np.repeat(values, 9), np.repeat(np.arange(50), 9))[0]  # nine of the same are no more
    assert repeated == pytest.approx(expected)


def test_t_of_what_never_moves_or_of_one_day_is_missing() -> None:
    assert np.isnan(clustered_t(np.zeros(9), np.arange(9))[0])
    assert np.isnan(clustered_t(np.arange(9.0), np.zeros(9))[0])


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.04, np.nan, 0.01, 0.03, 0.5])), [0.09, np.nan, 0.04, 0.09, 0.5])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]


COLUMNS = [2, 0]


def predicted(moments: DayMoments, rows: np.ndarray, at: np.ndarray, penalty: float) -> np.ndarray:
    """Return what ridge, fitted on `rows`, forecasts of the samples `at`."""
    x, y = moments.values[rows][:, COLUMNS], moments.target[rows]
    z = (x - x.mean(0)) / x.std(0)
    slopes = np.linalg.solve(z.T @ z + penalty * len(z) * np.eye(2), z.T @ (y - y.mean())) / x.std(0)
    return np.asarray(y.mean() + (moments.values[at][:, COLUMNS] - x.mean(0)) @ slopes)


@pytest.mark.parametrize("block", range(FIRST, BLOCKS))
def test_forecasts_are_ridge_on_the_days_before_the_gap(block: int) -> None:
    moments, edges = drawn(3, slope=0.4), block_edges(40)
    forecast, mean = moments.forecast(COLUMNS)
    assert np.isnan(forecast[moments.day < edges[FIRST]]).all()
    number = np.searchsorted(edges, moments.day, side="right") - 1
    here, known = number == block, moments.day < edges[block] - GAP

    def error(penalty: float) -> float:
        parts = [known & (number == other) for other in range(block)]
        return sum(np.sum((moments.target[one] - predicted(moments, known & ~one, one, penalty)) ** 2) for one in parts)

    best = min(PENALTIES, key=error)
    np.testing.assert_allclose(forecast[here], predicted(moments, known, here, best), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean[here], moments.target[known].mean(), rtol=1e-12)


def test_later_days_change_no_forecast() -> None:
    one = drawn(1, slope=0.2)
    edge = block_edges(40)[7]
    later = one.day >= edge - GAP
    other = DayMoments(np.where(later[:, None], 9.0, one.values), np.where(later, -5.0, one.target), one.day, 40)
    np.testing.assert_array_equal(one.forecast([0, 1])[0][~later], other.forecast([0, 1])[0][~later])


def test_a_constant_says_nothing() -> None:
    made = drawn(2)
    moments = DayMoments(np.zeros_like(made.values), made.target, made.day, 40)
    forecast, mean = moments.forecast([0, 1, 2])
    np.testing.assert_array_equal(forecast, mean)


def test_a_planted_slope_is_found_and_luck_rarely_is() -> None:
    assert all(t_of(drawn(seed, slope=0.5), [0])[0] > 3 for seed in range(5))
    chances = np.array([t_of(drawn(seed), columns)[1] for seed in range(150) for columns in ([0], [0, 1, 2])])
    assert (chances <= 0.05).mean() <= 0.05
    assert (chances <= 0.01).mean() <= 0.02


def test_too_few_days_are_refused() -> None:
    with pytest.raises(DataError, match="19 training days"):
        block_edges(19)
