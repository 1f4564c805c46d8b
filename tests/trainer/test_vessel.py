from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlwb.batch import take
from rlwb.errors import ConfigError
from rlwb.execution import CategoricalActionInterpreter, Known, OrderBatch, Outcome
from rlwb.interpreter import ActionInterpreter, StateInterpreter, per_order
from rlwb.policy import MLP, PPO, ActorCritic, Network, PPOSettings, make_network
from rlwb.reward import Reward, RewardCombination
from rlwb.trainer import Episodes, Trainer, collect
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import UPDATE, assert_same_weights, small, small_vessel


def test_training_goes_through_its_initial_states_in_epochs() -> None:
    vessel = corridor_vessel(episode_per_iter=3)
    drawn = [list(vessel.train_seed_iterator()) for _ in range(5)]
    stream = [state for collect_ in drawn for state in collect_]
    for epoch in range(3):
        assert sorted(stream[5 * epoch : 5 * epoch + 5]) == [1, 2, 3, 4, 5]
    assert stream[:5] != stream[5:10] or stream[5:10] != stream[10:]
    again = corridor_vessel(episode_per_iter=3)
    assert [list(again.train_seed_iterator()) for _ in range(5)] == drawn
    assert Counter(list(corridor_vessel(episode_per_iter=15).train_seed_iterator())) == dict.fromkeys(range(1, 6), 3)


def test_the_position_in_the_stream_is_part_of_the_state() -> None:
    one, two = small_vessel(), small_vessel()
    one.train_seed_iterator()
    two.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(one.train_seed_iterator().row, two.train_seed_iterator().row)


def test_take_uses_arrays_where_it_can() -> None:
    rows = np.array([2, 0])
    assert take(["a", "b", "c"], rows) == ["c", "a"]
    assert take(("a", "b", "c"), rows[:1]) == ["c"]
    assert list(take(range(5, 9), rows)) == [7, 5]
    picked = take(small().orders, rows)
    assert isinstance(picked, OrderBatch)
    np.testing.assert_array_equal(picked.row, small().orders.row[rows])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episode_per_iter": 0}, "at least 1 episode"),
        ({"train_initial_states": []}, "train_initial_states is empty"),
        ({"val_initial_states": []}, "val_initial_states is empty"),
        ({"test_initial_states": []}, "test_initial_states is empty"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corridor_vessel(**changes)


def test_metrics_may_not_take_the_trainers_names() -> None:
    taken = Episodes(1, np.array([1]), np.zeros(1), {"reward": np.zeros(1), "pa": np.zeros(1)})
    with pytest.raises(ConfigError, match=r"\['reward'\]"):
        taken.summary()


def test_checking_the_environment_leaves_no_trace() -> None:
    vessel, other = corridor_vessel(), corridor_vessel()
    assert {"length", "reward", "won", "reward/end", "aux/place"} <= vessel.check_env().keys()
    assert list(vessel.train_seed_iterator()) == list(other.train_seed_iterator())


# A user's own parts for orders, each written for one order


class Own(StateInterpreter[Known]):
    observation_space = gym.spaces.Dict(
        {
            "left": gym.spaces.Box(0, 1, (), np.float32),
            "acquiring": gym.spaces.Discrete(2),
            "last_close": gym.spaces.Box(-1e9, 1e9, (2,), np.float32),
        }
    )

    @per_order
    def interpret(self, known: Known) -> dict:
        close = known.bars("close")
        close = close[np.isfinite(close)]
        return {
            "left": np.array(known.position / known.amount, dtype=np.float32),
            "acquiring": int(known.side > 0),
            "last_close": np.array([close[-1] if len(close) else 0.0, known.ticks_left], dtype=np.float32),
        }


class Fraction(ActionInterpreter[Known]):
    action_space = gym.spaces.Discrete(3)

    @per_order
    def interpret(self, known: Known, action: int) -> float:
        return known.position if known.is_last_step else known.position * int(action) / 2


class Filled(Reward[Outcome]):
    @per_order
    def reward(self, outcome: Outcome) -> float:
        price = 0.0 if np.isnan(outcome.step_price) else outcome.step_price
        return outcome.fill / outcome.known.amount * price / 100


class Hurry(Reward[Outcome]):
    @per_order
    def reward(self, outcome: Outcome) -> float:
        return -float(outcome.known.step)


class Scalars(Network):
    """A network of a user's observations."""

    def __init__(self) -> None:
        super().__init__(width=8)
        self.layer = nn.Linear(4, 8)

    def forward(self, obs: Any) -> torch.Tensor:
        left, side = (torch.as_tensor(obs[key]).float()[:, None] for key in ("left", "acquiring"))
        market = torch.as_tensor(obs["last_close"]) / 100
        return torch.tanh(self.layer(torch.cat([left, side, market], dim=1)))


def own_vessel(**changes: Any) -> Any:
    policy = PPO(make_network(lambda: ActorCritic(Scalars(), 3), seed=0), PPOSettings(**UPDATE))
    reward = RewardCombination({"filled": (Filled(), 1.0), "hurry": (Hurry(), 0.1)})
    return small_vessel(state_interpreter=Own(), action_interpreter=Fraction(), reward=reward, policy=policy, **changes)


def test_own_parts_are_lifted_with_equal_results() -> None:
    vessel, gathered = own_vessel(), []
    for kind, concurrency in (("native", 1), ("dummy", 1), ("dummy", 6)):
        with vessel.make_env(small().orders, finite_env_type=kind, concurrency=concurrency) as env:
            gathered.append(collect(env, vessel.policy, seed=(2,), keep=True))
    native = gathered[0]
    assert np.unique(native.action).tolist() == [0, 1, 2]
    for other in gathered[1:]:
        for name in ("action", "reward", "done", "returns", "length"):
            np.testing.assert_array_equal(getattr(other, name), getattr(native, name), err_msg=name)
        assert other.obs.keys() == native.obs.keys()
        for key in native.obs:
            np.testing.assert_array_equal(other.obs[key], native.obs[key], err_msg=key)
        for key in native.metrics:
            np.testing.assert_array_equal(other.metrics[key], native.metrics[key], err_msg=key)


def test_own_parts_train_to_equal_weights() -> None:
    policies = []
    for kind in ("native", "dummy"):
        vessel = own_vessel()
        Trainer(max_iters=2, val_every_n_iters=1, finite_env_type=kind, concurrency=5).fit(vessel)
        policies.append(vessel.policy)
    assert_same_weights(*policies)


def test_a_network_of_the_scalars_trains_too() -> None:
    from rlwb.execution import CurrentStepStateInterpreter

    policy = PPO(make_network(lambda: ActorCritic(MLP(8), 3), seed=0))
    vessel = small_vessel(
        policy=policy,
        state_interpreter=CurrentStepStateInterpreter(small().simulator.engine.max_step),
        action_interpreter=CategoricalActionInterpreter(2),
    )
    trainer = Trainer(max_iters=2, val_every_n_iters=1)
    trainer.fit(vessel)
    assert np.isfinite(trainer.metrics["val/pa"])
