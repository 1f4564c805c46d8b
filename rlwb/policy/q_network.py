"""The values of actions, and choosing by them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.market import MarketFeatures
from rlwb.policy.even_start import EvenStart
from rlwb.policy.masks import ActionMask


class QNetwork(nn.Module):
    """A trunk with a plain head for the value of each action.

    Parameters
    ----------
    trunk, hidden, actions
        As in `ActorCritic`.
    mask
        Tells which actions may be chosen; the values themselves are not masked.
    start
        The chances of random actions; even over all that may be chosen by default.
    """

    def __init__(
        self,
        trunk: nn.Module,
        hidden: int,
        actions: int,
        *,
        mask: ActionMask | None = None,
        start: EvenStart | None = None,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.mask = mask
        self.start = start
        self.head = nn.Linear(hidden, actions)

    @property
    def causal(self) -> bool:
        """Whether the trunk says that later bars move no earlier output."""
        return getattr(self.trunk, "causal", False)

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the values, of shape (N, A)."""
        return self.head(self.trunk(obs))

    def allowed(self, obs: Any) -> torch.Tensor | None:
        """Return whether each action may be chosen, bool of shape (N, A); None when all may."""
        return None if self.mask is None else self.mask(obs)

    def __deepcopy__(self, memo: dict[int, Any]) -> QNetwork:
        """Copy the weights; the copy reads the same panel of features."""
        for module in self.modules():
            if isinstance(features := getattr(module, "features", None), MarketFeatures):
                memo[id(features)] = features
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))
        return copied


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
