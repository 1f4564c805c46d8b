from __future__ import annotations

import copy
import logging
import random
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from tianshou.algorithm import PPO as TianshouPPO  # noqa: N811
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from rlwb.batch import take_rows
from rlwb.errors import CheckpointError, ConfigError, InterpreterError, RlwbError
from rlwb.objective import Mean, MeanVariance
from rlwb.policy import PPO, ActorCritic, Network, PPOSettings, encoder, make_network, market_network
from rlwb.policy.gru import states_at
from rlwb.trainer import load_checkpoint, save_checkpoint
from tests.policy.conftest import Rollout, learn
from tests.trainer.small import ACTIONS, assert_same_weights, small_ppo, weights

DISCOUNTED = {"gamma": 0.9, "gae_lambda": 0.7}


def close_to(policy: PPO, reference: nn.Module, start: dict[str, np.ndarray], share: float = 2e-3) -> None:
    """Compare weights; the tolerance is a share of how far the update has moved each array."""
    for name, value in reference.state_dict().items():
        moved = np.abs(value.numpy() - start[name]).max()
        assert moved > 1e-4, f"{name} has not moved"
        np.testing.assert_allclose(weights(policy)[name], value.numpy(), rtol=0, atol=share * moved, err_msg=name)


#: tianshou's names of what we call otherwise.
OURS = {"actor_loss": "policy_loss", "vf_loss": "value_loss", "ent_loss": "entropy"}


class Output(nn.Module):
    """One output of an `ActorCritic`, in the form that tianshou calls."""

    def __init__(self, net: ActorCritic, output: int) -> None:
        super().__init__()
        self.net, self.output = net, output

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        value = self.net(obs)[self.output]
        return (value, state) if self.output == 0 else value


class PlainPPO:
    """Proximal policy optimisation written down once more: plain torch, a row at a time, blocks as observations."""

    def __init__(self, net: ActorCritic, settings: PPOSettings) -> None:
        self.net, self.settings = copy.deepcopy(net), settings
        self.adam = torch.optim.Adam(self.net.parameters(), lr=settings.learning_rate)
        self.seen: list[float] = []

    def returns_deviation(self) -> float:
        # tianshou's running statistics start as those of nothing with variance 1.
        return float(np.sqrt((np.var(self.seen) if self.seen else 1.0) + 1e-8)) if self.settings.return_scaling else 1.0

    def update(self, episodes: Any, minibatches: list[np.ndarray]) -> None:
        s = self.settings
        with torch.no_grad():
            logits, value = self.net(episodes.obs)
        old_log_p = torch.log_softmax(logits, 1)[range(len(logits)), episodes.action]
        deviation = self.returns_deviation()
        v = value.double().numpy() * deviation
        advantage = np.zeros(len(v))
        starts = np.concatenate([[0], np.flatnonzero(episodes.done)[:-1] + 1])
        for start, stop in zip(starts, np.flatnonzero(episodes.done) + 1, strict=True):
            for t in range(start, stop):  # the definition: a discounted sum of temporal differences
                for k in range(t, stop):
                    delta = episodes.reward[k] + (s.gamma * v[k + 1] if k + 1 < stop else 0.0) - v[k]
                    advantage[t] += (s.gamma * s.gae_lambda) ** (k - t) * delta
        self.seen.extend(advantage + v)
        target = torch.tensor((advantage + v) / deviation, dtype=torch.float32)
        advantage = torch.tensor(advantage, dtype=torch.float32)
        for rows in minibatches:
            logits, new = self.net({key: array[rows] for key, array in episodes.obs.items()})
            log_p = torch.log_softmax(logits, 1)
            a = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)
            ratio = torch.exp(log_p[range(len(rows)), episodes.action[rows]] - old_log_p[rows])
            actor = -torch.minimum(ratio * a, ratio.clip(1 - s.clip, 1 + s.clip) * a).mean()
            error = (target[rows] - new) ** 2
            if s.value_clip:
                near = value[rows] + (new - value[rows]).clip(-s.clip, s.clip)
                error = torch.maximum(error, (target[rows] - near) ** 2)
            entropy = -(log_p.exp() * log_p).sum(1).mean()
            self.adam.zero_grad()
            (actor + s.value_coef * error.mean() - s.entropy_coef * entropy).backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), s.max_grad_norm)
            self.adam.step()


@pytest.mark.parametrize("seen", ["reference", "blocks"])
@pytest.mark.parametrize(
    "settings",
    [
        {"return_scaling": False},
        {**DISCOUNTED, "value_clip": True, "clip": 0.05},
        {**DISCOUNTED, "entropy_coef": 0.1, "max_grad_norm": 0.2},
    ],
)
def test_updates_equal_plain_torch(rollout: Rollout, settings: dict[str, Any], seen: str) -> None:
    policy = small_ppo(previous_day=True, batch_size=24, **settings)
    start = weights(policy)
    plain = PlainPPO(policy.network, policy.settings)
    for _ in range(2):  # the second one depends on the return statistics and on Adam's moments
        minibatches = list(policy._minibatches(rollout.blocks.done))
        assert len(minibatches) > 4
        plain.update(rollout.blocks, minibatches)
        learn(policy, rollout, seen)
    close_to(policy, plain.net, start)


@pytest.mark.parametrize("settings", [{}, {**DISCOUNTED, "value_clip": True}, {"return_scaling": False, "clip": 0.05}])
def test_updates_equal_tianshou_with_separate_passes(rollout: Rollout, settings: dict[str, Any]) -> None:
    policy = small_ppo(batch_size=10**6, repeat=3, **settings)
    start, s, net = weights(policy), policy.settings, copy.deepcopy(policy.network)
    theirs = TianshouPPO(
        policy=DiscreteActorPolicy(actor=Output(net, 0), action_space=gym.spaces.Discrete(ACTIONS)),
        critic=Output(net, 1),
        optim=AdamOptimizerFactory(lr=s.learning_rate),
        eps_clip=s.clip,
        value_clip=s.value_clip,
        vf_coef=s.value_coef,
        ent_coef=s.entropy_coef,
        max_grad_norm=s.max_grad_norm,
        gae_lambda=s.gae_lambda,
        gamma=s.gamma,
        return_scaling=s.return_scaling,
    )
    e = rollout.blocks
    no, batch, following = np.zeros_like(e.done), Batch(e.obs), Batch(e.obs)[np.append(np.arange(1, len(e.done)), 0)]
    for _ in range(2):
        buffer = ReplayBuffer.from_data(batch, e.action, e.reward, e.done, no, e.done, following)
        with policy_within_training_step(theirs.policy):
            stats = theirs.update(buffer=buffer, batch_size=None, repeat=3)
        figures = learn(policy, rollout, "blocks")
        for name, value in stats.get_loss_stats_dict().items():
            assert figures[OURS.get(name, name)] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    close_to(policy, net, start)


def test_reference_and_blocks_learn_the_same(rollout: Rollout) -> None:
    one, two = small_ppo(previous_day=True), small_ppo(previous_day=True)
    start = weights(one)
    learn(one, rollout, "reference", batch_size=16, repeat=3)
    learn(two, rollout, "blocks", batch_size=16, repeat=3)
    close_to(one, two.network, start)


def test_minibatches_are_whole_episodes_and_cover_every_row_once_a_pass() -> None:
    done = np.zeros(100, dtype=bool)
    done[[0, 3, 4, 9, 17, 30, 31, 50, 69, 70, 99]] = True
    policy = small_ppo(seed=4, batch_size=20, repeat=3)
    minibatches = list(policy._minibatches(done))
    passes: list[np.ndarray] = []
    rows = np.array([], dtype=int)
    for part in minibatches:
        assert done[part[-1]]
        starts = part[np.concatenate([[True], done[part][:-1]])]
        assert all(start == 0 or done[start - 1] for start in starts)
        rows = np.concatenate([rows, part])
        if len(rows) == 100:
            passes.append(rows)
            rows = rows[:0]
    assert len(passes) == 3
    assert not len(rows)
    for whole in passes:
        np.testing.assert_array_equal(np.sort(whole), np.arange(100))
    assert not np.array_equal(passes[0], passes[1])
    again = small_ppo(seed=4, batch_size=20, repeat=3)
    for a, b in zip(minibatches, again._minibatches(done), strict=True):
        np.testing.assert_array_equal(a, b)
    again.updates += 1
    whole = np.concatenate(list(again._minibatches(done)))[:100]
    assert not np.array_equal(whole, passes[0]), "the next update has another order"


def test_an_update_passes_once_over_each_day_and_each_episode(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, e = small_ppo(), rollout.reference
    rows: dict[str, list[int]] = {"day": [], "private": []}

    def count(name: str, run: Any) -> Any:
        return lambda gru, x, *more: rows[name].append(len(x)) or run(gru, x, *more)

    monkeypatch.setattr(encoder, "states_at", count("day", states_at))
    monkeypatch.setattr(market_network, "states_at", count("private", states_at))
    learn(policy, rollout, batch_size=10**6, repeat=1)
    assert rows["private"] == [e.done.sum()] * 2
    assert rows["day"] == [len(np.unique(e.obs["session"]))]


def test_equal_advantages_give_no_nan(rollout: Rollout) -> None:
    policy = small_ppo(return_scaling=False)
    with torch.no_grad():
        policy.network.critic.weight.zero_()
        policy.network.critic.bias.zero_()
    e = rollout.reference
    one_step = np.ones_like(e.done)
    figures = policy.learn(e.obs, e.action, np.ones(len(e.done)), one_step)
    assert all(np.isfinite(list(figures.values())))
    assert all(np.isfinite(value).all() for value in weights(policy).values())


def test_e23_batches_larger_than_the_data_and_of_one(rollout: Rollout) -> None:
    e = rollout.reference
    figures = learn(small_ppo(), rollout, batch_size=10**6, repeat=2)
    assert figures["gradient_steps"] == 2
    one = take_rows(e.obs, np.array([0]))
    figures = small_ppo(batch_size=1, repeat=1).learn(one, e.action[:1], e.reward[:1], np.array([True]))
    assert all(np.isfinite(list(figures.values())))
    assert set(figures) == set(PPO.figures)


def test_half_an_episode_is_refused(rollout: Rollout) -> None:
    e = rollout.reference
    unfinished = np.append(e.done[:-1], False)
    with pytest.raises(ConfigError, match="whole episodes"):
        small_ppo().learn(e.obs, e.action, e.reward, unfinished)
    with pytest.raises(ConfigError, match="one row a transition"):
        small_ppo().learn(e.obs, e.action[1:], e.reward, e.done)


def test_a_reward_of_nan_is_refused_before_it_reaches_a_weight(rollout: Rollout) -> None:
    policy, e = small_ppo(), rollout.reference
    before = weights(policy)
    reward = e.reward.copy()
    reward[3] = np.nan
    with pytest.raises(RlwbError, match="transition 3 is nan"):
        policy.learn(e.obs, e.action, reward, e.done)
    np.testing.assert_equal(weights(policy), before)


def test_an_infinite_loss_is_refused_before_it_reaches_a_weight(rollout: Rollout) -> None:
    policy, e = small_ppo(return_scaling=False), rollout.reference
    before = weights(policy)
    with pytest.raises(RlwbError, match="lower learning_rate"):
        policy.learn(e.obs, e.action, e.reward * 1e30, e.done)
    np.testing.assert_equal(weights(policy), before)


# Acting


class Table(Network):
    """A network whose logits are the observation itself."""

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.as_tensor(obs)


def table(actions: int = 4) -> PPO:
    net = ActorCritic(Table(actions), actions)
    with torch.no_grad():
        net.actor.weight.copy_(torch.eye(actions))
    return PPO(net)


def test_noise_picks_by_the_inverse_of_the_distribution() -> None:
    probability = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(probability), -200).astype(np.float32)
    policy = table()
    noise = np.array([0.0, 0.0999, 0.1001, 0.6999, 0.7001, 1 - 1e-16])
    np.testing.assert_array_equal(policy.act(np.tile(logits, (6, 1)), noise), [0, 0, 2, 2, 3, 3])
    n = 100_000
    drawn = policy.act(np.tile(logits, (n, 1)), np.random.default_rng(0).random(n))
    frequency = np.bincount(drawn, minlength=4) / n
    np.testing.assert_allclose(frequency, probability, atol=4 * np.sqrt(0.25 / n))
    assert frequency[1] == 0


def test_an_action_without_probability_is_never_drawn_however_the_sum_rounds() -> None:
    """Ten tenths add up to 1 - 2^-53, which is also the largest number that noise can be."""
    noise = np.array([np.nextafter(1.0, 0.0)])
    assert np.cumsum(np.full(10, 0.1))[-1] == noise[0]
    for masked in (1, 3):
        logits = np.zeros((1, 10 + masked), dtype=np.float32)
        logits[:, 10:] = np.finfo(np.float32).min
        assert table(10 + masked).act(logits, noise).tolist() == [9]


def test_a_first_action_without_probability_is_not_drawn_by_a_noise_of_zero() -> None:
    logits = np.array([[np.finfo(np.float32).min, 0.0, 0.0]], dtype=np.float32)
    assert table(3).act(logits, np.array([0.0])).tolist() == [1]


def test_without_noise_the_most_probable_action() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(table().act(logits), logits.argmax(axis=1))


def test_the_answer_to_a_row_does_not_depend_on_the_batch(rollout: Rollout) -> None:
    policy = small_ppo(hidden=24)
    learn(policy, rollout, batch_size=16, repeat=2)
    for obs in (rollout.reference.obs, rollout.blocks.obs):
        n = len(obs["cur_step"])
        seen: list[torch.Tensor] = []
        net = policy.network
        hook = net.register_forward_hook(lambda _m, _i, out, seen=seen: seen.append(out[0]))
        policy.act(obs)
        for size in (1, 2, 3, 7, 16, 31):
            parts = []
            for low in range(0, n, size):
                policy.act(take_rows(obs, np.arange(low, min(low + size, n))))
                parts.append(seen[-1][: min(size, n - low)])
            assert torch.equal(torch.cat(parts), seen[0][:n]), size
        hook.remove()


def test_answers_of_nan_are_refused() -> None:
    with pytest.raises(InterpreterError, match="missing numbers in the observations"):
        table().act(np.array([[0.0, np.nan, 0.0, 0.0]], dtype=np.float32))


def test_plain_array_observations_are_learnt_from() -> None:
    rng = np.random.default_rng(0)
    net = make_network(lambda: ActorCritic(Layer(), 2), seed=0)
    policy = PPO(net, PPOSettings(learning_rate=0.02, batch_size=100, repeat=2))
    obs = rng.normal(size=(200, 3)).astype(np.float32)
    right = (obs[:, 0] > 0).astype(np.int64)
    for update in range(20):
        action = policy.act(obs, np.random.default_rng(update).random(200))
        policy.learn(obs, action, (action == right).astype(float), np.ones(200, dtype=bool))
    assert (policy.act(obs) == right).mean() > 0.95


class Layer(Network):
    """A layer on an observation that is an array of three numbers."""

    def __init__(self) -> None:
        super().__init__(width=8)
        self.layer = nn.Linear(3, 8)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.tanh(self.layer(torch.as_tensor(obs)))


# State


def test_learning_touches_no_global_random_state(rollout: Rollout) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    policy = small_ppo()
    policy.act(rollout.reference.obs, np.full(len(rollout.reference.done), 0.5))
    learn(policy, rollout, batch_size=16, repeat=2)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_equal(before[1], after[1])
    assert torch.equal(before[2], after[2])
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    other = small_ppo()
    learn(other, rollout, batch_size=16, repeat=2)
    assert_same_weights(policy, other)


def test_the_next_update_of_a_loaded_policy_is_bit_equal(rollout: Rollout, tmp_path) -> None:
    policy = small_ppo()
    for _ in range(2):
        learn(policy, rollout, batch_size=16, repeat=2)
    save_checkpoint(tmp_path / "a.pt", {"policy": policy.state_dict()})
    loaded = small_ppo(seed=0)
    with torch.no_grad():
        for parameter in loaded.network.parameters():
            parameter.add_(1.0)
    state = load_checkpoint(tmp_path / "a.pt")["policy"]
    kept = copy.deepcopy(state)
    loaded.load_state_dict(state)
    assert state.keys() == kept.keys(), "the caller's dict is left alone"
    assert_same_weights(policy, loaded)
    first, second = (learn(p, rollout, batch_size=16, repeat=2) for p in (policy, loaded))
    assert first == second
    assert_same_weights(policy, loaded)


def test_the_state_of_another_policy_is_refused() -> None:
    with pytest.raises(CheckpointError, match="not that of this policy"):
        small_ppo(hidden=8).load_state_dict(small_ppo(hidden=6).state_dict())
    with pytest.raises(CheckpointError, match="not that of this policy"):
        small_ppo().load_state_dict({"something": 1})


def test_e11_a_policy_saved_on_another_device_acts_the_same_and_says_so(
    rollout: Rollout, caplog: pytest.LogCaptureFixture
) -> None:
    policy, loaded = small_ppo(seed=1), small_ppo(seed=2)
    with caplog.at_level(logging.WARNING):
        loaded.load_state_dict({**policy.state_dict(), "device": "cuda"})
    assert "saved on cuda and goes on on cpu" in caplog.text
    np.testing.assert_array_equal(loaded.act(rollout.reference.obs), policy.act(rollout.reference.obs))


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0},
        {"clip": -1},
        {"max_grad_norm": 0},
        {"gamma": 1.1},
        {"gae_lambda": -0.1},
        {"batch_size": 0},
        {"repeat": 0},
        {"entropy_coef": -1},
        {"value_coef": float("nan")},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PPOSettings(**wrong)


def test_an_action_space_of_another_size_or_kind_is_refused() -> None:
    policy, anything = small_ppo(), gym.spaces.Dict({})
    policy.check(anything, gym.spaces.Discrete(ACTIONS))
    with pytest.raises(ConfigError, match=rf"chooses among {ACTIONS} actions"):
        policy.check(anything, gym.spaces.Discrete(ACTIONS + 1))
    with pytest.raises(ConfigError, match="action_interpreter to categorical"):
        policy.check(anything, gym.spaces.Box(0, 1, ()))


def test_layers_like_dropout_are_off_when_the_policy_acts(rollout: Rollout) -> None:
    policy = small_ppo()
    policy.network.trunk.join.append(nn.Dropout(0.5).eval())
    first = policy.network(rollout.reference.obs)[0]
    assert torch.equal(first, policy.network(rollout.reference.obs)[0])
    seen: list[bool] = []
    policy.network.register_forward_hook(lambda net, *_: seen.append(net.training))
    learn(policy, rollout, batch_size=10**6, repeat=1)
    policy.act(rollout.reference.obs)
    assert seen == [False, True, False]


def test_another_objective_learns_by_its_rewards(rollout: Rollout) -> None:
    """An update under mean-variance is one of the mean on its rewards; under the mean, nothing changes."""
    objective, episodes = MeanVariance(0.1), rollout.reference
    shaped = replace(episodes, reward=objective.rewards(episodes.reward, episodes.done))
    assert np.abs(shaped.reward - episodes.reward).max() > 1e-3
    averse, plain, same = small_ppo(), small_ppo(), small_ppo()
    averse.objective, same.objective = objective, Mean()
    learn(averse, rollout)
    learn(plain, Rollout(shaped, shaped))
    assert_same_weights(averse, plain)
    learn(same, rollout)
    assert_same_weights(same, _learnt(rollout))


def _learnt(rollout: Rollout) -> PPO:
    policy = small_ppo()
    learn(policy, rollout)
    return policy
