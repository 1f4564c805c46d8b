from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.batch import take_rows
from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.execution import CategoricalActionInterpreter, CurrentStepStateInterpreter
from rlwb.policy import PPO, ActionMask
from rlwb.trainer import collect
from tests.policy.conftest import Rollout, learn
from tests.trainer.small import ACTIONS, assert_same_weights, small, small_network, small_ppo

QUARTERS = [0.0, 0.25, 0.5, 0.75, 1.0]


def observe(left: list[float], step: int = 0, steps: int = 4, target: float = 800.0) -> dict[str, np.ndarray]:
    n = len(left)
    return {
        "position": (np.array(left) * target).astype(np.float32),
        "target": np.full(n, target, dtype=np.float32),
        "cur_step": np.full(n, step, dtype=np.int32),
        "num_step": np.full(n, steps, dtype=np.int32),
    }


def chosen(shares: list[float], obs: dict[str, np.ndarray]) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in ActionMask(shares)(obs).numpy()]


def test_shares_above_what_is_left_by_hand() -> None:
    # Left 1: all differ. Left 0.3: 0, 0.25, and 0.5 for everything. Left 0.5: 0, 0.25, and 0.5 for everything.
    # Left 0.2: 0, and 0.25 for everything. Left 0.76: 1 alone asks for more than 0.75.
    left = [1.0, 0.3, 0.5, 0.2, 0.76]
    expected = [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2], [0, 1], [0, 1, 2, 3, 4]]
    assert chosen(QUARTERS, observe(left)) == expected


def test_one_action_stands_for_all_in_the_last_step() -> None:
    # The smallest share that covers what is left, so that its name says what is done.
    assert chosen(QUARTERS, observe([1.0, 0.3, 0.5, 0.2, 0.0], step=3)) == [[4], [2], [2], [1], [0]]
    assert chosen(QUARTERS, observe([0.6], step=0, steps=1)) == [[3]]


def test_j02_where_orders_need_not_complete_the_last_step_is_a_choice_as_any_other() -> None:
    mask = ActionMask(QUARTERS, complete_at_end=False)
    last, early = (observe([1.0, 0.3, 0.0], step=step) for step in (3, 1))
    assert mask(last).tolist() == ActionMask(QUARTERS)(early).tolist()


def test_shares_in_any_order_twice_and_below_the_position() -> None:
    assert chosen([1.0, 0.5, 0.0, 0.5], observe([1.0, 0.5, 0.4])) == [[0, 1, 2], [1, 2], [1, 2]]
    # No share covers the position: all differ, and in the last step the largest stands for everything.
    assert chosen([0.0, 0.25], observe([1.0])) == [[0, 1]]
    assert chosen([0.0, 0.25], observe([1.0], step=3)) == [[1]]


def test_rounding_of_the_position_makes_no_action() -> None:
    # 1 - 0.1 - … is not 0.5; the share 0.5 still covers it.
    tenths = 1.0
    for _ in range(5):
        tenths -= 0.1
    assert tenths != 0.5
    for left in (tenths, 0.5 + 1e-7, 0.5 - 1e-7):
        assert chosen(QUARTERS, observe([left])) == [[0, 1, 2]]


@given(
    st.lists(st.sampled_from([i / 16 for i in range(17)]), min_size=2, max_size=9),
    st.lists(st.integers(1, 64), min_size=1, max_size=20),
    st.floats(1e-3, 1e9),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=150)
def test_what_stays_is_one_action_for_each_amount_asked_for(
    shares: list[float], parts: list[int], target: float, step: int
) -> None:
    position = np.array(parts) / 64 * target
    obs = observe(list(position / target), step, 4, target)
    allowed = ActionMask(shares)(obs).numpy()
    for row, left in zip(allowed, position, strict=True):
        # The rule of CategoricalActionInterpreter, written down once more.
        asks = np.array([left if step == 3 else min(share * target, left) for share in shares])
        kinds = {round(ask / target * 64) for ask in asks}
        kept = [round(ask / target * 64) for ask in asks[row]]
        assert sorted(kept) == sorted(kinds)


def test_what_stays_differs_in_what_the_interpreter_makes_of_it() -> None:
    """On real states: the allowed actions ask for different amounts, and each masked one for that of an allowed one."""
    market = small()
    interpreter = CategoricalActionInterpreter(ACTIONS - 1)
    observer = CurrentStepStateInterpreter(market.simulator.engine.max_step)
    mask, rng, seen = ActionMask(interpreter.shares), np.random.default_rng(0), 0
    env = make_env(market.simulator, observer, interpreter, None, market.orders)
    active = env.reset()
    while len(active):
        state = env.state
        asks = [interpreter.interpret(state.known, np.full(len(active), a)) for a in range(ACTIONS)]
        shares = np.stack(asks, axis=1) / state.orders.amount[:, None]
        allowed = mask(active.obs).numpy()
        for ask, row in zip(shares, allowed, strict=True):
            assert (np.diff(ask[row]) > 1e-3).all()
            assert np.abs(ask[:, None] - ask[row][None, :]).min(axis=1).max() < 1e-6
            seen += int(not row.all())
        action = rng.integers(ACTIONS, size=len(active))
        _, active = env.step(action)
    assert seen > 20, "some rows were masked"


@pytest.mark.parametrize("shares", [[], [0.0, 1.5], [[0.0, 1.0]], [float("nan")]])
def test_impossible_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"not numbers in \[0, 1\]"):
        ActionMask(shares)


# In the policy


def masked_ppo(**settings: object) -> PPO:
    policy = small_ppo(**settings)
    policy.network.mask = ActionMask(QUARTERS)
    return policy


def test_a_masked_action_is_never_drawn() -> None:
    market, policy = small(), masked_ppo()
    parts = (market.simulator, market.observer, market.chooser, None, market.orders)
    for seed in range(3):
        with make_env(*parts) as env:
            episodes = collect(env, policy, seed=(seed,), keep=True)
        allowed = policy.network.mask(episodes.obs).numpy()
        assert not allowed.all()
        assert allowed[np.arange(len(allowed)), episodes.action].all()
        greedy = policy.act(episodes.obs)
        assert allowed[np.arange(len(allowed)), greedy].all()
        for noise in (0.0, 1 - 1e-12):
            drawn = policy.act(episodes.obs, np.full(len(allowed), noise))
            assert allowed[np.arange(len(allowed)), drawn].all(), noise


def test_probabilities_are_those_of_the_distribution_without_the_masked_actions(rollout: Rollout) -> None:
    masked, plain, obs = masked_ppo().network, small_ppo().network, rollout.reference.obs
    with torch.no_grad():
        logits, value = plain(obs)
        found, same = masked(obs)
    assert torch.equal(value, same)
    probability = logits.double().softmax(1).numpy() * masked.mask(obs).numpy()
    expected = probability / probability.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.double().softmax(1).numpy(), expected, atol=1e-12)
    log_p = found.log_softmax(1)
    entropy = -(log_p.exp() * log_p).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_hand = -np.nansum(expected * np.log(expected), axis=1)
    np.testing.assert_allclose(entropy.numpy(), by_hand, atol=1e-6)


def test_an_update_of_a_masked_policy_is_finite_and_leaves_masked_actions_alone(rollout: Rollout) -> None:
    policy = masked_ppo()
    allowed = policy.network.mask(rollout.reference.obs).numpy()
    e = rollout.reference
    action = np.where(allowed[np.arange(len(allowed)), e.action], e.action, allowed.argmax(axis=1))
    figures = policy.learn(e.obs, action, e.reward, e.done)
    assert np.isfinite(list(figures.values())).all()
    only_last = e.obs["cur_step"] >= e.obs["num_step"] - 1
    rows = take_rows(e.obs, np.flatnonzero(only_last))
    policy.network.zero_grad()
    policy.network(rows)[0].log_softmax(1).max(dim=1).values.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in policy.network.parameters()), "one action: nothing to choose"


def test_without_a_mask_nothing_changes(rollout: Rollout) -> None:
    """A mask that allows all actions gives the same bits as none."""

    class All(ActionMask):
        def forward(self, obs: dict[str, np.ndarray]) -> torch.Tensor:
            return torch.ones(len(obs["position"]), ACTIONS, dtype=torch.bool)

    plain, masked = small_ppo(), small_ppo()
    masked.network.mask = All(QUARTERS)
    assert learn(plain, rollout, batch_size=16) == learn(masked, rollout, batch_size=16)
    assert_same_weights(plain, masked)


def test_a_mask_is_no_part_of_the_weights() -> None:
    masked = small_network(seed=3, acts={"mask": ActionMask(QUARTERS)})
    plain = small_network(seed=3)
    assert masked.state_dict().keys() == plain.state_dict().keys()
    for a, b in zip(masked.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
