"""Actor and critic for an action that is a number between bounds: its log odds are normally distributed."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from scipy.special import expit, ndtri
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.heads import ActorCritic
from rlwb.policy.network import Network, even_share, log_odds

#: Log odds of the action in the last step: in float32 the share is 1.
_ALL = 40.0
#: Shares are taken to be this far from 0 and 1 at least, where a density is asked for; float32 resolves no finer at 1.
_NEAREST = 2.0**-24
#: Noise of 0 is drawn as this, where the quantile is finite.
_LEAST_NOISE = 2.0**-54


class LogisticNormal:
    """The distribution of N numbers between 0 and `high` whose log odds, of their share of `high`, are normal.

    A number of deviation 0 is certain: its logarithm of probability, and its entropy, are 0.

    Parameters
    ----------
    scores : of shape (N, 2)
        Mean and standard deviation of the log odds.
    high
        The upper bound.
    """

    def __init__(self, scores: torch.Tensor, high: float) -> None:
        self.location, self.deviation = scores.unbind(dim=1)
        self.high = high

    def best(self) -> torch.Tensor:
        """Return the medians, of shape (N,)."""
        return self.high * torch.sigmoid(self.location)

    def draw(self, noise: np.ndarray) -> np.ndarray:
        """Return the quantiles at `noise`, of shape (N,) in [0, 1): float32 of shape (N,), rising with it."""
        location, deviation = (part.double().cpu().numpy() for part in (self.location, self.deviation))
        odds = location + deviation * ndtri(np.maximum(noise, _LEAST_NOISE))
        return (self.high * expit(odds)).astype(np.float32)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the density at actions of shape (N,), of shape (N,)."""
        share = (action.to(self.location.dtype) / self.high).clamp(_NEAREST, 1.0 - _NEAREST)
        deviation, is_free = self._deviation()
        distance = (torch.logit(share) - self.location) / deviation
        normal = -0.5 * distance.pow(2) - deviation.log() - 0.5 * math.log(2 * math.pi)
        density = normal - share.log() - torch.log1p(-share) - math.log(self.high)
        return torch.where(is_free, density, torch.zeros_like(density))

    def entropy(self) -> torch.Tensor:
        """Return the entropy of the log odds in nats, of shape (N,), ``log(deviation) + 1.42``.

        That of the number itself is largest for numbers that are spread evenly over the whole range, and would draw
        the policy to half of the position.
        """
        deviation, is_free = self._deviation()
        entropy = deviation.log() + 0.5 * math.log(2 * math.pi * math.e)
        return torch.where(is_free, entropy, torch.zeros_like(entropy))

    def _deviation(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the deviations with 1 where a number is certain, and where none is."""
        is_free = self.deviation > 0
        return torch.where(is_free, self.deviation, torch.ones_like(self.deviation)), is_free


class BoundedActorCritic(ActorCritic):
    """A network with a head for a number in [0, `high`] and one for the value.

    The log odds of the number, as a share of `high`, are normally distributed (logistic-normal: Aitchison and Shen,
    Biometrika 1980). Their mean is that of the even pace plus what the network adds, in units of `deviation`: 0 for one
    that has learnt nothing. Their deviation is learned, the same for all observations. In the last step the number is
    `high`, which asks for the whole position.

    Parameters
    ----------
    trunk
        Observations to features.
    actions
        Numbers in an action: 1.
    high
        1 for a share of the position, whose even pace is one over the steps left; above 1 for a multiple of the even
        pace.
    mask, start
        Of choices among actions; there are none here.
    deviation
        Of the log odds, before learning. It is large, so that nearly all and nearly nothing are often tried, and what
        the network adds soon matters; with 1 a policy learns several times slower.
    """

    def __init__(
        self,
        trunk: Network,
        actions: int = 1,
        *,
        high: float = 1.0,
        mask: Any = None,
        start: Any = None,
        deviation: float = 6.0,
    ) -> None:
        if actions != 1 or mask is not None or start is not None:
            raise ConfigError("an amount is one number, without masks or an even start; turn them off.")
        super().__init__(trunk, actions)
        self.high, self.unit = high, deviation
        self.log_deviation = nn.Parameter(torch.tensor(math.log(deviation)))

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and deviation of the log odds, of shape (N, 2), and the values of shape (N,)."""
        features = self.trunk(obs)
        added = self.actor(features).squeeze(-1)
        even, is_last = even_share(obs, added.device)
        pace = even if self.high == 1.0 else torch.full_like(even, 1.0 / self.high)
        location = log_odds(pace) + self.unit * added
        location = torch.where(is_last, torch.full_like(location, _ALL), location)
        deviation = torch.where(is_last, torch.zeros_like(location), self.log_deviation.exp())
        return torch.stack([location, deviation], dim=1), self.critic(features).squeeze(-1)

    def distribution(self, scores: torch.Tensor) -> LogisticNormal:  # type: ignore[override]
        """Return the distribution of actions that the first part of what `forward` returns stands for."""
        return LogisticNormal(scores, self.high)

    def check(self, owner: str, space: gym.Space[Any]) -> None:
        """Raise `ConfigError` unless `space` is that of the numbers with which the learner `owner` answers."""
        low, high = (space.low, space.high) if isinstance(space, gym.spaces.Box) else (np.nan, np.nan)
        if space.shape != () or low != 0.0 or high != self.high or not 1.0 <= high < np.inf:
            raise ConfigError(
                f"{owner} answers with a number from 0 to {self.high:g}, the action interpreter's space is {space}; "
                "set action_interpreter to position_share, twap_relative with a max_ratio of 1 or more, or categorical."
            )
