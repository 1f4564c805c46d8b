from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy import (
    MLP,
    ActorCritic,
    AttentionEncoder,
    ConvolutionEncoder,
    NetworkSettings,
    QNetwork,
    Recurrent,
    make_network,
    make_teacher,
)
from rlwb.policy.episodes import last_rows
from tests.policy.conftest import Rollout
from tests.policy.test_market_encoder import step_by_step
from tests.trainer.small import ACTIONS, small


def network(previous_day: bool = False, seed: int = 0):
    settings = NetworkSettings(hidden=8, previous_day=previous_day)
    return make_network(settings, ACTIONS, features=small().features, seed=seed)


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
        states = net._private({**obs, "path": last_rows(rollout.reference.done)}, torch.device("cpu"))
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
    env = market.factory.vectorize(
        market.orders, state_interpreter=market.observer, action_interpreter=market.chooser, reward=None
    )
    active = env.reset()
    while len(active):
        _, active = env.step(np.zeros(len(active), dtype=int))
    obs = market.observer.refer_batch(env.state)
    assert obs["cur_step"].max() == market.factory.engine.max_step
    with torch.no_grad():
        logits, value = network()(obs)
    assert torch.isfinite(logits).all()
    assert torch.isfinite(value).all()


@pytest.mark.parametrize("kind", ["recurrent", "convolution", "attention", "mlp"])
def test_what_an_order_is_worth_does_not_depend_on_its_size(rollout: Rollout, kind) -> None:
    net = make_network(NetworkSettings(kind=kind, hidden=8), ACTIONS, features=small().features)
    obs = rollout.reference.obs
    larger = {name: obs[name] * np.float32(1024) for name in ("target", "position", "position_history")}
    with torch.no_grad():
        a, b = net(obs), net({**obs, **larger})
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])


@pytest.mark.parametrize("kind", ["recurrent", "convolution", "attention", "mlp"])
def test_one_network_tells_buys_from_sells(rollout: Rollout, kind) -> None:
    net = make_network(NetworkSettings(kind=kind, hidden=8), ACTIONS, features=small().features)
    obs = rollout.reference.obs
    assert set(np.unique(obs["acquiring"])) == {0, 1}
    with torch.no_grad():
        own, other = net(obs)[0], net({**obs, "acquiring": 1 - obs["acquiring"]})[0]
    assert (own != other).any(dim=1).all()


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        *product(["recurrent", "convolution", "attention", "mlp"], [ActorCritic, QNetwork]),
        ("teacher", ActorCritic),
    ],
)
def test_a_causal_network_is_not_moved_by_later_bars_and_says_so(rollout: Rollout, kind, head) -> None:
    old, obs = small().features, rollout.reference.obs
    today = old.today.copy()
    today[:, 8:] += 1.0
    moved = MarketFeatures(old.columns, today, old.previous, old.normaliser)

    def answers(features: MarketFeatures) -> tuple[np.ndarray, bool]:
        if kind == "teacher":
            net = make_teacher(NetworkSettings(hidden=8), ACTIONS, features=features)
        else:
            net = make_network(NetworkSettings(kind, hidden=8), ACTIONS, features=features, kind=head)
        with torch.no_grad():
            return net.trunk(obs).numpy(), net.causal

    (before, causal), (after, _) = answers(old), answers(moved)
    differs = (before != after).any(axis=1)
    early = obs["cur_tick"] <= 8
    assert causal == (kind != "teacher")
    assert causal == (not differs[early].any())
    assert differs[~early].any() == (kind != "mlp")


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


def test_kinds() -> None:
    assert isinstance(make_network(NetworkSettings(kind="mlp", hidden=4), 3).trunk, MLP)
    assert isinstance(make_network(NetworkSettings(hidden=4), 3, channels=5).trunk, Recurrent)
    for kind, encoder in {"convolution": ConvolutionEncoder, "attention": AttentionEncoder}.items():
        net = make_network(NetworkSettings(kind=kind, hidden=4), 3, channels=5)
        assert isinstance(net.trunk.market, encoder)
    q = make_network(NetworkSettings(hidden=4), 3, channels=5, kind=QNetwork)
    assert q.head.out_features == 3
    with pytest.raises(ConfigError, match="give features or channels"):
        make_network(NetworkSettings(), 3)
    with pytest.raises(ConfigError, match="hidden is 0"):
        NetworkSettings(hidden=0)
