"""Days that follow one another, against plain loops and hand-computed figures."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from rlwb.evaluation.bootstrap import Draws, draw_weights, fewest_days, how_drawn
from rlwb.evaluation.dependence import Dependence, block_length


def followers(days, rho, seed):
    """A series of which each value is rho of the one before and something new."""
    rng, values = np.random.default_rng(seed), [0.0]
    for _ in range(days + 50):
        values.append(rho * values[-1] + rng.normal())
    return np.array(values[-days:])


def test_days_that_alternate_count_as_independent():
    """The first autocorrelation of 1, -1, 1, … of 8 is -7/8, and with Kendall's correction -7/8 + (1 - 7/2) / 8."""
    found = Dependence.of(np.array([1.0, -1.0] * 4))
    assert found.autocorrelation == pytest.approx(-7 / 8 + (1 - 3.5) / 8)
    assert (found.freedom, found.block) == (7, 1)
    assert found.widening == pytest.approx(math.sqrt(8 / 7))
    none = Dependence.none(8)
    assert (none.freedom, none.widening, none.block) == (found.freedom, pytest.approx(found.widening), 1)
    assert found.errors(0.95) == pytest.approx(math.sqrt(8 / 7) * t.ppf(0.975, 7))


@pytest.mark.parametrize(("days", "rho", "seed"), [(24, 0.6, 2), (37, 0.3, 2), (60, 0.9, 3), (250, 0.5, 4)])
def test_days_that_follow_one_another_are_judged_by_the_slowest_waves(days, rho, seed):
    """The mean square of the series against cosines of half a turn, a turn, …, over what they hold of the variance."""
    values = followers(days, rho, seed)
    found = Dependence.of(values)
    centred = values - values.mean()
    first = sum(centred[i] * centred[i + 1] for i in range(days - 1)) / sum(centred**2)
    assert found.autocorrelation == pytest.approx(first + (1 + 4 * first) / days)
    r = min(found.autocorrelation + 1.2816 / math.sqrt(days), 0.9)
    held = [(1 - r) ** 2 / (1 - 2 * r * math.cos(math.pi * j / days) + r**2) for j in range(1, days)]
    most = max(j for j in range(1, days) if np.mean(held[:j]) >= 0.95) if held[0] >= 0.95 else 0
    assert found.freedom == max(most, int(0.4 * days ** (2 / 3)))
    waves = [
        math.sqrt(2 / days) * sum(centred[i] * math.cos(math.pi * j * (i + 0.5) / days) for i in range(days))
        for j in range(1, found.freedom + 1)
    ]
    variance = np.mean(np.square(waves)) / np.mean(held[: found.freedom])
    around = np.concatenate([centred, centred])
    drawn = np.mean([around[i : i + found.block].sum() ** 2 for i in range(days)]) / found.block
    assert found.widening == pytest.approx(math.sqrt(variance / drawn))
    assert found.block > 1
    single = Dependence.of(values, in_blocks=False)
    assert (single.block, single.freedom) == (1, found.freedom)
    assert single.widening == pytest.approx(math.sqrt(variance / np.mean(centred**2)))


@given(st.integers(6, 60), st.floats(-5, 5), st.floats(0.1, 10), st.integers(0, 999))
def test_neither_shift_nor_scale_matters(days, shift, scale, seed):
    values = followers(days, 0.5, seed)
    plain, moved = Dependence.of(values), Dependence.of(shift + scale * values)
    assert (plain.freedom, plain.block) == (moved.freedom, moved.block)
    assert [plain.autocorrelation, plain.widening] == pytest.approx([moved.autocorrelation, moved.widening], rel=1e-6)


def test_a_constant_series_counts_as_independent():
    for values in (np.zeros(30), np.full(30, 0.1), np.arange(2.0)):
        assert np.isnan(Dependence.of(values).autocorrelation)


def test_longer_dependence_takes_longer_blocks():
    lengths = [np.mean([block_length(followers(250, rho, seed)) for seed in range(20)]) for rho in (0.0, 0.3, 0.6, 0.9)]
    assert lengths == sorted(lengths)
    assert lengths[0] < 4 < 8 < lengths[-1]
    assert max(block_length(followers(24, 0.95, seed)) for seed in range(20)) <= 8, "a third of the days"


@pytest.mark.parametrize(("days", "block"), [(7, 1), (7, 2), (12, 4), (9, 8)])
def test_days_are_drawn_in_circular_blocks(days, block):
    """A resample is its starts, each with the days that follow it, cut to the number of days."""
    (weights,) = draw_weights(days, 200, np.random.default_rng(3), block)
    starts = np.random.default_rng(3).integers(days, size=(200, math.ceil(days / block)))
    for counts, row in zip(weights, starts, strict=True):
        drawn = [(start + i) % days for start in row for i in range(block)][:days]
        assert counts.tolist() == [drawn.count(day) for day in range(days)]


def test_statistics_share_their_draws_by_number_of_days_and_length_of_blocks():
    draws = Draws(300, 5)
    assert draws(10, 2) is draws(10, 2)
    (single,), (pairs,) = draws(10), draws(10, 2)
    assert single.shape == pairs.shape == (300, 10)
    assert (single != pairs).any()


def test_how_days_were_drawn_is_said_with_the_reason():
    assert how_drawn(5, 1, math.nan) is None
    assert "one by one" in str(how_drawn(60, 1, -0.2))
    assert "together" not in str(how_drawn(60, 1, 0.1))
    for days in (fewest_days(0.95), 60):
        told = str(how_drawn(days, 4, 0.35))
        assert f"0.35; {days} days cannot rule out {0.35 + 1.2816 / math.sqrt(days):.2f}" in told
        assert "4 days in sequence" in told
        assert ("too narrow" in told) == (days < 12)
