"""Drift: the statistics of the training part, the e-value by hand, alarms with and without a change, and the range."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from rlwb.errors import BundleError, DataError
from rlwb.market import FeatureSettings, MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.serving import drift
from rlwb.serving.drift import DriftTest, mixture, training_statistics

NAMES = [f"SYN{number:03d}" for number in range(1, 7)]
TRAINING = 80


@pytest.fixture(scope="module")
def market() -> tuple[Sessions, MarketFeatures, dict]:
    sessions = synthetic_sessions(SyntheticSettings(instruments=6, days=140, tick_minutes=20))
    train = np.flatnonzero(sessions.dates < np.unique(sessions.dates)[TRAINING])
    features = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=train)
    return sessions, features, json.loads(json.dumps(training_statistics(features, sessions, train, clip=20.0)))


def play(test: DriftTest, market: tuple, day: np.datetime64, names: list[str], change=lambda values: values) -> None:  # type: ignore[no-untyped-def]
    sessions, features, _ = market
    values = change(features.rows(sessions.rows(names, [day] * len(names))).astype(float))
    for tick in range(values.shape[1]):
        test.observe(names, day, np.full(len(names), tick), values[:, tick])


def after(market: tuple) -> np.ndarray:
    return np.unique(market[0].dates)[TRAINING:]


def test_the_statistics_of_a_made_panel_are_those_computed_by_hand() -> None:
    """Two instruments on two days: day effects of 1 and -1, an instrument's own level of 2 and -2, nothing else."""
    table = np.array([[3.0, -1.0], [1.0, -3.0]])[:, :, None]
    parts = drift._components(table)
    assert parts["mean"] == [0.0]
    assert parts["rest"] == [0.0]
    assert parts["day"] == [2.0]  # of 1 and -1, over 2 - 1 days
    assert parts["repeat_day"] == [0.0]
    assert parts["instrument"] == [8.0]  # of 2 and -2, over 2 - 1 instruments


def test_what_each_instrument_has_for_itself_is_told_from_what_a_day_has() -> None:
    rng = np.random.default_rng(1)
    day = rng.normal(size=(4000, 1, 1)) * 2.0
    table = day + rng.normal(size=(4000, 5, 1)) * 3.0 + np.array([-1.0, 0.0, 0.0, 0.0, 1.0])[:, None]
    table[rng.random((4000, 5)) < 0.2] = np.nan
    parts = drift._components(table)
    assert parts["day"] == pytest.approx([4.0 + 9.0 / 5 / 0.8], rel=0.1)  # four of five instruments have a session
    assert parts["rest"] == pytest.approx([9.0], rel=0.05)
    assert parts["instrument"] == pytest.approx([0.5], rel=0.2)
    assert np.abs(parts["repeat_day"]) < 0.06


def test_correlated_days_are_seen() -> None:
    rng = np.random.default_rng(2)
    steps = rng.normal(size=3000)
    day = np.zeros(3000)
    for at in range(1, 3000):
        day[at] = 0.7 * day[at - 1] + steps[at]
    parts = drift._components(day[:, None, None])
    assert parts["repeat_day"] == pytest.approx([0.7], abs=0.05)
    assert parts["day"] == pytest.approx([1 / (1 - 0.49)], rel=0.1)
    assert parts["inflation"] == pytest.approx([1.0], abs=0.2)


def test_the_e_value_is_the_ratio_of_two_normal_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three scores with sum 4: joint densities by their covariance matrices, one shift alone."""
    monkeypatch.setattr(drift, "SHIFTS", (0.5,))
    scores, offset = np.array([2.0, 1.5, 0.5]), 0.1

    def density(variance: float) -> float:
        covariance = np.eye(3) + variance
        return math.exp(-scores @ np.linalg.solve(covariance, scores) / 2) / math.sqrt(np.linalg.det(covariance))

    found = mixture(np.array([scores.sum()]), np.array([3]), np.array([offset]))
    assert found[0] == pytest.approx(density(offset + 0.25) / density(offset), rel=1e-12)


def test_the_e_value_is_one_in_the_mean_when_nothing_changed() -> None:
    offset, days = 0.05, 5
    deviation = math.sqrt(days + days**2 * offset)
    total = np.linspace(-32, 32, 20_001) * deviation
    density = np.exp(-(total**2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi))
    values = mixture(total, np.full(total.shape, days), np.full(total.shape, offset))
    assert np.trapezoid(values * density, total) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("names", [NAMES[:1], NAMES], ids=["one instrument", "six"])
def test_a_market_that_goes_on_gives_no_alarm(market: tuple, names: list[str]) -> None:
    test = DriftTest(market[2])
    for day in after(market):
        play(test, market, day, names)
        assert not test.report.alarm
        assert not test.range_alarm
    test.close_day()
    assert test.report.days == len(after(market))
    assert test.report.instruments == len(names)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda values: values + np.eye(5)[4], 4),
        (lambda values: values * np.where(np.arange(5) == 4, 2.0, 1.0), 4),
        (lambda values: values + 1.5, None),
    ],
    ids=["one feature shifted", "one feature wider", "all shifted"],
)
def test_a_change_gives_an_alarm_and_names_the_feature(market: tuple, change, column: int | None) -> None:  # type: ignore[no-untyped-def]
    test = DriftTest(market[2])
    for day in after(market)[:20]:
        play(test, market, day, NAMES, change)
    report = test.close_day()
    assert report is not None
    assert report.alarm
    assert column is None or int(report.by_feature.argmax()) == column
    assert report.columns[4] == "volume"


def test_a_value_far_off_is_seen_within_the_day_and_only_for_its_instrument(market: tuple) -> None:
    test = DriftTest(market[2])
    day = after(market)[0]
    values = np.zeros((2, 5))
    values[1, 2] = 19.0
    test.observe(["SYN001", "SYN002"], day, np.zeros(2, int), values)
    assert not test.out_of_range("SYN001")
    assert test.out_of_range("SYN002")
    assert not test.out_of_range("SYN003")
    assert test.share_out_of_range.tolist() == [0, 0, 0.5, 0, 0]
    assert not test.range_alarm
    values[0, 2] = np.nan
    test.observe(["SYN001", "SYN002"], day, np.ones(2, int), values)
    assert test.out_of_range("SYN001")
    assert test.range_alarm


def test_a_value_cut_to_the_clip_is_out_of_range_even_where_training_had_one(market: tuple) -> None:
    wide = {**market[2], "low": [-20.0] * 5, "high": [20.0] * 5}
    test = DriftTest(wide)
    test.observe(["A"], after(market)[0], np.array([0]), np.full((1, 5), 19.9, dtype=np.float32))
    assert not test.out_of_range("A")
    test.observe(["A"], after(market)[0], np.array([1]), np.full((1, 5), 20.0, dtype=np.float32))
    assert test.out_of_range("A")


def test_each_tick_counts_once_and_an_earlier_day_not_at_all(market: tuple) -> None:
    test, day = DriftTest(market[2]), after(market)[1]
    for _ in range(2):
        test.observe(["A"], day, np.array([3]), np.ones((1, 5)))
    test.observe(["A"], day - 1, np.array([4]), np.ones((1, 5)))
    assert test.values == 1
    test.observe([f"N{number}" for number in range(40)], day, np.zeros(40, int), np.ones((40, 5)))
    assert test.values == 41


def test_a_day_of_which_little_was_seen_is_left_out(market: tuple) -> None:
    test, day = DriftTest(market[2]), after(market)[0]
    test.observe(["A"], day, np.array([0]), np.ones((1, 5)))
    report = test.observe(["A"], day + 1, np.array([0]), np.ones((1, 5)))
    assert report is not None
    assert (report.days, report.instruments, report.left_out) == (0, 0, 1)
    assert np.isnan(report.scores).all()
    assert report.evidence == 1.0


def test_statistics_that_are_damaged_are_refused(market: tuple) -> None:
    with pytest.raises(BundleError, match="profile"):
        DriftTest({name: value for name, value in market[2].items() if name != "profile"})
    with pytest.raises(BundleError, match="reshape"):
        DriftTest({**market[2], "low": [0.0]})


def test_no_training_sessions_are_refused(market: tuple) -> None:
    with pytest.raises(DataError, match="training"):
        training_statistics(market[1], market[0], np.array([], int))


def test_of_one_training_day_nothing_is_tested_but_the_range(market: tuple) -> None:
    sessions, features, _ = market
    one = np.flatnonzero(sessions.dates == sessions.dates[0])
    told = json.loads(json.dumps(training_statistics(features, sessions, one), allow_nan=False))
    test = DriftTest(told)
    for day in after(market)[:3]:
        play(test, market, day, NAMES, lambda values: values + 100.0)
    report = test.close_day()
    assert report is not None
    assert np.isnan(report.scores).all()
    assert report.evidence == 1.0
    assert test.share_out_of_range.tolist() == [1.0] * 5


def test_the_score_of_a_day_by_hand() -> None:
    """100 independent days of one instrument, variance 1, and a day of level 0.5."""
    part = {"mean": 0.0, "day": 1.0, "rest": 0.0, "instrument": 0.0}
    part |= {"repeat_day": 0.0, "repeat_rest": 0.0, "inflation": 1.0}
    told = {
        "columns": ["close"],
        "days": 100,
        "instruments": 1.0,
        "clip": None,
        "profile": [[0.0], [0.0]],
        "low": [-2.0],
        "high": [2.0],
        "statistics": {kind: {name: [value] for name, value in part.items()} for kind in drift.KINDS},
    }
    test = DriftTest(told)
    test.observe(["A", "A"], np.datetime64("2024-01-03"), np.array([0, 1]), np.array([[0.4], [0.6]]))
    report = test.close_day()
    assert report is not None
    repeats = 1.28 * math.sqrt(1 / 100)
    raised = max((1 + repeats) / (1 - repeats), 99 / stats.chi2.ppf(0.1, 99))
    level = stats.norm.ppf(stats.t.cdf(0.5 / math.sqrt(raised), 99))
    spread = stats.norm.ppf(stats.t.cdf(math.log(0.01 + drift.FLOOR**2) / math.sqrt(raised), 99))
    assert report.scores[:, 0] == pytest.approx([level, max(spread, -drift.LARGEST)])
    tails = (stats.t.ppf(0.05 / 310, 99) / stats.norm.ppf(0.05 / 310)) ** 2
    one = mixture(report.scores[:, 0], np.array([1, 1]), np.full(2, tails / 100))
    assert report.evidence == pytest.approx(one.mean())


def test_fewer_instruments_than_in_training_are_expected_to_stray_further(market: tuple) -> None:
    """A whole day off by as much is a lower score for one instrument than for six."""
    scores = []
    for names in (NAMES[:1], NAMES):
        test = DriftTest(market[2])
        play(test, market, after(market)[0], names, lambda values: np.full(values.shape, 0.5))
        report = test.close_day()
        assert report is not None
        scores.append(report.scores[0, :4])
    assert (scores[0] < 0.7 * scores[1]).all()
