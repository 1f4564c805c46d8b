"""The p-value among all that were tried beside arch's."""

from __future__ import annotations

import numpy as np
import pytest
from arch.bootstrap import SPA

from rlwb.evaluation.overfitting import superiority


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.2])
def test_superiority_is_the_spa_of_arch(shift: float) -> None:
    """arch tells the p-value of the best by unscaled means, so policies are given a deviation of 1."""
    rng = np.random.default_rng(7)
    days, policies = 250, 12
    excess = rng.normal(size=(days, policies)) + rng.normal(size=(days, 1))
    excess = (excess - excess.mean(axis=0)) / excess.std(axis=0) + rng.normal(0, 1 / days**0.5, policies)
    excess[:, 0] += shift
    excess[:, 1] -= 1
    theirs = SPA(np.zeros(days), -excess, block_size=1, reps=6000, studentize=True, seed=1)
    theirs.compute()
    ours = superiority(excess, np.arange(days).astype("datetime64[D]"), np.random.default_rng(2), resamples=10_000)
    assert ours.min() == pytest.approx(theirs.pvalues["consistent"], abs=0.03)
