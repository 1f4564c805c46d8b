"""Lengths of blocks, and the variance of a mean of days that follow one another, beside arch's."""

from __future__ import annotations

import arch.bootstrap as arch
import numpy as np
import pytest

from rlwb.evaluation.bootstrap import draw_weights
from rlwb.evaluation.dependence import block_length
from tests.evaluation.test_dependence import followers


@pytest.mark.parametrize("days", [12, 24, 36, 60, 120, 250, 1000])
@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.3, 0.6, 0.9])
def test_the_length_of_blocks_is_archs(days: int, rho: float) -> None:
    for seed in range(10):
        values = followers(days, rho, seed)
        known = arch.optimal_block_length(values)["circular"].iloc[0]
        assert block_length(values) == pytest.approx(known)


def test_blocks_are_drawn_as_arch_draws_them() -> None:
    """The same spread of resampled means, up to the noise of 20,000 draws."""
    values = followers(48, 0.6, 1)
    drawn = np.concatenate([one @ values / 48 for one in draw_weights(48, 20_000, np.random.default_rng(1), 4)])
    theirs = arch.CircularBlockBootstrap(4, values, seed=np.random.default_rng(2)).apply(np.mean, 20_000)
    assert drawn.std() == pytest.approx(theirs.std(), rel=0.03)
    assert np.quantile(drawn, [0.025, 0.5, 0.975]) == pytest.approx(
        np.quantile(theirs, [0.025, 0.5, 0.975]), abs=0.06 * float(theirs.std())
    )
