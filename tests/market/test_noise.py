"""Returns of random sign: what stays, and that nothing can be gained any more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.evaluation import day_interval
from rlwb.execution import (
    AmountActionInterpreter,
    Engine,
    ForecastRule,
    KnownStateInterpreter,
    OrderExecution,
    generate_orders,
    split_orders,
)
from rlwb.market import Calendar, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market.noise import random_signs
from rlwb.trainer import backtest

MARKET = synthetic_sessions(SyntheticSettings(instruments=3, days=6, quotes=True, seed=6))


def returns(sessions: Sessions, name: str = "close") -> np.ndarray:
    """Return each bar's return over the last close before it, float64 of shape (S, T); NaN in an instrument's first."""
    found = []
    for first, stop in zip(sessions.index.first, sessions.index.stop, strict=True):
        close = sessions.fields["close"][first:stop].ravel()
        before = np.concatenate([[math.nan], close[:-1]])
        found.append((sessions.fields[name][first:stop].ravel() / before - 1).reshape(-1, sessions.calendar.num_ticks))
    return np.concatenate(found)


def test_three_bars_by_hand() -> None:
    """From 100 up 10 %, down 5 %, up 20 %, each turned by its sign; highs and lows change places where it is -1."""
    close = np.array([[100.0, 110.0, 104.5, 125.4]])
    fields = {"open": close, "high": close * 1.02, "low": close * 0.97, "close": close, "volume": close}
    clock = Calendar(segments=(("09:30", "09:34"),))
    market = Sessions(clock, np.array(["A"]), np.array(["2024-01-02"], "datetime64[D]"), np.array([4]), fields)
    signs = {seed: 2 * np.random.default_rng([seed, 19724]).integers(0, 2, 4) - 1 for seed in range(20)}
    for seed, sign in signs.items():
        turned = random_signs(market, seed).fields
        wanted = 100 * np.cumprod(1 + sign * np.array([0.0, 0.1, -0.05, 0.2]))
        np.testing.assert_allclose(turned["close"][0], wanted, rtol=1e-12)
        before = np.array([100.0, *wanted[:-1]])
        high = 1 + np.where(
            sign > 0,
            fields["high"][0] / np.array([100.0, *close[0, :-1]]) - 1,
            1 - fields["low"][0] / np.array([100.0, *close[0, :-1]]),
        )
        np.testing.assert_allclose(turned["high"][0], before * high, rtol=1e-12)
        np.testing.assert_array_equal(turned["volume"], close)
    assert len({tuple(sign) for sign in signs.values()}) > 5


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_what_depends_on_no_sign_stays(seed: int) -> None:
    turned = random_signs(MARKET, seed)
    sizes, before = np.abs(returns(turned)), np.abs(returns(MARKET))
    np.testing.assert_allclose(sizes, before, atol=1e-12)
    for name in ("volume",):
        np.testing.assert_array_equal(turned.fields[name], MARKET.fields[name])
    own, other = (np.sign(returns(one)).reshape(3, 6, -1) for one in (turned, MARKET))
    np.testing.assert_array_equal(np.nan_to_num(own[0] * own[1]), np.nan_to_num(other[0] * other[1]))
    bars = turned.fields
    assert (bars["high"] >= np.maximum(bars["open"], bars["close"]) - 1e-9).all()
    assert (bars["low"] <= np.minimum(bars["open"], bars["close"]) + 1e-9).all()
    assert (bars["ask"] > bars["bid"]).all()
    assert (turned.calendar, turned.fingerprint != MARKET.fingerprint) == (MARKET.calendar, True)


def test_missing_bars_stay_missing_and_a_split_is_no_return() -> None:
    close = MARKET.fields["close"].copy()
    close[:, 5] = math.nan
    fields = {"close": close, "volume": MARKET.fields["volume"]}
    gaps = replace(MARKET, fields=fields)
    turned = random_signs(gaps, 1)
    np.testing.assert_array_equal(np.isnan(turned.fields["close"]), np.isnan(close))
    late = MARKET.dates >= MARKET.dates[3]
    split = replace(
        MARKET,
        fields={name: np.where(late[:, None], values / 2, values) for name, values in MARKET.fields.items()},
        factor=np.where(late, 2.0, 1.0),
    )
    plain = random_signs(MARKET, 1).fields["close"]
    np.testing.assert_allclose(
        random_signs(split, 1).fields["close"], np.where(late[:, None], plain / 2, plain), rtol=1e-12
    )


def test_a_date_has_signs_of_its_own_whatever_else_is_there() -> None:
    kept = MARKET.dates >= MARKET.dates[2]
    np.testing.assert_allclose(
        returns(random_signs(MARKET.select(kept), 4))[1:, 1:],
        returns(random_signs(MARKET, 4))[kept][1:, 1:],
        atol=1e-12,
    )


def test_a_bar_that_nearly_doubles_keeps_its_sign() -> None:
    close = np.array([[10.0, 25.0, 24.0]])
    market = Sessions(
        Calendar(segments=(("09:30", "09:33"),)),
        np.array(["A"]),
        np.array(["2024-01-02"], "datetime64[D]"),
        np.array([3]),
        {"close": close, "volume": close},
    )
    for seed in range(8):
        turned = random_signs(market, seed).fields["close"][0]
        assert turned[1] == pytest.approx(25.0)
        assert turned[2] in (pytest.approx(24.0), pytest.approx(26.0))


def test_the_forecast_rule_gains_before_and_no_more_after() -> None:
    """A rule that is fitted to the market gains 10 bp and more; with random signs, 0 over 8 draws of them."""

    def gain(sessions: Sessions) -> tuple[float, float]:
        simulator = OrderExecution(Engine(sessions, 6))
        tables = split_orders(generate_orders(sessions, seed=1))
        train, test = (simulator.align(tables[part]) for part in ("train", "test"))
        rule = ForecastRule(simulator.engine)
        rule.fit(train)
        pa = backtest(simulator, KnownStateInterpreter(), test, AmountActionInterpreter(), rule).metrics["pa"]
        found = day_interval(pa, test.table["date"].to_numpy(), np.random.default_rng(0), resamples=500)
        return found.estimate, found.standard_error

    market = synthetic_sessions(SyntheticSettings(instruments=8, days=60, seed=6))
    estimate, error = gain(market)
    assert estimate > max(6.0, 3 * error)
    twins = np.array([gain(random_signs(market, seed)) for seed in range(8)])
    assert abs(twins[:, 0].mean()) < 2.5 * math.sqrt((twins[:, 1] ** 2).sum()) / len(twins)
