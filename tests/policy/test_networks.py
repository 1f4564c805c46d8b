from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy import (
    MLP,
    PPO,
    ActorCritic,
    Attention,
    Convolution,
    Network,
    Oracle,
    PPOSettings,
    QNetwork,
    Recurrent,
    make_network,
)
from rlwb.policy.episodes import last_rows
from tests.policy.conftest import Rollout, learn
from tests.policy.test_recurrent_encoder import step_by_step
from tests.trainer.small import ACTIONS, small, small_network


def network(previous_day: bool = False, seed: int = 0) -> ActorCritic:
    return small_network(seed=seed, previous_day=previous_day)


def any_network(kind: Any, head: Any = ActorCritic) -> Any:
    return make_network(lambda: head(MLP(8), ACTIONS), 0) if kind is MLP else small_network(kind, head=head)


@pytest.mark.parametrize("previous_day", [False, True])
def test_a_shared_path_equals_one_path_a_row(rollout: Rollout, previous_day: bool) -> None:
    net = network(previous_day)
    obs, done = rollout.reference.obs, rollout.reference.done
    shared = {**obs, "path": last_rows(done)}
    gradients = []
    for given in (obs, shared):
        net.zero_grad()
        logits, value = net(given)
        (logits.pow(2).sum() * 100 + value.sum()).backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
        if given is obs:
            expected = (logits.detach(), value.detach())
    torch.testing.assert_close(logits.detach(), expected[0], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(value.detach(), expected[1], rtol=1e-5, atol=1e-6)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_private_path_equals_a_walk_along_it(rollout: Rollout) -> None:
    net, obs = network().trunk, rollout.reference.obs
    with torch.no_grad():
        states = net._private({**obs, "path": last_rows(rollout.reference.done)})
        for row in range(0, len(obs["cur_step"]), 5):
            share = obs["position_history"][row] / obs["target"][row]
            clock = np.arange(len(share), dtype=np.float32) / np.float32(obs["num_step"][row])
            path = torch.tensor(np.stack([share, clock], axis=1))
            expected = step_by_step(net.private, path, int(obs["cur_step"][row]) + 1, torch.zeros(8))
            torch.testing.assert_close(states[row], expected, rtol=1e-5, atol=1e-6)


def test_one_pass_equals_the_blocks(rollout: Rollout) -> None:
    net = network(True)
    with torch.no_grad():
        a, b = net(rollout.reference.obs), net(rollout.blocks.obs)
    torch.testing.assert_close(a[0], b[0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(a[1], b[1], rtol=1e-5, atol=1e-7)


def test_the_terminal_observation_of_the_longest_order_is_valid() -> None:
    market = small()
    state = market.simulator.start(market.orders, np.zeros(len(market.orders), dtype=np.uint64))
    while not state.done.all():
        request = np.where(state.known.is_last_step & ~state.done, state.known.position, 0.0)
        state = market.simulator.step(state, request)
    obs = market.observer.refer(state.known)
    assert obs["cur_step"].max() == market.simulator.engine.max_step
    with torch.no_grad():
        logits, value = network()(obs)
    assert torch.isfinite(logits).all()
    assert torch.isfinite(value).all()


@pytest.mark.parametrize("kind", [Recurrent, Convolution, Attention, MLP])
def test_what_an_order_is_worth_does_not_depend_on_its_size(rollout: Rollout, kind) -> None:
    net = any_network(kind)
    obs = rollout.reference.obs
    larger = {name: obs[name] * np.float32(1024) for name in ("target", "position", "position_history")}
    with torch.no_grad():
        a, b = net(obs), net({**obs, **larger})
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])


@pytest.mark.parametrize("kind", [Recurrent, Convolution, Attention, MLP])
def test_one_network_tells_buys_from_sells(rollout: Rollout, kind) -> None:
    net = any_network(kind)
    obs = rollout.reference.obs
    assert set(np.unique(obs["acquiring"])) == {0, 1}
    with torch.no_grad():
        own, other = net(obs)[0], net({**obs, "acquiring": 1 - obs["acquiring"]})[0]
    assert (own != other).any(dim=1).all()


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        *product([Recurrent, Convolution, Attention, MLP], [ActorCritic, QNetwork]),
        (Oracle, ActorCritic),
    ],
)
def test_a_causal_network_is_not_moved_by_later_bars_and_says_so(rollout: Rollout, kind, head) -> None:
    old, obs = small().features, rollout.reference.obs
    today = old.today.copy()
    today[:, 8:] += 1.0
    moved = MarketFeatures(old.columns, today, old.previous, old.normaliser)

    def answers(features: MarketFeatures) -> tuple[np.ndarray, bool]:
        net = any_network(kind, head)
        with torch.no_grad():
            return net.trunk({**obs, "features": features}).numpy(), net.causal

    (before, causal), (after, _) = answers(old), answers(moved)
    differs = (before != after).any(axis=1)
    early = obs["cur_tick"] <= 8
    assert causal == (kind is not Oracle)
    assert causal == (not differs[early].any())
    assert differs[~early].any() == (kind is not MLP)


def test_the_weights_come_from_the_seed_and_nothing_else() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = network(seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    two, other = network(seed=3), network(seed=4)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_an_untrained_policy_is_near_uniform(rollout: Rollout) -> None:
    with torch.no_grad():
        probability = network()(rollout.reference.obs)[0].softmax(dim=1)
    np.testing.assert_allclose(probability.numpy(), 1 / ACTIONS, atol=0.01)


def test_a_head_has_the_width_of_its_network() -> None:
    net = make_network(lambda: QNetwork(Convolution(5, hidden=4, layers=2), 3), seed=0)
    assert net.trunk.width == net.head.in_features == 4
    assert net.head.out_features == net.actions == 3
    with pytest.raises(ConfigError, match="channels is 0"):
        Recurrent(0)
    for kind in (MLP, Recurrent):
        with pytest.raises(ConfigError, match="hidden is 0"):
            kind(hidden=0) if kind is MLP else kind(5, hidden=0)


class LSTM(Network):
    """A network of a user's, as in the documentation of `Network`."""

    def __init__(self, channels: int, hidden: int = 64) -> None:
        super().__init__(width=hidden)
        self.market = nn.LSTM(channels, hidden, batch_first=True)
        self.join = nn.Linear(hidden + 3, hidden)

    def forward(self, obs: Any) -> torch.Tensor:
        _, (state, _) = self.market(self.today(obs))
        return torch.relu(self.join(torch.cat([state[0], self.scalars(obs)], dim=1)))


def test_a_network_of_one_s_own_reads_both_forms_of_observations_and_learns(rollout: Rollout) -> None:
    features, obs = small().features, rollout.reference.obs
    net = small_network(LSTM)
    for name, block in (("today", "data_processed"), ("yesterday", "data_processed_prev")):
        read = getattr(net.trunk, name)
        np.testing.assert_array_equal(read(obs).numpy(), rollout.blocks.obs[block])
        np.testing.assert_array_equal(read(rollout.blocks.obs).numpy(), rollout.blocks.obs[block])
    today = net.trunk.today(obs).numpy()
    later = np.arange(features.shape[1])[None] >= obs["cur_tick"][:, None]
    assert not today[later].any()
    assert today[~later].any()
    with torch.no_grad():
        torch.testing.assert_close(net(obs), net(rollout.blocks.obs))
    assert net.trunk.scalars(obs).shape == (len(obs["cur_tick"]), 3)
    before = net(obs)[0].detach()
    figures = learn(PPO(net, PPOSettings(learning_rate=5e-3)), rollout)
    assert np.isfinite(list(figures.values())).all()
    assert not torch.equal(net(obs)[0], before)


def test_the_scalars_by_hand() -> None:
    obs = {"target": [800.0], "position": [200.0], "cur_step": [1], "num_step": [5]}
    given = {name: np.array(value, dtype=np.float32) for name, value in obs.items()}
    torch.testing.assert_close(MLP(4).scalars(given), torch.tensor([[0.25, 0.2, 0.25]]))
    over = {**given, "cur_step": np.array([5], dtype=np.int32)}
    torch.testing.assert_close(MLP(4).scalars(over), torch.tensor([[0.25, 1.0, 1.0]]))
