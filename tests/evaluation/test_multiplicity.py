"""Tests of many estimates at once: against a loop, in cases that are known, and by the share of false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlwb.evaluation.bootstrap import draw_weights
from rlwb.evaluation.multiplicity import Estimates, step_down, t_interval

DAYS = 20


def weights(seed: int = 0, resamples: int = 400, days: int = DAYS) -> np.ndarray:
    return np.concatenate(list(draw_weights(days, resamples, np.random.default_rng(seed))))


def means(values: np.ndarray) -> Estimates:
    """Return the means of one order a day, float of shape (D, H)."""
    return Estimates.of_means(values, np.arange(len(values)), len(values))


def looped(estimates: Estimates, drawn: np.ndarray) -> tuple[list[float], list[float]]:
    """Return p-values and adjusted ones with a loop over hypotheses and resamples, of independent days."""
    count = len(estimates.value)
    own, moved = [], []
    for h in range(count):
        error = np.sqrt((estimates.influence[:, h] ** 2).sum() * DAYS / (DAYS - 1))
        own.append(-stats.norm.ppf(stats.t.cdf(-abs(estimates.value[h]) / error, DAYS - 1)))
        one = np.array([(row * estimates.influence[:, h]).sum() for row in drawn])
        moved.append(np.abs(one) / np.sqrt((one**2).mean()))
    p = [(1 + sum(score >= own[h] for score in moved[h])) / (len(drawn) + 1) for h in range(count)]
    adjusted, left, least = [np.nan] * count, sorted(range(count), key=lambda h: -own[h]), 0.0
    while left:
        above = sum(max(moved[h][b] for h in left) >= own[left[0]] for b in range(len(drawn)))
        least = max(least, (1 + above) / (len(drawn) + 1))
        adjusted[left.pop(0)] = least
    return p, adjusted


def test_p_values_are_those_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlwb.evaluation import multiplicity

    how = multiplicity.Dependence.none
    monkeypatch.setattr(multiplicity.Dependence, "of", classmethod(lambda cls, own, in_blocks: how(len(own))))
    rng = np.random.default_rng(1)
    estimates = means(rng.standard_normal((DAYS, 5)) + np.array([0.0, 0.3, 0.6, 1.0, 0.0]))
    drawn = weights(resamples=120)
    found = step_down(estimates, drawn)
    for one, other in zip(found, looped(estimates, drawn), strict=True):
        assert one.tolist() == pytest.approx(other, abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_an_adjusted_p_is_never_below_its_own_and_keeps_the_sequence(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    estimates = means(rng.standard_normal((DAYS, count)) + rng.uniform(0, 1, count))
    p, adjusted = step_down(estimates, weights(seed, 100))
    assert (adjusted >= p - 1e-12).all()
    assert (p > 0).all()
    assert (adjusted <= 1).all()
    if count == 1:
        assert adjusted.tolist() == p.tolist()
    order = rng.permutation(count)
    again = step_down(Estimates(estimates.value[order], estimates.influence[:, order]), weights(seed, 100))
    assert again.p_adjusted.tolist() == adjusted[order].tolist()


def test_the_same_test_twice_costs_nothing() -> None:
    one = np.random.default_rng(2).standard_normal((DAYS, 1)) + 0.5
    p, adjusted = step_down(means(np.hstack([one] * 4)), weights())
    assert adjusted.tolist() == p.tolist()


def test_what_is_zero_has_no_p_and_what_never_varies_has_the_least() -> None:
    values = np.stack([np.zeros(DAYS), np.full(DAYS, 2.5), np.random.default_rng(0).standard_normal(DAYS)], axis=1)
    p, adjusted = step_down(means(values), weights(resamples=400))
    assert np.isnan([p[0], adjusted[0]]).all()
    assert [p[1], adjusted[1]] == [1 / 401, 1 / 401]
    assert not np.isnan(p[2])


def test_a_day_without_orders_is_no_day() -> None:
    rng = np.random.default_rng(3)
    day = np.repeat(np.arange(DAYS), 3)
    values = rng.standard_normal((len(day), 1)) + 0.5
    some = day < 12
    held = Estimates.of_means(np.where(some[:, None], values, np.nan), day, DAYS)
    alone = Estimates.of_means(values[some], day[some], 12)
    assert held.value.tolist() == alone.value.tolist()
    assert held.influence[:12].tolist() == alone.influence.tolist()
    assert np.isnan(held.influence[12:]).all()
    assert t_interval(held.value[0], held.influence[:, 0], 0.95) == t_interval(
        alone.value[0], alone.influence[:, 0], 0.95
    )


def test_a_difference_of_means_is_that_of_the_groups() -> None:
    day = np.repeat(np.arange(4), 2)
    values = np.array([1.0, 5.0, 2.0, 6.0, 3.0, 7.0, 4.0, 8.0])
    first = np.arange(8) % 2 == 0
    one, other = (Estimates.of_means(np.where(rows, values, np.nan)[:, None], day, 4) for rows in (first, ~first))
    apart = one.less(other)
    assert apart.value.tolist() == [2.5 - 6.5]
    assert apart.influence.ravel() == pytest.approx(np.zeros(4), abs=1e-12)  # 4 less on every day


def test_of_true_zeros_few_families_have_a_false_alarm() -> None:
    rng, alarms, alone = np.random.default_rng(4), 0, 0.0
    for repetition in range(100):
        common = rng.standard_normal((24, 1))
        p, adjusted = step_down(means(common + rng.standard_normal((24, 10))), weights(repetition, 200, 24))
        alarms += adjusted.min() <= 0.05
        alone += (p <= 0.05).mean() / 100
    assert alarms <= 12  # 5 are meant; of as many fair coins of 5 % more than 12 come up in 0.2 % of cases
    assert 0.02 <= alone <= 0.09
