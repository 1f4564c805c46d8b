"""Statistics over seeds: hand-computed figures, the relation to the bootstrap over days, and coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import mannwhitneyu, trim_mean

from rlwb.errors import DataError
from rlwb.evaluation import day_interval
from rlwb.evaluation.metrics import METRICS, metric_table
from rlwb.evaluation.seeds import (
    Days,
    Scores,
    Trainings,
    improvement,
    improvement_probability,
    improvement_table,
    interquartile_mean,
    profile_table,
    seed_interval,
    seed_table,
    too_few_seeds,
    values_of,
)
from tests.evaluation.tables import baseline, checkpoint

FINITE = st.floats(-100, 100, width=32)


def scores(values, resampled=None, days=20):
    values = np.asarray(values, dtype=float)
    return Scores(values, np.tile(values, (500, 1)) if resampled is None else resampled, days)


def picks(seeds, resamples=500, seed=0):
    return np.random.default_rng(seed).integers(seeds, size=(resamples, seeds))


def trained(*pas, kind="checkpoint", dates=None, **columns):
    """Return trainings of one checkpoint each, with these PAs of their orders."""
    members = [[checkpoint(pa, number, date=dates, **columns)] for number, pa in enumerate(pas, start=1)]
    return Trainings("mine", kind, members, [None] * len(members))


def test_the_interquartile_mean_cuts_a_quarter_rounded_down_at_each_end():
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 80.0])) == 4.5  # of 3, 4, 5 and 6
    assert interquartile_mean(np.arange(10.0)) == 4.5  # of 2 to 7
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # nothing to cut
    assert interquartile_mean(np.array([7.0])) == 7.0


@given(npst.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 23)), elements=FINITE))
def test_the_interquartile_mean_is_scipys_trimmed_mean(values):
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25, axis=1), abs=1e-9)


def test_the_probability_of_improvement_counts_pairs_and_a_tie_half():
    # Of the six pairs 3 > 1, 3 = 3, 3 < 5, and 4 > 1, 4 > 3, 4 < 5: three are better and one a tie.
    assert improvement_probability(np.array([3.0, 4.0]), np.array([1.0, 3.0, 5.0])) == pytest.approx(3.5 / 6)
    assert improvement_probability(np.array([2.0]), np.array([2.0])) == 0.5
    assert improvement_probability(np.array([2.0 + 1e-12]), np.array([2.0])) == 0.5  # rounding is a tie


@given(
    npst.arrays(np.float64, st.integers(1, 9), elements=st.integers(-5, 5).map(float)),
    npst.arrays(np.float64, st.integers(1, 9), elements=st.integers(-5, 5).map(float)),
)
def test_the_probability_of_improvement_is_mann_and_whitneys(x, y):
    u = mannwhitneyu(x, y).statistic
    assert improvement_probability(x, y) == pytest.approx(u / (len(x) * len(y)))
    assert improvement_probability(x, y) + improvement_probability(y, x) == pytest.approx(1.0)


def test_one_training_has_no_interval_over_seeds():
    found = seed_interval(scores([3.0]), picks(1), level=0.95)
    assert found.estimate == 3.0
    assert np.isnan([found.lo, found.hi, found.seeds_lo, found.seeds_hi]).all()
    assert (found.days_lo, found.days_hi) == (3.0, 3.0)
    assert "one seed" in too_few_seeds(1, 0.95)


def test_five_seeds_are_too_few_for_95_percent_and_six_are_enough():
    """The span of five holds the middle in 1 - 2^-4 = 93.75 % of cases, that of six in 96.875 %."""
    assert "93.8 %" in too_few_seeds(5, 0.95)
    assert too_few_seeds(6, 0.95) is None
    for count, is_there in ((5, False), (6, True)):
        found = seed_interval(scores(range(count)), picks(count), level=0.95)
        assert math.isfinite(found.lo) == math.isfinite(found.seeds_lo) == is_there
    assert math.isfinite(seed_interval(scores(range(5)), picks(5), level=0.9).lo)


def test_few_days_have_no_interval_over_days():
    found = seed_interval(scores(range(8), days=5), picks(8))
    assert np.isnan([found.lo, found.hi, found.days_lo, found.days_hi]).all()
    assert math.isfinite(found.seeds_lo)


def test_with_one_seed_that_is_the_interval_over_days_of_the_bootstrap():
    """One training's interval over days is that of `day_interval`, resample by resample."""
    rng = np.random.default_rng(3)
    day = np.repeat(np.arange(15), 4)
    pa = rng.normal(2, 10, 60) + rng.normal(0, 3, 15)[day]
    dates = np.datetime64("2024-03-04") + day.astype("timedelta64[D]")
    one = checkpoint(pa, 1, date=dates)
    days = Days([one], resamples=700, seed=5)
    found = seed_interval(days.scores(Trainings("one", "checkpoint", [[one]], [None]), ["pa"])["pa"], days.picks(1))
    known = day_interval(pa, dates, np.random.default_rng(5), resamples=700)
    assert (found.estimate, found.days_lo, found.days_hi) == pytest.approx((known.estimate, known.lo, known.hi))


def test_days_are_the_same_for_all_seeds():
    """Two trainings that differ by a constant differ by it on every resample."""
    rng = np.random.default_rng(1)
    dates = np.datetime64("2024-03-04") + np.arange(12).astype("timedelta64[D]")
    pa = rng.normal(0, 10, 12)
    members = [[checkpoint(pa, 1, date=dates)], [checkpoint(pa + 3, 2, date=dates)]]
    days = Days([one for both in members for one in both], resamples=200)
    found = days.scores(Trainings("both", "checkpoint", members, [None, None]), ["pa"])["pa"]
    assert found.resampled[:, 1] - found.resampled[:, 0] == pytest.approx(np.full(200, 3.0))


def test_a_training_is_the_mean_of_its_checkpoints_and_one_without_a_figure_is_left_out():
    dates = np.datetime64("2024-03-04") + np.arange(8).astype("timedelta64[D]")
    first = [checkpoint(np.full(8, 1.0), 1, date=dates), checkpoint(np.full(8, 3.0), 2, date=dates)]
    group = Trainings("mine", "checkpoint", [first, [checkpoint(np.full(8, np.nan), 3, date=dates)]], [None, None])
    row = seed_table({"mine": group}, resamples=100).set_index("metric").loc["pa"]
    assert (row["mean"], row["seeds"]) == (2.0, 1)
    assert np.isnan(row["std_seeds"])
    assert values_of(group, "pa").tolist()[0] == 2.0


def test_the_table_by_hand():
    dates = np.datetime64("2024-03-04") + np.arange(8).astype("timedelta64[D]")
    pas = [np.full(8, value) for value in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 80.0)]
    rule = Trainings("TWAP", "baseline", [[baseline(np.zeros(8), date=dates)]], [None])
    table = seed_table({"mine": trained(*pas, dates=dates), "twap": rule}, resamples=400).set_index(["of", "metric"])
    own, other = table.loc["mine", "pa"], table.loc["twap", "pa"]
    assert (own["seeds"], own["days"], own["mean"], own["iqm"]) == (8, 8, 13.5, 4.5)
    assert own["std_seeds"] == pytest.approx(np.std([1, 2, 3, 4, 5, 6, 7, 80], ddof=1))
    assert (own["least"], own["most"]) == (1.0, 80.0)
    assert (own["mean_days_lo"], own["mean_days_hi"]) == pytest.approx((13.5, 13.5))  # every day is the same
    assert own["mean_lo"] < 13.5 < own["mean_hi"]
    assert own["iqm_hi"] < own["mean_hi"]  # which the one of 80 does not move as much
    assert (other["seeds"], other["mean_lo"], other["mean_hi"]) == (1, 0.0, 0.0)
    assert set(table.index.get_level_values("metric")) == set(METRICS)
    # An extreme of these days says nothing of other days.
    assert np.isnan(table.loc[("mine", "worst_day"), ["mean_lo", "mean_seeds_lo", "mean_days_lo"]].astype(float)).all()


def test_each_metric_is_that_of_the_table_of_results():
    rng = np.random.default_rng(4)
    dates = np.repeat(np.datetime64("2024-03-04") + np.arange(10).astype("timedelta64[D]"), 3)
    pas = rng.normal(1, 20, (2, 30))
    columns = {"pa_net": pas[0] - 2, "amount": np.full(30, 5.0), "benchmark": rng.uniform(5, 9, 30)}
    group = trained(*pas, dates=dates, **columns)
    own = seed_table({"mine": group}, resamples=100).set_index("metric")["mean"]
    known = metric_table({"mine": [one for (one,) in group.seeds]}, resamples=100).set_index("metric")["estimate"]
    assert own.to_numpy() == pytest.approx(known.reindex(own.index).to_numpy(), nan_ok=True)


def test_a_group_without_a_training_is_refused():
    with pytest.raises(DataError, match="mine"):
        seed_table({"mine": Trainings("mine", "checkpoint", [], [])})


def test_where_every_training_is_better_the_lower_end_is_that_of_as_many_trials():
    """Clopper and Pearson: 8 of 8 leave 0.025 ** (1 / 8) = 0.63."""
    dates = np.datetime64("2024-03-04") + np.arange(8).astype("timedelta64[D]")
    rule = Trainings("TWAP", "baseline", [[baseline(np.zeros(8), date=dates)]], [None])
    better = trained(*(np.full(8, value) for value in range(1, 9)), dates=dates)
    table = improvement_table({"mine": better, "twap": rule}, resamples=200).set_index("over")
    assert list(table["of"]) == ["mine"]  # a rule is no training
    row = table.loc["twap"]
    assert (row["probability"], row["hi"], row["seeds"], row["over_seeds"]) == (1.0, 1.0, 8, 1)
    assert row["lo"] == row["seeds_lo"] == pytest.approx(0.6306, abs=1e-4)
    worse = trained(*(np.full(8, -value) for value in range(1, 9)), dates=dates)
    row = improvement_table({"mine": worse, "twap": rule}, resamples=200).iloc[0]
    assert (row["probability"], row["lo"]) == (0.0, 0.0)
    assert row["hi"] == pytest.approx(1 - 0.6306, abs=1e-4)


def test_a_performance_profile_is_the_share_of_trainings_above_each_threshold():
    """Of 0 to 7 are above 0, 1.75, 3.5, 5.25 and 7: 7, 6, 4, 2 and none of 8; of all, of nobody else."""
    dates = np.datetime64("2024-03-04") + np.arange(8).astype("timedelta64[D]")
    rule = Trainings("TWAP", "baseline", [[baseline(np.full(8, 99.0), date=dates)]], [None])
    groups = {"mine": trained(*(np.full(8, float(value)) for value in range(8)), dates=dates), "twap": rule}
    table = profile_table(groups, resamples=200, points=5)
    assert table["threshold"].tolist() == [0.0, 1.75, 3.5, 5.25, 7.0]
    assert table["share_above"].tolist() == [7 / 8, 6 / 8, 4 / 8, 2 / 8, 0.0]
    assert set(table["of"]) == {"mine"}
    assert (table["lo"] <= table["share_above"]).all()
    assert (table["share_above"] <= table["hi"]).all()
    assert table.loc[4, "hi"] == table.loc[4, "seeds_hi"] == pytest.approx(1 - 0.6306, abs=1e-4)
    assert table[["days_lo", "days_hi"]].to_numpy() == pytest.approx(table[["share_above"] * 2].to_numpy())


def test_intervals_over_days_are_widened_where_days_follow_one_another():
    """The days' own interval and that of seeds and days; seeds alone are judged on these very days."""
    rng, days = np.random.default_rng(9), 60
    dates = np.datetime64("2024-03-04") + np.arange(days).astype("timedelta64[D]")
    follows = np.convolve(rng.normal(0, 5, days + 5), np.ones(6), "valid")
    shuffled = rng.permutation(follows)
    luck = rng.normal(0, 1, 8)
    rows = [
        seed_table({"mine": trained(*(pa + one for one in luck), dates=dates)}, resamples=300).set_index("metric")
        for pa in (follows, shuffled)
    ]
    parts = ("", "_days", "_seeds")
    width = [{one: row.loc["pa", f"mean{one}_hi"] - row.loc["pa", f"mean{one}_lo"] for one in parts} for row in rows]
    assert width[0]["_days"] > 1.5 * width[1]["_days"]
    assert width[0][""] > 1.5 * width[1][""]
    assert width[0]["_seeds"] == pytest.approx(width[1]["_seeds"])


def test_one_seed_against_a_rule_has_a_probability_but_no_interval_over_seeds():
    dates = np.datetime64("2024-03-04") + np.arange(8).astype("timedelta64[D]")
    one, rule = trained(np.full(8, 2.0), dates=dates), trained(np.full(8, 1.0), kind="baseline", dates=dates)
    row = improvement_table({"mine": one, "rule": rule}, resamples=200).iloc[0]
    assert row["probability"] == 1.0
    assert np.isnan([row["lo"], row["hi"], row["seeds_lo"]]).all()
    assert (row["days_lo"], row["days_hi"]) == (1.0, 1.0)


def test_one_seed_against_many_has_a_probability_but_no_interval_over_seeds():
    pa = np.arange(40.0) % 7 - 3
    many = trained(*(pa + shift for shift in range(10)))
    table = improvement_table({"one": trained(pa + 2.5), "many": many}, resamples=200)
    assert list(table["probability"]) == [0.3, 0.7]  # 2.5 is above 0, 1 and 2
    assert table[["lo", "hi", "seeds_lo", "seeds_hi"]].isna().all(axis=None), "the seed of the one is drawn once"


def test_two_groups_of_trainings_are_drawn_independently():
    days = Days([], resamples=50)
    assert (days.picks(9, 0) != days.picks(9, 1)).any()
    assert (days.picks(9) == days.picks(9, 0)).all()


def test_the_same_seed_gives_the_same_intervals():
    rng = np.random.default_rng(0)
    dates = np.datetime64("2024-03-04") + np.arange(9).astype("timedelta64[D]")
    groups = {"mine": trained(*rng.normal(0, 1, (7, 9)), dates=dates)}
    first, second = (seed_table(groups, resamples=150, seed=3) for _ in range(2))
    assert first.equals(second)
    assert not first.equals(seed_table(groups, resamples=150, seed=4))


def simulated(rng, seeds, days, seed_std, day_std, noise, mean=0.0):
    """Return scores of trainings on days: mean + luck of the seed + luck of the day + what both share."""
    table = mean + rng.normal(0, seed_std, (seeds, 1)) + rng.normal(0, day_std, (1, days))
    table = table + rng.normal(0, noise, (seeds, days))
    weights = rng.multinomial(days, np.full(days, 1 / days), size=400) / days
    return Scores(table.mean(axis=1), weights @ table.T, days)


@pytest.mark.parametrize(
    ("seed_std", "day_std", "noise"), [(1.0, 4.0, 2.0), (2.0, 0.5, 1.0), (0.1, 5.0, 1.0)], ids=["both", "seeds", "days"]
)
def test_intervals_cover_as_often_as_they_say(seed_std, day_std, noise):
    """Of 300 worlds whose truth is known; four standard errors of the count are 5 points."""
    rng = np.random.default_rng(11)
    draws = picks(10, 400)
    covered = {"mean": 0, "iqm": 0}
    for _ in range(300):
        found = simulated(rng, 10, 20, seed_std, day_std, noise)
        for name, aggregate in (("mean", lambda values: values.mean(axis=-1)), ("iqm", interquartile_mean)):
            interval = seed_interval(found, draws, aggregate)
            covered[name] += interval.lo <= 0 <= interval.hi
    assert 0.90 <= covered["mean"] / 300 <= 0.995
    assert 0.89 <= covered["iqm"] / 300 <= 0.995


def test_the_interval_over_both_is_the_widest():
    rng = np.random.default_rng(2)
    found = seed_interval(simulated(rng, 12, 30, 1.0, 4.0, 1.0), picks(12, 400))
    widths = [found.hi - found.lo, found.seeds_hi - found.seeds_lo, found.days_hi - found.days_lo]
    assert widths[0] > max(widths[1:])


def test_improvement_between_equal_kinds_covers_one_half():
    rng = np.random.default_rng(6)
    days = Days([], resamples=400)
    covered = 0
    for _ in range(150):
        both = simulated(rng, 20, 20, 1.0, 3.0, 1.0)
        x = Scores(both.values[:10], both.resampled[:, :10], 20)
        y = Scores(both.values[10:], both.resampled[:, 10:], 20)
        found = improvement(x, y, days)
        covered += found.lo <= 0.5 <= found.hi
    assert covered / 150 >= 0.88
