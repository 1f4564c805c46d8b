"""Deep Q-learning (Mnih et al., Nature 518, 2015): a lasting buffer of whole episodes, one pass for both ends."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.batch import count_rows
from rlwb.learner import Cut, Expectation
from rlwb.policy.heads import QNetwork, mask_values
from rlwb.policy.learner import (
    NetworkLearner,
    check_answers,
    check_settings,
    fill_up,
    training_mode,
)
from rlwb.policy.replay import Replay, Transitions, n_step_targets
from rlwb.seeds import Stream, generator


@dataclass(frozen=True, kw_only=True)
class DQNSettings:
    """Settings of DQN.

    Parameters
    ----------
    learning_rate
        Step of Adam, above 0. Larger learns faster until it does not learn at all; usual 1e-4 to 1e-3.
    batch_size : transitions
        Transitions a gradient step, on average, 1 or more.
    repeat : draws of each transition
        Gradient steps are made until ``repeat`` times as many transitions are drawn as were collected; 1 or more.
    gamma
        Discount a step, in [0, 1].
    n_step : steps
        Rewards that are summed before the network's own guess stands for the rest, 1 or more. More brings news from an
        order's end sooner, but with the rewards of actions that were tried at random or are long out of use.
    double
        Whether the network chooses the next action and its older copy values it, which overestimates less (van
        Hasselt et al., arXiv 1509.06461); otherwise the copy does both.
    huber
        Errors beyond this count in proportion instead of squared, above 0, in units of the returns' deviation where
        they are scaled; None squares all.
    target_every : gradient steps
        Gradient steps between two copies of the network for the targets, 1 or more; more is steadier and slower.
    epsilon_start, epsilon_end : share of the actions
        Share of random actions while collecting, at first and at last, in [0, 1].
    epsilon_updates : updates
        Updates (training iterations) within which that share falls in a line, 1 or more.
    replay_size : transitions
        Most transitions kept, 1 or more; a collect must fit.
    max_grad_norm
        Gradients longer than this are scaled down to it, above 0.
    decay_updates : updates
        Updates within which the learning rate falls in a line to 0, usually all of them; None keeps the rate.
    return_scaling
        Whether rewards are divided by the deviation of the first collect's returns, so that the loss ignores their
        unit.
    """

    learning_rate: float = 1e-3
    batch_size: int = 500
    repeat: int = 4
    gamma: float = 1.0
    n_step: int = 1
    double: bool = True
    huber: float | None = 1.0
    target_every: int = 50
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_updates: int = 20
    replay_size: int = 100_000
    max_grad_norm: float = 1.0
    decay_updates: int | None = None
    return_scaling: bool = True

    def __post_init__(self) -> None:
        check_settings(
            positive={"learning_rate": self.learning_rate, "huber": self.huber, "max_grad_norm": self.max_grad_norm},
            shares={"gamma": self.gamma, "epsilon_start": self.epsilon_start, "epsilon_end": self.epsilon_end},
            counts={
                "batch_size": self.batch_size,
                "repeat": self.repeat,
                "n_step": self.n_step,
                "target_every": self.target_every,
                "epsilon_updates": self.epsilon_updates,
                "replay_size": self.replay_size,
                "decay_updates": self.decay_updates,
            },
        )

    def epsilon(self, updates: int) -> float:
        """Return the share of random actions after so many updates."""
        left = max(0.0, 1.0 - updates / self.epsilon_updates)
        return self.epsilon_end + (self.epsilon_start - self.epsilon_end) * left


class DQN(NetworkLearner):
    """Deep Q-learning with a target network and, by default, double Q-learning.

    By default a minibatch holds whole episodes, so that one pass gives the values of a transition's both ends. The
    buffer lasts from collect to collect and is part of the state. Otherwise the arithmetic is that of tianshou's DQN.

    Parameters
    ----------
    network
        Network of the actions' values.
    settings
        Hyper-parameters.
    seed
        Names, with the number of updates made, the draws from the buffer.
    """

    figures: tuple[str, ...] = ("gradient_steps", "loss", "q", "epsilon", "replay")
    head = QNetwork
    network: QNetwork
    settings: DQNSettings

    def __init__(self, network: QNetwork, settings: DQNSettings | None = None, *, seed: int = 0) -> None:
        super().__init__(network, settings or DQNSettings(), seed)
        #: The older copy that values what comes next.
        self.target = copy.deepcopy(network).requires_grad_(False).eval()
        self.gradient_steps = 0
        self.replay = Replay(self.settings.replay_size)
        #: What rewards are divided by; 0 before the first collect.
        self.scale = 0.0 if self.settings.return_scaling else 1.0

    def greedy(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the actions of the largest value, int64 of shape (N,), and the values of all, of shape (N, A)."""
        value = self.network(obs)
        return mask_values(value, self.network.allowed(obs)).argmax(dim=1), value

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose actions, int64 of shape (N,): those of the largest value; `noise` replaces some, see `explore`."""
        rows, obs = count_rows(obs), fill_up(obs)
        choice, value = self.greedy(obs)
        check_answers(value[:rows])
        best = choice[:rows].cpu().numpy()
        if noise is None:
            return best
        allowed = self.network.allowed(obs)
        chance = torch.ones_like(value, dtype=torch.bool) if allowed is None else allowed
        if self.network.start is not None:
            chance = self.network.start(obs, allowed)
        return explore(best, chance[:rows].cpu().numpy(), np.asarray(noise), self.settings.epsilon(self.updates))

    @torch.no_grad()
    def expectation(self, obs: Any) -> Expectation:
        """Return what waiting is expected to cost, and the values of the actions that may be chosen."""
        found, filled = super().expectation(obs), fill_up(obs)
        _, value = self.greedy(filled)
        allowed = self.network.allowed(filled)
        may = value if allowed is None else value.masked_fill(~allowed, torch.nan)
        return found._replace(values=(self.scale or 1.0) * may[: count_rows(obs)].double().cpu().numpy())

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> dict[str, float]:
        """Keep episodes laid end to end, and update on draws from all that are kept; return means over the steps.

        Of an episode that was cut off the last observation is kept as well, one row more, and valued by the network.
        """
        s, reward, done = self.settings, np.asarray(reward, dtype=np.float64), np.asarray(done, dtype=bool)
        self.replay.add(Transitions.of(obs, np.asarray(action), reward, done, cut))
        if not self.scale:
            returns = np.add.reduceat(reward, np.flatnonzero(np.append(True, done[:-1])))
            # Equal returns deviate by their rounding at most.
            self.scale = float(returns.std()) if np.ptp(returns) > 1e-9 * np.abs(returns).max() else 1.0
        rng = generator(self.seed, self.updates, Stream.REPLAY)
        steps = max(1, round(s.repeat * len(done) / s.batch_size))
        self._set_learning_rate()
        with training_mode(self.network):
            made = np.array([self._train(*self._draw(rng)) for _ in range(steps)])
        epsilon = s.epsilon(self.updates)
        self.updates += 1
        loss, q = (float(mean) for mean in made.mean(axis=0))
        return {"gradient_steps": steps, "loss": loss, "q": q, "epsilon": epsilon, "replay": len(self.replay)}

    def _draw(self, rng: np.random.Generator) -> tuple[Transitions, np.ndarray | None]:
        """Return rows, and which of them are learnt from, int64 of shape (M,); None for all."""
        if not self.whole_episodes:
            return self.replay.sample_single(self.settings.batch_size, self.settings.n_step, rng)
        rows = self.replay.sample(self.settings.batch_size, rng)
        return rows, None if rows.beyond is None else rows.real

    def _train(self, rows: Transitions, learnt: np.ndarray | None = None) -> tuple[float, float]:
        """Move the weights once; return the loss and the mean value of the actions taken, in the reward's unit."""
        s, obs = self.settings, self._mark_episodes(rows.obs, rows.done)
        value = self.network(obs)
        with torch.no_grad():
            old = self.target(obs)
            best = mask_values(value if s.double else old, self.network.allowed(obs)).argmax(dim=1, keepdim=True)
            ahead = old.gather(1, best)[:, 0].double().cpu().numpy()
            target = n_step_targets(rows.reward / self.scale, rows.done, ahead, s.gamma, s.n_step, rows.beyond)
            target = torch.as_tensor(target, dtype=value.dtype, device=value.device)
        if self.gradient_steps % s.target_every == 0:
            self.target.load_state_dict(self.network.state_dict())
        self.gradient_steps += 1
        taken = value.gather(1, torch.as_tensor(rows.action, device=value.device).long()[:, None])[:, 0]
        if learnt is not None:
            taken, target = taken[learnt], target[learnt]
        if s.huber is None:
            loss = nn.functional.mse_loss(taken, target)
        else:
            loss = nn.functional.huber_loss(taken, target, delta=s.huber)
        self._step(loss)
        return float(loss.detach()), float(taken.detach().mean()) * self.scale

    def acting(self) -> NetworkLearner:
        one = super().acting()
        del one.target, one.replay  # type: ignore[attr-defined]
        return one

    def state_dict(self) -> dict[str, Any]:
        own = {"target": self.target.state_dict(), "gradient_steps": self.gradient_steps, "scale": self.scale}
        return {**super().state_dict(), **own, "replay": self.replay.state_dict()}

    def _load_own(self, state: Mapping[str, Any]) -> None:
        self.target.load_state_dict(state["target"])
        self.gradient_steps, self.scale = state["gradient_steps"], state["scale"]
        self.replay.load_state_dict(state["replay"])


def explore(best: np.ndarray, chance: np.ndarray, noise: np.ndarray, epsilon: float) -> np.ndarray:
    """Return `best` with a share of `epsilon` replaced by random actions, int64 of shape (N,).

    Where a uniform number u is below epsilon, ``u / epsilon`` is again uniform in [0, 1), and picks an action by its
    chance: the first whose chance, together with those before it, is above ``u / epsilon`` of all.

    Parameters
    ----------
    best : int64 of shape (N,)
    chance : of shape (N, A)
        In proportion to the chances of the random actions; truth values pick evenly among the true.
    noise : float64 of shape (N,)
        Uniform numbers in [0, 1).
    epsilon
        In [0, 1].
    """
    upto = chance.cumsum(axis=1, dtype=np.float64)
    # Below the whole, though the product may be rounded up to it.
    number = np.minimum(noise / max(epsilon, 1e-300) * upto[:, -1], np.nextafter(upto[:, -1], 0.0))
    return np.where(noise < epsilon, (upto <= number[:, None]).sum(axis=1), best)
