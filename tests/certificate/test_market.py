"""Decisions of one step by hand, orders as drawn, and values of learners' policies."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.certificate import MARKETS, CertifiedMarket, Solution, TreeSettings, tree_market
from rlwb.certificate.market import LOT, bellman, both_sides, by_twap, share_of_way, with_day_before
from rlwb.execution import Engine, Known
from rlwb.market import FeatureSettings, MarketFeatures


class Always(Solution):
    """Always trades the same number of lots, as far as they are left."""

    def __init__(self, number: int) -> None:
        self.number = number

    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        return np.minimum(left, self.number)


def worth(market: CertifiedMarket, number: int) -> float:
    value = market.value_of_rule(Always(number))
    assert value.error == 0
    return value.mean


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
    seen = np.bincount(drawn, minlength=4)
    np.testing.assert_array_less(np.abs(seen - 40_000 * market.probability), 2 + 1e-9)  # one at each end of its part
    assert not np.array_equal(drawn, np.sort(drawn))
    assert np.array_equal(drawn, market.draw(40_000, 5))
    assert not np.array_equal(drawn, market.draw(40_000, 6))


def test_a_run_sees_a_quiet_day_before_and_no_order_trades_it() -> None:
    market = tree_market(TreeSettings(moves=2, ticks=4))
    rows = np.array([5, 0, 5])
    sessions = with_day_before(market.sessions, rows, np.full(3, np.datetime64("2024-01-02")))
    assert len(sessions) == 6
    close = sessions.fields["close"]
    assert np.array_equal(close[1::2], market.sessions.fields["close"][rows])
    assert close[0] == pytest.approx([99.8, 100.0, 100.2, 100.0])
    assert np.array_equal(close[0], close[2])
    orders = both_sides(sessions, 300.0)
    assert orders["instrument"].tolist() == ["0000000", "0000000", "0000001", "0000001", "0000002", "0000002"]
    assert (orders["date"] == "2024-01-02").all()
    features = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=np.arange(6) % 2 == 1)
    assert np.isfinite(features.today).all()


def test_trading_all_at_once_and_lot_by_lot() -> None:
    """On two ticks of +-10 %, TWAPs 105 and 95 weighted as such, a buy at the first tick loses what a sell gains."""
    market = tree_market(TreeSettings(moves=2, ticks=2, strength=0, move_bp=1000, fair=False))
    assert worth(market, 4) == worth(market, 0) == pytest.approx(0, abs=1e-10)
    signal = tree_market(TreeSettings(moves=2, ticks=4, penalty=1))
    assert worth(signal, 4) == pytest.approx(-1, abs=0.01)
    assert worth(signal, 1) == pytest.approx(-0.25, abs=1e-10), "a lot at each of four ticks is TWAP"
    assert signal.twap == pytest.approx(-0.25, abs=1e-10)


def test_share_is_the_way_from_twap_to_the_optimum() -> None:
    assert [share_of_way(value, -1.0, 3.0) for value in (-1.0, 3.0, 1.0)] == [0.0, 1.0, 0.5]
    assert np.isnan(share_of_way(0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", [name for name in MARKETS if name.startswith("tree")])
def test_the_solution_is_as_good_as_any_constant_answer(name: str) -> None:
    market = MARKETS[name]()
    for number in range(round(market.amount / LOT) + 1):
        assert worth(market, number) <= market.optimum + 1e-11


@pytest.mark.parametrize("name", [name for name in MARKETS if name != "gaussian"])
def test_the_engine_pays_every_solution_its_value(name: str) -> None:
    market = MARKETS[name]()
    assert market.value_of_rule(market.solution).mean == pytest.approx(market.optimum, abs=1e-8)
    assert market.twap < market.optimum
    assert isinstance(market.simulator.engine, Engine)
