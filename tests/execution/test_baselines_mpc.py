"""Model predictive control: the plan of Almgren and Chriss without a forecast, its forecasts, and what it gains."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.execution import (
    MPC,
    AlmgrenChriss,
    Engine,
    ExecutionRules,
    ImpactParameters,
    OrderExecution,
    SplitSettings,
    generate_orders,
    split_orders,
)
from rlwb.execution.baselines.forecast import AR, PriceForecast
from rlwb.execution.state import ExecutionState
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.parts import Part
from tests.execution.markets import order, run, sessions_of
from tests.execution.test_engine import batch_of

IMPACT = ImpactParameters(("AAA",), (400.0,), (0.01,), (0.05,), (0.02,))
HERE = "tests.execution.test_baselines_mpc"


class Recording:
    """A model that keeps what it was fitted on, and predicts a constant in units of volatility."""

    def __init__(self, constant: float = 0.0) -> None:
        self.constant = constant

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X, y

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full((len(X), 1), self.constant)


class Unkept(Recording):
    """A model whose state no file can hold."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.tree = object()


class Drawing(Recording):
    """A model that draws."""

    def __init__(self, random_state: int | None = None) -> None:
        super().__init__()
        self.random_state = random_state


class NoModel:
    """Not a model."""


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    risk_aversion=st.sampled_from([0.0, 1e-3, 5.0, 300.0, 1e8]),
    ticks_per_step=st.sampled_from([1, 3, 5]),
    rules=st.sampled_from(
        [
            {},
            {"temporary_impact_bps": 30.0, "permanent_impact_bps": 20.0},
            {"temporary_impact_bps": 30.0, "temporary_impact_shape": "square_root"},
            {"permanent_impact_bps": 20.0, "permanent_impact_shape": "square_root"},
        ]
    ),
)
def test_without_a_forecast_it_is_the_trajectory_of_almgren_and_chriss(
    seed: int, risk_aversion: float, ticks_per_step: int, rules: dict[str, Any]
) -> None:
    """Every decision of orders of many sizes and windows, with ticks that have no price; no cap binds."""
    rng = np.random.default_rng(seed)
    price = np.where(rng.uniform(size=(2, 12)) < 0.15, np.nan, rng.uniform(9, 11, size=(2, 12)))
    # A volume limit is forecast, too, so it is off where impact does not ask for one, and here for what is planned.
    engine = Engine(sessions_of(price), ticks_per_step, ExecutionRules(volume_limit=1.0 if rules else None, **rules))  # type: ignore[arg-type]
    windows = [(side, 10.0 ** rng.uniform(0, 2), a, b) for side in (1, -1) for a, b in ((0, 12), (1, 9), (5, 7))]
    state = ExecutionState.start(engine, batch_of(windows, 1))
    known = {"impact_from": "", "risk_aversion": risk_aversion, "forecast": None}
    known["impact"] = {name: list(getattr(IMPACT, name)) for name in IMPACT.__dataclass_fields__}
    theirs, ours = AlmgrenChriss(engine), MPC(engine, forecast=None)
    for one in (theirs, ours):
        one.load_state_dict(known)
    while not state.done.all():
        asked = [np.where(state.done, 0.0, one.act(state.known)) for one in (theirs, ours)]
        np.testing.assert_allclose(asked[0], asked[1], atol=1e-6 * state.orders.amount.max())
        assert (np.abs(asked[0] - asked[1]) <= 1e-6 * state.orders.amount).all()
        state = state.after(*engine.step(state.orders, state.now, asked[0]))


def test_what_a_model_is_fitted_on() -> None:
    """Of two days in steps of 2 ticks, by hand: after 10, 11 and 12, 13 come 14, 15 and a missing tick, 16."""
    prices = [[10.0, 11.0, 12.0, 13.0, 14.0, 15.0, math.nan, 16.0]]
    engine = Engine(sessions_of(prices), 2)
    forecast = PriceForecast(Part(name=f"{HERE}:Recording"), lags=2, horizon=3, seed=0)
    forecast.fit(engine, np.array([0]), np.array([0.01]))
    assert forecast.models is not None
    first, second, third = forecast.models
    last = np.array([11.0, 13.0, 15.0])
    mean = np.array([12.5, 14.5, 16.0])
    np.testing.assert_allclose(first.y, (mean / last - 1) / 0.01)
    np.testing.assert_allclose(second.y, (mean[1:] / last[:2] - 1) / 0.01)
    np.testing.assert_allclose(third.y, [(16.0 / 11.0 - 1) / 0.01])
    expected = [
        [11 / 10 - 1, 0.0, 11 / 10.5 - 1],
        [13 / 12 - 1, 12 / 11 - 1, 13 / 11.5 - 1],
        [15 / 14 - 1, 14 / 13 - 1, 15 / 12.5 - 1],
    ]
    np.testing.assert_allclose(first.X, np.array(expected) / 0.01)
    seen, at = forecast.observe(engine.price, np.array([7]), np.array([1.0]))
    np.testing.assert_allclose(seen, [[0.0, 15 / 14 - 1, 15 / 12.5 - 1]], err_msg="a missing tick has no return")
    assert at.tolist() == [15.0]


def test_ar_is_the_ridge_regression_through_the_origin() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3)) * [1.0, 2.0, 0.5]
    X[:, 2] += X[:, 0]
    y = X @ [-0.4, 0.1, 0.0] + rng.normal(size=5000)
    model = AR(ridge=0.0)
    model.fit(X, y)
    np.testing.assert_allclose(model.coef, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-10)
    ridged = AR(ridge=0.5)
    ridged.fit(X, y)
    more = np.diag(np.sqrt(0.5 * (X**2).sum(axis=0)))
    padded = np.linalg.lstsq(np.vstack([X, more]), np.append(y, [0.0] * 3), rcond=None)[0]
    np.testing.assert_allclose(ridged.coef, padded, atol=1e-10)
    np.testing.assert_allclose(ridged.predict(X), X @ padded, atol=1e-9)
    model.fit(np.zeros((0, 3)), np.zeros(0))
    assert model.predict(X).tolist() == [0.0] * 5000


def planning(engine: Engine, **known: Any) -> MPC:
    """Return a plan that was fitted on the sessions of day 1."""
    policy = MPC(engine, impact=IMPACT, risk_aversion=1.0, **known)
    policy.fit(batch_of([(1, 5.0, 0, 12)], 0))
    return policy


@pytest.mark.parametrize("side", ["BUY", "SELL"])
@pytest.mark.parametrize("constant", [-0.2, 0.2])
def test_a_buy_waits_for_lower_prices_and_a_sell_for_higher(side: str, constant: float) -> None:
    sessions = sessions_of([[10.0] * 12] * 2)
    model = {"name": f"{HERE}:Recording", "constant": constant}
    fills = [
        run(sessions, [order(200.0, side, day=2)], 3, partial(planning, forecast=one))[1]["fill"].tolist()
        for one in (model, None)
    ]
    assert fills[0][0] == fills[1][0], "before the first bar nothing is known"
    better_later = (constant < 0) == (side == "BUY")
    # A constant forecast is of all steps alike: nothing is gained by waiting.
    np.testing.assert_allclose(fills[0], fills[1], atol=1e-6)
    policy = planning(Engine(sessions, 3), forecast=model)
    assert policy.forecast is not None
    assert policy.forecast.models is not None
    for ahead, one in enumerate(policy.forecast.models):
        one.constant = constant * ahead
    found = run(sessions, [order(200.0, side, day=2)], 3, policy)[1]["fill"].tolist()
    assert (found[1] < fills[1][1] - 1.0) if better_later else (found[1] > fills[1][1] + 1.0)


def test_the_plan_keeps_to_the_cap_by_the_forecast_of_volume() -> None:
    """A tenth of 100, 50, 100, 200 as on the day before, and then of twice as much; a risk that would trade at once.

    Of 80 there is room for 45 at first, so that each tick is asked for its share; then for 70 of the 62 that are left.
    """
    sessions = sessions_of([[10.0] * 4] * 2, [[100.0, 50.0, 100.0, 200.0], [200.0, 100.0, 200.0, 400.0]])
    policy = partial(MPC, impact=IMPACT, risk_aversion=1e6, forecast=None)
    _, steps, _ = run(sessions, [order(80.0, day=2)], 1, policy, ExecutionRules(volume_limit=0.1))
    np.testing.assert_allclose(steps["requested"].iloc[:3], [80 * 100 / 450, 10.0, 20.0], atol=1e-2)
    _, steps, _ = run(sessions, [order(40.0, day=2)], 1, policy, ExecutionRules(volume_limit=0.1))
    np.testing.assert_allclose(steps["requested"].iloc[:3], [10.0, 10.0, 20.0], atol=1e-2)


def test_the_plan_keeps_to_the_most_that_an_order_states() -> None:
    """A tenth of 100, 50, 100, 200, of the rules' fifth and the order's tenth; another order has the fifth alone."""
    sessions = sessions_of([[10.0] * 4] * 2, [[100.0, 50.0, 100.0, 200.0]] * 2)
    policy = partial(MPC, impact=IMPACT, risk_aversion=1e6, forecast=None)
    both = [dataclasses.replace(order(40.0, day=2), max_participation=0.1), order(80.0, "SELL", day=2)]
    for limit in (0.2, None):
        rules = ExecutionRules(volume_limit=limit)
        _, steps, _ = run(sessions, both if limit else both[:1], 1, policy, rules)
        asked = [one["requested"].to_numpy() for _, one in steps.groupby("order_id", sort=False)]
        np.testing.assert_allclose(asked[0][:3], [10.0, 5.0, 10.0], atol=1e-2)
        for other in asked[1:]:
            np.testing.assert_allclose(other[:3], [20.0, 10.0, 20.0], atol=1e-2)


def test_estimates_go_through_a_file() -> None:
    rng = np.random.default_rng(0)
    engine = Engine(sessions_of(rng.uniform(9, 11, size=(3, 12))), 3)  # type: ignore[arg-type]
    state = ExecutionState.start(engine, batch_of([(1, 50.0, 0, 12), (-1, 50.0, 4, 12)], 2))
    state = state.after(*engine.step(state.orders, state.now, np.array([5.0, 5.0])))
    policy, again, blind = planning(engine, lags=3), MPC(engine, lags=3), planning(engine, forecast=None)
    assert (policy.act(state.known) != blind.act(state.known)).all()
    with pytest.raises(ConfigError, match="fit"):
        again.act(state.known)
    again.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    assert again.act(state.known).tolist() == policy.act(state.known).tolist()
    unkept = planning(engine, forecast=f"{HERE}:Unkept")
    assert unkept.act(state.known).shape == (2,)
    again = MPC(engine, forecast=f"{HERE}:Unkept")
    again.load_state_dict(json.loads(json.dumps(unkept.state_dict())))
    with pytest.raises(ConfigError, match="Unkept"):
        again.act(state.known)


def test_models_that_draw_get_the_seed_and_what_predicts_no_number_is_refused() -> None:
    engine = Engine(sessions_of([[10.0, 10.1, 9.9, 10.0] * 3] * 2), 3)
    policy = planning(engine, forecast=f"{HERE}:Drawing", seed=7)
    assert policy.forecast is not None
    assert policy.forecast.models is not None
    assert policy.forecast.models[0].random_state == 7  # type: ignore[attr-defined]
    state = ExecutionState.start(engine, batch_of([(1, 50.0, 3, 12)], 1))
    bad = planning(engine, forecast={"name": f"{HERE}:Recording", "constant": math.inf})
    with pytest.raises(ConfigError, match="Recording"):
        bad.act(state.known)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"forecast": "arr"}, "ar"),
        ({"forecast": f"{HERE}:NoModel"}, "NoModel"),
        ({"forecast": {"name": "ar", "ridge": -1.0}}, "ridge"),
        ({"forecast": {"name": "ar", "rigde": 1.0}}, "rigde"),
        ({"lags": 0}, "lags"),
        ({"horizon": 0}, "horizon"),
        ({"days": 0}, "days"),
        ({"risk_aversion": -1.0}, "risk aversion"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        MPC(Engine(sessions_of([[10.0] * 4]), 1), **wrong)


def test_the_forecast_beats_twap_where_there_is_a_signal_and_nothing_where_there_is_none() -> None:
    """Mean PA on the test orders of a synthetic market, in basis points; that of TWAP is 0."""
    gains = []
    for signal in (1.0, 0.0):
        sessions = synthetic_sessions(SyntheticSettings(instruments=10, days=120, signal=signal))
        simulator = OrderExecution(Engine(sessions, 6))
        parts = split_orders(generate_orders(sessions), SplitSettings())
        test = simulator.align(parts["test"])
        policy = MPC(simulator.engine, risk_aversion=0.0)
        policy.fit(simulator.align(parts["train"]))
        state = simulator.start(test, np.zeros(len(test), dtype=np.uint64))
        while not state.done.all():
            state = simulator.step(state, np.where(state.done, 0.0, policy.act(state.known)))
        gains.append(state.metrics()["pa"].mean())
    assert gains[0] > 3.0
    assert abs(gains[1]) < 3.0
