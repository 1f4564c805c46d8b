import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlwb.evaluation import statistics

PAS = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e4, 1e4) | st.just(math.nan))


def test_hand_computed():
    pa = np.array([4.0, -1.0, np.nan, 2.0, -3.0, 0.0])
    assert statistics.mean(pa) == pytest.approx(2 / 5)
    # deviations 3.6, -1.4, 1.6, -3.4, -0.4: squares sum to 29.2
    assert statistics.standard_deviation(pa) == pytest.approx(math.sqrt(29.2 / 4))
    assert statistics.win_rate(pa) == pytest.approx(2 / 5)
    assert statistics.gain_loss_ratio(pa) == pytest.approx(3 / 2)
    assert statistics.count_missing(pa) == 1


def test_a05_missing_pa_is_left_out_never_zero():
    assert statistics.mean(np.array([10.0, np.nan])) == 10.0
    assert statistics.win_rate(np.array([10.0, np.nan, np.inf])) == 1.0
    assert statistics.count_missing(np.array([10.0, np.nan, np.inf])) == 2


def test_rounding_around_zero_is_neither_gain_nor_loss():
    twap = np.array([1e-13, -2e-13, 0.0])
    assert statistics.win_rate(twap) == 0.0
    assert math.isnan(statistics.gain_loss_ratio(twap))


def test_what_cannot_be_computed_is_missing():
    empty, missing = np.array([]), np.array([np.nan])
    for measure in (statistics.mean, statistics.standard_deviation, statistics.win_rate, statistics.gain_loss_ratio):
        assert math.isnan(measure(empty))
        assert math.isnan(measure(missing))
    assert math.isnan(statistics.standard_deviation(np.array([1.0])))
    assert math.isnan(statistics.gain_loss_ratio(np.array([1.0, 2.0])))


def test_f05_plain_and_value_weighted_mean():
    pa, value = np.array([10.0, -1.0]), np.array([100.0, 10_000.0]) * 20.0
    assert statistics.mean(pa) == pytest.approx(4.5)
    assert statistics.value_weighted_mean(pa, value) == pytest.approx(-9000 / 10_100)


def test_value_weighted_mean_leaves_out_what_is_missing_on_either_side():
    pa, value = np.array([1.0, np.nan, 5.0, 7.0]), np.array([2.0, 9.0, np.nan, 0.0])
    assert statistics.value_weighted_mean(pa, value) == 1.0
    assert math.isnan(statistics.value_weighted_mean(np.array([1.0]), np.array([0.0])))


@given(pa=PAS, extra=st.integers(0, 5))
def test_missing_values_change_nothing(pa, extra):
    padded = np.concatenate([pa, np.full(extra, np.nan)])
    for measure in (statistics.mean, statistics.standard_deviation, statistics.win_rate, statistics.gain_loss_ratio):
        assert measure(padded) == pytest.approx(measure(pa), nan_ok=True)


@given(pa=PAS)
def test_turning_the_sign_inverts_the_gain_loss_ratio(pa):
    assert statistics.gain_loss_ratio(pa) * statistics.gain_loss_ratio(-pa) == pytest.approx(1.0) or math.isnan(
        statistics.gain_loss_ratio(pa)
    )


@given(pa=PAS, value=st.floats(1e-3, 1e6))
def test_equal_values_give_the_plain_mean(pa, value):
    weighted = statistics.value_weighted_mean(pa, np.full(len(pa), value))
    assert weighted == pytest.approx(statistics.mean(pa), rel=1e-9, abs=1e-9, nan_ok=True)
