"""The frontier of Almgren and Chriss: by two methods, by the engine's replay, and how a point's distance is taken."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.certificate import DIALLED, Point, WalkMarket, WalkSettings, trace, walk_market
from rlwb.errors import ConfigError
from rlwb.execution import AmountActionInterpreter, Known, KnownStateInterpreter
from rlwb.trainer import backtest
from tests.certificate.reference import least_cost_schedule

SMALL = WalkSettings(sessions=900)


@pytest.fixture(scope="module")
def market() -> WalkMarket:
    return walk_market(SMALL)


@pytest.mark.parametrize("setting", range(9))
def test_closed_form_and_quadratic_program_agree(market: WalkMarket, setting: int) -> None:
    aversion = SMALL.aversions[setting]
    shares = market.schedule(aversion)
    numbers = (SMALL.ticks, SMALL.temporary_bp, SMALL.permanent_bp, SMALL.noise_bp, aversion)
    other = least_cost_schedule(*numbers)
    assert shares.sum() == pytest.approx(1.0)
    assert shares == pytest.approx(other, abs=2e-4)
    best, found = market.point(shares).value(aversion), market.point(other).value(aversion)
    assert best == pytest.approx(found, rel=1e-7)


def test_a_schedule_by_hand() -> None:
    """Costs 60 (1/4 + 1/16 + 1/16) and 10 (1/8 + 3/16); first 1/2 and then 1/4 are held against moves of 10."""
    market = walk_market(WalkSettings(ticks=3, sessions=9))
    point = market.point(np.array([0.5, 0.25, 0.25]))
    assert point.mean == pytest.approx(-(60 * 0.375 + 10 * (0.125 + 0.1875)))
    assert point.deviation == pytest.approx(10 * np.sqrt(0.25 + 0.0625))
    # The mean of a normal law beyond its 5 % quantile.
    draws = np.sort(np.random.default_rng(0).normal(point.mean, point.deviation, 200_000))
    assert point.cvar == pytest.approx(draws[:10_000].mean(), abs=0.1)


class Fixed:
    """Trades shares of the amount, whatever it sees."""

    def __init__(self, shares: np.ndarray) -> None:
        self.shares = shares

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        return self.shares[obs.step] * obs.amount


def test_the_engine_pays_what_the_formulae_say(market: WalkMarket) -> None:
    """Over a buy and a sell of a session the price cancels from the mean, up to the impact that is charged on it."""
    for aversion in (0.0, 0.1):
        shares = market.schedule(aversion)
        sees, acts = KnownStateInterpreter(), AmountActionInterpreter()
        episodes = backtest(market.simulator, sees, market.orders, acts, Fixed(shares), reward=market.reward)
        point, net = market.point(shares), episodes.metrics["pa_net"]
        assert episodes.returns == pytest.approx(net)
        assert net.mean() == pytest.approx(point.mean, abs=1e-2)
        # 900 independent sessions: four standard errors of a deviation, and what impact is charged on the price.
        assert net.std() == pytest.approx(point.deviation, rel=4 / np.sqrt(2 * 900) + 0.006)


def test_distance_and_gap_of_known_points(market: WalkMarket) -> None:
    best, corner = market.frontier, market.corner
    assert [market.distance(point) for point in best] == pytest.approx([0.0] * 9, abs=1e-4)
    assert [market.gap(point, a) for point, a in zip(best, SMALL.aversions, strict=True)] == pytest.approx([0.0] * 9)
    # Straight away from the end of the frontier at which the deviation is greatest and the curve is upright.
    span = best[0].mean - corner.mean
    assert market.distance(Point(best[0].mean + 0.02 * span, best[0].deviation)) == pytest.approx(0.02, rel=1e-3)
    assert market.gap(Point(*corner), 0.0) == pytest.approx(1.0)
    assert market.gap(best[0], 1.0) == pytest.approx(1.0, rel=0.01)


def test_orders_come_in_pairs_of_one_setting(market: WalkMarket) -> None:
    orders = market.draw(180, seed=3)
    assert (orders.side.reshape(-1, 2) == [1, -1]).all()
    assert (orders.session[::2] == orders.session[1::2]).all()
    assert (orders.forms["aversion"][::2] == orders.forms["aversion"][1::2]).all()
    assert set(orders.forms["aversion"]) == set(SMALL.aversions)
    assert np.array_equal(market.draw(180, seed=3).session, orders.session)
    assert not np.array_equal(market.draw(180, seed=4).session, orders.session)


@pytest.mark.parametrize("method", DIALLED)
def test_an_untrained_policy_is_near_the_even_schedule_at_every_setting(market: WalkMarket, method: str) -> None:
    rows = trace(market, method, 0, iterations=1, episodes=18, learning_rate=1e-9)
    assert [row["aversion"] for row in rows] == list(SMALL.aversions)
    assert rows[0].keys() >= {"market", "method", "seed", "mean", "sd", "cvar", "distance", "gap", "seconds"}
    if method == "pathwise":
        even = market.frontier[0]
        assert [row["mean"] for row in rows] == pytest.approx([even.mean] * 9, abs=0.1)
        assert [row["sd"] for row in rows] == pytest.approx([even.deviation] * 9, rel=0.05)


def test_pathwise_finds_the_frontier() -> None:
    """In a few seconds, on five ticks: every setting within 3 %."""
    market = walk_market(WalkSettings(ticks=5, sessions=2700, urgencies=(0.0, 2.0, 6.0)))
    rows = trace(market, "pathwise", 0, iterations=60, episodes=900, batch_size=900)
    assert max(row["distance"] for row in rows) < 0.03
    assert max(row["gap"] for row in rows) < 0.03


def test_settings_without_sense_are_refused() -> None:
    for changes in ({"ticks": 1}, {"noise_bp": 0.0}, {"temporary_bp": 5.0}, {"sessions": 0}):
        with pytest.raises(ConfigError, match=next(iter(changes))):
            WalkSettings(**changes)
    with pytest.raises(ConfigError, match="dqn"):
        trace(walk_market(SMALL), "dqn", 0)
