"""A network on observations of any space of gymnasium, for environments that are no order execution."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.network import Network

_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class SpaceNetwork(Network):
    """Layers on an observation laid out as a vector: boxes flat, a choice among n as n numbers of which one is 1.

    Parameters
    ----------
    observation_space
        Of Box, Discrete, MultiDiscrete and MultiBinary spaces, in Dict or Tuple spaces or not.
    hidden
        Width of the layers and of the result.
    layers
        Number of layers.
    activation
        What follows each: "tanh" or "relu".
    """

    def __init__(
        self, observation_space: gym.Space[Any], hidden: int = 64, layers: int = 2, activation: str = "tanh"
    ) -> None:
        super().__init__(width=hidden)
        if activation not in _ACTIVATIONS or layers < 1:
            raise ConfigError(
                f"activation is {activation!r} and layers {layers}; choose one of {', '.join(_ACTIVATIONS)}, and 1 or "
                "more layers."
            )
        self.space = observation_space
        widths = [vector_size(observation_space), *[hidden] * layers]
        parts = [(nn.Linear(a, b), _ACTIVATIONS[activation]()) for a, b in itertools.pairwise(widths)]
        self.body = nn.Sequential(*(one for pair in parts for one in pair))
        for layer, _ in parts:
            # As usual in control: rows at right angles keep the scale of what they read (Andrychowicz et al., 2021).
            nn.init.orthogonal_(layer.weight, gain=2**0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, obs: Any) -> torch.Tensor:
        return self.body(self._vector(self.space, obs))

    def _vector(self, space: gym.Space[Any], obs: Any) -> torch.Tensor:
        """Return a batch of observations as float32 of shape (N, size)."""
        if isinstance(space, gym.spaces.Dict):
            return torch.cat([self._vector(part, obs[key]) for key, part in space.items()], dim=1)
        if isinstance(space, gym.spaces.Tuple):
            return torch.cat([self._vector(part, one) for part, one in zip(space, obs, strict=True)], dim=1)
        value = self.tensor(obs)
        if isinstance(space, gym.spaces.Discrete):
            return nn.functional.one_hot(value.long() - int(space.start), int(space.n)).float()
        if isinstance(space, gym.spaces.MultiDiscrete):
            start, sizes = space.start.reshape(-1).tolist(), space.nvec.reshape(-1).tolist()
            chosen = value.long().reshape(len(value), -1)
            each = zip(start, sizes, strict=True)
            hot = [nn.functional.one_hot(chosen[:, i] - low, size) for i, (low, size) in enumerate(each)]
            return torch.cat(hot, dim=1).float()
        return value.float().reshape(len(value), -1)


def vector_size(space: gym.Space[Any]) -> int:
    """Return the size of an observation laid out as a vector; raise `ConfigError` for a space without one."""
    if isinstance(space, gym.spaces.Dict):
        return sum(map(vector_size, space.values()))
    if isinstance(space, gym.spaces.Tuple):
        return sum(map(vector_size, space))
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, (gym.spaces.Box, gym.spaces.MultiBinary)):
        return int(np.prod(space.shape))
    raise ConfigError(
        f"the observation space {space} cannot be laid out as a vector; give a network of your own, or wrap the "
        "environment so that it has Box, Discrete, MultiDiscrete or MultiBinary spaces."
    )
