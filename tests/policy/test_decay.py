"""The learning rate that falls with the number of updates."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.policy import DQN, PPO, DQNSettings, PPOSettings
from tests.policy.conftest import Rollout
from tests.policy.test_dqn import small_dqn
from tests.trainer.small import small_ppo


def falling_ppo() -> PPO:
    return PPO(small_ppo().network, PPOSettings(learning_rate=4e-3, decay_updates=4, batch_size=64, repeat=1))


def falling_dqn() -> DQN:
    return small_dqn(learning_rate=4e-3, decay_updates=4, batch_size=64, repeat=1)


@pytest.mark.parametrize("make", [falling_ppo, falling_dqn])
def test_it_falls_in_a_line_and_a_resume_goes_on_with_it(make: Callable[[], PPO | DQN], rollout: Rollout) -> None:
    policy, rates = make(), []
    seen = rollout.reference
    for _ in range(6):
        before = copy.deepcopy(policy.network.state_dict())
        resumed = make()
        resumed.load_state_dict(copy.deepcopy(policy.state_dict()))
        for each in (policy, resumed):
            each.learn(seen.obs, seen.action, seen.reward, seen.done)
        after, again = policy.network.state_dict(), resumed.network.state_dict()
        assert all(torch.equal(again[name], after[name]) for name in after)
        rates.append(policy.optimizer.learning_rate)
        # At rate 0 no weight moves any more.
        assert any(not torch.equal(before[name], after[name]) for name in after) == (rates[-1] > 0)
    assert rates == pytest.approx([4e-3, 3e-3, 2e-3, 1e-3, 0, 0])


@pytest.mark.parametrize("kind", [PPOSettings, DQNSettings])
def test_a_fall_within_no_updates_is_refused(kind: type[PPOSettings | DQNSettings]) -> None:
    with pytest.raises(ConfigError, match="decay_updates is 0"):
        kind(decay_updates=0)
