"""How large an effect a test part can see, checked by simulation and by the noncentral t distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nct
from scipy.stats import t as student

from rlwb.errors import ConfigError
from rlwb.evaluation.power import Patience, days_to_see, detectable, power_of
from tests.execution.markets import order, run, sessions_of


@pytest.mark.parametrize("days", [8, 20, 48, 400])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_an_effect_that_can_be_seen_is_seen_as_often_by_the_noncentral_t(days: int, power: float) -> None:
    effect = detectable(1.0 / math.sqrt(days), days, power=power)
    seen = nct.sf(student.ppf(0.975, days - 1), days - 1, effect * math.sqrt(days))
    assert seen == pytest.approx(power, abs=0.025 if days == 8 else 0.01)


def test_the_power_of_simulated_test_parts_is_what_earlier_days_say() -> None:
    """Orders of a day share a shock of 3 bp and have 8 bp of their own; 20 of them a day."""
    rng = np.random.default_rng(5)

    def drawn(days: int, tests: int = 1) -> np.ndarray:
        return 3 * rng.standard_normal((tests, days, 1)) + 8 * rng.standard_normal((tests, days, 20))

    dates = np.repeat(np.arange(3000), 20).astype("datetime64[D]")
    found = power_of(drawn(3000).ravel(), dates, 30, 600, np.random.default_rng(1), resamples=1000)
    assert found is not None
    assert found.day_deviation == pytest.approx(math.sqrt(9 + 64 / 20), rel=0.05)
    means = drawn(30, 10_000).mean(axis=2) + found.detectable_bp
    lo = means.mean(axis=1) - student.ppf(0.975, 29) * means.std(axis=1, ddof=1) / math.sqrt(30)
    assert (lo > 0).mean() == pytest.approx(0.8, abs=0.04)
    assert (found.days, found.orders, found.measured_days) == (30, 600, 3000)
    assert found.orders_for_1bp == 20 * found.days_for_1bp
    assert f"{found.detectable_bp:.1f} bp" in found.sentence


@given(st.floats(0.05, 300))
def test_the_fewest_days_see_the_effect_and_one_less_does_not(deviation: float) -> None:
    days = days_to_see(1.0, deviation)
    assert detectable(deviation / math.sqrt(days), days) <= 1.0
    if days > 2:
        assert detectable(deviation / math.sqrt(days - 1), days - 1) > 1.0


def test_what_cannot_be_told_is_none_and_not_zero() -> None:
    dates = np.arange(10).astype("datetime64[D]")
    rng = np.random.default_rng(0)
    assert power_of(np.zeros(10), dates, 30, 600, rng, resamples=200) is None, "nothing scatters"
    assert power_of(np.arange(3.0), dates[:3], 30, 600, rng, resamples=200) is None, "too few days"
    assert math.isnan(detectable(1.0, 1))
    with pytest.raises(ConfigError):
        days_to_see(0.0, 1.0)


def test_the_timing_policy_waits_for_a_price_that_is_better_than_so_far() -> None:
    """A buyer first sees one below the mean so far after 9, and pays 8; a seller one above it after 12, and gets 11."""
    sessions = sessions_of([[10.0, 12.0, 11.0, 9.0, 8.0, 13.0], [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]])
    assert run(sessions, [order(6.0)], 1, Patience)[1]["fill"].tolist() == [0, 0, 0, 0, 6, 0][:5]
    assert run(sessions, [order(6.0, "SELL")], 1, Patience)[1]["fill"].tolist() == [0, 0, 6]
    assert run(sessions, [order(6.0, day=2)], 1, Patience)[1]["fill"].tolist() == [0, 0, 0, 0, 0, 6]
