"""The confidence sequence: one value by hand, a slow reference, and how often it misses at any look."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from rlwb.serving.confidence import confidence_sequence

LOOKS = 250


def reference(values: np.ndarray, level: float, narrowest_at: int) -> tuple[float, float]:
    """Where the noncentral t law, mixed by quadrature over normal effects, is 1 / alpha times the central one."""
    n, mean, deviation = len(values), values.mean(), values.std(ddof=1)
    doubled = -2 * math.log(1 - level)
    tau = math.sqrt((doubled + math.log(doubled) + 1) / narrowest_at)

    def excess(t: float) -> float:
        def part(effect: float) -> float:
            return float(stats.nct.pdf(t, n - 1, math.sqrt(n) * effect) * stats.norm.pdf(effect, scale=tau))

        mixed = integrate.quad(part, -8 * tau, 8 * tau, limit=200, points=[0.0, t / math.sqrt(n)])[0]
        return math.log(mixed / stats.t.pdf(t, n - 1)) + math.log(1 - level)

    t = optimize.brentq(excess, 0.1, 40.0)
    return mean - t * deviation / math.sqrt(n), mean + t * deviation / math.sqrt(n)


def test_twelve_values_by_hand() -> None:
    """Mean 2 and squares 12, so s^2 = 12 / 11; tau^2 chosen as (5.9915 + 1.7903 + 1) / 12 = 0.73182."""
    values = np.array([1.0, 3.0] * 6)
    ratio = 1 + 12 * 0.731817
    limit = (math.sqrt(ratio) * 20) ** (1 / 6)
    half = math.sqrt((limit - 1) / (1 - limit / ratio) * 12 / 12)
    lo, hi = confidence_sequence(values, narrowest_at=12)
    assert lo[-1] == pytest.approx(2 - half, rel=1e-6)
    assert hi[-1] == pytest.approx(2 + half, rel=1e-6)
    assert half == pytest.approx(1.1163, abs=1e-4)


@pytest.mark.parametrize("count", [8, 25])
def test_a_slow_reference_agrees(count: int) -> None:
    values = np.random.default_rng(count).normal(5.0, 30.0, count)
    lo, hi = confidence_sequence(values, level=0.9, narrowest_at=30)
    assert (lo[-1], hi[-1]) == pytest.approx(reference(values, 0.9, 30), rel=1e-5)


def test_with_many_days_it_is_the_normal_mixture_boundary_of_robbins() -> None:
    n, tau = 20_000, (5.991465 + 1.790336 + 1) / 60
    values = np.random.default_rng(0).normal(size=n)
    _, hi = confidence_sequence(values)
    robbins = math.sqrt(2 * (n * tau + 1) / (n**2 * tau) * math.log(math.sqrt(n * tau + 1) / 0.05))
    assert hi[-1] - values.mean() == pytest.approx(robbins * values.std(), rel=1e-3)


def missed(values: np.ndarray, mean: float) -> float:
    """Share of rows whose interval leaves out the mean at some look."""
    bounds = [confidence_sequence(row) for row in values]
    return float(np.mean([((lo > mean) | (hi < mean)).any() for lo, hi in bounds]))


@pytest.mark.parametrize("law", ["normal", "t", "skewed"])
def test_looked_at_every_day_of_a_year_it_misses_at_most_as_often_as_it_says(law: str) -> None:
    """At 3,000 years the share has a deviation of 0.4 % at 5 %; the skewed law has a skewness of 0.7."""
    rng = np.random.default_rng(7)
    shape = (3000, LOOKS)
    draw = {
        "normal": lambda: rng.normal(3.0, 40.0, shape),
        "t": lambda: 3.0 + 40.0 * rng.standard_t(4, shape),
        "skewed": lambda: 3.0 + 40.0 * (rng.gamma(8.0, 1.0, shape) - 8.0),
    }[law]
    assert missed(draw(), 3.0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 3000)


def test_a_t_interval_looked_at_every_day_misses_many_times_as_often_as_it_says() -> None:
    values = np.random.default_rng(8).normal(size=(2000, LOOKS))
    n = np.arange(1, LOOKS + 1)
    mean = np.cumsum(values, axis=1) / n
    squares = np.cumsum(values**2, axis=1) - n * mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        half = stats.t.ppf(0.975, n - 1) * np.sqrt(squares / (n - 1) / n)
    assert (np.abs(mean) > half)[:, 1:].any(axis=1).mean() > 0.3


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_it_moves_and_stretches_with_the_values(values: list[float], shift: float, scale: float) -> None:
    array = np.array(values)
    lo, hi = confidence_sequence(array)
    moved_lo, moved_hi = confidence_sequence(shift + scale * array)
    tolerance = 1e-6 * (abs(shift) + scale * 1e3)
    assert moved_lo == pytest.approx(shift + scale * lo, rel=1e-6, abs=tolerance)
    assert moved_hi == pytest.approx(shift + scale * hi, rel=1e-6, abs=tolerance)


def test_one_day_says_nothing_and_no_day_has_no_row() -> None:
    lo, hi = confidence_sequence(np.array([3.0]))
    assert (lo[0], hi[0]) == (-np.inf, np.inf)
    assert len(confidence_sequence(np.array([]))[0]) == 0
