"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347) with whole episodes in a minibatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch

from rlwb.batch import count_rows, take_rows
from rlwb.learner import Cut, Expectation
from rlwb.objective import Mean, Objective
from rlwb.policy.bounded import BoundedActorCritic
from rlwb.policy.episodes import check_episodes, dial_settings, gae, merge_statistics, shuffled
from rlwb.policy.episodes import cut as cut_rows
from rlwb.policy.heads import ActorCritic, Categorical
from rlwb.policy.learner import (
    NetworkLearner,
    check_answers,
    check_settings,
    fill_up,
    training_mode,
)
from rlwb.seeds import Stream, generator

#: Rows a pass without gradients, at least; bounds the memory where observations carry blocks.
_ROWS_PER_PASS = 2048
#: Keeps divisions by a deviation finite.
_TINY = 1e-8


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """Settings of PPO.

    Parameters
    ----------
    learning_rate
        Step of Adam, above 0. Larger learns faster until it does not learn at all; usual 1e-4 to 2e-3.
    batch_size : transitions
        Transitions a minibatch, at least, 1 or more; larger is steadier, smaller takes more steps. A number above that
        of the transitions makes one minibatch of all.
    repeat : passes
        Passes over the collected transitions, 1 or more; larger learns more from each, and drifts further from the
        policy that collected them.
    gamma
        Discount a step, in [0, 1]; below 1 the policy cares less for what comes later in the order.
    gae_lambda
        Bias against variance of the advantage, in [0, 1] (Schulman et al., arXiv 1506.02438): 1 uses whole episodes
        (unbiased, noisy), 0 the critic's guess (biased, calm).
    clip
        Largest relative change of an action's probability that is still rewarded, above 0; usual 0.1 to 0.3.
    value_coef
        Weight of the value loss, 0 or more.
    entropy_coef
        Weight of the entropy bonus, 0 or more; larger explores longer. The entropy of a number is that of its log odds,
        so that its bonus widens their deviation and leaves their mean.
    max_grad_norm
        Gradients longer than this are scaled down to it, above 0.
    decay_updates : updates
        Updates (training iterations) within which the learning rate falls in a line to 0, usually all of them; it
        steadies the end of a training. None keeps the rate.
    value_clip
        Whether the change of the value is clipped as well, by `clip`.
    return_scaling
        Whether returns are divided by their running deviation, so that the loss ignores the reward's unit.
    """

    learning_rate: float = 2e-3
    batch_size: int = 500
    repeat: int = 4
    gamma: float = 1.0
    gae_lambda: float = 1.0
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 1.0
    decay_updates: int | None = None
    value_clip: bool = False
    return_scaling: bool = True

    def __post_init__(self) -> None:
        check_settings(
            positive={"learning_rate": self.learning_rate, "clip": self.clip, "max_grad_norm": self.max_grad_norm},
            shares={"gamma": self.gamma, "gae_lambda": self.gae_lambda},
            counts={"batch_size": self.batch_size, "repeat": self.repeat, "decay_updates": self.decay_updates},
            weights={"value_coef": self.value_coef, "entropy_coef": self.entropy_coef},
        )


@dataclass
class Samples:
    """What the loss needs of N transitions, each part of shape (N,).

    The policy that collected them gave log pi(a | s) and V(s); V is drawn to `returns`.
    """

    obs: Any
    done: np.ndarray
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    returns: torch.Tensor


class PPO(NetworkLearner):
    """Proximal policy optimisation with clipped probability ratios and generalised advantage estimation.

    Its actions are choices, or numbers between bounds, by the head of its network, which says how they are distributed.
    By default a minibatch holds whole episodes, so that a causal network passes over a day once for all of its
    decisions, and the network runs once for actor and critic. Otherwise the arithmetic is that of tianshou's PPO.

    Parameters
    ----------
    network
        Actor and critic: `ActorCritic`, or `BoundedActorCritic` for numbers.
    settings
        Hyper-parameters.
    seed
        Names, with the number of updates made, the order of the minibatches.
    objective
        What a sample of episodes, each with the sum of its rewards, is worth; the mean by default. Others act through
        the reward (`Objective.rewards`).
    """

    figures: tuple[str, ...] = ("gradient_steps", "loss", "policy_loss", "value_loss", "entropy")
    head = ActorCritic
    number_head: ClassVar[type[BoundedActorCritic] | None] = BoundedActorCritic
    network: ActorCritic
    settings: PPOSettings

    def __init__(
        self,
        network: ActorCritic,
        settings: PPOSettings | None = None,
        *,
        seed: int = 0,
        objective: Objective | None = None,
    ) -> None:
        super().__init__(network, settings or PPOSettings(), seed)
        self.objective = objective or Mean()
        #: Number, mean and variance of all returns so far.
        self.return_statistics = (0, 0.0, 1.0)

    def check(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        if self.number_head is None or not isinstance(self.network, self.number_head):
            super().check(observation_space, action_space)
            return
        self.network.check(type(self).__name__, action_space)
        self._check_observations(observation_space)

    def greedy(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best actions, of shape (N,), and the scores that they follow from, of shape (N, A).

        Of choices they are the most probable, int64, and the scores the logits; of numbers the medians, float32, and
        the scores mean and deviation of their log odds.
        """
        scores = self.network(obs)[0]
        return self.network.distribution(scores).best(), scores

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose actions, of shape (N,): the quantiles of their distribution at `noise`, or the best ones."""
        rows = count_rows(obs)
        best, scores = (part[:rows] for part in self.greedy(fill_up(obs)))
        check_answers(scores)
        return best.cpu().numpy() if noise is None else self.network.distribution(scores).draw(noise)

    @torch.no_grad()
    def expectation(self, obs: Any) -> Expectation:
        """Return what waiting is expected to cost, and the chances of actions that are choices."""
        found = super().expectation(obs)
        _, scores = self.greedy(fill_up(obs))
        if not isinstance(self.network.distribution(scores), Categorical):
            return found
        return found._replace(chances=scores[: count_rows(obs)].double().softmax(dim=1).cpu().numpy())

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> dict[str, float]:
        """Update on episodes laid end to end; return the means of the losses over the minibatches.

        An episode that was cut off is worth the critic's value of its last observation beside its rewards.
        """
        done = np.asarray(done, dtype=bool)
        check_episodes(obs, action, reward, done)
        self._set_learning_rate()
        reward = self.objective.rewards(np.asarray(reward, dtype=np.float64), done, dial_settings(obs, done))
        if cut is not None:
            # Discounted, the value of what is not seen counts like a part of the last reward.
            reward = reward.copy()
            reward[cut.rows] += self.settings.gamma * self._worth(cut)
        samples = self._evaluate(obs, action, reward, done)
        with training_mode(self.network):
            steps = [self._train(samples, rows) for rows in self._minibatches(done)]
        self.updates += 1
        return {
            "gradient_steps": len(steps),
            **{name: float(np.mean([step[name] for step in steps])) for name in steps[0]},
        }

    def _evaluate(self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> Samples:
        """Return what the policy as it is says of the transitions, and their advantages."""
        with torch.no_grad():
            pieces = cut_rows(np.arange(len(done)), done, _ROWS_PER_PASS)
            parts = [self.network(self._rows(obs, done, rows)) for rows in pieces]
        scores, value = (torch.cat(part) for part in zip(*parts, strict=True))
        count, mean, variance = self.return_statistics
        scale = self._scale()
        worth = value.cpu().numpy().astype(np.float64) * scale
        advantage, returns = gae(reward, worth, done, self.settings.gamma, self.settings.gae_lambda)
        if self.settings.return_scaling:
            self.return_statistics = merge_statistics(count, mean, variance, returns)
        taken = torch.as_tensor(action, device=value.device)
        floats = partial(torch.as_tensor, dtype=torch.float32, device=value.device)
        log_prob = self.network.distribution(scores).log_prob(taken)
        return Samples(obs, done, taken, log_prob, value, floats(advantage), floats(returns / scale))

    @torch.no_grad()
    def _worth(self, cut: Cut) -> np.ndarray:
        """Return the values of the last observations of episodes that were cut off, float64 of shape (K,)."""
        value = self.network(self._mark_episodes(cut.obs, np.ones(len(cut.rows), dtype=bool)))[1]
        return np.asarray(value.cpu().numpy().astype(np.float64) * self._scale())

    def _scale(self) -> float:
        """Return what the network's values are multiplied by: the deviation of the returns so far."""
        return float(np.sqrt(self.return_statistics[2] + _TINY)) if self.settings.return_scaling else 1.0

    def _minibatches(self, done: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows of each minibatch: all in a random order in each pass, whole episodes in one piece."""
        rng = generator(self.seed, self.updates, Stream.MINIBATCH)
        piece = done if self.whole_episodes else np.ones_like(done)
        for _ in range(self.settings.repeat):
            yield from cut_rows(shuffled(piece, rng), piece, self.settings.batch_size)

    def _train(self, samples: Samples, rows: np.ndarray) -> dict[str, float]:
        """Move the weights once on some rows; return the losses before."""
        scores, value = self.network(self._rows(samples.obs, samples.done, rows))
        at = torch.as_tensor(rows, device=value.device)
        losses = self._losses(samples, at, scores, value)
        self._step(losses["loss"])
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def _losses(
        self, samples: Samples, at: torch.Tensor, scores: torch.Tensor, value: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the loss of the rows `at` and its parts, each of shape ()."""
        s = self.settings
        advantage, returns, old_value = samples.advantage[at], samples.returns[at], samples.value[at]
        if len(at) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + _TINY)
        policy = self.network.distribution(scores)
        ratio = (policy.log_prob(samples.action[at]) - samples.log_prob[at]).exp()
        clipped = ratio.clamp(1.0 - s.clip, 1.0 + s.clip)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        error = (returns - value).pow(2)
        if s.value_clip:
            near = old_value + (value - old_value).clamp(-s.clip, s.clip)
            error = torch.max(error, (returns - near).pow(2))
        value_loss = error.mean()
        entropy = policy.entropy().mean()
        loss = policy_loss + s.value_coef * value_loss - s.entropy_coef * entropy
        return {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

    def _rows(self, obs: Any, done: np.ndarray, rows: np.ndarray) -> Any:
        """Return some rows of the observations, marked by episode."""
        return self._mark_episodes(take_rows(obs, rows), done[rows])

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "return_statistics": list(self.return_statistics)}

    def _load_own(self, state: Mapping[str, Any]) -> None:
        count, mean, variance = state["return_statistics"]
        self.return_statistics = (count, mean, variance)
