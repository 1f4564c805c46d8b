"""The simple rule by boosted trees: what is kept of them, mirror images, and fewer of them where there is less."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from rlwb.errors import ConfigError
from rlwb.execution import Engine, ForecastTreesRule, OrderExecution, SplitSettings, generate_orders, split_orders
from rlwb.execution.baselines.forecast_rule import Samples
from rlwb.execution.baselines.forecast_trees import Forest
from rlwb.execution.state import ExecutionState
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from tests.execution.markets import sessions_of
from tests.execution.test_engine import batch_of


def rule(**settings: Any) -> ForecastTreesRule:
    rng = np.random.default_rng(0)
    path = 10 * np.exp(0.01 * rng.normal(size=(20, 6)).cumsum(axis=1))
    return ForecastTreesRule(Engine(sessions_of(path), 2), **settings)  # type: ignore[arg-type]


def samples(cells: int, law: Any, noise: float, rows: int = 3000) -> list[Samples]:
    rng = np.random.default_rng(1)
    made = []
    for cell in range(cells):
        X = rng.normal(size=(rows, 7))
        made.append(Samples(cell, X, law(X, cell) + noise * rng.normal(size=rows), np.arange(rows) * 5 // rows))
    return made


def test_a_forest_predicts_what_the_library_does_but_for_the_constant() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 3))
    y = np.sign(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=500)
    model = HistGradientBoostingRegressor(max_iter=12, max_leaf_nodes=5, early_stopping=False).fit(X, y)
    fresh = rng.normal(size=(400, 3))
    for count, told in enumerate(model.staged_predict(fresh), start=1):
        np.testing.assert_allclose(Forest.of(model, count).predict(fresh), told - y.mean(), atol=1e-12)


def test_it_finds_a_law_that_is_not_linear_and_differs_by_step_and_its_sides_are_mirror_images() -> None:
    def law(X: np.ndarray, cell: int | np.ndarray) -> np.ndarray:
        return np.sign(X[:, 0]) * np.where(np.asarray(cell) == 0, 1.0, -1.0) + np.clip(X[:, 1], -1, 1)

    policy = rule()
    policy.learn(iter(samples(2, law, 0.3)))
    X, cell = np.random.default_rng(3).normal(size=(800, 7)), np.arange(800) % 2
    told = policy.expect(X, cell)
    assert told.shape == (800, 6)
    assert ((told - law(X, cell)[:, None]) ** 2).mean() < 0.15
    np.testing.assert_array_equal(policy.expect(-X, cell), -told)


def test_it_uses_few_trees_where_there_is_nothing_to_learn() -> None:
    counts = []
    for strength in (1.0, 0.0):
        policy = rule(trees=30)
        policy.learn(iter(samples(2, lambda X, cell, weight=strength: weight * X[:, 0], 1.0, 1000)))
        counts.append([len(one.root) for one in policy.forests])
    assert counts[0] == [30] * 6
    assert counts[1][0] < 5
    assert len(set(counts[1])) == 1


def test_estimates_go_through_a_file_and_are_the_same_for_the_same_seed() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=4, days=60))
    simulator = OrderExecution(Engine(sessions, 6))
    parts = {
        name: simulator.align(one) for name, one in split_orders(generate_orders(sessions), SplitSettings()).items()
    }
    made = []
    for _ in range(2):
        policy = ForecastTreesRule(simulator.engine, trees=10, min_samples=50, abstain=True)
        policy.fit(parts["train"])
        made.append(policy)
    kept = json.loads(json.dumps(made[0].state_dict(), allow_nan=False))
    assert made[1].state_dict() == kept
    again = ForecastTreesRule(simulator.engine, abstain=True)
    again.load_state_dict(kept)
    state = ExecutionState.start(simulator.engine, parts["test"])
    while not state.done.all():
        ask = np.where(state.done, 0.0, made[0].act(state.known))
        np.testing.assert_array_equal(np.where(state.done, 0.0, again.act(state.known)), ask)
        state = state.after(*simulator.engine.step(state.orders, state.now, ask))
    np.testing.assert_allclose(state.now.filled, state.orders.amount)


def test_a_market_without_a_later_step_has_no_forecast() -> None:
    policy = rule()
    policy.fit(batch_of([(1, 5.0, 4, 6)], 1))
    known = ExecutionState.start(policy.engine, batch_of([(1, 5.0, 4, 6), (-1, 5.0, 0, 6)], 2)).known
    assert policy.act(known).tolist() == [5.0, 0.0]


def test_training_days_that_are_all_in_one_block_leave_no_forecast_to_those_without_it() -> None:
    policy = rule()
    (one,) = samples(1, lambda X, cell: X[:, 0], 0.1)
    policy.learn(iter([one._replace(block=np.zeros(3000, dtype=np.int64))]))
    told = policy.expect(one.X, np.zeros(3000, dtype=np.int64))
    assert np.isfinite(told).all()
    assert (told[:, 0] != 0).any()
    np.testing.assert_array_equal(told[:, 1], 0.0)
    again = rule()
    again.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    np.testing.assert_array_equal(again.expect(one.X, np.zeros(3000, dtype=np.int64)), told)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"trees": 0}, "trees"),
        ({"leaves": 1}, "leaves"),
        ({"min_samples": 0}, "min_samples"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"blocks": 1}, "blocks"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        rule(**wrong)
