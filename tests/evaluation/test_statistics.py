"""Figures of one table of orders, each in one number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlwb.evaluation import figure_table, statistics
from tests.evaluation.tables import baseline

PAS = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e4, 1e4) | st.just(math.nan))


def figure(name, pa, **columns):
    """Return a figure of one policy's orders, all of one day."""
    table = figure_table({"one": [baseline(pa, "one", **columns)]})
    return float(table.set_index("figure").loc[name, "estimate"])


def test_hand_computed():
    pa = np.array([4.0, -1.0, np.nan, 2.0, -3.0, 0.0])
    assert statistics.mean(pa) == figure("pa", pa) == pytest.approx(2 / 5)
    # deviations 3.6, -1.4, 1.6, -3.4, -0.4: squares sum to 29.2
    assert statistics.standard_deviation(pa) == pytest.approx(math.sqrt(29.2 / 4))
    assert figure("win_rate", pa) == pytest.approx(2 / 5)
    assert figure("glr", pa) == pytest.approx(3 / 2)


def test_a05_missing_pa_is_left_out_never_zero():
    assert statistics.mean(np.array([10.0, np.nan])) == 10.0
    pa = np.array([10.0, np.nan, np.inf])
    assert (figure("pa", pa), figure("win_rate", pa)) == (10.0, 1.0)
    assert figure_table({"one": [baseline(pa, "one")]})["pa_missing"].iloc[0] == 2


def test_rounding_around_zero_is_neither_gain_nor_loss():
    twap = np.array([1e-13, -2e-13, 0.0])
    assert figure("win_rate", twap) == 0.0
    assert math.isnan(figure("glr", twap))


def test_what_cannot_be_computed_is_missing():
    empty, missing = np.array([]), np.array([np.nan])
    for pa in (empty, missing):
        assert math.isnan(statistics.mean(pa))
        assert math.isnan(statistics.standard_deviation(pa))
        for name in ("pa", "win_rate", "glr", "pa_value_weighted"):
            assert math.isnan(figure(name, pa))
    assert math.isnan(statistics.standard_deviation(np.array([1.0])))
    assert math.isnan(figure("glr", np.array([1.0, 2.0])))


def test_f05_plain_and_value_weighted_mean():
    pa, filled = np.array([10.0, -1.0]), np.array([100.0, 10_000.0])
    assert statistics.mean(pa) == pytest.approx(4.5)
    assert figure("pa_value_weighted", pa, filled=filled, twap=20.0) == pytest.approx(-9000 / 10_100)


def test_value_weighted_mean_leaves_out_what_is_missing_on_either_side():
    pa, filled = np.array([1.0, np.nan, 5.0, 7.0]), np.array([2.0, 9.0, np.nan, 0.0])
    assert figure("pa_value_weighted", pa, filled=filled) == 1.0
    assert math.isnan(figure("pa_value_weighted", np.array([1.0]), filled=0.0))


@given(pa=PAS, extra=st.integers(0, 5))
def test_missing_values_change_nothing(pa, extra):
    padded = np.concatenate([pa, np.full(extra, np.nan)])
    for measure in (statistics.mean, statistics.standard_deviation):
        assert measure(padded) == pytest.approx(measure(pa), nan_ok=True)
    for name in ("win_rate", "glr"):
        assert figure(name, padded) == pytest.approx(figure(name, pa), nan_ok=True)


@given(pa=PAS)
def test_turning_the_sign_inverts_the_gain_loss_ratio(pa):
    ratio = figure("glr", pa)
    assert math.isnan(ratio) or ratio * figure("glr", -pa) == pytest.approx(1.0)


@given(pa=PAS, value=st.floats(1e-3, 1e6))
def test_equal_values_give_the_plain_mean(pa, value):
    weighted = figure("pa_value_weighted", pa, filled=value)
    assert weighted == pytest.approx(statistics.mean(pa), rel=1e-9, abs=1e-9, nan_ok=True)
