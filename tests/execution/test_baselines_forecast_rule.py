"""The simple rule: its forecast and thresholds by hand, the law of a known market, controls, and sides as mirrors."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.execution import (
    TWAP,
    Engine,
    ExecutionRules,
    ForecastRule,
    ForecastTreesRule,
    OrderBatch,
    OrderExecution,
    SplitSettings,
    generate_orders,
    split_orders,
)
from rlwb.execution.baselines.forecast import AR, RIDGES, ridge_by_blocks
from rlwb.execution.baselines.forecast_rule import best_threshold
from rlwb.execution.state import ExecutionState
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from tests.execution.markets import order, run, sessions_of
from tests.execution.test_engine import batch_of

NAN = math.nan


def every(engine: Engine, sides: tuple[int, ...] = (1,), days: slice = slice(None)) -> OrderBatch:
    """Return an order of each side for the whole of each session."""
    rows = np.repeat(np.arange(len(engine.sessions))[days], len(sides))
    batch = batch_of([(side, 10.0, 0, engine.price.shape[1]) for side in sides] * (len(rows) // len(sides)), 0)
    return dataclasses.replace(batch, session=rows.astype(np.int32))


def fitted(engine: Engine, **settings: Any) -> ForecastRule:
    policy = ForecastRule(engine, **settings)
    policy.fit(every(engine))
    return policy


def walks(returns: np.ndarray) -> Engine:
    """Return an engine of one-tick steps on days that begin at 10 and have these log returns."""
    path = np.concatenate([np.zeros((len(returns), 1)), np.cumsum(returns, axis=1)], axis=1)
    return Engine(sessions_of(10.0 * np.exp(path)), 1)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-5, 5)), max_size=12))
def test_the_best_threshold_is_that_of_a_search(pairs: list[tuple[int, int]]) -> None:
    advantage, gain = np.array(pairs, dtype=float).reshape(-1, 2).T
    found = best_threshold(advantage, gain)
    searched = [gain[advantage > one].sum() for one in np.arange(-3.5, 4)]
    assert gain[advantage > found].sum() == max(searched, default=0.0)


def test_what_a_forecast_sees() -> None:
    """Today 14, 15 and a missing bar, after 10 to 13: by hand, in units of a volatility of 1 % and two returns."""
    engine = Engine(sessions_of([[10.0, 11.0, 12.0, 13.0], [14.0, 15.0, NAN, 16.0]]), 2)
    policy = ForecastRule(engine)
    policy.volatility = {"AAA": 0.01}
    X, unit = policy.observe(np.array([1, 1, 0]), np.array([3, 0, 4]))
    square = 4 * 0.01**2 + (15 / 14 - 1) ** 2
    np.testing.assert_allclose(unit[:2], [math.sqrt(square / 6), 0.01])
    ahead = [0.0, 15 / 14 - 1, 15 / 14 - 1, 15 / 13 - 1, 15 / 11.5 - 1, 15 / 14.5 - 1]
    np.testing.assert_allclose(X[0] * unit[0], ahead, err_msg="bars 1 and 2 before, first, yesterday's two, mean")
    assert X[1].tolist() == [0.0] * 6, "before the first bar nothing is known"
    np.testing.assert_allclose(X[2, 3:5], 0.0, err_msg="there is no day before")
    np.testing.assert_allclose(X[2] * unit[2], [13 / 12 - 1, 13 / 11 - 1, 0.3, 0.0, 0.0, 13 / 11.5 - 1])


def test_what_waiting_brought() -> None:
    """Of steps of 2 ticks until the fifth: 12 and 13.5 after 10.5; then 13 alone; in the last nothing is left."""
    engine = Engine(sessions_of([[10.0, 11.0, 12.0, NAN, 13.0, 14.0]] * 2), 2)
    policy = ForecastRule(engine)
    policy.until = np.array([5, 5, 0])
    found = policy.waiting(np.array([0, 0, 0, 0]), np.array([0, 1, 2, 4]))
    np.testing.assert_allclose(found, [12.5 / 10.5 - 1, 12.5 / 11 - 1, 13 / 12 - 1, NAN])
    policy.fit(batch_of([(1, 5.0, 0, 6), (1, 5.0, 0, 6), (1, 5.0, 3, 5)], 1))
    assert policy.until.tolist() == [6, 6, 0], "the median end of those that are open, where there is a later step"


def test_ridge_by_blocks_is_the_ridge_that_predicts_left_out_blocks_best() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 8)) * [1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    y, block = X[:, 0] * 0.3 + rng.normal(size=90), np.arange(90) // 30
    errors, coefs = [], []
    for ridge in RIDGES:
        left = []
        for one in (None, 0, 1, 2):
            model = AR(ridge)
            model.fit(X[block != one], y[block != one])
            left.append(model)
        errors.append(sum(((y - left[1 + b].predict(X))[block == b] ** 2).sum() for b in range(3)))
        coefs.append([model.coef for model in left])
    best = int(np.argmin(errors))
    assert 0 < best < len(RIDGES) - 1
    np.testing.assert_allclose(ridge_by_blocks(X, y, block, 3), coefs[best], atol=1e-12)


def test_the_ridge_finds_the_law_of_an_autoregression() -> None:
    """Returns of 0.5 times the last: of the last three of six prices, waiting brings r (1/4 + 3/8) / 2, and r / 4."""
    rng = np.random.default_rng(1)

    def days(count: int) -> np.ndarray:
        shocks, returns = 0.001 * rng.normal(size=(count, 5)), np.zeros((count, 5))
        for at in range(5):
            returns[:, at] = shocks[:, at] + (0.5 * returns[:, at - 1] if at else 0.0)
        return returns

    policy = fitted(walks(days(4000)))
    fresh = days(500)
    other = ForecastRule(walks(fresh))
    other.load_state_dict(policy.state_dict())
    rows = np.arange(500)
    for tick, factor in ((3, (1 / 4 + 3 / 8) / 2), (4, 1 / 4)):
        told, error = other.forecast(rows, np.full(500, tick))
        law = factor * fresh[:, tick - 2] / other.observe(rows, np.full(500, tick))[1]
        assert ((told - law) ** 2).mean() < 0.05 * (law**2).mean()
        assert 0 < np.median(error) < np.abs(law).mean(), "a standard error of a forecast, not of what it forecasts"
    assert (other.forecast(rows, np.zeros(500, dtype=int))[0] == 0.0).all(), "before the first bar nothing is known"


def test_thresholds_by_hand() -> None:
    """An oracle on days of three steps: it waits for what is better later, and never takes the worse of the last two.

    After a price of 10 come 11 and 9, 9 and 11, 12 and 10, 8 and 10. A purchase gains by trading first (waiting brings
    10 %) only on the third day, the sale of it on the fourth; elsewhere the best of the last two is on average better.
    """
    prices = [[10.0, 11.0, 9.0], [10.0, 9.0, 11.0], [10.0, 12.0, 10.0], [10.0, 8.0, 10.0]]
    policy = fitted(Engine(sessions_of(prices), 1), control="oracle", blocks=2)
    for day, expected in enumerate(([9.0, 11.0], [9.0, 11.0])):
        for side, price in zip(("BUY", "SELL"), expected, strict=True):
            _, steps, _ = run(sessions_of(prices), [order(5.0, side, day=day + 1)], 1, policy)
            assert steps["price"].dropna().tolist()[-1] == price
    # With one step left each side goes where waiting costs it; halfway between +-(10 / 12 - 1) is 0 or next to it.
    assert abs(policy.thresholds[1]) < 0.5 * np.abs(policy.forecast(np.arange(4), np.ones(4, dtype=int))[0]).min()


def test_with_two_steps_the_oracle_takes_the_better_one_for_each_side() -> None:
    rng = np.random.default_rng(2)
    engine = Engine(sessions_of(rng.uniform(9, 11, size=(40, 2))), 1)  # type: ignore[arg-type]
    policy, batch = fitted(engine, control="oracle"), every(engine, (1, -1))
    state = ExecutionState.start(engine, batch)
    first = policy.act(state.known) > 0
    better = batch.side * (engine.price[batch.session, 1] - engine.price[batch.session, 0]) > 0
    assert (first == better).all()


def test_sides_are_mirror_images() -> None:
    """What is learnt does not depend on the sides of the training orders, and a sale goes by the negative forecast."""
    rng = np.random.default_rng(3)
    engine = walks(rng.normal(size=(60, 5)) * 0.01)
    buys, sells = ForecastRule(engine), ForecastRule(engine)
    buys.fit(every(engine, (1,)))
    sells.fit(every(engine, (-1,)))
    assert buys.state_dict() == sells.state_dict()
    X, cell = rng.normal(size=(7, buys.coef.shape[2])), rng.integers(0, 6, 7)
    np.testing.assert_array_equal(buys.expect(-X, cell), -buys.expect(X, cell))
    batch = every(engine, (1, -1))
    state = ExecutionState.start(engine, batch)
    for at in range(3):
        told = buys.forecast(batch.session, np.full(len(batch), at))[0]
        asked = buys.act(state.known)
        np.testing.assert_array_equal(asked > 0, batch.side * told > buys.thresholds[5 - at])
        state = state.after(*engine.step(batch, state.now, np.zeros(len(batch))))


def test_controls_stand_in_for_the_forecast() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=30, tick_minutes=30))
    engine, rows = Engine(sessions, 2), np.arange(len(sessions))
    plain = fitted(engine)
    made = {}
    for control in ("stale", "shuffled", "oracle"):
        made[control] = ForecastRule(engine, control)  # type: ignore[arg-type]
        made[control].load_state_dict(plain.state_dict())
    tick = np.full(len(rows), 4)
    told = plain.forecast(rows, tick)[0]
    assert (np.abs(told) > 0).all()
    np.testing.assert_array_equal(made["stale"].forecast(rows, tick)[0], plain.forecast(rows, tick - 2)[0])
    np.testing.assert_array_equal(made["stale"].forecast(rows, tick - 1)[0], plain.forecast(rows, 0 * tick)[0])
    true, error = made["oracle"].forecast(rows, tick)
    np.testing.assert_allclose(true, plain.waiting(rows, tick) / plain.observe(rows, tick)[1])
    assert not error.any()
    shuffled = made["shuffled"].forecast(rows, tick)[0]
    for row in rows:
        first = row // 30 * 30
        earlier = told[max(first, row - 20) : row]
        assert (shuffled[row] == 0.0) if row == first else shuffled[row] in (0.0, *earlier)
    assert (shuffled != 0).mean() > 0.6
    assert (made["shuffled"].forecast(rows, tick)[0] == shuffled).all()
    again = ForecastRule(engine, "shuffled", seed=1)
    again.load_state_dict(plain.state_dict())
    assert (again.forecast(rows, tick)[0] != shuffled).any()


def test_abstention_follows_the_even_schedule_where_the_forecast_is_within_its_error() -> None:
    """Forecasts without a block of 1, 3 and 2, and of 2 by all: the jackknife's error is sqrt(2 / 3 * 2)."""
    engine = walks(np.full((2, 4), 0.01))
    policy = ForecastRule(engine, abstain=True, blocks=3)
    coef = np.zeros(policy.coef.shape)
    policy.volatility = {"AAA": 0.01}
    X = policy.observe(np.array([1]), np.array([3]))[0]
    coef[:, :, 0] = np.array([2.0, 1.0, 3.0, 2.0]) / X[0, 0]
    state = {"volatility": {"AAA": 0.01}, "until": [5] * 5, "thresholds": [0.0, 0.0, 0.0, 0.0, 0.0]}
    policy.load_state_dict({**state, "coef": coef.tolist()})
    told, error = policy.forecast(np.array([1]), np.array([3]))
    np.testing.assert_allclose([told[0], error[0]], [2.0, math.sqrt(4 / 3)])
    batch = batch_of([(1, 6.0, 3, 5), (-1, 6.0, 3, 5)], 1)
    known = ExecutionState.start(engine, batch).known
    assert policy.act(known).tolist() == [6.0, 0.0], "a purchase goes, a sale waits"
    coef[:, :, 0] = np.array([1.0, 1.0, 3.0, 2.0]) / X[0, 0]
    policy.load_state_dict({**state, "coef": coef.tolist()})
    assert policy.act(known).tolist() == [3.0, 3.0], "half of what is left with two ticks to go"
    bold = ForecastRule(engine, blocks=3)
    bold.load_state_dict(policy.state_dict())
    assert bold.act(known).tolist() == [6.0, 0.0]


def test_a_rule_without_any_signal_to_act_on_is_twap_where_it_abstains() -> None:
    sessions = sessions_of([[10.0] * 6] * 4)
    policy = fitted(Engine(sessions, 2), abstain=True)
    found, even = (run(sessions, [order(60.0, day=2)], 2, one)[1]["fill"].tolist() for one in (policy, TWAP))
    assert found == even


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ticks_per_step=st.sampled_from([1, 3, 4]),
    control=st.sampled_from(["none", "shuffled", "stale", "oracle"]),
    abstain=st.booleans(),
    cap=st.sampled_from([None, 0.01]),
    complete=st.booleans(),
)
def test_it_completes_orders_of_any_window_over_gaps_breaks_and_early_closes(
    seed: int, ticks_per_step: int, control: str, abstain: bool, cap: float | None, complete: bool
) -> None:
    rng = np.random.default_rng(seed)
    price = np.where(rng.uniform(size=(5, 12)) < 0.2, NAN, 10 * np.exp(0.01 * rng.normal(size=(5, 12)).cumsum(axis=1)))
    price[1, 8:] = NAN
    sessions = sessions_of(
        price,  # type: ignore[arg-type]
        segments=(("09:30", "09:36"), ("10:00", "10:06")),
        num_ticks=[12, 8, 12, 12, 12],
    )
    engine = Engine(sessions, ticks_per_step, ExecutionRules(volume_limit=cap, complete_at_end=complete))
    policy = ForecastRule(engine, control, abstain, blocks=2)  # type: ignore[arg-type]
    policy.fit(every(engine, (1, -1), slice(0, 4)))
    for day, stop in ((1, 8), (4, 12)):
        windows = [(int(rng.choice([1, -1])), 30.0, a, b) for a, b in ((0, stop), (1, 5), (5, 7), (stop - 1, stop))]
        batch = batch_of(windows, day)
        priced = np.array([np.isfinite(price[day, a:b]).any() for _, _, a, b in windows])
        state = ExecutionState.start(engine, batch)
        while not state.done.all():
            ask = np.where(state.done, 0.0, policy.act(state.known))
            assert ((ask >= 0) & (ask <= state.now.position)).all()
            state = state.after(*engine.step(batch, state.now, ask))
        if cap is None:
            np.testing.assert_allclose(state.now.filled, np.where(priced, 30.0, 0.0))


def test_what_is_open_at_a_flexible_end_follows() -> None:
    """Four minutes and four more; of 120 the fourth fills 20, by the cap, and what is left is asked for after."""
    sessions = sessions_of([[10.0] * 8] * 2, 40.0)
    end, latest = (pd.Timestamp(f"2024-01-02 09:{minute}") for minute in (34, 38))
    flexible = dataclasses.replace(order(120.0, day=2), end=end, latest_end=latest)
    policy = fitted(Engine(sessions, 1))
    filled = run(sessions, [flexible], 1, policy, ExecutionRules(volume_limit=0.5))[1]["fill"].to_numpy()
    np.testing.assert_allclose(filled[3:], 20.0)


def test_estimates_go_through_a_file() -> None:
    rng = np.random.default_rng(5)
    engine = walks(rng.normal(size=(30, 7)) * 0.01)
    policy, again = fitted(engine), ForecastRule(engine)
    state = ExecutionState.start(engine, batch_of([(1, 50.0, 0, 8), (-1, 50.0, 4, 8)], 2))
    with pytest.raises(ConfigError, match="fit"):
        again.act(state.known)
    again.load_state_dict(json.loads(json.dumps(again.state_dict())))
    with pytest.raises(ConfigError, match="fit"):
        again.act(state.known)
    again.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    assert again.state_dict() == policy.state_dict()
    assert again.act(state.known).tolist() == policy.act(state.known).tolist()


def test_a_new_instrument_has_the_typical_volatility() -> None:
    sessions = sessions_of([[10.0, 11.0]] * 3, instruments=["A", "B", "C"])
    policy = ForecastRule(Engine(sessions, 1))
    policy.volatility = {"A": 0.01, "B": 0.03}
    np.testing.assert_allclose(policy.observe(np.arange(3), np.zeros(3, dtype=int))[1], [0.01, 0.03, 0.02])


@pytest.mark.parametrize(("wrong", "named"), [({"control": "orakel"}, "orakel"), ({"blocks": 1}, "blocks")])
def test_impossible_settings_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ForecastRule(Engine(sessions_of([[10.0] * 4]), 1), **wrong)


def test_trees_are_refused_where_their_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.packages.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="sklearn"):
        ForecastTreesRule(Engine(sessions_of([[10.0] * 4]), 1))


def test_it_beats_twap_where_there_is_a_signal_and_nothing_where_there_is_none() -> None:
    """Mean PA on the test orders of a synthetic market, in basis points; that of TWAP is 0."""
    gains: dict[tuple[float, str], float] = {}
    for signal in (1.0, 0.0):
        sessions = synthetic_sessions(SyntheticSettings(instruments=10, days=120, signal=signal))
        simulator = OrderExecution(Engine(sessions, 6))
        parts = split_orders(generate_orders(sessions), SplitSettings())
        train, test = (simulator.align(parts[name]) for name in ("train", "test"))
        for control in ("none", "stale", "shuffled", "oracle"):
            policy = ForecastRule(simulator.engine, control)  # type: ignore[arg-type]
            policy.fit(train)
            state = simulator.start(test, np.zeros(len(test), dtype=np.uint64))
            while not state.done.all():
                state = simulator.step(state, np.where(state.done, 0.0, policy.act(state.known)))
            gains[signal, control] = state.metrics()["pa"].mean()
    assert gains[1.0, "oracle"] > 50 > gains[1.0, "none"] > gains[1.0, "stale"] + 2 > 5
    assert gains[1.0, "none"] > 8
    assert abs(gains[1.0, "shuffled"]) < gains[1.0, "none"]
    assert abs(gains[0.0, "none"]) < 4


def test_it_trades_where_waiting_is_expected_to_cost_more_than_the_threshold_in_basis_points() -> None:
    """By the unit of what is seen; in the last step, where nothing is foreseen, there is no threshold."""
    engine = walks(np.random.default_rng(5).normal(0, 0.01, (40, 4)))
    policy = fitted(engine)
    state = ExecutionState.start(engine, every(engine, (1, -1)))
    while not state.done.all():
        known = state.known
        told, traded = policy.expectation(known), policy.act(known) > 0
        unit = 1e4 * policy.observe(known.session, known.tick)[1]
        np.testing.assert_allclose(told.waiting, known.side * policy.forecast(known.session, known.tick)[0] * unit)
        assert told.waiting is not None
        assert told.threshold is not None
        foreseen = np.isfinite(told.threshold)
        assert foreseen.all() == (not known.is_last_step.all())
        np.testing.assert_array_equal(traded[foreseen], (told.waiting > told.threshold)[foreseen])
        state = state.after(*engine.step(every(engine, (1, -1)), state.now, np.zeros(len(known))))
