"""No baseline looks ahead: whatever the rest of the day and later days bring, its trades so far are the same bits."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.execution import (
    MPC,
    POV,
    TWAP,
    VWAP,
    AlmgrenChriss,
    BertsimasLo,
    Engine,
    ExecutionRules,
    ForecastRule,
    HindsightOptimum,
    ImpactParameters,
    SignalParameters,
)
from rlwb.execution.state import ExecutionState
from rlwb.market import Sessions
from tests.execution.markets import sessions_of
from tests.execution.test_engine import batch_of

IMPACT = ImpactParameters(("AAA",), (400.0,), (0.05,), (0.02,), (0.01,))


def forecasting(engine: Engine) -> MPC:
    """Return a plan by a forecast that was fitted elsewhere."""
    policy = MPC(engine, impact=IMPACT, risk_aversion=5.0, lags=2, horizon=2, days=2)
    known = [{"ridge": 0.01, "coef": [-0.3, 0.2, -0.5]}] * 2
    policy.load_state_dict({**policy.state_dict(), "forecast": known})
    return policy


def waiting_for(engine: Engine, **settings: Any) -> ForecastRule:
    """Return the rule by a forecast that was fitted elsewhere, with coefficients of every column."""
    policy = ForecastRule(engine, **settings)
    coef = np.random.default_rng(3).normal(size=policy.coef.shape)
    known = {"volatility": {"AAA": 0.5}, "until": [TICKS] * engine.max_step, "thresholds": [0.0, -0.1, 0.1, 0.3]}
    policy.load_state_dict({**known, "coef": coef.tolist()})
    return policy


POLICIES = {
    "twap": TWAP,
    "vwap": partial(VWAP, days=2),
    "pov": POV,
    "pov at a rate": partial(POV, rate=0.1, days=1),
    "capped pov": partial(POV, cap=0.3, days=2),
    "twap without open and close": partial(TWAP, skip_open=1, skip_close=1),
    "almgren_chriss": partial(AlmgrenChriss, impact=IMPACT, risk_aversion=5.0),
    "mpc": forecasting,
    "bertsimas_lo": partial(BertsimasLo, impact=IMPACT, signal=SignalParameters(-0.5, 0.7)),
    "forecast": waiting_for,
    "forecast or even": partial(waiting_for, abstain=True),
    "stale forecast": partial(waiting_for, control="stale"),
    "shuffled forecast": partial(waiting_for, control="shuffled"),
}
#: Those that may ask for nothing as yet.
WAITING = ("capped pov", "twap without open and close", "forecast", "stale forecast", "shuffled forecast")
DAYS, TICKS = 4, 12


def panel(rng: np.random.Generator, missing: np.ndarray) -> Sessions:
    price = np.where(missing, np.nan, rng.uniform(5, 15, size=(DAYS, TICKS)))
    return sessions_of(price, rng.uniform(0, 800, size=(DAYS, TICKS)))  # type: ignore[arg-type]


def other_future(sessions: Sessions, rng: np.random.Generator, day: int, tick: int) -> Sessions:
    """Change every bar of the day from the tick on and all of later days; missing ticks stay where they are."""
    fields = {name: np.array(values) for name, values in sessions.fields.items()}
    for name, values in fields.items():
        factor = rng.uniform(0.3, 3.0, size=values.shape) if name == "volume" else rng.uniform(0.5, 2.0, values.shape)
        factor[:day] = 1.0
        factor[day, :tick] = 1.0
        values *= factor
    return Sessions(sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, fields)


def asked(engine: Engine, policy: object, day: int, until: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return asks and positions of the steps that begin before a tick or at it."""
    orders = [(side, 150.0, a, b) for side in (1, -1) for a, b in ((0, TICKS), (1, 9), (3, TICKS), (5, 7))]
    state, made = ExecutionState.start(engine, batch_of(orders, day)), policy(engine)  # type: ignore[operator]
    asks, positions = [], []
    while (~state.now.done & (state.now.tick <= until)).any():
        ask = np.where(state.now.done, 0.0, made.act(state.known))
        late = state.now.tick > until
        asks.append(np.where(late, 0.0, ask))
        positions.append(np.where(late, 0.0, state.now.position))
        state = state.after(*engine.step(state.orders, state.now, ask))
    return asks, positions


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    day=st.integers(0, DAYS - 1),
    tick=st.integers(0, TICKS - 1),
    ticks_per_step=st.sampled_from([1, 3, 5]),
    cap=st.sampled_from([None, 0.05]),
)
def test_the_future_moves_no_trade(
    name: str, seed: int, day: int, tick: int, ticks_per_step: int, cap: float | None
) -> None:
    rng = np.random.default_rng(seed)
    missing = rng.uniform(size=(DAYS, TICKS)) < 0.15
    sessions = panel(rng, missing)
    changed = other_future(sessions, rng, day, tick)
    policy, rules = POLICIES[name], ExecutionRules(volume_limit=cap)
    one, two = (asked(Engine(each, ticks_per_step, rules), policy, day, tick) for each in (sessions, changed))
    assert len(one[0]) == len(two[0]) > 0
    assert name in WAITING or any((ask > 0).any() for ask in one[0]) or missing[day, : tick + 1].all()
    for before, after in zip(one[0] + one[1], two[0] + two[1], strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_bound_does_look_ahead() -> None:
    """The same change moves the bound, so the change above is one that could be seen."""
    rng = np.random.default_rng(0)
    sessions = panel(rng, np.zeros((DAYS, TICKS), dtype=bool))
    batch = batch_of([(1, 150.0, 0, TICKS)], 1)
    before, after = (
        HindsightOptimum.of(Engine(each, 3), batch).price[0] for each in (sessions, other_future(sessions, rng, 1, 6))
    )
    assert before != after


def test_the_oracle_does_look_ahead_and_says_so() -> None:
    rng = np.random.default_rng(0)
    sessions = panel(rng, np.zeros((DAYS, TICKS), dtype=bool))
    changed = other_future(sessions, rng, 1, 3)
    for control, sees in (("oracle", True), ("none", False), ("stale", False), ("shuffled", False)):
        one, two = (waiting_for(Engine(each, 3), control=control) for each in (sessions, changed))
        told, again = (each.forecast(np.array([1]), np.array([3]))[0] for each in (one, two))
        assert (told != again).all() == sees == one.sees_future


def test_estimates_read_the_named_sessions_alone() -> None:
    """Parameters of the training part do not move with what follows it."""
    rng = np.random.default_rng(1)
    sessions = panel(rng, rng.uniform(size=(DAYS, TICKS)) < 0.1)
    changed, rows = other_future(sessions, rng, 2, 0), np.array([0, 1])
    assert ImpactParameters.fit(Engine(sessions, 3), rows) == ImpactParameters.fit(Engine(changed, 3), rows)
    fits = [SignalParameters.fit(Engine(each, 3), rows) for each in (sessions, changed)]
    assert dataclasses.astuple(fits[0]) == dataclasses.astuple(fits[1])
    for control in ("none", "oracle"):
        rules = [ForecastRule(Engine(each, 3), control) for each in (sessions, changed)]  # type: ignore[arg-type]
        for rule in rules:
            rule.fit(batch_of([(1, 5.0, 0, TICKS), (-1, 5.0, 2, 9)], 1))
        assert rules[0].state_dict() == rules[1].state_dict()
