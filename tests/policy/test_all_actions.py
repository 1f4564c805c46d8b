"""Policy gradients from all actions: their gradient, what they find, and how a training goes on."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.execution import (
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    Engine,
    OrderExecution,
    PAPenaltyReward,
    decision_tree,
)
from rlwb.policy import MLP, PPO, ActionMask, ActorCritic, AllActions, AllActionsSettings, Network, Recurrent
from rlwb.policy.network import make_network
from rlwb.trainer import Checkpoint, Trainer, TrainingVessel, collect
from tests.execution.markets import order, sessions_of
from tests.trainer.small import ACTIONS, assert_same_weights, small, small_network, small_vessel

_SHARES = np.linspace(0.0, 1.0, ACTIONS)


class Plain(MLP):
    """Takes the number of features as other networks do, and reads none."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(hidden)


def learner(kind: type[Network] = Plain, *, scale: float = 0.1, masked: bool = False, **settings: Any) -> AllActions:
    market = small()
    parts = (market.simulator, market.observer, market.chooser, PAPenaltyReward(scale=scale))
    network = small_network(kind, acts={"mask": ActionMask(_SHARES)} if masked else None)
    with torch.no_grad():  # away from the even choice
        network.actor.weight.mul_(100.0)
    return AllActions(network, partial(decision_tree, *parts), AllActionsSettings(**{"batch_size": 8, **settings}))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [Plain, Recurrent])
def test_the_gradient_is_that_of_the_expected_reward(kind: type[Network], masked: bool) -> None:
    """Against what the decisions are worth a small step along the gradient, and one back."""
    policy = learner(kind, masked=masked, entropy_coef=0.0)
    orders = small().orders[:8]
    tree = policy.decision_tree(orders=orders, seeds=np.zeros(8, np.uint64), by_path=policy.trunk.reads_path)
    losses, before = policy._losses_of(tree)
    losses["loss"].backward()
    moved = [(weight, weight.grad.clone()) for weight in policy.network.parameters() if weight.grad is not None]
    length = float(torch.sqrt(sum((grad**2).sum() for _, grad in moved)))

    def value(step: float) -> float:
        with torch.no_grad():
            for weight, grad in moved:
                weight -= step * grad / length
            found = policy._losses_of(tree)[1]
            for weight, grad in moved:
                weight += step * grad / length
        return found

    chance = policy.network(tree.obs)[0].softmax(dim=1).detach().double().numpy()
    worth, of_actions = tree.worth(chance)
    reached = tree.reached(chance)
    unit = np.sqrt((reached[:, None] * chance * (of_actions - worth[:, None]) ** 2).sum() / reached.sum())
    assert before == pytest.approx(worth[:8].mean())
    assert (value(1e-3) - value(-1e-3)) / 2e-3 == pytest.approx(length * unit * reached.sum() / 8, rel=0.01)


def hand_vessel(prices: list[float]) -> TrainingVessel:
    """A purchase and a sale of 100 on one-minute bars with a step each, of which none, half or all can be traded."""
    simulator = OrderExecution(Engine(sessions_of([prices]), 1))
    parts: dict[str, Any] = {
        "simulator": simulator,
        "state_interpreter": CurrentStepStateInterpreter(len(prices)),
        "action_interpreter": CategoricalActionInterpreter(2),
        "reward": PAPenaltyReward(penalty=0.0),
    }
    network = make_network(lambda: ActorCritic(MLP(8), 3), 0)
    policy = AllActions(network, partial(decision_tree, **parts), AllActionsSettings(learning_rate=0.02))
    orders = simulator.align([order(100, side) for side in ("BUY", "SELL")])
    return TrainingVessel(**parts, policy=policy, train_initial_states=orders, episode_per_iter=2)


def test_the_loss_by_hand() -> None:
    """The purchase of `tests/execution/test_decision_tree.py`, by even chances: Q is -100, 0 and 100 at first."""
    own = hand_vessel([99.0, 101.0])
    policy: Any = own.policy
    with torch.no_grad():
        policy.network.actor.weight.zero_()
    tree = policy.decision_tree(orders=own.train_initial_states[:1], seeds=np.zeros(1, dtype=np.uint64))
    losses, value = policy._losses_of(tree)
    # Reached by 1, 1/3 and 1/3 of the orders; later all actions ask for the same, so the advantage is 0 there.
    assert value == pytest.approx(0.0, abs=1e-4)
    assert float(losses["policy_loss"].detach()) == pytest.approx(0.0, abs=1e-6)
    assert float(losses["entropy"].detach()) == pytest.approx(np.log(3))
    losses["policy_loss"].backward()
    deviation = np.sqrt(3 / 5 * (100**2 + 100**2) / 3)
    by_hand = -3 / 5 * np.array([-100, 0, 100]) / 3 / deviation
    assert policy.network.actor.bias.grad.numpy() == pytest.approx(by_hand, rel=1e-5, abs=1e-6)


def test_it_finds_the_best_steps() -> None:
    """Prices fall and rise again: a purchase waits for the lowest price, a sale takes the first."""
    own = hand_vessel([102.0, 101.0, 99.0, 101.5])
    Trainer(max_iters=40).fit(own)
    episodes = collect(own.make_env(own.train_initial_states), own.policy)
    assert episodes.details["inventory"].tolist() == [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]


def test_the_unit_of_the_reward_moves_no_weight() -> None:
    policies = [learner(scale=scale) for scale in (0.1, 10.0)]
    for policy in policies:
        Trainer(max_iters=2).fit(small_vessel(policy=policy))
    for a, b in zip(*(policy.network.parameters() for policy in policies), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_a_training_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    whole, first, second = (learner(decay_updates=3) for _ in range(3))
    Trainer(max_iters=3).fit(small_vessel(policy=whole))
    Trainer(max_iters=2, callbacks=[Checkpoint(tmp_path)]).fit(small_vessel(policy=first))
    Trainer(max_iters=3).fit(small_vessel(policy=second), tmp_path / "0002.pt")
    assert_same_weights(whole, second)


def test_what_acts_needs_no_market() -> None:
    policy = learner()
    Trainer(max_iters=1).fit(small_vessel(policy=policy))
    copy, plain = pickle.loads(pickle.dumps(policy.acting())), PPO(small_network(Plain))
    plain.load_state_dict(policy.state_dict())
    assert not hasattr(copy, "decision_tree")
    with small_vessel(policy=policy).make_env(small().orders[:5]) as env:
        obs = env.reset().obs
    for one in (copy, plain):
        assert np.array_equal(one.act(obs), policy.act(obs))


def test_what_it_was_not_told_is_refused() -> None:
    policy = learner()
    with small_vessel(policy=policy).make_env(small().orders[:3]) as env:
        episodes = collect(env, policy, keep=True)
    for orders in (None, small().orders[:2]):
        if orders is not None:
            policy.prepare(orders)
        with pytest.raises(ConfigError, match="prepare"):
            policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)
    policy.prepare(small().orders[:3])
    figures = policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)
    assert set(figures) == set(AllActions.figures)
