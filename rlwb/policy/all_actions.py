"""Policy gradients from the worth of all actions of all decisions, which a replay of the market tells exactly.

A policy gradient weighs the actions that were taken by what came of them, and that is mostly what prices did. But
prices of a replayed market do not depend on the policy. So here every action of every decision that an order can come
to is executed (`rlwb.execution.decision_tree`), and what each is worth under the policy follows by recursion from the
last step. The gradient is that of the expected reward of the orders, without noise of actions and without a critic:
an expected policy gradient (Ciosek and Whiteson, AAAI 2018, arXiv 1706.05374; Asadi et al., arXiv 1709.00503, call it
mean actor-critic) whose baseline knows the prices (Mao et al., "Variance reduction for reinforcement learning in
input-driven environments", ICLR 2019, arXiv 1807.02264).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from rlwb.batch import take
from rlwb.errors import ConfigError
from rlwb.learner import Cut
from rlwb.policy.episodes import check_episodes
from rlwb.policy.heads import ActorCritic
from rlwb.policy.learner import check_settings, training_mode
from rlwb.policy.ppo import PPO
from rlwb.seeds import Stream, derived_seed, episode_seeds, generator

#: Keeps divisions by a deviation finite.
_TINY = 1e-8


@dataclass(frozen=True, kw_only=True)
class AllActionsSettings:
    """Settings of policy gradients from all actions.

    Parameters
    ----------
    learning_rate
        Step of Adam, above 0.
    batch_size : orders
        Orders a minibatch, 1 or more.
    repeat : passes
        Passes over the collected orders, 1 or more; the worth of the actions is computed anew for every minibatch.
    entropy_coef
        Weight of the entropy bonus, 0 or more; larger explores longer.
    max_grad_norm
        Gradients longer than this are scaled down to it, above 0.
    decay_updates : updates
        Updates (training iterations) within which the learning rate falls in a line to 0; None keeps the rate.
    """

    learning_rate: float = 2.5e-3
    batch_size: int = 250
    repeat: int = 1
    entropy_coef: float = 0.05
    max_grad_norm: float = 1.0
    decay_updates: int | None = None

    def __post_init__(self) -> None:
        check_settings(
            positive={"learning_rate": self.learning_rate, "max_grad_norm": self.max_grad_norm},
            counts={"batch_size": self.batch_size, "repeat": self.repeat, "decay_updates": self.decay_updates},
            weights={"entropy_coef": self.entropy_coef},
        )


class AllActions(PPO):
    """Policy gradients from all actions of all decisions that the orders of a collect can come to.

    It acts as `PPO` does; what was collected tells how well, and teaches nothing. With d(s) the chance that an order
    comes to decision s, and A(s, a) what action a is worth there beyond the mean of all,

        gradient = sum over s of d(s) sum over a of grad pi(a | s) A(s, a),

    which is the gradient of the expected reward by the policy gradient theorem (Sutton et al., NeurIPS 1999). Both are
    computed anew for every minibatch by the policy as it is, so there are no probability ratios to clip.

    Parameters
    ----------
    network
        The policy; its critic is not used.
    decision_tree
        Takes ``orders``, ``seeds`` of random numbers and, as ``by_path``, whether more of an order's path than its
        position is read, to the decisions that the orders can come to (`rlwb.execution.DecisionTree`).
    settings
        Hyper-parameters.
    seed
        Names, with the number of updates made, the minibatches, and random numbers that a simulator may draw.
    """

    figures: tuple[str, ...] = ("gradient_steps", "loss", "policy_loss", "entropy", "value")
    number_head = None
    settings: AllActionsSettings  # type: ignore[assignment]

    def __init__(
        self,
        network: ActorCritic,
        decision_tree: Callable[..., Any],
        settings: AllActionsSettings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(network, settings or AllActionsSettings(), seed=seed)  # type: ignore[arg-type]
        self.decision_tree = decision_tree
        self._trees: list[Any] = []

    def prepare(self, initial_states: Sequence[Any]) -> None:
        """Compute the decisions that these orders can come to, in minibatches."""
        count = len(initial_states)
        rng = generator(self.seed, self.updates, Stream.MINIBATCH)
        seeds = episode_seeds(derived_seed(self.seed, self.updates, Stream.REPLAY), np.arange(count))
        batches = np.array_split(rng.permutation(count), max(1, round(count / self.settings.batch_size)))
        by_path = self.trunk.reads_path
        self._trees = [
            self.decision_tree(orders=take(initial_states, rows), seeds=seeds[rows], by_path=by_path)
            for rows in batches
        ]

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> dict[str, float]:
        """Update on the orders that `prepare` was told; return the means of the figures over the minibatches."""
        done = np.asarray(done, dtype=bool)
        check_episodes(obs, action, reward, done)
        trees, self._trees = self._trees, []
        told = sum(tree.steps[0].stop for tree in trees)
        if told != done.sum() or cut is not None:
            raise ConfigError(
                f"learn got {int(done.sum())} episodes of {told} orders; tell their orders by prepare before, and let "
                "each go on to its end."
            )
        self._set_learning_rate()
        with training_mode(self.network):
            steps = [self._learn_from(tree) for tree in trees * self.settings.repeat]
        self.updates += 1
        return {
            "gradient_steps": len(steps),
            **{name: float(np.mean([step[name] for step in steps])) for name in steps[0]},
        }

    def _learn_from(self, tree: Any) -> dict[str, float]:
        """Move the weights once by the decisions of some orders; return the figures before."""
        losses, value = self._losses_of(tree)
        self._step(losses["loss"])
        return {**{name: float(loss.detach()) for name, loss in losses.items()}, "value": value}

    def _losses_of(self, tree: Any) -> tuple[dict[str, torch.Tensor], float]:
        """Return the loss and its parts, each of shape (), and the mean of what the orders earn."""
        log_chance = self.network(tree.obs)[0].log_softmax(dim=1)
        chance = log_chance.exp()
        known = chance.detach().cpu().numpy().astype(np.float64)
        value, action_value = tree.worth(known)
        weight = tree.reached(known)
        weight /= weight.sum()
        advantage = action_value - value[:, None]
        # As many times their deviation, so that the entropy's weight and the length of a step ignore the reward's unit.
        advantage /= np.sqrt((weight[:, None] * known * advantage**2).sum()) + _TINY
        floats = partial(torch.as_tensor, dtype=chance.dtype, device=chance.device)
        policy_loss = -(chance * floats(weight[:, None] * advantage)).sum()
        entropy = -(chance * log_chance * floats(weight[:, None])).sum()
        loss = policy_loss - self.settings.entropy_coef * entropy
        return {"loss": loss, "policy_loss": policy_loss, "entropy": entropy}, float(value[tree.steps[0]].mean())

    def acting(self) -> AllActions:
        one = super().acting()
        assert isinstance(one, AllActions)
        del one.decision_tree  # which holds the market
        return one
