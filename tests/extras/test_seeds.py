"""Statistics over seeds beside rliable's and arch's."""

from __future__ import annotations

import arch.bootstrap as arch
import numpy as np
import pytest
import rliable.metrics as rliable
from rliable import library

from rlwb.evaluation.seeds import Days, improvement_probability, interquartile_mean

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
