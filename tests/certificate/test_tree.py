"""The tree's law by hand, its optimum by other ways, and nobody beats it in the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.certificate import TreeSettings, tree_market, tree_paths
from rlwb.certificate.market import CertifiedMarket, Solution
from rlwb.certificate.tree import tree_caps
from rlwb.env import NativeVectorEnv
from rlwb.errors import ConfigError
from rlwb.execution import TWAP, AmountActionInterpreter, ExecutionState, Known, KnownStateInterpreter
from rlwb.trainer import collect
from tests.certificate.reference import (
    best_by_enumeration,
    best_by_linear_program,
    best_of_any_amounts,
    best_with_caps,
)

SIDES = (1, -1)


def as_paths(shape: TreeSettings) -> dict[tuple[float, ...], float]:
    _, price, probability = tree_paths(shape)
    return {tuple(row): float(p) for row, p in zip(price.tolist(), probability, strict=True)}


def by_side(market: CertifiedMarket, rule: Solution) -> dict[int, float]:
    """Return the exact mean reward of each side, played by the engine."""
    orders = market.orders
    parts = {"state_interpreter": KnownStateInterpreter(), "action_interpreter": AmountActionInterpreter()}
    with NativeVectorEnv(market.simulator, orders, **parts, reward=market.reward) as env:
        returns = collect(env, rule).returns
    weight = market.probability[orders.session]
    return {side: float((weight * returns)[orders.side == side].sum()) for side in SIDES}


class Table(Solution):
    """Trades what a table says for each (tick, path up to it, lots left)."""

    def __init__(self, shape: TreeSettings, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.shape = shape
        size = (2, shape.ticks, shape.paths, shape.lots + 1)
        self.drawn = rng.integers(0, np.arange(shape.lots + 1) + 1, size=size)

    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        below = self.shape.moves ** (self.shape.ticks - np.maximum(obs.tick, 1))
        return self.drawn[(obs.side < 0).astype(int), obs.tick, obs.session // below, left]


def test_the_law_by_hand() -> None:
    """Two moves of 100 bp, two ticks of which can move; half a distance of one move is a quarter of a tilt."""
    shape = TreeSettings(moves=2, ticks=3, strength=0.5, move_bp=100, fair=False)
    taken, price, probability = tree_paths(shape)
    assert taken.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    np.testing.assert_allclose(price, [[100, 99, 98], [100, 99, 100], [100, 101, 100], [100, 101, 102]], rtol=1e-15)
    # After a fall the pull is +0.5, so up has (1 + 0.5 * 0.5) / 2.
    np.testing.assert_allclose(probability, [0.1875, 0.3125, 0.3125, 0.1875], rtol=1e-15)
    momentum = tree_paths(TreeSettings(moves=2, ticks=3, signal="momentum", strength=0.5, move_bp=100, fair=False))[2]
    np.testing.assert_allclose(momentum, [0.375, 0.125, 0.125, 0.375], rtol=1e-15)
    # TWAPs are 99, 99 2/3, 100 1/3, 101.
    weighted = np.array([0.1875 * 297, 0.3125 * 299, 0.3125 * 301, 0.1875 * 303])
    fair = tree_paths(TreeSettings(moves=2, ticks=3, strength=0.5, move_bp=100))[2]
    np.testing.assert_allclose(fair, weighted / 300, rtol=1e-14)


def test_the_pull_is_cut_beyond_two_moves() -> None:
    probability = tree_paths(TreeSettings(moves=2, ticks=5, strength=0.5, fair=False))[2]
    # Down four times: 1/2, then a pull of 1/2, then 1, then still 1.
    assert probability[0] == pytest.approx(0.5 * 0.375 * 0.25 * 0.25, rel=1e-15)


@pytest.mark.parametrize("signal", ["reversion", "momentum"])
@pytest.mark.parametrize("strength", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("fair", [True, False])
def test_probabilities_sum_to_one_and_strength_0_is_a_martingale(signal: str, strength: float, fair: bool) -> None:
    shape = TreeSettings(ticks=5, signal=signal, strength=strength, fair=fair)  # type: ignore[arg-type]
    taken, price, probability = tree_paths(shape)
    assert probability.sum() == pytest.approx(1, rel=1e-14)
    assert (probability >= 0).all()
    if strength == 0 and not fair:
        for tick in range(4):
            node = np.unique(taken[:, :tick], axis=0, return_inverse=True)[1]
            change = np.bincount(node, probability * (price[:, tick + 1] - price[:, tick]))
            np.testing.assert_allclose(change, 0, atol=1e-15)


@pytest.mark.parametrize("penalty", [0.0, 3.0])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("moves", "ticks", "lots", "signal", "strength", "fair"),
    [(2, 4, 2, "reversion", 0.7, True), (3, 3, 3, "momentum", 1.0, False), (2, 4, 2, "momentum", 0.4, False)],
)
def test_the_optimum_is_the_best_of_all_policies(  # type: ignore[no-untyped-def]
    moves, ticks, lots, signal, strength, fair, side, penalty
) -> None:
    shape = TreeSettings(moves, ticks, lots, signal, strength, 20.0, penalty, fair)
    wanted = best_by_enumeration(as_paths(shape), lots, side, penalty)
    assert tree_market(shape).solution.values[side] == pytest.approx(wanted, abs=1e-11)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("signal", ["reversion", "momentum"])
def test_the_optimum_of_pa_is_that_of_a_linear_program(signal: str, side: int) -> None:
    shape = TreeSettings(moves=3, ticks=6, strength=0.8, signal=signal)  # type: ignore[arg-type]
    wanted = best_by_linear_program(as_paths(shape), side)
    assert tree_market(shape).solution.values[side] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 4.0])
@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("signal", ["reversion", "momentum"])
@pytest.mark.parametrize("fair", [True, False])
def test_the_engine_pays_the_solution_what_induction_says(
    signal: str, strength: float, penalty: float, fair: bool
) -> None:
    shape = TreeSettings(signal=signal, strength=strength, penalty=penalty, fair=fair)  # type: ignore[arg-type]
    market = tree_market(shape)
    played = by_side(market, market.solution)
    for side in SIDES:
        assert played[side] == pytest.approx(market.solution.values[side], abs=1e-11)
    value = market.value_of_rule(market.solution)
    assert value.mean == pytest.approx(market.optimum, abs=1e-11)
    assert value.error == 0


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    signal=st.sampled_from(["reversion", "momentum"]),
    strength=st.sampled_from([0.0, 0.3, 1.0]),
    penalty=st.sampled_from([0.0, 4.0]),
    fair=st.booleans(),
    ticks=st.integers(2, 5),
    lots=st.integers(1, 4),
)
def test_no_policy_beats_the_optimum(seed, signal, strength, penalty, fair, ticks, lots) -> None:  # type: ignore[no-untyped-def]
    shape = TreeSettings(3, ticks, lots, signal, strength, 20.0, penalty, fair)
    market = tree_market(shape)
    played = by_side(market, Table(shape, seed))
    for side in SIDES:
        assert played[side] <= market.solution.values[side] + 1e-11
        if strength == 0 and penalty == 0 and fair:
            assert played[side] == pytest.approx(0, abs=1e-11)


def test_a_policy_that_looks_ahead_does_beat_it() -> None:
    """The bound is of what can be known: the best tick of each path, known beforehand, is worth more."""
    market = tree_market(TreeSettings())

    class Hindsight(Solution):
        def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
            price = market.sessions.fields["close"][obs.session] * obs.side[:, None]
            return np.where(price.argmin(axis=1) == obs.tick, left, 0)

    assert market.value_of_rule(Hindsight()).mean > 2 * market.optimum


def test_strength_0_is_worth_nothing_where_fair_and_a_little_where_not() -> None:
    """One move of 10 %: TWAPs 105 and 95; a buy at the start gains 1 - (100/105 + 100/95) / 2 = -1 / 399."""
    fair = tree_market(TreeSettings(moves=2, ticks=2, strength=0, move_bp=1000)).solution.values
    assert fair == pytest.approx({1: 0, -1: 0}, abs=1e-11)
    jensen = tree_market(TreeSettings(moves=2, ticks=2, strength=0, move_bp=1000, fair=False)).solution.values
    assert jensen == pytest.approx({1: 1e4 / 399, -1: 1e4 / 399}, rel=1e-12)


def test_with_a_penalty_strength_0_is_best_traded_lot_by_lot() -> None:
    """Four lots at four of eight ticks: the squares sum to 1/4; TWAP, which can halve a lot, has 1/8."""
    market = tree_market(TreeSettings(strength=0, penalty=4))
    assert market.optimum == pytest.approx(-1, abs=1e-11)
    assert market.twap == pytest.approx(-0.5, abs=1e-11)
    assert market.value_of_rule(TWAP(market.simulator.engine)).mean == pytest.approx(-0.5, abs=1e-11)


@pytest.mark.parametrize("penalty", [0.0, 3.0])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("moves", "lots", "caps"), [(2, 2, (1, 2)), (2, 3, (1, 2)), (3, 2, (0, 2)), (2, 2, (1,))])
def test_the_optimum_with_caps_is_the_best_of_all_policies(  # type: ignore[no-untyped-def]
    moves, lots, caps, side, penalty
) -> None:
    shape = TreeSettings(moves, 3, lots, "momentum", 0.9, 20.0, penalty, caps=caps)
    _, price, probability = tree_paths(shape)
    rows = zip(map(tuple, price.tolist()), map(tuple, tree_caps(shape).tolist()), strict=True)
    paths = dict(zip(rows, probability.tolist(), strict=True))
    assert len(paths) == moves**2 * len(caps) ** 3
    wanted = best_with_caps(paths, lots, side, penalty)
    assert tree_market(shape).solution.values[side] == pytest.approx(wanted, abs=1e-11)


@pytest.mark.parametrize("signal", ["reversion", "momentum"])
def test_the_engine_pays_what_induction_says_where_caps_cut(signal: str) -> None:
    """Caps of 1 and 2 lots cut requests of 4; so most decisions of the best policy fill in part."""
    shape = TreeSettings(ticks=5, signal=signal, strength=0.8, penalty=1.0, caps=(1, 2))  # type: ignore[arg-type]
    market = tree_market(shape)
    played = by_side(market, market.solution)
    for side in SIDES:
        assert played[side] == pytest.approx(market.solution.values[side], abs=1e-11)
    free = tree_market(replace(shape, caps=()))
    assert market.optimum < free.optimum


def test_caps_that_never_bind_change_nothing() -> None:
    shape = TreeSettings(ticks=5, penalty=2.0)
    assert tree_market(replace(shape, caps=(4,))).optimum == pytest.approx(tree_market(shape).optimum, abs=1e-11)


@pytest.mark.parametrize("side", SIDES)
def test_any_amounts_are_worth_what_a_quadratic_program_says(side: int) -> None:
    shape = TreeSettings(moves=2, ticks=4, lots=64, penalty=4.0)
    wanted = best_of_any_amounts(as_paths(shape), side, 4.0)
    assert tree_market(shape).solution.values[side] == pytest.approx(wanted, abs=4 * 4 / 4 / 64**2)
    market = tree_market(replace(shape, lots=4))
    assert market.any_amount == tree_market(shape).optimum > market.optimum


@pytest.mark.parametrize(("changes", "stops"), [({}, True), ({"penalty": 4.0}, False), ({"caps": (1, 2)}, False)])
def test_one_lot_has_the_same_optimum_where_the_problem_is_to_stop(changes: dict[str, Any], stops: bool) -> None:
    shape = TreeSettings(ticks=5, **changes)
    market, one = tree_market(shape), tree_market(replace(shape, lots=1))
    assert market.stopping == stops
    assert (one.optimum == pytest.approx(market.optimum, abs=1e-11)) == stops


def test_a_decision_depends_on_earlier_prices_alone() -> None:
    market = tree_market(TreeSettings(ticks=5, strength=0.9, penalty=2))
    orders, rng = market.orders, np.random.default_rng(1)
    state = ExecutionState.start(market.simulator.engine, orders)
    price = market.sessions.fields["close"][orders.session]
    while not state.now.done.all():
        left = rng.integers(0, 5, size=len(orders))
        left[:] = left[0]
        lots = market.solution.lots(state.known, left)
        tick = int(state.now.tick[0])
        known = np.column_stack([orders.side, price[:, :tick]])
        groups = np.unique(known, axis=0, return_inverse=True)[1]
        assert all(len(set(lots[groups == group].tolist())) == 1 for group in range(groups.max() + 1))
        now, fills = market.simulator.engine.step(orders, state.now, np.where(tick == 4, state.now.position, 0.0))
        state = state.after(now, fills)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"moves": 1}, "moves is 1"),
        ({"ticks": 1}, "ticks is 1"),
        ({"lots": 0}, "lots is 0"),
        ({"ticks": 12}, "177147 paths"),
        ({"signal": "trend"}, "reversion or momentum"),
        ({"strength": 1.5}, "strength is 1.5"),
        ({"strength": float("nan")}, "strength is nan"),
        ({"move_bp": 2000}, "move_bp is 2000"),
        ({"penalty": -1}, "penalty is -1"),
        ({"caps": (1, -1)}, "caps is"),
        ({"caps": (1, 2)}, "559872 paths"),
    ],
)
def test_impossible_trees_are_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TreeSettings(**changes)  # type: ignore[arg-type]
