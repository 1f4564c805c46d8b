"""Objectives: certainty equivalents against numerical optima, derivatives against differences, rewards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from rlwb.errors import ConfigError
from rlwb.objective import CVaR, Entropic, Mean, MeanVariance, Objective, Quantile

SAMPLE = np.array([-3.0, 1.0, 4.0, 10.0])
EQUIVALENTS = [Mean(), MeanVariance(0.05), Entropic(0.2), CVaR(0.5), CVaR(0.6)]


def test_values_by_hand() -> None:
    """Mean 3, variance (36 + 4 + 1 + 49) / 4 = 22.5, worst half -3 and 1, worst 0.4 * 4 = 1.6 orders."""
    assert Mean().value(SAMPLE) == 3.0
    assert MeanVariance(0.1).value(SAMPLE) == pytest.approx(3.0 - 2.25)
    assert Entropic(0.2).value(SAMPLE) == pytest.approx(-np.log(np.exp([0.6, -0.2, -0.8, -2.0]).mean()) / 0.2)
    assert CVaR(0.5).value(SAMPLE) == pytest.approx(-1.0)
    assert CVaR(0.6).value(SAMPLE) == pytest.approx((-3.0 + 0.6 * 1.0) / 1.6)
    assert Quantile(0.5).value(SAMPLE) == 2.5


UTILITIES = {
    "mean_variance": (MeanVariance(0.03), lambda t: t - 0.03 * t**2),
    "entropic": (Entropic(0.04), lambda t: (1 - np.exp(-0.04 * t)) / 0.04),
    "cvar": (CVaR(0.9), lambda t: -np.maximum(-t, 0) / 0.1),
}


@pytest.mark.parametrize("name", UTILITIES)
def test_value_is_the_best_certainty_equivalent(name: str) -> None:
    objective, u = UTILITIES[name]
    x = np.random.default_rng(1).normal(5, 20, 501)
    found = minimize_scalar(lambda m: -(m + u(x - m).mean()), bounds=(-100, 100), method="bounded")
    assert objective.value(x) == pytest.approx(-found.fun, abs=1e-4)


@pytest.mark.parametrize("objective", EQUIVALENTS)
def test_slope_is_the_derivative(objective: Objective) -> None:
    x = np.random.default_rng(2).normal(0, 10, 31)
    step = np.eye(len(x)) * 1e-5
    differences = [(objective.value(x + one) - objective.value(x - one)) / 2e-5 for one in step]
    assert objective.slope(x) == pytest.approx(np.array(differences) * len(x), abs=1e-4)
    assert objective.slope(x).mean() == pytest.approx(1.0)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.floats(-20, 20))
def test_a_certain_gain_is_worth_itself(values: list[float], gain: float) -> None:
    x = np.array(values)
    for objective in (*EQUIVALENTS, Quantile(0.3)):
        assert objective.value(x + gain) == pytest.approx(objective.value(x) + gain, abs=1e-6)
        assert objective.value(np.full(3, gain)) == pytest.approx(gain, abs=1e-9)
        assert objective.value(x) <= x.max() + 1e-6


@pytest.mark.parametrize("objective", [*EQUIVALENTS, Quantile(0.3)])
def test_terms_have_the_value_as_their_mean_and_leave_out_what_is_missing(objective: Objective) -> None:
    x = np.random.default_rng(3).normal(0, 10, 200)
    terms = objective.terms(np.append(x, np.nan))
    assert np.isnan(terms[-1])
    assert np.isfinite(terms[:-1]).all()
    assert terms[:-1].mean() == pytest.approx(objective.value(x))
    assert np.isnan(objective.value(np.array([np.nan])))


@pytest.mark.parametrize("objective", [MeanVariance(0.01), CVaR(0.9), Entropic(0.05), Quantile(0.2)])
def test_the_interval_of_the_mean_of_terms_is_that_of_the_value(objective: Objective) -> None:
    """The standard deviation of the value over samples, against that of the terms of one over the root of its size."""
    rng = np.random.default_rng(4)
    values = [objective.value(rng.normal(0, 10, 2000)) for _ in range(400)]
    errors = [objective.terms(rng.normal(0, 10, 2000)).std() / 2000**0.5 for _ in range(20)]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.12)


DONE = np.array([False, True, True, False, False, True])
REWARD = np.array([2.0, -1.0, 4.0, 1.0, 1.0, -6.0])


@pytest.mark.parametrize("objective", [MeanVariance(0.05), Entropic(0.2), CVaR(0.6), Quantile(0.3)])
def test_rewards_add_up_to_the_utility_of_the_episode(objective: Objective) -> None:
    total, first = np.array([1.0, 4.0, -4.0]), [0, 2, 3]
    shaped = np.add.reduceat(objective.rewards(REWARD, DONE), first)
    assert shaped == pytest.approx(objective.utility(total, total) - objective.utility(np.zeros(3), total))


def test_rewards_by_hand() -> None:
    """Totals 1, 4, -4 have the mean 1/3, so u is x - (x - 1/3)² / 10; the running sums are 2, 1; 4; 1, 2, -4."""
    u = {x: x - (x - 1 / 3) ** 2 / 10 for x in (0, 1, 2, 4, -4)}
    wanted = [u[2] - u[0], u[1] - u[2], u[4] - u[0], u[1] - u[0], u[2] - u[1], u[-4] - u[2]]
    assert MeanVariance(0.1).rewards(REWARD, DONE) == pytest.approx(wanted)


def test_the_mean_leaves_rewards_as_they_are() -> None:
    assert Mean().rewards(REWARD, DONE) is REWARD


def test_a_dial_judges_each_setting_by_itself() -> None:
    dial, settings = MeanVariance([0.1, 0.0]), np.array([1, 0, 1])
    assert dial.aversions == (0.0, 0.1)
    shaped = dial.rewards(REWARD, DONE, settings)
    assert shaped[2] == 4.0
    rows, weight = [0, 1, 3, 4, 5], np.sqrt((0.5**2 + 1.5**2) / 2)
    assert shaped[rows] == pytest.approx(MeanVariance(0.1).rewards(REWARD[rows], DONE[rows]) / weight)
    assert dial.slopes(np.array([1.0, 4.0, -4.0]), settings) == pytest.approx([0.5 / weight, 1.0, 1.5 / weight])
    assert dial.place(np.array([0.0, 0.075, 9.0])) == pytest.approx(np.array([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]))


def test_settings_without_sense_are_refused() -> None:
    for make in (
        lambda: MeanVariance(-1.0),
        lambda: MeanVariance([]),
        lambda: MeanVariance([1.0, 1.0]),
        lambda: MeanVariance([1.0]),
        lambda: MeanVariance(float("nan")),
        lambda: Entropic(0.0),
    ):
        with pytest.raises(ConfigError, match="aversion"):
            make()
    for level in (0.0, 1.0):
        with pytest.raises(ConfigError, match="level"):
            CVaR(level)
        with pytest.raises(ConfigError, match="level"):
            Quantile(level)
    with pytest.raises(ConfigError, match="Quantile"):
        Quantile().slope(SAMPLE)
    with pytest.raises(ConfigError, match="several aversions"):
        MeanVariance([0.0, 1.0]).rewards(REWARD, DONE)
