"""Decisions of one step by hand, orders as drawn, and values of learners' policies."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.certificate import TreeSettings, tree_market
from rlwb.certificate.market import bellman, by_twap


class Always:
    """A learner's policy: always the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, obs, noise=None):  # type: ignore[no-untyped-def]
        return np.full(len(obs["cur_step"]), self.action)


def test_one_decision_by_hand() -> None:
    """Two lots, gains 6 and -6, penalty 4; going on is worth 0, 3, 1 and nothing may be kept in the second row.

    First row, two lots: keep 1, one 3 - 1 + 3 = 5, both 6 - 4 = 2. One lot: keep 3, trade 3 - 1 = 2.
    """
    value, lots = bellman(
        np.array([6.0, -6.0]), np.array([4.0, 4.0]), np.array([[0.0, 3.0, 1.0], [0.0, -np.inf, -np.inf]])
    )
    assert value.tolist() == [[0, 3, 5], [0, -4, -10]]
    assert lots.tolist() == [[0, 0, 1], [0, 1, 2]]


def test_among_equals_the_fewest_lots() -> None:
    assert bellman(np.zeros(1), np.zeros(1), np.zeros((1, 4)))[1].tolist() == [[0, 0, 0, 0]]


def test_weights_by_twap() -> None:
    weighted = by_twap(np.array([0.5, 0.25, 0.25]), np.array([[1.0, 3.0], [4.0, 4.0], [1.0, 1.0]]))
    np.testing.assert_allclose(weighted, [1 / 2.25, 1 / 2.25, 0.25 / 2.25])


def test_orders_are_a_buy_and_a_sell_of_each_session() -> None:
    market = tree_market(TreeSettings(moves=2, ticks=3, lots=3))
    assert market.sessions.instruments.tolist() == ["00", "01", "10", "11"]
    assert market.orders.session.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert market.orders.side.tolist() == [1, -1] * 4
    assert (market.orders.amount == 300).all()
    assert (market.simulator.engine.num_steps(market.orders) == 3).all()


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    market = tree_market(TreeSettings(moves=2, ticks=3, strength=1))
    drawn = market.draw(40_000, 5)
    expected = np.repeat(market.probability, 2) / 2
    seen = np.bincount(2 * drawn.session + (drawn.side < 0), minlength=8) / 40_000
    np.testing.assert_array_less(np.abs(seen - expected), 4 * np.sqrt(expected / 40_000))
    assert np.array_equal(drawn.session, market.draw(40_000, 5).session)
    assert not np.array_equal(drawn.session, market.draw(40_000, 6).session)


def test_features_are_the_moves_so_far_in_deviations() -> None:
    market = tree_market(TreeSettings(ticks=4))
    seen = market.features.block(np.arange(27), np.full(27, 4))[:, :, 0]
    level = market.sessions.fields["close"] / 100 - 1
    np.testing.assert_allclose(seen, (level - level.mean()) / level.std(), atol=0.01)


def test_a_learner_is_judged_exactly() -> None:
    """Trading all at the first tick: on two ticks of +-10 %, TWAPs 105 and 95 weighted as such, both sides gain 0."""
    market = tree_market(TreeSettings(moves=2, ticks=2, strength=0, move_bp=1000, fair=False))
    assert market.value(Always(4)).mean == pytest.approx(0, abs=1e-10), "a buy loses what a sell gains"
    assert market.value(Always(0)).mean == pytest.approx(0, abs=1e-10)
    signal = tree_market(TreeSettings(moves=2, ticks=4, penalty=1))
    at_once, lot_by_lot = signal.value(Always(4)), signal.value(Always(1))
    assert at_once.mean == pytest.approx(-1, abs=0.01)
    assert lot_by_lot.mean == pytest.approx(-0.25, abs=1e-10), "a lot at each of four ticks is TWAP"
    assert lot_by_lot.mean == pytest.approx(signal.twap, abs=1e-10)
    assert at_once.error == lot_by_lot.error == 0


def test_share_is_the_way_from_twap_to_the_optimum() -> None:
    market = tree_market(TreeSettings(moves=2, ticks=4, penalty=1))
    assert market.share(market.twap) == 0
    assert market.share(market.optimum) == 1
    assert market.share((market.twap + market.optimum) / 2) == pytest.approx(0.5)
    assert np.isnan(tree_market(TreeSettings(strength=0)).share(0.0))


def test_the_solution_is_as_good_as_any_constant_answer() -> None:
    market = tree_market(TreeSettings(ticks=5))
    for action in range(5):
        assert market.value(Always(action)).mean <= market.optimum + 1e-11
