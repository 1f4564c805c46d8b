"""Proximal policy optimisation (arXiv 1707.06347) on tianshou: the trunk run once, whole episodes a minibatch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import PPO as TianshouPPO  # noqa: N811
from tianshou.algorithm.modelfree.a2c import A2CTrainingStats
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer, SequenceSummaryStats
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.algorithms import (
    NoWarmUp,
    check_answers,
    check_decay,
    check_episodes,
    check_loss,
    decayed,
    fill_up,
    foreign_state,
    set_learning_rate,
    warn_of_device,
)
from rlwb.policy.episodes import count_rows, cut, gae, last_rows, shuffled, take_rows
from rlwb.policy.networks import ActorCritic

#: Names the stream of random numbers that orders the minibatches, apart from others of the same seed.
_STREAM = 0x6D696E69
#: Rows a pass without gradients, at least; bounds the memory where observations carry blocks.
_ROWS_PER_PASS = 2048


@dataclass(frozen=True)
class PPOSettings:
    """Settings of PPO.

    Parameters
    ----------
    learning_rate
        Of Adam. Larger learns faster and breaks sooner; usual 1e-4 to 1e-3.
    gamma
        Discount a step. Episodes are short and all reward counts: 1.
    gae_lambda
        Bias against variance of the advantage (Schulman et al., arXiv 1506.02438); 1 is the full return.
    clip
        Largest relative change of an action's probability that is still rewarded; usual 0.1 to 0.3.
    value_coef, entropy_coef
        Weights of the value loss and of the entropy bonus; more entropy explores longer.
    max_grad_norm
        Gradients are scaled down to this norm.
    decay_updates
        The learning rate falls in a line to nothing within so many updates; None keeps it.
    value_clip
        Whether the value's change is clipped as well.
    return_scaling
        Whether returns are divided by their running deviation, so that the loss ignores the reward's unit.
    """

    learning_rate: float = 2e-3
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
        positive = {"learning_rate": self.learning_rate, "clip": self.clip, "max_grad_norm": self.max_grad_norm}
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above 0.")
        for name, value in {"gamma": self.gamma, "gae_lambda": self.gae_lambda}.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}; it must lie in [0, 1].")
        check_decay(self.decay_updates)


class _Head(nn.Module):
    """One output of an `ActorCritic`, in the form that tianshou calls."""

    def __init__(self, net: ActorCritic, output: int) -> None:
        super().__init__()
        self.net = net
        self.output = output

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        value = self.net(obs)[self.output]
        return (value, state) if self.output == 0 else value


class FusedAdam(AdamOptimizerFactory):
    """Adam (arXiv 1412.6980) as one compiled operation, four times as fast for networks of this size."""

    def _create_optimizer_for_params(self, params: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=self.lr, fused=True)


class _Policy(NoWarmUp, DiscreteActorPolicy):
    """tianshou's policy as it is."""


class PPO(TianshouPPO):
    """tianshou's PPO for an `ActorCritic`.

    Parameters
    ----------
    net
        Network of actor and critic.
    settings
        Hyper-parameters.
    seed
        Seeds the order of minibatches, together with the number of updates made.

    Notes
    -----
    Three things differ from the parent, none of them in the mathematics. The network runs once for logits and
    value. A minibatch holds whole episodes, so that a causal network passes over a day once for all of its
    decisions. The order of minibatches depends on the seed and the update's number alone, so that no random
    state needs saving.
    """

    #: Names of what `learn` returns.
    figures: tuple[str, ...] = ("gradient_steps", "loss", "actor_loss", "vf_loss", "ent_loss")

    def __init__(self, net: ActorCritic, settings: PPOSettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings = settings or PPOSettings()
        super().__init__(
            policy=_Policy(
                actor=_Head(net, 0), action_space=gym.spaces.Discrete(net.actor.out_features), deterministic_eval=True
            ),
            critic=_Head(net, 1),
            optim=FusedAdam(lr=settings.learning_rate),
            eps_clip=settings.clip,
            value_clip=settings.value_clip,
            vf_coef=settings.value_coef,
            ent_coef=settings.entropy_coef,
            max_grad_norm=settings.max_grad_norm,
            gae_lambda=settings.gae_lambda,
            gamma=settings.gamma,
            return_scaling=settings.return_scaling,
        )
        self.net = net
        self.seed = seed
        self.updates = 0

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose actions.

        Parameters
        ----------
        obs
            A batch of observations.
        noise : float64 of shape (N,), optional
            Uniform numbers in [0, 1) that pick from the policy's distribution; without them each action is
            the most probable one.

        Returns
        -------
        int64 of shape (N,)
        """
        rows = count_rows(obs)
        logits = self.net(fill_up(obs))[0][:rows]
        check_answers(logits)
        if noise is None:
            return logits.argmax(dim=1).cpu().numpy()
        cumulative = logits.double().softmax(dim=1).cumsum(dim=1).cpu().numpy()
        choice = (cumulative <= np.asarray(noise)[:, None]).sum(axis=1)
        # The sum may end just below 1 and the noise lie above it; what has no probability is never chosen.
        return np.minimum(choice, (cumulative < cumulative[:, -1:]).sum(axis=1))

    def learn(
        self,
        obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        *,
        batch_size: int | None = 512,
        repeat: int = 4,
    ) -> dict[str, float]:
        """Update on episodes laid end to end; return the means of the losses over the minibatches.

        Parameters
        ----------
        obs
            Observations: an array of shape (N, …), or a dict of such.
        action, reward, done
            Of shape (N,); `done` marks the last transition of each episode.
        batch_size
            Transitions a minibatch, at least; None makes one minibatch of all.
        repeat
            Passes over the data.
        """
        if (batch_size is not None and batch_size < 1) or repeat < 1:
            raise ConfigError(f"batch_size is {batch_size} and repeat {repeat}; both must be at least 1.")
        done = np.asarray(done, dtype=bool)
        check_episodes(obs, action, reward, done)
        batch = Batch(obs) if isinstance(obs, dict) else obs
        zeros = np.zeros(len(done), dtype=bool)
        buffer = ReplayBuffer.from_data(batch, action, reward, done, zeros, done, batch)
        set_learning_rate(self.optim, decayed(self.settings, self.updates))
        with policy_within_training_step(self.policy):
            stats = self.update(buffer=buffer, batch_size=batch_size, repeat=repeat)
        return {name: value for name, value in stats.get_loss_stats_dict().items() if np.ndim(value) == 0}

    def _preprocess_batch(self, batch: Any, buffer: ReplayBuffer, indices: np.ndarray) -> Any:
        logits, values = [], []
        with torch.no_grad():
            for rows in cut(np.arange(len(batch)), np.asarray(batch.done), _ROWS_PER_PASS):
                part_logits, part_values = self.net(self._rows(batch, rows))
                logits.append(part_logits)
                values.append(part_values)
        batch.v_s = torch.cat(values)
        value = batch.v_s.cpu().numpy().astype(np.float64)
        scale = np.sqrt(self.ret_rms.var + self._eps) if self.return_scaling else 1.0
        advantage, returns = gae(batch.rew, value * scale, batch.done, self.gamma, self.gae_lambda)
        if self.return_scaling:
            self.ret_rms.update(returns)
        device = batch.v_s.device
        batch.returns = torch.as_tensor(returns / scale, dtype=torch.float32, device=device)
        batch.adv = torch.as_tensor(advantage, dtype=torch.float32, device=device)
        batch.act = torch.as_tensor(batch.act, device=device).long()
        batch.logp_old = _log_prob(torch.cat(logits), batch.act)
        return batch

    def _update_with_batch(self, batch: Any, batch_size: int | None, repeat: int) -> A2CTrainingStats:
        losses: dict[str, list[float]] = {"loss": [], "actor_loss": [], "vf_loss": [], "ent_loss": []}
        for rows in self._minibatches(np.asarray(batch.done), batch_size or len(batch), repeat):
            logits, value = self.net(self._rows(batch, rows))
            at = torch.as_tensor(rows, device=value.device)
            parts = self._losses(batch, at, logits, value)
            total = parts[0] + self.vf_coef * parts[1] - self.ent_coef * parts[2]
            check_loss(total, self.updates)
            self.optim.step(total)
            for kept, part in zip(losses.values(), (total, *parts), strict=True):
                kept.append(float(part.detach()))
        return A2CTrainingStats(
            **{name: SequenceSummaryStats.from_sequence(kept) for name, kept in losses.items()},
            gradient_steps=len(losses["loss"]),
        )

    def _losses(self, batch: Any, at: torch.Tensor, logits: torch.Tensor, value: torch.Tensor) -> tuple[Any, Any, Any]:
        """Return the clipped policy loss, the value loss and the entropy of the rows `at`."""
        advantage, returns, old_value = batch.adv[at], batch.returns[at], batch.v_s[at]
        if self.advantage_normalization and len(at) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + self._eps)
        ratio = (_log_prob(logits, batch.act[at]) - batch.logp_old[at]).exp()
        clipped = ratio.clamp(1.0 - self.eps_clip, 1.0 + self.eps_clip)
        actor_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        value_loss = (returns - value).pow(2)
        if self.value_clip:
            near = old_value + (value - old_value).clamp(-self.eps_clip, self.eps_clip)
            value_loss = torch.max(value_loss, (returns - near).pow(2))
        log_p = logits.log_softmax(dim=1)
        return actor_loss, value_loss.mean(), -(log_p.exp() * log_p).sum(dim=1).mean()

    def _rows(self, batch: Any, rows: np.ndarray) -> Any:
        obs = take_rows(batch.obs, rows)
        if isinstance(obs, dict) and self.net.causal:
            obs["path"] = last_rows(np.asarray(batch.done)[rows])
        return obs

    def _minibatches(self, done: np.ndarray, batch_size: int, repeat: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng([self.seed, self.updates, _STREAM])
        self.updates += 1
        for _ in range(repeat):
            yield from cut(shuffled(done, rng), done, batch_size)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return networks, optimiser, return statistics and counters: all that an exact resume needs."""
        state = dict(super().state_dict(*args, **kwargs))
        statistics = [float(self.ret_rms.mean), float(self.ret_rms.var), float(self.ret_rms.count)]
        own = {"_return_statistics": statistics, "_updates": self.updates, "_device": self._device}
        return {**state, **own}

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> None:
        """Load a state of this network, that of an `OPD` included: what it had of its teacher is in the weights."""
        state = dict(state_dict)
        state.pop("_teacher", None)
        try:
            statistics, updates, device = (state.pop(f"_{name}") for name in ("return_statistics", "updates", "device"))
            super().load_state_dict(state, *args, **kwargs)
        except (KeyError, RuntimeError, ValueError) as error:
            raise foreign_state(error) from error
        self.ret_rms.mean, self.ret_rms.var, self.ret_rms.count = statistics
        self.updates = updates
        warn_of_device(device, self._device)

    @property
    def _device(self) -> str:
        return self.net.actor.weight.device.type


def _log_prob(logits: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(dim=1).gather(1, action[:, None])[:, 0]
