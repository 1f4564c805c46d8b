"""Chances with which an order is traded evenly on average."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.policy import DQN, MLP, PPO, ActionMask, ActorCritic, DQNSettings, EvenStart, QNetwork, make_network
from tests.policy.test_masks import QUARTERS, observe


def chances(shares: list[float], obs: dict[str, np.ndarray], *, masked: bool = False) -> np.ndarray:
    allowed = ActionMask(shares)(obs) if masked else None
    return EvenStart(shares)(obs, allowed).numpy()


def test_chances_by_hand() -> None:
    # All left, 4 steps: a quarter is wanted, the shares above 0 mean 0.625, so c = 0.4, a tenth for each of four.
    np.testing.assert_allclose(chances(QUARTERS, observe([1.0])), [[0.6, 0.1, 0.1, 0.1, 0.1]], rtol=1e-12)
    # A quarter left with 2 steps to go: an eighth is wanted, every share above 0 asks for a quarter, so c = 1/2.
    found = chances(QUARTERS, observe([0.25], step=2))
    np.testing.assert_allclose(found, [[0.5, 0.125, 0.125, 0.125, 0.125]], rtol=1e-12)
    # With the mask one action stands for the four.
    np.testing.assert_allclose(chances(QUARTERS, observe([0.25], step=2), masked=True), [[0.5, 0.5, 0, 0, 0]])


def test_where_an_even_pace_cannot_be_met() -> None:
    # The least share is above the pace, 0.25 of 4 steps: it is taken almost always.
    np.testing.assert_allclose(chances([0.5, 1.0], observe([1.0])), [[0.99, 0.01]])
    # The last step wants everything; all but the least action ask for 0.625 on average.
    np.testing.assert_allclose(chances(QUARTERS, observe([1.0], step=3)), [[0.01, *[0.2475] * 4]])
    # Where one action alone may be chosen, it has all the chance; where all ask for the same, each has its part.
    np.testing.assert_allclose(chances(QUARTERS, observe([0.5], step=3), masked=True), [[0, 0, 1, 0, 0]])
    np.testing.assert_allclose(chances([0.0, 0.5], observe([0.0])), [[0.5, 0.5]])


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True),
    left=st.integers(1, 12),
    step=st.integers(0, 6),
    masked=st.booleans(),
)
def test_the_mean_is_the_even_pace(shares: list[int], left: int, step: int, masked: bool) -> None:
    values = [0.0, *(share / 12 for share in shares)]
    obs = observe([left / 12], step=step, steps=8)
    found = chances(values, obs, masked=masked)[0]
    assert found.sum() == pytest.approx(1.0)
    ask = np.minimum(values, left / 12)
    wanted = left / 12 / (8 - step)
    rest = np.delete(ask, 0)
    if masked:
        rest = ask[1:][ActionMask(values)(obs).numpy()[0, 1:]]
    if 0.01 < wanted / rest.mean() < 0.99:
        # Observations are float32.
        assert found @ ask == pytest.approx(wanted, rel=1e-6)


def test_an_untrained_actor_starts_there_and_random_actions_are_drawn_so() -> None:
    obs = {**observe([1.0] * 20_000), "acquiring": np.ones(20_000, dtype=np.int64)}
    noise = np.random.default_rng(0).random(20_000)
    start = EvenStart(QUARTERS)
    actor = PPO(make_network(lambda: ActorCritic(MLP(8), 5, start=start), seed=0))
    random = DQN(make_network(lambda: QNetwork(MLP(8), 5, start=start), seed=0), DQNSettings(epsilon_start=1.0))
    for policy, near in ((actor, 0.03), (random, 0.015)):
        frequency = np.bincount(policy.act(obs, noise), minlength=5) / len(noise)
        np.testing.assert_allclose(frequency, [0.6, 0.1, 0.1, 0.1, 0.1], atol=near)


def test_masked_actions_stay_impossible() -> None:
    obs = {**observe([0.25] * 1000), "acquiring": np.ones(1000, dtype=np.int64)}
    net = make_network(lambda: ActorCritic(MLP(8), 5, mask=ActionMask(QUARTERS), start=EvenStart(QUARTERS)), seed=0)
    probability = net(obs)[0].softmax(dim=1)
    assert (probability[:, 2:] == 0).all()
    assert torch.isfinite(net(obs)[0]).all()


def test_what_are_no_shares_is_refused() -> None:
    for shares in ([0.5, 1.5], [], [[0.5]], [-0.1]):
        with pytest.raises(ConfigError, match="not numbers in"):
            EvenStart(shares)
