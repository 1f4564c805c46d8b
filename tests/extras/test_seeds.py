"""Statistics over seeds beside rliable's and arch's."""

from __future__ import annotations

import arch.bootstrap as arch
import numpy as np
import pytest
import rliable.metrics as rliable
from rliable import library

from rlwb.evaluation.seeds import (
    Days,
    Scores,
    above,
    improvement_probability,
    interquartile_mean,
    profile,
    seed_interval,
)

RNG = np.random.default_rng(5)
X, Y = RNG.normal(3, 2, (10, 1)), RNG.normal(2, 2, (8, 1)).round(1)


@pytest.mark.parametrize("seeds", [1, 3, 5, 8, 10, 25])
def test_the_interquartile_mean_is_rliables(seeds: int) -> None:
    scores = RNG.normal(1, 4, (seeds, 1))
    assert interquartile_mean(scores[:, 0]) == pytest.approx(rliable.aggregate_iqm(scores))


def test_the_probability_of_improvement_is_rliables() -> None:
    tied = np.concatenate([X.round(1), Y[:3]])
    assert improvement_probability(X[:, 0], Y[:, 0]) == pytest.approx(rliable.probability_of_improvement(X, Y))
    assert improvement_probability(tied[:, 0], Y[:, 0]) == pytest.approx(rliable.probability_of_improvement(tied, Y))


@pytest.mark.parametrize("name", ["mean", "iqm"])
def test_seeds_are_resampled_as_arch_and_rliable_do(name: str) -> None:
    """The same spread of resampled aggregates, up to the noise of 20,000 draws."""
    aggregate = {"mean": lambda values: values.mean(axis=-1), "iqm": interquartile_mean}[name]
    ours = aggregate(X[:, 0][Days([], resamples=20_000).picks(10)])
    theirs = arch.IIDBootstrap(X[:, 0], seed=np.random.default_rng(1)).apply(aggregate, 20_000)[:, 0]
    assert ours.std() == pytest.approx(theirs.std(), rel=0.03)
    metric = {"mean": rliable.aggregate_mean, "iqm": rliable.aggregate_iqm}[name]
    _, ends = library.get_interval_estimates({"x": X}, lambda scores: np.array([metric(scores)]), reps=5_000)
    assert np.quantile(ours, [0.025, 0.975]) == pytest.approx(ends["x"][:, 0], abs=0.05 * (ours.max() - ours.min()))


def test_performance_profiles_are_rliables() -> None:
    thresholds = np.linspace(-2, 8, 15)
    theirs, ends = library.create_performance_profile({"x": X}, thresholds, reps=4_000)
    assert [float(above(X[:, 0], one)) for one in thresholds] == pytest.approx(theirs["x"].tolist())
    picks = Days([], resamples=4_000).picks(10)
    drawn = np.stack([above(X[:, 0][picks], one) for one in thresholds], axis=1)
    assert np.quantile(drawn, [0.025, 0.975], axis=0) == pytest.approx(ends["x"], abs=0.1001)  # a step is 0.1


def test_intervals_over_seeds_are_rliables_but_for_the_widening_for_few_seeds() -> None:
    """Percentiles are taken further out, where Student's t puts them: 2.38 standard deviations for ten seeds."""
    values = RNG.normal(0, 1, (10, 1))
    found = seed_interval(
        Scores(values[:, 0], np.tile(values[:, 0], (4_000, 1)), 20), Days([], resamples=4_000).picks(10)
    )
    _, ends = library.get_interval_estimates({"x": values}, lambda x: np.array([rliable.aggregate_mean(x)]), reps=4_000)
    ratio = (found.seeds_hi - found.seeds_lo) / float(np.diff(ends["x"][:, 0])[0])
    assert ratio == pytest.approx(np.sqrt(10 / 9) * 2.262 / 1.96, rel=0.06)


def test_the_share_above_a_threshold_has_the_interval_of_its_seeds() -> None:
    values = X[:, 0]
    found = profile(Scores(values, np.tile(values, (2_000, 1)), 20), Days([], resamples=2_000).picks(10), 3.0)
    _, ends = library.create_performance_profile({"x": X}, [3.0], reps=4_000)
    assert found.seeds_lo <= ends["x"][0, 0] + 0.05
    assert found.seeds_hi >= ends["x"][1, 0] - 0.05
