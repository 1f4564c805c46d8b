import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation import bootstrap, day_interval, metric_difference
from rlwb.evaluation.bootstrap import fewest_days, mean_parts, statistic_interval, too_few_days
from tests.evaluation.tables import baseline, checkpoint, slow_interval
from tests.evaluation.test_dependence import followers


def dates_of(days):
    return np.datetime64("2023-05-04") + np.asarray(days, dtype="timedelta64[D]")


def market(rng, days=30, orders=8, day_effect=5.0):
    day = np.repeat(np.arange(days), orders)
    return rng.normal(0, day_effect, days)[day] + rng.normal(0, 10, len(day)), dates_of(day)


def test_equals_the_slow_bootstrap():
    rng = np.random.default_rng(1)
    days = rng.integers(0, 12, 90)
    pa = rng.normal(2, 10, 90)
    pa[::11] = np.nan
    fast = day_interval(pa, dates_of(days), np.random.default_rng(7), resamples=500)
    known = slow_interval(np.nanmean, [(pa, days)], 7, 500)
    assert (fast.lo, fast.hi, fast.standard_error) == pytest.approx(known, rel=1e-12)
    assert fast.estimate == pytest.approx(np.nanmean(pa))
    assert (fast.orders, fast.missing, fast.days) == (90 - 9, 9, 12)


def test_chunks_do_not_change_the_distribution(monkeypatch):
    pa, dates = market(np.random.default_rng(2))
    whole = day_interval(pa, dates, np.random.default_rng(0), resamples=20_000)
    monkeypatch.setattr(bootstrap, "_CHUNK_ELEMENTS", 1000)
    cut = day_interval(pa, dates, np.random.default_rng(0), resamples=20_000)
    assert (cut.lo, cut.hi) == pytest.approx((whole.lo, whole.hi), abs=0.15)


@pytest.mark.parametrize(
    ("settings", "resamples"), [({}, 10_000), ({"resamples": 100}, 100), ({"resamples": 300_001}, 300_001)]
)
def test_as_many_resamples_are_drawn_as_asked_for_each_of_all_days(settings, resamples):
    # Eight days of two orders that count 1 each: every resample, like the estimate, is a sum of 16.
    seen = []

    def statistic(sums):
        seen.append(sums[:, 0])
        return np.arange(float(len(sums)))

    ones, dates = np.ones((16, 1)), dates_of(np.repeat(range(8), 2))
    found = statistic_interval([ones], [dates], np.random.default_rng(0), statistic, **settings)
    assert found.estimate == 0.0
    drawn = np.concatenate(seen[2:])
    assert len(drawn) == resamples
    assert len(seen) > 3 or resamples < 300_000, "many resamples are drawn in parts"
    assert (drawn == 16.0).all()
    assert seen[0].tolist() == [16.0]
    assert seen[1].tolist() == [14.0] * 8, "each day is left out once"


def test_a_statistic_has_an_interval_from_the_fewest_days_on():
    for days, enough in ((6, True), (5, False)):
        parts, dates = np.arange(float(days))[:, None], dates_of(range(days))
        rng = np.random.default_rng(0)
        found = statistic_interval([parts], [dates], rng, lambda sums: sums[:, 0], resamples=200)
        assert found.estimate == days * (days - 1) / 2
        assert (found.lo < found.estimate < found.hi) if enough else np.isnan([found.lo, found.hi]).all()


def test_the_least_number_of_resamples_is_100():
    pa, dates = np.arange(8.0), dates_of(range(8))
    assert day_interval(pa, dates, np.random.default_rng(0), resamples=100).lo < 3.5
    with pytest.raises(ConfigError, match="99"):
        day_interval(pa, dates, np.random.default_rng(0), resamples=99)


def test_standard_error_of_equal_days_is_that_of_their_means():
    # 4 days, one order each: the bootstrap variance of the mean is the population variance / 4
    pa = np.array([0.0, 2.0, 4.0, 10.0])
    interval = day_interval(pa, dates_of(range(4)), np.random.default_rng(0), resamples=100_000)
    assert interval.standard_error == pytest.approx(math.sqrt(14.0 / 4), rel=0.01)


def test_intervals_cover_the_truth_and_those_that_ignore_days_do_not():
    rng = np.random.default_rng(3)
    hits, naive_hits, rounds = 0, 0, 400
    for _ in range(rounds):
        pa, dates = market(rng, days=15, orders=10, day_effect=6.0)
        interval = day_interval(pa, dates, rng, resamples=600)
        hits += interval.lo <= 0 <= interval.hi
        naive_hits += abs(pa.mean()) <= 1.96 * pa.std(ddof=1) / math.sqrt(len(pa))
    assert 0.92 <= hits / rounds <= 0.98
    assert naive_hits / rounds < 0.85


def test_one_day_gives_no_interval_and_no_order_gives_no_mean():
    one = day_interval(np.array([1.0, 3.0]), dates_of([0, 0]), np.random.default_rng(0))
    assert one.estimate == 2.0
    assert np.isnan([one.lo, one.hi, one.standard_error]).all()
    none = day_interval(np.array([np.nan]), dates_of([0]), np.random.default_rng(0))
    assert math.isnan(none.estimate)
    assert (none.orders, none.missing, none.days) == (0, 1, 0)


@pytest.mark.parametrize(("level", "days"), [(0.5, 2), (0.75, 3), (0.9, 5), (0.95, 6), (0.99, 8)])
def test_too_few_days_for_a_level_give_a_mean_and_an_error_but_no_interval(level, days):
    """Half of all days lie above the truth: all D do, or none does, in 2 * 0.5^D of cases."""
    assert 2 * 0.5**days <= 1 - level < 2 * 0.5 ** (days - 1)
    assert fewest_days(level) == days
    pa = np.arange(days, dtype=np.float64)
    enough = day_interval(pa, dates_of(range(days)), np.random.default_rng(0), level=level, resamples=200)
    assert enough.lo < enough.estimate < enough.hi
    assert too_few_days(days, level) is None
    why = too_few_days(days - 1, level)
    assert why is not None
    assert (f"take at least {days} days of orders" if days > 2 else "One day of orders gives no interval") in why
    few = day_interval(pa[1:], dates_of(range(1, days)), np.random.default_rng(0), level=level, resamples=200)
    assert np.isnan([few.lo, few.hi]).all()
    assert few.estimate == pytest.approx(days / 2)
    assert (few.standard_error > 0) == (days > 2)


def test_fewest_days_are_enough_for_nearly_what_is_promised():
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(400):
        pa, dates = market(rng, days=fewest_days(0.95), orders=10, day_effect=6.0)
        interval = day_interval(pa, dates, rng, resamples=600)
        hits += interval.lo <= 0 <= interval.hi
    assert hits / 400 >= 0.9


def test_average_of_identical_policies_is_the_policy():
    pa, dates = market(np.random.default_rng(4))
    single = day_interval(pa, dates, np.random.default_rng(5), resamples=500)
    triple = statistic_interval([mean_parts(pa)] * 3, [dates] * 3, np.random.default_rng(5), resamples=500)
    assert (triple.estimate, triple.lo, triple.hi) == pytest.approx((single.estimate, single.lo, single.hi))
    assert triple.orders == 3 * single.orders


def test_average_weights_policies_equally_however_many_orders_lack_a_pa():
    first, second = np.array([1.0, 1.0, 1.0, 1.0]), np.array([5.0, np.nan, np.nan, np.nan])
    dates = dates_of([0, 1, 2, 3])
    parts = [mean_parts(first), mean_parts(second)]
    settings = {"level": 0.8, "resamples": 500, "in_sequence": False}
    interval = statistic_interval(parts, [dates, dates], np.random.default_rng(0), **settings)
    assert interval.estimate == 3.0
    assert interval.missing == 3
    assert (interval.lo, interval.hi) == (1.0, 3.0)  # without day 0 only the first policy has a mean


def test_pairing_removes_what_both_share():
    rng = np.random.default_rng(6)
    shared, _ = market(rng, days=20, orders=5)
    first, second = checkpoint(shared + 1.0, days=20), baseline(shared, days=20)
    interval = metric_difference(first, second, "pa", rng, resamples=500)
    assert (interval.estimate, interval.lo, interval.hi) == pytest.approx((1.0, 1.0, 1.0))


def test_pairing_matches_by_order_and_leaves_out_what_either_lacks():
    first = checkpoint([1.0, 2.0, np.nan, 4.0], days=2)
    second = baseline([0.0, np.nan, 0.0, 1.0], days=2)
    second.orders.sort_index(ascending=False, inplace=True)
    interval = metric_difference(first, second, "pa", np.random.default_rng(0), resamples=100)
    assert interval.estimate == pytest.approx((1.0 + 3.0) / 2)
    assert (interval.orders, interval.missing) == (2, 2)
    with pytest.raises(DataError, match="same orders"):
        metric_difference(first, baseline([1.0]), "pa", np.random.default_rng(0))


def test_wrong_settings_are_refused():
    pa, dates = np.array([1.0]), dates_of([0])
    with pytest.raises(ConfigError, match="level of an interval is 95"):
        day_interval(pa, dates, np.random.default_rng(0), level=95)
    with pytest.raises(ConfigError, match="10 resamples"):
        day_interval(pa, dates, np.random.default_rng(0), resamples=10)
    with pytest.raises(DataError, match="one date an order"):
        day_interval(pa, dates_of([0, 1]), np.random.default_rng(0))


def test_days_that_follow_one_another_widen_the_interval_and_the_error():
    """The same days in another sequence have the same mean, and single days of them the same resamples."""
    pa = followers(60, 0.7, 10)
    shuffled = np.random.default_rng(3).permutation(pa)
    intervals = [
        day_interval(one, dates_of(range(60)), np.random.default_rng(0), resamples=500) for one in (pa, shuffled)
    ]
    follows, apart = intervals
    assert follows.estimate == pytest.approx(apart.estimate)
    assert follows.autocorrelation > 0.5 > 0.0 > apart.autocorrelation
    assert (follows.block > 1, apart.block) == (True, 1)
    assert follows.hi - follows.lo > 1.7 * (apart.hi - apart.lo)
    assert follows.standard_error > 1.5 * apart.standard_error
    alone = statistic_interval(
        [mean_parts(pa)], [dates_of(range(60))], np.random.default_rng(0), resamples=500, in_sequence=False
    )
    assert math.isnan(alone.autocorrelation)
    assert alone.hi - alone.lo == pytest.approx(apart.hi - apart.lo, rel=0.1)


def test_without_draws_there_is_the_estimate_alone():
    found = statistic_interval([mean_parts(np.arange(8.0))], [dates_of(range(8))], None)
    assert found.estimate == 3.5
    assert np.isnan([found.lo, found.hi, found.standard_error]).all()


def test_an_interval_ends_at_what_a_statistic_can_be():
    """Of 30 days, of which the last ten miss a share, in blocks: stretched percentiles would pass all of it."""
    share = np.repeat([1.0, 0.9], [20, 10])
    ends = [
        statistic_interval([mean_parts(share)], [dates_of(range(30))], np.random.default_rng(0), resamples=500, **one)
        for one in ({}, {"within": (0.0, 1.0)})
    ]
    assert ends[0].hi > ends[1].hi == 1.0
    assert ends[0].lo == ends[1].lo


def test_percentiles_beyond_two_deviations_are_stretched():
    resampled = np.random.default_rng(1).exponential(1.0, 50_000)
    at_two = [float(np.quantile(resampled, norm.cdf(side * 2))) for side in (-1, 1)]
    assert bootstrap.expanded(resampled, 1.0, 2.0) == pytest.approx(at_two)
    assert bootstrap.expanded(resampled, 1.0, 4.0) == pytest.approx([1 + 2 * (end - 1) for end in at_two])
    assert bootstrap.expanded(resampled, 1.0, 1.5)[1] == pytest.approx(np.quantile(resampled, norm.cdf(1.5)))


@settings(deadline=None, max_examples=60)
@given(
    days=st.lists(st.integers(0, 6), min_size=2, max_size=30),
    shift=st.floats(-100, 100),
    scale=st.floats(0.1, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_intervals_move_and_stretch_with_the_values(days, shift, scale, seed):
    pa = np.random.default_rng(seed).normal(0, 10, len(days))
    plain = day_interval(pa, dates_of(days), np.random.default_rng(seed), resamples=100)
    moved = day_interval(shift + scale * pa, dates_of(days), np.random.default_rng(seed), resamples=100)
    expected = [shift + scale * value for value in (plain.estimate, plain.lo, plain.hi)]
    assert [moved.estimate, moved.lo, moved.hi] == pytest.approx(expected, rel=1e-9, abs=1e-7, nan_ok=True)


def test_too_few_days_are_told_with_what_their_span_would_hold():
    # Five days lie on one side of the truth in 2 of 32 cases.
    assert "93.8 %" in str(too_few_days(5, 0.95))
    assert "50 %" in str(too_few_days(2, 0.95))
    assert too_few_days(6, 0.95) is None
