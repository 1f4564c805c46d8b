"""A time limit is not an end: an episode that was cut off is valued by its last observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit

from rlwb.env import vectorize_env
from rlwb.errors import ConfigError
from rlwb.learner import Cut
from rlwb.policy import DQN, PPO, ActorCritic, DQNSettings, Network, PPOSettings, QNetwork
from rlwb.policy.replay import Replay, Transitions
from rlwb.trainer import Episodes, collect
from rlwb.trainer.vessel import learn_from

CUT_AT = 3


class Constant(Network):
    """Features that say nothing, so that a head answers its bias."""

    def __init__(self) -> None:
        super().__init__(width=1)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.zeros(len(obs), 1)


class Left:
    def act(self, obs: Any, noise: Any = None) -> np.ndarray:
        return np.zeros(len(obs), dtype=np.int64)


def gathered(kind: str = "dummy", count: int = 3) -> Episodes:
    def make() -> gym.Env[Any, Any]:  # a worker need not import this module
        return TimeLimit(gym.make("CartPole-v1").unwrapped, CUT_AT)

    with vectorize_env(make, range(count), finite_env_type=kind, concurrency=2, seed=4) as env:
        return collect(env, Left(), keep=True)


def ppo(value: float, **settings: Any) -> PPO:
    """A PPO whose critic answers `value` whatever it sees."""
    network = ActorCritic(Constant(), 2)
    with torch.no_grad():
        network.critic.bias.fill_(value)
    return PPO(network, PPOSettings(return_scaling=False, **settings))


def dqn(*values: float, **settings: Any) -> DQN:
    """A DQN whose network values the actions so, whatever it sees."""
    network = QNetwork(Constant(), len(values))
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor(values))
    whole = settings.pop("whole_episodes", True)
    policy = DQN(network, DQNSettings(return_scaling=False, huber=None, **settings))
    policy.whole_episodes = whole
    return policy


@pytest.mark.parametrize("kind", ["dummy", "shmem"])
def test_m07_a_time_limit_reaches_the_learner_with_what_was_seen_then(kind: str) -> None:
    """M07: CartPole cut at its third step, against the environment stepped by hand."""
    episodes = gathered(kind)
    assert episodes.cut is not None
    assert episodes.length.tolist() == [CUT_AT] * 3
    assert episodes.cut.rows.tolist() == [2, 5, 8]
    env = TimeLimit(gym.make("CartPole-v1").unwrapped, CUT_AT)
    for number in range(3):
        # Its start is known, the first observation, and from there CartPole draws no number.
        env.reset()
        env.unwrapped.state = episodes.obs[CUT_AT * number]  # type: ignore[attr-defined]
        for step in range(CUT_AT):
            seen, _, terminated, truncated, _ = env.step(0)
            if step < CUT_AT - 1:
                np.testing.assert_allclose(seen, episodes.obs[CUT_AT * number + step + 1], atol=1e-5)
        assert (terminated, truncated) == (False, True)
        np.testing.assert_allclose(seen, episodes.cut.obs[number], atol=1e-5)


def test_m07_ppo_values_a_cut_episode_by_its_last_observation() -> None:
    """M07: rewards 1, 1, 1 and a critic that says 10, at gamma 1/2: returns 1 + 10/2 = 6, 1 + 6/2 = 4, 1 + 4/2 = 3."""
    episodes, policy = gathered(count=1), ppo(10.0, gamma=0.5)
    found: list[Any] = []
    evaluate = policy._evaluate
    policy._evaluate = lambda *given: found.append(evaluate(*given)) or found[-1]  # type: ignore[method-assign,func-returns-value]
    learn_from(policy, episodes)
    assert found[0].returns.tolist() == [3.0, 4.0, 6.0]
    assert found[0].advantage.tolist() == [-7.0, -6.0, -4.0]
    policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)
    assert found[1].returns.tolist() == [1.75, 1.5, 1.0], "the same episode, over"
    assert episodes.reward.tolist() == [1.0, 1.0, 1.0], "what was collected is as it was"


def test_ppo_bootstraps_in_the_scale_of_its_returns() -> None:
    """The critic answers in units of the returns' deviation: 2 units of 3 are 6, so the last return is 1 + 6."""
    network = ActorCritic(Constant(), 2)
    with torch.no_grad():
        network.critic.bias.fill_(2.0)
    policy = PPO(network, PPOSettings())
    policy.return_statistics = (10, 0.0, 9.0)
    assert policy._worth(Cut(np.array([0]), np.zeros((1, 4), np.float32))).tolist() == pytest.approx([6.0])


@pytest.mark.parametrize(("n_step", "targets"), [(1, [4.5, 4.5, 4.5]), (2, [3.25, 3.25, 4.5]), (3, [2.625, 3.25, 4.5])])
@pytest.mark.parametrize("whole_episodes", [True, False])
def test_m07_dqn_values_a_cut_episode_by_its_last_observation(
    n_step: int, targets: list[float], whole_episodes: bool
) -> None:
    """M07: rewards 1 and values 3 and 7, at gamma 1/2: one step on it is 1 + 7/2, two 1 + 1/2 + 7/4, three 2.625."""
    episodes = gathered(count=1)
    policy = dqn(3.0, 7.0, gamma=0.5, n_step=n_step, whole_episodes=whole_episodes, batch_size=600, repeat=1)
    policy.replay.add(Transitions.of(episodes.obs, episodes.action, episodes.reward, episodes.done, episodes.cut))
    rows, learnt = policy._draw(np.random.default_rng(0))
    loss, _ = policy._train(rows, learnt)
    drawn = rows.obs if learnt is None else rows.obs[learnt]
    step = (drawn[:, None] == episodes.obs[None]).all(axis=2).argmax(axis=1)
    assert set(step) == {0, 1, 2}
    assert loss == pytest.approx(np.mean((3.0 - np.array(targets)[step]) ** 2))


def test_a_dqn_that_is_not_told_of_the_cut_takes_it_for_the_end() -> None:
    episodes, policy = gathered(count=1), dqn(3.0, 7.0, gamma=0.5)
    policy.replay.add(Transitions.of(episodes.obs, episodes.action, episodes.reward, episodes.done))
    loss, _ = policy._train(*policy._draw(np.random.default_rng(0)))
    assert loss == pytest.approx(np.mean([(3 - 4.5) ** 2, (3 - 4.5) ** 2, (3 - 1.0) ** 2]))


def test_a_learner_that_cannot_tell_is_refused() -> None:
    class Old(PPO):
        def learn(self, obs: Any, action: Any, reward: Any, done: Any) -> dict[str, float]:  # type: ignore[override]
            return {}

    with pytest.raises(ConfigError, match="Old"):
        learn_from(Old(ActorCritic(Constant(), 2)), gathered())


def transitions(lengths: list[int], cut: list[int], first: int = 0) -> Transitions:
    """Episodes whose observations count up from `first`; that after a cut episode is 1000 more than its last."""
    number = first + np.arange(sum(lengths))
    ends = np.cumsum(lengths) - 1
    done = np.isin(np.arange(len(number)), ends)
    rows = ends[cut]
    ends_of = Cut(rows, {"number": number[rows] + 1000}) if cut else None
    return Transitions.of({"number": number}, number, number.astype(float), done, ends_of)


def test_the_buffer_keeps_what_was_seen_after_a_cut_and_goes_through_a_file() -> None:
    replay = Replay(100)
    replay.add(transitions([2, 1], []))
    assert "beyond" not in replay.state_dict(), "checkpoints are as before where nothing is cut"
    replay.add(transitions([2, 2], [0], first=10))
    assert replay.rows is not None
    assert replay.rows.obs["number"].tolist() == [0, 1, 2, 10, 11, 1011, 12, 13]
    assert replay.rows.beyond is not None
    assert replay.rows.beyond.tolist() == [False] * 5 + [True, False, False]
    assert replay.rows.done.tolist() == [False, True, True, False, False, True, False, True]
    other = Replay(100)
    other.load_state_dict(replay.state_dict())
    one, two = (each.sample_single(50, 2, np.random.default_rng(1)) for each in (replay, other))
    np.testing.assert_array_equal(one[0].obs["number"], two[0].obs["number"])
    np.testing.assert_array_equal(one[1], two[1])


def test_single_draws_bring_the_rows_that_their_targets_are_made_of() -> None:
    replay = Replay(100)
    replay.add(transitions([4, 2], [1]))
    rows, learnt = replay.sample_single(300, 2, np.random.default_rng(0))
    assert rows.beyond is not None
    numbers, beyond = rows.obs["number"], rows.beyond
    pieces = {
        int(numbers[first]): (numbers[first:stop].tolist(), beyond[first:stop].tolist())
        for first, stop in zip(learnt, [*learnt[1:], len(numbers)], strict=True)
    }
    assert pieces == {
        0: ([0, 1, 2], [False, False, True]),  # it goes on: the last row is only valued
        1: ([1, 2, 3], [False, False, True]),
        2: ([2, 3], [False, False]),  # the episode is over after them
        3: ([3], [False]),
        4: ([4, 5, 1005], [False, False, True]),
        5: ([5, 1005], [False, True]),
    }
    assert rows.done[[*(learnt[1:] - 1), len(numbers) - 1]].all()


def test_minibatches_of_single_transitions_hold_every_row_once_a_pass() -> None:
    policy = PPO(ActorCritic(Constant(), 2), PPOSettings(batch_size=4, repeat=2))
    policy.whole_episodes = False
    done = np.array([False, False, False, True, False, True, True, True, False, True])
    pieces = list(policy._minibatches(done))
    assert [len(piece) for piece in pieces] == [4, 4, 2] * 2
    assert sorted(np.concatenate(pieces[:3])) == sorted(np.concatenate(pieces[3:])) == list(range(10))


def test_causal_networks_get_whole_episodes() -> None:
    class Causal(Constant):
        causal = True

    with pytest.raises(ConfigError, match="whole_episodes"):
        PPO(ActorCritic(Causal(), 2)).whole_episodes = False
    with pytest.raises(ConfigError, match="whole_episodes"):
        DQN(QNetwork(Causal(), 2)).whole_episodes = False
