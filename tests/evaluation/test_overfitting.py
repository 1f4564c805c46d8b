import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, rankdata

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation import expected_shrinkage, mean_of_largest, overfitting_probability
from rlwb.evaluation.dependence import Dependence
from rlwb.evaluation.overfitting import random_choice, rank_correlation, superiority


@pytest.mark.parametrize(
    ("candidates", "chosen", "expected"),
    [(1, 1, 0.0), (2, 1, 1 / math.sqrt(math.pi)), (3, 1, 1.5 / math.sqrt(math.pi)), (10, 1, 1.538753), (5, 5, 0.0)],
)
def test_known_order_statistics(candidates, chosen, expected):
    assert mean_of_largest(candidates, chosen) == pytest.approx(expected, abs=1e-6)


def test_largest_of_many_against_simulation():
    draws = np.sort(np.random.default_rng(0).normal(size=(40_000, 40)), axis=1)
    assert mean_of_largest(40, 10) == pytest.approx(draws[:, -10:].mean(), abs=0.01)


def test_largest_of_very_many_against_burrows_approximation():
    # Burrows (1972): i - (N - k) / (2 k (N + 1) i) with i = phi(z) / (k / N), z the upper k / N point
    intensity = norm.pdf(norm.isf(0.01)) / 0.01
    expected = intensity - 990 / (2 * 10 * 1001 * intensity)
    assert mean_of_largest(1000, 10) == pytest.approx(expected, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(candidates=st.integers(2, 200), data=st.data())
def test_choosing_fewer_of_more_flatters_more(candidates, data):
    chosen = data.draw(st.integers(1, candidates - 1))
    value = mean_of_largest(candidates, chosen)
    assert value > mean_of_largest(candidates, chosen + 1) - 1e-9
    assert value < mean_of_largest(candidates + 1, chosen) + 1e-9


def test_shrinkage_against_simulated_choice():
    # validation = truth + common noise + own noise, all truths equal; correlation = common variance share
    rng = np.random.default_rng(1)
    error, correlation, n, k = 2.0, 0.6, 20, 5
    common = rng.normal(0, error * math.sqrt(correlation), (30_000, 1))
    estimates = common + rng.normal(0, error * math.sqrt(1 - correlation), (30_000, n))
    fall = np.sort(estimates, axis=1)[:, -k:].mean()
    assert expected_shrinkage(error, n, k, correlation=correlation) == pytest.approx(fall, abs=0.04)


def test_shrinkage_scales_and_refuses_nonsense():
    assert expected_shrinkage(3.0, 10, 1) == pytest.approx(3 * 1.538753, abs=1e-5)
    assert expected_shrinkage(0.5, 10, 1) == pytest.approx(0.5 * 1.538753, abs=1e-5)
    assert expected_shrinkage(3.0, 10, 1, correlation=1.0) == expected_shrinkage(0.0, 10, 1) == 0.0
    for bad in ({"standard_error": -1.0}, {"standard_error": math.nan}, {"correlation": 1.5}):
        with pytest.raises(ConfigError, match="cannot be"):
            expected_shrinkage(**({"standard_error": 1.0, "candidates": 3, "chosen": 1} | bad))
    with pytest.raises(ConfigError, match="best 4 of 3"):
        mean_of_largest(3, 4)


def slow_overfitting(day_pa, blocks):
    """Follow the paper's algorithm with loops."""
    parts, logits = np.array_split(day_pa, blocks), []
    for taken in combinations(range(blocks), blocks // 2):
        inside = np.concatenate([parts[i] for i in taken]).mean(axis=0)
        outside = np.concatenate([parts[i] for i in range(blocks) if i not in taken]).mean(axis=0)
        relative = rankdata(outside)[inside.argmax()] / (len(inside) + 1)
        logits.append(math.log(relative / (1 - relative)))
    return logits


def test_equals_the_slow_algorithm():
    day_pa = np.random.default_rng(2).normal(size=(37, 6))
    result = overfitting_probability(day_pa=day_pa, blocks=6)
    expected = slow_overfitting(day_pa, 6)
    assert result.logits == pytest.approx(expected)
    assert result.probability == np.mean(np.array(expected) <= 1e-12)
    assert (result.policies, result.days, result.blocks) == (6, 37, 6)


def test_a_real_winner_carries_over_and_noise_does_not():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(120, 8))
    winner = overfitting_probability(noise + np.array([3.0] + [0.0] * 7))
    assert winner.probability == 0.0
    many = [overfitting_probability(rng.normal(size=(120, 8))).probability for _ in range(60)]
    assert 0.35 < np.mean(many) < 0.65


def test_days_without_every_policy_are_left_out():
    day_pa = np.random.default_rng(4).normal(size=(30, 3))
    day_pa[4, 1] = np.nan
    assert overfitting_probability(day_pa).days == 29


def test_what_cannot_be_split_is_refused():
    with pytest.raises(DataError, match="at least two policies"):
        overfitting_probability(np.zeros((20, 1)))
    with pytest.raises(ConfigError, match="7 blocks"):
        overfitting_probability(np.zeros((20, 2)), blocks=7)
    with pytest.raises(DataError, match="5 days"):
        overfitting_probability(np.zeros((5, 2)))


def test_ties_share_their_ranks():
    # Chosen on the first day: policy 0, which shares the ranks 2 and 3 with policy 1 on the second, so 2.5 of 3.
    # Chosen on the second: policy 0, the first of the two best, which is the best on the first day, so 3 of 3.
    result = overfitting_probability(np.array([[5.0, 1.0, 1.0], [2.0, 2.0, 0.0]]), blocks=2)
    assert sorted(result.logits) == pytest.approx([math.log(2.5 / 1.5), math.log(3.0)], rel=1e-12)
    assert result.probability == 0.0


def test_a_tie_of_all_is_the_middle_and_counts_as_not_carried_over():
    # Chosen on the first day, policy 0 ties with both others on the second: rank 2 of 3, a logit of exactly 0.
    result = overfitting_probability(np.array([[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]]), blocks=2)
    assert sorted(result.logits) == pytest.approx([0.0, math.log(3.0)], abs=1e-15)
    assert result.probability == 0.5
    assert result.degradation == 0.0  # from 5 to 1, and from 1 to 5


def test_a_tie_below_the_middle_counts_too():
    # Policy 0 is chosen on the first day and shares the lowest ranks 1 and 2 of 4 on the second: 1.5 of 4.
    result = overfitting_probability(np.array([[9.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 3.0]]), blocks=2)
    # Chosen on the second: policy 3, with rank 3 of 4 on the first.
    assert sorted(result.logits) == pytest.approx([math.log(1.5 / 3.5), math.log(3 / 2)], rel=1e-12)
    assert result.probability == 0.5
    assert result.degradation == pytest.approx(((9 - 0) + (3 - 2)) / 2)


def test_policies_that_are_the_same_on_every_day_tell_nothing():
    result = overfitting_probability(np.repeat(np.arange(10.0)[:, None], 2, axis=1), blocks=4)
    assert result.logits.tolist() == [0.0] * 6
    assert result.probability == 1.0


def test_the_rank_correlation_shares_ranks_and_leaves_out_what_is_missing():
    assert rank_correlation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    tied = np.array([1.0, 1.0, 2.0, 5.0, np.nan]), np.array([3.0, 4.0, 8.0, 8.0, 1.0])  # ranks 1.5 1.5 3 4, 1 2 3.5 3.5
    assert rank_correlation(*tied) == pytest.approx(np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3.5, 3.5])[0, 1])
    assert np.isnan(rank_correlation(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0, 3.0])))
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))


def test_a_random_choice_is_of_all_ways_to_choose():
    values = np.array([0.0, 1.0, 2.0, 5.0, np.nan])
    means = sorted(np.mean(one) for one in combinations(values[:4], 2))  # 0.5 1 1.5 2.5 3 3.5, each as likely
    mean, low, high = random_choice(values, 2, np.random.default_rng(0), level=0.5, draws=60_000)
    assert mean == 2.0
    assert (low, high) == (means[1], means[4])
    assert random_choice(values, 4, np.random.default_rng(0)) == (2.0, 2.0, 2.0)
    assert np.isnan(random_choice(values, 5, np.random.default_rng(0))).all()


def slow_superiority(excess, dates, rng, resamples):
    """Hansen's consistent p-value by loops over orders, with the standard error of each resample."""
    days = np.unique(dates)
    rows = [np.flatnonzero(dates == day) for day in days]

    def estimate(taken):
        orders = sum(len(rows[day]) for day in taken)
        mean = sum(excess[rows[day]].sum(axis=0) for day in taken) / orders
        residuals = np.array([(excess[rows[day]] - mean).sum(axis=0) for day in taken])
        return mean, np.sqrt((residuals**2).sum(axis=0)) / orders, residuals

    mean, error, residuals = estimate(range(len(days)))
    centre = np.where(mean < -error * np.sqrt(2 * np.log(np.log(len(days)))), 0, mean)
    depend = [Dependence.of(one) for one in residuals.T]
    wider = np.mean([one.widening for one in depend]) / np.sqrt(len(days) / (len(days) - 1))
    block = int(np.median([one.block for one in depend]))
    first = rng.integers(len(days), size=(resamples, -(-len(days) // block)))
    best = []
    for starts in first:
        taken = [(start + step) % len(days) for start in starts for step in range(block)][: len(days)]
        again, its_error, _ = estimate(taken)
        best.append(max(0, *((again - centre) / np.maximum(its_error, error / 2))))
    return [np.mean([one >= t for one in best]) for t in mean / error / wider]


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_superiority_is_its_definition_by_loops(memory):
    rng = np.random.default_rng(3)
    days = np.repeat(np.arange(9), [3, 1, 4, 2, 5, 1, 2, 3, 4])
    shared = np.zeros((9, 1))
    for day in range(1, 9):
        shared[day] = memory * shared[day - 1] + rng.normal()
    excess = rng.normal(size=(25, 3)) + [1.5, 0.5, -9] + 0.9 * (shared - shared.mean())[days]
    dates = days.astype("datetime64[D]")
    found = superiority(excess, dates, np.random.default_rng(1), resamples=400)
    assert found == pytest.approx(slow_superiority(excess, dates, np.random.default_rng(1), 400))
    assert 0 < found[0] < found[1] < found[2] == 1


def test_superiority_pays_for_all_that_were_tried_but_hardly_for_what_is_hopeless():
    rng = np.random.default_rng(0)
    dates = np.repeat(np.arange(40), 5).astype("datetime64[D]")
    noise = rng.normal(size=(200, 30))
    good = noise[:, :1] + 0.2
    alone = superiority(good, dates, np.random.default_rng(1))[0]
    among_equals = superiority(np.hstack([good, noise[:, 1:]]), dates, np.random.default_rng(1))[0]
    among_hopeless = superiority(np.hstack([good, noise[:, 1:] - 9]), dates, np.random.default_rng(1))[0]
    assert among_hopeless == pytest.approx(alone, abs=0.02)
    assert alone < 0.1 < among_equals
    twice = superiority(np.hstack([good, good]), dates, np.random.default_rng(1))
    assert twice.tolist() == [alone, alone]  # the same policy under another name is no further try


def test_a_policy_that_differs_on_a_single_day_hides_no_other():
    """Where that day is not drawn, in a third of resamples, its mean has no error at all."""
    rng, dates = np.random.default_rng(5), np.arange(48).astype("datetime64[D]")
    good, once = 15 + 12 * rng.standard_normal((48, 1)), np.zeros((48, 1))
    once[7] = -0.3
    assert superiority(np.hstack([good, once]), dates, np.random.default_rng(1), resamples=2000)[0] < 0.001


def test_superiority_of_what_trades_like_the_benchmark_is_none():
    dates = np.arange(12).astype("datetime64[D]")
    rounding = np.full((12, 2), 1e-7)
    assert superiority(rounding, dates, np.random.default_rng(0), resamples=100).tolist() == [1, 1]
    sure = np.column_stack([np.ones(12), np.zeros(12)])  # each day the same: nothing is left to luck
    assert superiority(sure, dates, np.random.default_rng(0), resamples=100).tolist() == [0, 1]


def test_superiority_leaves_out_orders_that_a_policy_has_no_figure_for_and_takes_six_days():
    rng = np.random.default_rng(0)
    dates = np.repeat(np.arange(8), 3).astype("datetime64[D]")
    excess = rng.normal(size=(24, 2))
    excess[4, 1] = np.nan
    keep = np.arange(24) != 4
    found = superiority(excess, dates, np.random.default_rng(1), resamples=200)
    assert found.tolist() == superiority(excess[keep], dates[keep], np.random.default_rng(1), resamples=200).tolist()
    assert np.isnan(superiority(excess[:15], dates[:15], np.random.default_rng(1))).all()
    with pytest.raises(DataError, match="shape"):
        superiority(excess, dates[1:], np.random.default_rng(1))


def test_superiority_takes_the_resampled_days_that_it_is_given():
    rng = np.random.default_rng(0)
    excess, dates = rng.normal(size=(10, 2)), np.arange(10).astype("datetime64[D]")
    weights = np.random.default_rng(1).multinomial(10, np.full(10, 0.1), size=300)
    found = superiority(excess, dates, lambda days, block: [weights[:100], weights[100:]] if days == 10 else [])
    assert found.tolist() == superiority(excess, dates, lambda days, block: [weights]).tolist()
