"""Rewards by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.execution import Engine, ExecutionRules, ExecutionState, Outcome, PAPenaltyReward, SparseReward, align_orders
from rlwb.reward import Reward, RewardCombination, sum_parts
from tests.execution.markets import order, sessions_of


def states(prices: list[float], asks: list[list[float]], sides: list[str], ticks_per_step: int) -> list[ExecutionState]:
    sessions = sessions_of([prices])
    engine = Engine(sessions, ticks_per_step)
    batch = align_orders([order(100, side) for side in sides], sessions)
    state, out = ExecutionState.start(engine, batch), []
    for ask in asks:
        now, fills = engine.step(batch, state.now, np.array(ask))
        state = state.after(now, fills)
        out.append(state)
    return out


def total(reward: Reward[Outcome], state: ExecutionState) -> list[float]:
    return sum_parts(reward.parts(state.outcome)).tolist()


def test_pa_penalty_by_hand() -> None:
    # TWAP 10.5. Step 0: buy 50 at 10 (25 a tick), PA = (1 - 10 / 10.5) * 1e4 = 476.190; share 0.5.
    first, _ = states([10, 10, 11, 11], [[50.0, 0.0], [50.0, 100.0]], ["BUY", "SELL"], 2)
    reward = PAPenaltyReward(penalty=100.0, scale=0.1)
    parts = reward.parts(first.outcome)
    assert parts["pa"].tolist() == pytest.approx([0.1 * 0.5 * (1 - 10 / 10.5) * 1e4, 0.0])
    assert parts["penalty"].tolist() == pytest.approx([-0.1 * 100 * 2 * 0.25**2, 0.0])
    assert total(reward, first) == pytest.approx((parts["pa"] + parts["penalty"]).tolist())


def test_pa_rewards_of_an_episode_sum_to_its_price_advantage() -> None:
    both = states([10, 10.2, 11, 10.7], [[30.0, 10.0], [70.0, 90.0]], ["BUY", "SELL"], 2)
    reward = PAPenaltyReward(penalty=0.0)
    gained = sum(np.array(total(reward, state)) for state in both)
    last = both[-1]
    price = last.now.notional / 100
    twap = np.mean([10, 10.2, 11, 10.7])
    assert np.asarray(gained).tolist() == pytest.approx([(1 - price[0] / twap) * 1e4, (price[1] / twap - 1) * 1e4])


@pytest.mark.parametrize(
    ("side", "price", "expected"),
    [
        ("SELL", 9.9, -1.0),
        ("SELL", 10.5, 0.0),
        ("SELL", 12.0, 1.0),
        ("BUY", 12.0, -1.0),
        ("BUY", 9.5, 0.0),
        ("BUY", 8.0, 1.0),
    ],
)
def test_ppo_reward_fires_once_at_the_end(side: str, price: float, expected: float) -> None:
    # Executed at `price` in the first of two steps; the other price makes the TWAP 10.
    early, end = states([price, 20.0 - price], [[99.0], [1.0]], [side], 1)
    assert total(SparseReward(), early) == [0.0]
    assert total(SparseReward(), end) == [expected]


def test_ppo_reward_of_an_order_that_completes_early_fires_then() -> None:
    (only,) = states([9.5, 10.5], [[100.0]], ["BUY"], 1)
    assert only.now.done.all()
    assert total(SparseReward(), only) == [0.0]
    assert total(SparseReward(), states([8.0, 12.0], [[100.0]], ["BUY"], 1)[0]) == [1.0]


@pytest.mark.parametrize("side", ["SELL", "BUY"])
def test_the_thresholds_belong_to_the_better_reward(side: str) -> None:
    """Of two prices 11 and 9 with TWAP 10: the ratio 1.1 of a sell is 11 / 10, of a buy 10 / p with p = 100 / 11."""
    better = 11.0 if side == "SELL" else 100 / 11
    for first, expected in ((better, 1.0), (better - 1e-6 * (better - 10), 0.0), (10.0, 0.0), (20 - better, -1.0)):
        (only,) = states([first, 20.0 - first], [[100.0]], [side], 1)
        assert total(SparseReward(), only) == [expected], first


def test_twap_earns_no_penalty_by_rounding() -> None:
    """Equal parts at prices whose sums round: the price differs from the TWAP by bits in some of the orders."""
    rng, ratios = np.random.default_rng(0), []
    for _ in range(50):
        prices = rng.uniform(9.0, 11.0, size=7).tolist()
        *_, end = states(prices, [[100 / 7, 100 / 7]] * 7, ["BUY", "SELL"], 1)
        ratios += (end.now.notional / end.now.filled / end.benchmarks.twap).tolist()
        assert total(SparseReward(), end) == [0.0, 0.0]
    assert 0 < max(abs(np.array(ratios) - 1.0)) < 1e-12


def test_combination_names_its_parts() -> None:
    first, _ = states([10, 10, 11, 11], [[50.0], [50.0]], ["BUY"], 2)
    both = RewardCombination({"pa": (PAPenaltyReward(penalty=0), 1.0), "fast": (PAPenaltyReward(penalty=100), 0.5)})
    parts = both.parts(first.outcome)
    assert list(parts) == ["pa", "fast"]
    assert total(both, first) == pytest.approx((parts["pa"] + parts["fast"]).tolist())


def test_ppo_reward_is_after_costs() -> None:
    # Sold at 10.5 against a TWAP of 10: 0 before costs, -1 where 6 % of costs bring it below 1.
    sessions = sessions_of([[10.5, 9.5]])
    for bps, expected in ((0.0, 0.0), (600.0, -1.0)):
        rules = ExecutionRules(half_spread_bps=bps)
        engine = Engine(sessions, 1, rules)
        state = ExecutionState.start(engine, align_orders([order(100, "SELL")], sessions))
        state = state.after(*engine.step(state.orders, state.now, np.array([100.0])))
        assert total(SparseReward(), state) == [expected]


def test_inventory_penalty_by_hand() -> None:
    first, last = states([10, 10, 11, 11], [[60.0, 0.0], [40.0, 100.0]], ["BUY", "SELL"], 2)
    reward = PAPenaltyReward(inventory=5.0, scale=0.1)
    assert reward.parts(first.outcome)["inventory"].tolist() == pytest.approx([-0.1 * 5 * 0.4**2, -0.1 * 5])
    assert reward.parts(last.outcome)["inventory"].tolist() == [0.0, 0.0]
    assert "inventory" not in PAPenaltyReward().parts(first.outcome)
