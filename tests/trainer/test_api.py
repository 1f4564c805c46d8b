from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import PAPenaltyReward
from rlwb.trainer import Trainer, backtest, result_table, train
from tests.trainer.corridor import GustyWalker, Place, Walk, corridor
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import assert_same_weights, small, small_ppo, small_vessel


def test_train_is_vessel_and_trainer_in_one_call() -> None:
    market, policy = small(), small_ppo()
    trainer = train(
        market.simulator,
        market.observer,
        market.chooser,
        market.orders[:30],
        policy,
        PAPenaltyReward(scale=0.1),
        vessel_kwargs={"episode_per_iter": 12},
        trainer_kwargs={"max_iters": 2},
    )
    assert trainer.current_iter == 2
    vessel = small_vessel()
    Trainer(max_iters=2).fit(vessel)
    assert_same_weights(policy, vessel.policy)


def test_a_backtest_lists_the_orders_in_their_order() -> None:
    market, policy = small(), small_ppo()
    parts = (market.simulator, market.observer, market.orders, market.chooser, policy)
    reward = PAPenaltyReward()
    whole = backtest(*parts, reward=reward)
    table = result_table(market.orders.table, whole)
    assert list(table["order_id"]) == list(market.orders.table["order_id"])
    sides = np.where(table["direction"] == "BUY", 1, -1)
    expected = sides * (1 - table["price"] / table["twap"]) * 1e4
    np.testing.assert_allclose(table["pa"], expected, atol=1e-8)
    np.testing.assert_array_equal(table["reward"], whole.returns)
    for kwargs in ({"chunk": 7}, {"finite_env_type": "dummy", "concurrency": 3, "chunk": 7}):
        other = result_table(market.orders.table, backtest(*parts, reward=reward, **kwargs))
        pd.testing.assert_frame_equal(other[table.columns], table, check_exact=True)


def test_c09_metrics_of_some_chunks_only() -> None:
    vessel = corridor_vessel()
    episodes = backtest(corridor(), Place(), [1, 3, 2], Walk(), vessel.policy, finite_env_type="dummy", chunk=1)
    assert episodes.count == 3
    np.testing.assert_array_equal(np.isnan(episodes.metrics["from_the_middle"]), [True, False, True])


def test_a_simulators_random_numbers_depend_on_neither_environment_nor_chunk() -> None:
    parts = (corridor(GustyWalker), Place(), [3, 1, 4, 2, 5, 3], Walk(), corridor_vessel().policy)
    one = backtest(*parts)
    assert one.metrics["blown"].sum() > 0
    for kwargs in ({"chunk": 4}, {"chunk": 1}, {"finite_env_type": "dummy", "concurrency": 2}):
        np.testing.assert_array_equal(backtest(*parts, **kwargs).metrics["blown"], one.metrics["blown"])


def test_nothing_to_backtest_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 initial states"):
        backtest(corridor(), Place(), [], Walk(), corridor_vessel().policy, finite_env_type="dummy")
    with pytest.raises(ConfigError, match="chunk=0"):
        backtest(corridor(), Place(), [1], Walk(), corridor_vessel().policy, finite_env_type="dummy", chunk=0)
