"""The decisions that orders can come to, beside all sequences of actions executed one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import (
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    DecisionTree,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderExecution,
    PAPenaltyReward,
    RandomLiquidity,
    SparseReward,
    align_orders,
    decision_tree,
)
from rlwb.execution import decision_tree as function
from rlwb.reward import Reward, sum_parts
from rlwb.simulator import EpisodeSimulator
from tests.execution.markets import order, sessions_of
from tests.trainer.small import ACTIONS, small

REWARD = PAPenaltyReward(penalty=30.0, scale=0.5, inventory=4.0)
IMPACT = {"volume_limit": 1.0, "temporary_impact_bps": 300.0}
RULES: dict[str, dict[str, Any]] = {
    "simple": {},
    "costs": {**IMPACT, "commission_bps": 2.0, "sell_tax_bps": 5.0},
    "capped": {"volume_limit": 0.05},
    "open": {"volume_limit": 0.02, "complete_at_end": False},
    "lots": {"lot_size": 1000.0},
    "capped lots": {"lot_size": 1000.0, "volume_limit": 0.05},
    "fee": {"commission_bps": 2.0, "min_fee": 1.0},
    "permanent": {**IMPACT, "permanent_impact_bps": 200.0},
    "transient": {"volume_limit": 1.0, "transient_impact_bps": 400.0, "transient_half_life": 2.0},
}


def tree_of(rules: dict[str, Any], reward: Reward[Any] = REWARD, **own: Any) -> tuple[DecisionTree, dict[str, Any]]:
    """Return the decisions of a few orders of 1 to 4 steps, and what they were made of."""
    market = small()
    engine = Engine(market.simulator.engine.sessions, 4, ExecutionRules(**rules))
    orders = align_orders(market.orders.table[:6], engine.sessions, engine.rules)
    parts = {
        "simulator": own.pop("simulator", OrderExecution)(engine),
        "state_interpreter": market.observer,
        "action_interpreter": market.chooser,
        "reward": reward,
        "orders": orders,
        "seeds": np.arange(len(orders), dtype=np.uint64),
    }
    return decision_tree(**parts, **own), parts


def chances(obs: Any, *, by_path: bool = False) -> np.ndarray:
    """The chances of the actions of some policy, by step and position, and by the whole path if asked for."""
    left = obs["position"] / obs["target"]
    path = (obs["position_history"] / obs["target"][:, None]) @ np.arange(1.0, 5.0) if by_path else 0.0
    odds = np.sin(3.0 * left + obs["cur_step"] + path)[:, None] * np.arange(ACTIONS) / 2
    return np.asarray(np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True), dtype=np.float64)


def by_enumeration(parts: dict[str, Any], *, by_path: bool) -> tuple[np.ndarray, float]:
    """Return what the orders earn on average, of shape (N,), and their mean number of steps, by all sequences."""
    simulator, orders = parts["simulator"], parts["orders"]
    every = np.array(list(itertools.product(range(ACTIONS), repeat=4)))
    rows = np.repeat(np.arange(len(orders)), len(every))
    state = simulator.start(orders[rows], parts["seeds"][rows])
    chance, earned, length = np.ones(len(state)), np.zeros(len(state)), np.zeros(len(state))
    for step in range(4):
        action, alive = np.tile(every[:, step], len(orders)), ~state.done
        found = chances(parts["state_interpreter"].refer(state.known), by_path=by_path)
        # Of sequences that go on alike after the order's end, all count in equal parts.
        chance *= np.where(alive, found[np.arange(len(state)), action], 1.0 / ACTIONS)
        length += alive
        asked = parts["action_interpreter"].interpret(state.known, action)
        state = simulator.step(state, np.where(alive, asked, 0.0))
        earned += np.where(alive, sum_parts(parts["reward"].parts(state.outcome)), 0.0)
    by_order = (chance * earned).reshape(len(orders), -1).sum(axis=1)
    return by_order, float((chance * length).sum() / len(orders))


@pytest.mark.parametrize("by_path", [False, True], ids=["position", "path"])
@pytest.mark.parametrize("rules", RULES)
def test_values_are_those_of_all_sequences_of_actions(rules: str, by_path: bool) -> None:
    tree, parts = tree_of(RULES[rules], by_path=by_path)
    chance = chances(tree.obs, by_path=by_path)
    value, action_value = tree.worth(chance)
    expected, length = by_enumeration(parts, by_path=by_path)
    assert value[: len(expected)] == pytest.approx(expected, abs=1e-6)
    assert value == pytest.approx((chance * action_value).sum(axis=1))
    assert tree.reached(chance).sum() / len(expected) == pytest.approx(length)


@pytest.mark.parametrize(
    "own", [{"reward": SparseReward()}, {"simulator": RandomLiquidity}], ids=["sparse", "random liquidity"]
)
def test_what_may_remember_is_followed_by_its_path(own: dict[str, Any]) -> None:
    tree, parts = tree_of({}, **own)
    expected, _ = by_enumeration(parts, by_path=False)
    assert tree.worth(chances(tree.obs))[0][: len(expected)] == pytest.approx(expected, abs=1e-6)
    assert len(tree) == len(tree_of({}, by_path=True)[0]) or "simulator" in own


def test_two_steps_by_hand() -> None:
    """A buy at 99, then at 101, against their mean: 100 bp better, then 100 bp worse."""
    sessions = sessions_of([[99.0, 101.0]])
    simulator = OrderExecution(Engine(sessions, 1))
    tree = decision_tree(
        simulator,
        CurrentStepStateInterpreter(2),
        CategoricalActionInterpreter(2),
        PAPenaltyReward(penalty=0.0),
        simulator.align([order(100, "BUY")]),
        np.zeros(1, dtype=np.uint64),
    )
    assert tree.obs["position"].tolist() == [100.0, 50.0, 100.0]
    assert tree.steps == [slice(0, 1), slice(1, 3)]
    assert tree.following.tolist() == [[2, 1, 3], [3, 3, 3], [3, 3, 3]]
    assert tree.reward == pytest.approx(np.array([[0.0, 50.0, 100.0], [-50.0] * 3, [-100.0] * 3]))
    chance = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [1.0, 0.0, 0.0]])
    value, action_value = tree.worth(chance)
    assert action_value[0] == pytest.approx([-100.0, 0.0, 100.0])
    assert value == pytest.approx([-25.0, -50.0, -100.0])
    assert tree.reached(chance) == pytest.approx([1.0, 0.25, 0.5])


def test_positions_of_a_step_are_one_decision_each() -> None:
    """Of 4 steps and quarters: 1, then 1 to 4 quarters left; by path, all ways to leave any, of 1, 2, 3 and 4 steps."""
    orders = {tuple(tree.cuts[1:] - tree.cuts[:-1]) for tree in map(_tree_of_four_steps, [False, True])}
    assert orders == {(1, 4, 4, 4), (1, 4, 10, 20)}


def _tree_of_four_steps(by_path: bool) -> DecisionTree:
    sessions = sessions_of([[10.0, 10.2, 9.9, 10.4]])
    simulator = OrderExecution(Engine(sessions, 1))
    seen, acts = CurrentStepStateInterpreter(4), CategoricalActionInterpreter(4)
    orders, seeds = simulator.align([order(300, "SELL")]), np.zeros(1, dtype=np.uint64)
    return decision_tree(simulator, seen, acts, REWARD, orders, seeds, by_path=by_path)


def test_what_cannot_be_done_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="EpisodeSimulator"):
        tree_of({}, simulator=EpisodeSimulator)
    monkeypatch.setitem(function.__globals__, "MOST", 20)
    tree_of({})
    wrong: dict[str, dict[str, Any]] = {
        "min_fee": {"rules": {"min_fee": 1.0}},
        "network": {"rules": {}, "by_path": True},
        "SparseReward": {"rules": {}, "reward": SparseReward()},
    }
    for match, own in wrong.items():
        with pytest.raises(ConfigError, match=match):
            tree_of(**own)


def test_an_observer_of_ones_own_is_followed_by_its_path() -> None:
    class Own(FullHistoryStateInterpreter):
        pass

    parts = tree_of({})[1]
    own = Own(small().features, small().simulator.engine.max_step)
    assert len(decision_tree(**{**parts, "state_interpreter": own})) == len(tree_of({}, by_path=True)[0])
