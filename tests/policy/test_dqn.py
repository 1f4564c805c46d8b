from __future__ import annotations

import copy
import logging
import random
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numba
import numpy as np
import pytest
import torch
from tianshou.algorithm import DQN as TianshouDQN  # noqa: N811
from tianshou.algorithm import algorithm_base
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from rlwb.batch import split_shared, take_rows
from rlwb.env import make_env
from rlwb.errors import CheckpointError, ConfigError, InterpreterError, RlwbError
from rlwb.policy import (
    DQN,
    MLP,
    ActionMask,
    Attention,
    Convolution,
    DQNSettings,
    Network,
    QNetwork,
    Recurrent,
    make_network,
)
from rlwb.policy.dqn import explore
from rlwb.policy.replay import Transitions
from rlwb.seeds import Stream, generator
from rlwb.trainer import Checkpoint, Trainer, collect, load_checkpoint, save_checkpoint
from tests.policy.conftest import Rollout, learn
from tests.policy.test_masks import QUARTERS
from tests.trainer.small import ACTIONS, UPDATE, assert_same_weights, small, small_network, small_vessel, weights


def small_dqn(
    *, seed: int = 0, hidden: int = 8, kind: Any = Recurrent, mask: bool = False, previous: bool = False, **own: Any
) -> DQN:
    acts = {"mask": ActionMask(QUARTERS) if mask else None}
    if kind is MLP:
        net = make_network(lambda: QNetwork(MLP(hidden), ACTIONS, **acts), seed)
    else:
        net = small_network(kind, hidden, seed=seed, head=QNetwork, acts=acts, previous_day=previous)
    return DQN(net, DQNSettings(**{"learning_rate": 5e-3, "target_every": 3, **UPDATE, **own}), seed=seed)


#: Some four steps an update, so that rounding has no time to grow.
FEW = {"batch_size": 24, "repeat": 1}


def draws(policy: DQN, monkeypatch: pytest.MonkeyPatch) -> list[Transitions]:
    """Let the policy write down what it draws."""
    drawn: list[Transitions] = []
    sample = policy.replay.sample
    monkeypatch.setattr(policy.replay, "sample", lambda *a: drawn.append(sample(*a)) or drawn[-1])
    return drawn


def close_to(policy: DQN, reference: nn.Module, start: dict[str, np.ndarray]) -> None:
    """Compare weights; the tolerance is a share of how far the update has moved each array."""
    for name, value in reference.state_dict().items():
        moved = np.abs(value.numpy() - start[name]).max()
        assert moved > 1e-4, f"{name} has not moved"
        np.testing.assert_allclose(weights(policy)[name], value.numpy(), rtol=0, atol=2e-3 * moved, err_msg=name)


def values(net: nn.Module, rollout: Rollout) -> np.ndarray:
    with torch.no_grad():
        return net(rollout.blocks.obs).numpy()


def same_values(policy: DQN, reference: nn.Module, rollout: Rollout, start: np.ndarray) -> None:
    """Compare answers: Adam moves a weight whose gradient is rounding alone, like attention's bias of the keys."""
    found, expected = values(policy.network, rollout), values(reference, rollout)
    moved = np.abs(expected - start).max()
    assert moved > 1e-2
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * moved)


class PlainDQN:
    """Deep Q-learning written down once more: plain torch, a transition at a time, blocks as observations."""

    def __init__(self, net: QNetwork, settings: DQNSettings, scale: float) -> None:
        self.net, self.old, self.settings, self.scale = copy.deepcopy(net), copy.deepcopy(net), settings, scale
        self.adam = torch.optim.Adam(self.net.parameters(), lr=settings.learning_rate)
        self.steps = 0

    def target(self, rows: Transitions, t: int) -> float:
        s, value = self.settings, 0.0
        for k in range(s.n_step):
            value += s.gamma**k * rows.reward[t + k] / self.scale
            if rows.done[t + k]:
                return value
        following = {name: part[t + s.n_step][None] for name, part in rows.obs.items()}
        with torch.no_grad():
            q, old = self.net(following)[0], self.old(following)[0]
            chooser = q if s.double else old
            if self.net.mask is not None:
                chooser = torch.where(self.net.mask(following)[0], chooser, -torch.inf)
        return value + s.gamma**s.n_step * float(old[int(chooser.argmax())])

    def step(self, rows: Transitions) -> float:
        s = self.settings
        target = torch.tensor([self.target(rows, t) for t in range(len(rows.done))], dtype=torch.float32)
        if self.steps % s.target_every == 0:
            self.old.load_state_dict(self.net.state_dict())
        self.steps += 1
        error = self.net(rows.obs)[range(len(rows.done)), rows.action] - target
        loss = error**2
        if s.huber is not None:
            far = s.huber * (error.abs() - s.huber / 2)
            loss = torch.where(error.abs() <= s.huber, loss / 2, far)
        self.adam.zero_grad()
        loss.mean().backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), s.max_grad_norm)
        self.adam.step()
        return float(loss.detach().mean())


@pytest.mark.parametrize("seen", ["reference", "blocks"])
@pytest.mark.parametrize(
    "settings",
    [
        {"return_scaling": False, "max_grad_norm": 100.0},
        {"gamma": 0.9, "n_step": 2, "huber": None, "max_grad_norm": 0.3},
        {"double": False, "n_step": 3, "huber": 0.2, "mask": True},
        {"gamma": 0.7, "mask": True},
    ],
)
def test_updates_equal_plain_torch(
    rollout: Rollout, settings: dict[str, Any], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = small_dqn(previous=True, **settings)
    start = weights(policy)
    plain = PlainDQN(policy.network, policy.settings, 1.0)
    blocks = copy.deepcopy(policy)
    for _ in range(2):
        drawn = draws(policy, monkeypatch)
        loss = learn(policy, rollout, seen, **FEW)["loss"]
        plain.scale = policy.scale
        # The same rows again, as observations with blocks.
        rng = generator(policy.seed, policy.updates - 1, Stream.REPLAY)
        e = rollout.blocks
        blocks.replay.add(Transitions(e.obs, e.action, e.reward, e.done))
        rows = [blocks.replay.sample(FEW["batch_size"], rng) for _ in drawn]
        for a, b in zip(drawn, rows, strict=True):
            np.testing.assert_array_equal(a.action, b.action)
        losses = [plain.step(part) for part in rows]
        assert len(losses) > 2
        assert loss == pytest.approx(np.mean(losses), rel=1e-3)
        monkeypatch.undo()
    close_to(policy, plain.net, start)


@pytest.mark.parametrize("settings", [{}, {"double": False, "gamma": 0.9, "n_step": 2, "huber": None}])
def test_updates_equal_tianshou_with_separate_passes(
    rollout: Rollout, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numba.config.DISABLE_JIT:
        monkeypatch.setattr(algorithm_base, "_nstep_return", algorithm_base._nstep_return.py_func)
    policy = small_dqn(return_scaling=False, max_grad_norm=1e9, **settings)
    start, s, net = values(policy.network, rollout), policy.settings, copy.deepcopy(policy.network)
    theirs = TianshouDQN(
        policy=DiscreteQLearningPolicy(
            model=Answers(net, {"features": small().features}), action_space=gym.spaces.Discrete(ACTIONS)
        ),
        optim=AdamOptimizerFactory(lr=s.learning_rate),
        gamma=s.gamma,
        n_step_return_horizon=s.n_step,
        target_update_freq=s.target_every,
        is_double=s.double,
        huber_loss_delta=s.huber,
    )
    drawn = draws(policy, monkeypatch)
    learn(policy, rollout, **FEW)
    for rows in drawn:
        n, no, batch = len(rows.done), np.zeros_like(rows.done), Batch(split_shared(rows.obs)[0])
        following = batch[np.append(np.arange(1, n), 0)]
        buffer = ReplayBuffer.from_data(batch, rows.action, rows.reward, rows.done, no, rows.done, following)
        buffer.last_index[0] = n - 1  # from_data leaves it at 0, so that the first row counts as the last
        with policy_within_training_step(theirs.policy):
            theirs.update(buffer=buffer, sample_size=0)
    same_values(policy, net, rollout, start)


class Answers(nn.Module):
    """A `QNetwork` in the form that tianshou calls."""

    def __init__(self, net: QNetwork, shared: dict[str, Any]) -> None:
        super().__init__()
        self.net, self.shared = net, shared

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        return self.net({**obs, **self.shared}), state


class Table(Network):
    """A trunk whose features are the observation itself."""

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.as_tensor(obs, dtype=torch.float32)


def table(actions: int = 3, **settings: Any) -> DQN:
    net = QNetwork(Table(actions), actions)
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(actions))
        net.head.bias.zero_()
    return DQN(net, DQNSettings(return_scaling=False, huber=None, **settings))


@pytest.mark.parametrize(("double", "expected"), [(True, 1 + 0.5 * 6), (False, 1 + 0.5 * 9)])
def test_the_double_target_by_hand(double: bool, expected: float) -> None:
    """The next state's values are 1, 4, 3 now and 9, 6, 2 in the copy: 4 is the largest now, and worth 6 there."""
    policy = table(gamma=0.5, double=double, learning_rate=1e-9, target_every=10)
    obs = np.array([[2, 0, 0], [1, 4, 3]], dtype=np.float32)
    policy.gradient_steps = 1  # the copy is not refreshed
    policy.target.head.weight.data.copy_(torch.zeros(3, 3))
    policy.target.head.bias.data.copy_(torch.tensor([9.0, 6.0, 2.0]))
    rows = Transitions(obs, np.array([0, 2]), np.array([1.0, 5.0]), np.array([False, True]))
    loss, q = policy._train(rows)
    # Errors: 2 - target, and 3 - 5 at the end, where nothing follows.
    assert loss == pytest.approx(((2 - expected) ** 2 + (3 - 5) ** 2) / 2)
    assert q == pytest.approx((2 + 3) / 2)


def test_the_copy_follows_every_so_many_steps() -> None:
    policy = table(target_every=3)
    rows = Transitions(np.ones((1, 3)), np.array([1]), np.array([5.0]), np.array([True]))
    same = []
    for _ in range(7):
        before = policy.network.head.bias.detach().clone()
        policy._train(rows)
        same.append(torch.equal(policy.target.head.bias, before))
    assert same == [True, False, False, True, False, False, True]


# Exploring


def test_exploring_by_hand() -> None:
    # Epsilon 0.4: below it, u / 0.4 picks the first, second or third of three allowed actions by thirds.
    noise = np.array([0.0, 0.13, 0.14, 0.26, 0.27, 0.399, 0.4, 0.9])
    allowed = np.tile([True, False, True, False, True], (8, 1))
    found = explore(np.full(8, 4), allowed, noise, 0.4)
    assert found.tolist() == [0, 0, 2, 2, 4, 4, 4, 4]
    assert explore(np.array([1]), np.ones((1, 2), dtype=bool), np.array([0.0]), 0.0).tolist() == [1]
    assert explore(np.array([0]), np.ones((1, 7), dtype=bool), np.array([1 - 2**-53]), 1.0).tolist() == [6]


def test_random_actions_are_as_frequent_as_they_should_be() -> None:
    policy, n = table(5, epsilon_start=0.3, epsilon_end=0.0, epsilon_updates=10), 100_000
    value = np.tile(np.array([0, 0, 9, 0, 0], dtype=np.float32), (n, 1))
    noise = np.random.default_rng(0).random(n)
    for updates, epsilon in ((0, 0.3), (5, 0.15), (10, 0.0), (11, 0.0)):
        policy.updates = updates
        frequency = np.bincount(policy.act(value, noise), minlength=5) / n
        expected = np.full(5, epsilon / 5) + np.eye(5)[2] * (1 - epsilon)
        np.testing.assert_allclose(frequency, expected, atol=4 * np.sqrt(0.25 / n))
    assert (policy.act(value) == 2).all()


def test_a_masked_action_is_never_taken_and_the_others_are_explored_evenly() -> None:
    market, policy = small(), small_dqn(mask=True)
    parts = (market.simulator, market.observer, market.chooser, None, market.orders)
    count, chances = np.zeros(ACTIONS), np.zeros(ACTIONS)
    for seed in range(20):
        with make_env(*parts) as env:
            episodes = collect(env, policy, seed=(seed,), keep=True)
        allowed = policy.network.allowed(episodes.obs).numpy()
        every = np.arange(len(allowed))
        assert not allowed.all()
        assert allowed[every, episodes.action].all()
        assert allowed[every, policy.act(episodes.obs)].all()
        count += np.bincount(episodes.action, minlength=ACTIONS)
        chances += (allowed / allowed.sum(axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(count, chances, atol=4 * np.sqrt(chances.max()))


def test_a_mask_changes_which_next_action_counts(rollout: Rollout) -> None:
    plain, masked = small_dqn(), small_dqn(mask=True)
    assert learn(plain, rollout) != learn(masked, rollout)


def test_answers_of_nan_are_refused() -> None:
    with pytest.raises(InterpreterError, match="missing numbers in the observations"):
        table().act(np.array([[0.0, np.nan, 0.0]], dtype=np.float32))


def test_the_answer_to_a_row_does_not_depend_on_the_batch(rollout: Rollout) -> None:
    policy = small_dqn(hidden=16)
    learn(policy, rollout)
    obs = rollout.reference.obs
    n = len(obs["cur_step"])
    seen: list[torch.Tensor] = []
    hook = policy.network.register_forward_hook(lambda _m, _i, out: seen.append(out))
    policy.act(obs)
    for size in (1, 3, 7, 16):
        parts = []
        for low in range(0, n, size):
            policy.act(take_rows(obs, np.arange(low, min(low + size, n))))
            parts.append(seen[-1][: min(size, n - low)])
        assert torch.equal(torch.cat(parts), seen[0][:n]), size
    hook.remove()


# Learning


class _OneHot(Network):
    def forward(self, obs: Any) -> torch.Tensor:
        return nn.functional.one_hot(torch.as_tensor(obs).long(), 3).float()


def one_hot(actions: int) -> QNetwork:
    return make_network(lambda: QNetwork(_OneHot(3), actions), seed=0)


def test_a_bandit_is_learnt_to_the_optimum() -> None:
    """Four arms, one step; the best one's mean is 1, the others' are 0, with noise of deviation 1."""
    policy = DQN(one_hot(4), DQNSettings(learning_rate=0.02, epsilon_updates=10, batch_size=100))
    rng = np.random.default_rng(0)
    for _ in range(15):
        obs = np.zeros(200)
        action = policy.act(obs, rng.random(200))
        reward = (action == 2) + rng.normal(size=200)
        policy.learn(obs, action, reward, np.ones(200, dtype=bool))
    assert policy.act(np.zeros(1)).tolist() == [2]
    value = policy.network(np.zeros(1)).detach().numpy()[0] * policy.scale
    np.testing.assert_allclose(value, [0, 0, 1, 0], atol=0.3)


def walk(policy: DQN, rng: np.random.Generator, episodes: int) -> tuple[np.ndarray, ...]:
    """Three states in a row: action 1 walks on for -0.05, and off the end for 0.95; action 0 ends it for 0.2."""
    parts, active = [], np.arange(episodes)
    while len(active):
        state = np.full(len(active), len(parts))
        action = policy.act(state, rng.random(len(active)))
        reward = np.where(action == 0, 0.2, np.where(state == 2, 0.95, -0.05))
        done = (action == 0) | (state == 2)
        parts.append((active, state, action, reward, done))
        active = active[~done]
    episode, *rest = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(episode, kind="stable")
    return tuple(part[order] for part in rest)


@pytest.mark.parametrize("settings", [{}, {"n_step": 3}, {"double": False, "huber": None}])
def test_a_chain_is_learnt_to_the_optimum(settings: dict[str, Any]) -> None:
    """Walking on is worth 1 - 0.05 * (3 - s) from state s, always more than 0.2."""
    exploring = {"epsilon_end": 0.5, "epsilon_updates": 5}
    policy = DQN(one_hot(2), DQNSettings(learning_rate=0.03, target_every=5, batch_size=50, **exploring, **settings))
    rng, states = np.random.default_rng(0), np.arange(3)
    for _ in range(15):
        policy.learn(*walk(policy, rng, 100))
    assert policy.act(states).tolist() == [1, 1, 1]
    value = policy.network(states).detach().numpy() * policy.scale
    np.testing.assert_allclose(value[:, 0], 0.2, atol=0.08)
    if "n_step" not in settings:  # whose rewards are those of exploring too
        np.testing.assert_allclose(value[:, 1], 1 - 0.05 * (3 - states), atol=0.08)


def test_the_reward_s_unit_does_not_matter(rollout: Rollout) -> None:
    one, two, e = small_dqn(), small_dqn(), rollout.reference
    first = one.learn(e.obs, e.action, e.reward, e.done)
    second = two.learn(e.obs, e.action, e.reward * 1024, e.done)
    assert_same_weights(one, two)
    assert second["loss"] == first["loss"]
    assert second["q"] == pytest.approx(first["q"] * 1024)
    returns = [part.sum() for part in np.split(e.reward, np.flatnonzero(e.done)[:-1] + 1)]
    assert one.scale == pytest.approx(np.std(returns))


def test_equal_returns_are_not_scaled(rollout: Rollout) -> None:
    policy, e = small_dqn(), rollout.reference
    policy.learn(e.obs, e.action, np.where(e.done, 0.1, 0.0), e.done)
    assert policy.scale == 1.0


def test_repeats_and_batch_size_make_the_number_of_steps(rollout: Rollout) -> None:
    n = len(rollout.reference.done)
    policy = small_dqn(epsilon_start=1.0, epsilon_end=0.5, epsilon_updates=4)
    for update, repeat, size in ((0, 1, n // 2), (1, 3, n), (2, 1, 10 * n)):
        figures = learn(policy, rollout, batch_size=size, repeat=repeat)
        assert set(figures) == set(DQN.figures)
        assert figures["gradient_steps"] == max(1, round(repeat * n / size))
        assert figures["epsilon"] == 1 - update / 8
        assert figures["replay"] == (update + 1) * n, "the buffer lasts"


def test_an_update_passes_once_over_both_ends(rollout: Rollout) -> None:
    policy = small_dqn()
    passes = {"net": 0, "old": 0}
    for name, net in (("net", policy.network), ("old", policy.target)):
        net.register_forward_hook(lambda *_, name=name: passes.__setitem__(name, passes[name] + 1))
    steps = learn(policy, rollout)["gradient_steps"]
    assert passes == {"net": steps, "old": steps}


@pytest.mark.parametrize("kind", [Recurrent, Convolution, Attention, MLP])
def test_reference_and_blocks_learn_the_same(rollout: Rollout, kind: Any) -> None:
    one, two = small_dqn(kind=kind), small_dqn(kind=kind)
    start = values(one.network, rollout)
    learn(one, rollout, "reference", **FEW)
    learn(two, rollout, "blocks", **FEW)
    same_values(one, two.network, rollout, start)


def test_the_copy_shares_no_weight_and_has_no_gradient(rollout: Rollout) -> None:
    policy = small_dqn()
    learn(policy, rollout)
    assert not {id(p) for p in policy.target.parameters()} & {id(p) for p in policy.network.parameters()}
    assert all(p.grad is None for p in policy.target.parameters())


# Refusals


def test_what_cannot_be_learnt_from_is_refused_before_it_reaches_a_weight(rollout: Rollout) -> None:
    policy, e = small_dqn(return_scaling=False, huber=None), rollout.reference
    before = weights(policy)
    with pytest.raises(ConfigError, match="whole episodes"):
        policy.learn(e.obs, e.action, e.reward, np.append(e.done[:-1], False))
    with pytest.raises(RlwbError, match="transition 3 is nan"):
        policy.learn(e.obs, e.action, np.where(np.arange(len(e.done)) == 3, np.nan, e.reward), e.done)
    with pytest.raises(ConfigError, match=r"replay_size is 10, but one collect has \d+ transitions"):
        learn(small_dqn(replay_size=10), rollout)
    with pytest.raises(RlwbError, match="lower learning_rate"):
        policy.learn(e.obs, e.action, e.reward * 1e30, e.done)
    np.testing.assert_equal(weights(policy), before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0},
        {"huber": 0},
        {"max_grad_norm": 0},
        {"gamma": 1.1},
        {"epsilon_start": 2},
        {"epsilon_end": -0.1},
        {"n_step": 0},
        {"batch_size": 0},
        {"repeat": 0},
        {"target_every": 0},
        {"epsilon_updates": 0},
        {"replay_size": 0},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DQNSettings(**wrong)


# State


def test_same_seed_same_weights_and_no_global_random_state(rollout: Rollout) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    policy = small_dqn()
    policy.act(rollout.reference.obs, np.full(len(rollout.reference.done), 0.5))
    learn(policy, rollout)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_equal(before[1], after[1])
    assert torch.equal(before[2], after[2])
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    same, other = small_dqn(), small_dqn()
    learn(same, rollout)
    assert_same_weights(policy, same)
    other.seed = 1
    learn(other, rollout)
    assert not np.array_equal(weights(policy)["head.weight"], weights(other)["head.weight"])


def test_the_next_update_of_a_loaded_policy_is_bit_equal(rollout: Rollout, tmp_path) -> None:
    policy = small_dqn(target_every=3)
    for _ in range(2):
        learn(policy, rollout)
    assert policy.gradient_steps % 3, "the copy is older than the network when it is saved"
    save_checkpoint(tmp_path / "a.pt", {"policy": policy.state_dict()})
    loaded = small_dqn(seed=0, target_every=3)
    with torch.no_grad():
        for parameter in (*loaded.network.parameters(), *loaded.target.parameters()):
            parameter.add_(1.0)
    state = load_checkpoint(tmp_path / "a.pt")["policy"]
    kept = copy.deepcopy(state)
    loaded.load_state_dict(state)
    assert state.keys() == kept.keys(), "the caller's dict is left alone"
    assert_same_weights(policy, loaded)
    noise = np.random.default_rng(0).random(len(rollout.reference.done))
    np.testing.assert_array_equal(*(p.act(rollout.reference.obs, noise) for p in (policy, loaded)))
    for _ in range(2):
        first, second = (learn(p, rollout) for p in (policy, loaded))
        assert first == second
        assert_same_weights(policy, loaded)


def test_a_transition_by_reference_takes_some_eighty_bytes(rollout: Rollout, tmp_path) -> None:
    policy, n = small_dqn(), len(rollout.reference.done)
    sizes = []
    for _ in range(2):
        learn(policy, rollout)
        save_checkpoint(tmp_path / "a.pt", {"policy": policy.state_dict()})
        sizes.append((tmp_path / "a.pt").stat().st_size)
    assert (sizes[1] - sizes[0]) / n < 90


def test_the_state_of_another_policy_is_refused() -> None:
    with pytest.raises(CheckpointError, match="not that of this policy"):
        small_dqn(hidden=8).load_state_dict(small_dqn(hidden=6).state_dict())
    with pytest.raises(CheckpointError, match="not that of this policy"):
        small_dqn().load_state_dict({"something": 1})


def test_e11_a_policy_saved_on_another_device_acts_the_same_and_says_so(
    rollout: Rollout, caplog: pytest.LogCaptureFixture
) -> None:
    policy, loaded = small_dqn(seed=1), small_dqn(seed=2)
    state = policy.state_dict()
    with caplog.at_level(logging.WARNING):
        loaded.load_state_dict({**state, "device": "cuda"})
    assert "saved on cuda and goes on on cpu" in caplog.text
    np.testing.assert_array_equal(loaded.act(rollout.reference.obs), policy.act(rollout.reference.obs))


# In a trainer


def fit(policy: DQN, folder: Any, iterations: int, resume: Any = None, **trainer: Any) -> Trainer:
    vessel = small_vessel(policy=policy)
    fitted = Trainer(max_iters=iterations, val_every_n_iters=1, callbacks=[Checkpoint(folder)], **trainer)
    fitted.fit(vessel, resume)
    return fitted


def test_a_resumed_training_equals_one_without_a_break(tmp_path) -> None:
    # A buffer of 60 rows forgets on the way; exploration is still falling.
    settings = {"replay_size": 60, "epsilon_updates": 8, "mask": True}
    whole, begun, resumed = (small_dqn(**settings) for _ in range(3))
    figures = fit(whole, tmp_path / "whole", 6).metrics
    fit(begun, tmp_path / "parts", 3)
    again = fit(resumed, tmp_path / "parts", 6, tmp_path / "parts" / "0003.pt").metrics
    for name in figures.keys() - {"seconds"}:
        assert again[name] == figures[name] or (np.isnan(again[name]) and np.isnan(figures[name])), name
    assert_same_weights(whole, resumed)
    assert_equal(whole.state_dict(), resumed.state_dict())


def assert_equal(a: Any, b: Any) -> None:
    if hasattr(a, "items"):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, Sequence) and not isinstance(a, str):
        assert len(a) == len(b)
        for one, two in zip(a, b, strict=True):
            assert_equal(one, two)
    else:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_every_environment_gives_the_same_training(tmp_path) -> None:
    policies = [small_dqn(kind=MLP) for _ in range(3)]
    kinds = ({}, {"finite_env_type": "dummy", "concurrency": 5}, {"finite_env_type": "dummy", "concurrency": 2})
    for number, (policy, kind) in enumerate(zip(policies, kinds, strict=True)):
        vessel = small_vessel(policy=policy)
        Trainer(max_iters=2, **kind).fit(vessel)
        assert len(policy.replay) > 20, number
    assert_same_weights(policies[1], policies[2])
    close_to(policies[0], policies[1].network, weights(small_dqn(kind=MLP)))
