"""Deep Q-learning (Mnih et al., Nature 518, 2015) on tianshou: a lasting buffer, one pass for both ends."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN as TianshouDQN  # noqa: N811
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.utils.torch_utils import torch_train_mode
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.algorithms import (
    NoWarmUp,
    check_answers,
    check_loss,
    decayed,
    fill_up,
    foreign_state,
    set_learning_rate,
    warn_of_device,
)
from rlwb.policy.dqn_settings import DQNSettings
from rlwb.policy.episodes import count_rows, last_rows
from rlwb.policy.masks import mask_values
from rlwb.policy.ppo import FusedAdam
from rlwb.policy.q_network import QNetwork, explore
from rlwb.policy.replay import Replay, Transitions, n_step_targets

#: Names the stream of random numbers that draws from the buffer, apart from others of the same seed.
_STREAM = 0x7265706C


class _Head(nn.Module):
    """A `QNetwork` in the form that tianshou calls."""

    def __init__(self, net: QNetwork) -> None:
        super().__init__()
        self.net = net

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        return self.net(obs), state


class _Policy(NoWarmUp, DiscreteQLearningPolicy):
    """tianshou's policy as it is."""


class DQN(TianshouDQN):
    """tianshou's DQN for a `QNetwork`.

    Parameters
    ----------
    net
        Network of the actions' values.
    settings
        Hyper-parameters.
    seed
        Seeds the draws from the buffer, together with the number of updates made.

    Notes
    -----
    The parent gives target network and optimiser; three things are done here. A minibatch holds whole episodes, so
    that one pass gives the values of a transition's both ends. The buffer lasts from collect to collect and is part
    of the state. Random numbers are named by seed and update, so that no random state needs saving.
    """

    #: Names of what `learn` returns.
    figures = ("gradient_steps", "loss", "q", "epsilon", "replay")

    def __init__(self, net: QNetwork, settings: DQNSettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings = settings or DQNSettings()
        super().__init__(
            policy=_Policy(model=_Head(net), action_space=gym.spaces.Discrete(net.head.out_features)),
            optim=FusedAdam(lr=settings.learning_rate),
            gamma=settings.gamma,
            n_step_return_horizon=settings.n_step,
            target_update_freq=settings.target_every,
            is_double=settings.double,
            huber_loss_delta=settings.huber,
        )
        self.seed = seed
        self.updates = 0
        self.replay = Replay(settings.replay_size)
        #: What rewards are divided by; 0 before the first collect.
        self.scale = 0.0 if settings.return_scaling else 1.0

    def _create_policy_optimizer(self, optim: Any) -> Any:
        return self._create_optimizer(self.policy, optim, max_grad_norm=self.settings.max_grad_norm)

    @property
    def net(self) -> QNetwork:
        """The network that acts and learns."""
        return self.policy.model.net

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose actions.

        Parameters
        ----------
        obs
            A batch of observations.
        noise : float64 of shape (N,), optional
            Uniform numbers in [0, 1) to explore with; see `explore`. Without them each action is that of the
            largest value.

        Returns
        -------
        int64 of shape (N,)
        """
        rows = count_rows(obs)
        obs = fill_up(obs)
        value, allowed = self.net(obs)[:rows], self.net.allowed(obs)
        check_answers(value)
        best = mask_values(value, None if allowed is None else allowed[:rows]).argmax(dim=1).cpu().numpy()
        if noise is None:
            return best
        chance = torch.ones_like(value, dtype=torch.bool) if allowed is None else allowed
        if self.net.start is not None:
            chance = self.net.start(obs, allowed)
        return explore(best, chance[:rows].cpu().numpy(), np.asarray(noise), self.settings.epsilon(self.updates))

    def learn(
        self,
        obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        *,
        batch_size: int = 512,
        repeat: int = 4,
    ) -> dict[str, float]:
        """Keep episodes laid end to end, and update on draws from all that are kept; return means over the steps.

        Parameters
        ----------
        obs
            Observations: an array of shape (N, …), or a dict of such.
        action, reward, done
            Of shape (N,); `done` marks the last transition of each episode.
        batch_size
            Transitions a gradient step, on average.
        repeat
            Gradient steps are made until ``repeat * N`` transitions are drawn.
        """
        if batch_size < 1 or repeat < 1:
            raise ConfigError(f"batch_size is {batch_size} and repeat {repeat}; both must be at least 1.")
        reward, done = np.asarray(reward, dtype=np.float64), np.asarray(done, dtype=bool)
        self.replay.add(Transitions(obs, np.asarray(action), reward, done))
        if not self.scale:
            returns = np.add.reduceat(reward, np.flatnonzero(np.append(True, done[:-1])))
            # Equal returns deviate by their rounding at most.
            self.scale = float(returns.std()) if np.ptp(returns) > 1e-9 * np.abs(returns).max() else 1.0
        rng = np.random.default_rng([self.seed, self.updates, _STREAM])
        steps = max(1, round(repeat * len(done) / batch_size))
        set_learning_rate(self.optim, decayed(self.settings, self.updates))
        with torch_train_mode(self):
            made = np.array([self._gradient_step(self.replay.sample(batch_size, rng)) for _ in range(steps)])
        epsilon = self.settings.epsilon(self.updates)
        self.updates += 1
        loss, q = (float(mean) for mean in made.mean(axis=0))
        return {"gradient_steps": steps, "loss": loss, "q": q, "epsilon": epsilon, "replay": len(self.replay)}

    def _gradient_step(self, rows: Transitions) -> tuple[float, float]:
        """Move the weights once; return the loss and the mean value of the actions taken, in the reward's unit."""
        obs = rows.obs
        if isinstance(obs, dict) and self.net.causal:
            obs = {**obs, "path": last_rows(rows.done)}
        value = self.net(obs)
        with torch.no_grad():
            old = self.model_old(obs)[0]
            best = mask_values(value if self.is_double else old, self.net.allowed(obs)).argmax(dim=1, keepdim=True)
            ahead = old.gather(1, best)[:, 0].double().cpu().numpy()
            target = n_step_targets(rows.reward / self.scale, rows.done, ahead, self.gamma, self.n_step)
            target = torch.as_tensor(target, dtype=value.dtype, device=value.device)
        self._periodically_update_lagged_network_weights()
        taken = value.gather(1, torch.as_tensor(rows.action, device=value.device).long()[:, None])[:, 0]
        if self.huber_loss_delta is None:
            loss = nn.functional.mse_loss(taken, target)
        else:
            loss = nn.functional.huber_loss(taken, target, delta=self.huber_loss_delta)
        check_loss(loss, self.updates + 1)
        self.optim.step(loss)
        return float(loss.detach()), float(taken.detach().mean()) * self.scale

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return networks, optimiser, counters and the whole buffer: all that an exact resume needs."""
        own = {"updates": self.updates, "steps": self._iter, "scale": self.scale, "replay": self.replay.state_dict()}
        return {**super().state_dict(*args, **kwargs), "_own": {**own, "device": self._device}}

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> None:
        state = dict(state_dict)
        try:
            own = state.pop("_own")
            super().load_state_dict(state, *args, **kwargs)
        except (KeyError, RuntimeError, ValueError) as error:
            raise foreign_state(error) from error
        self.updates, self._iter, self.scale = own["updates"], own["steps"], own["scale"]
        self.replay.load_state_dict(own["replay"])
        warn_of_device(own["device"], self._device)

    @property
    def _device(self) -> str:
        return self.net.head.weight.device.type
