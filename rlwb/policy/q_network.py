"""The values of actions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlwb.policy.masks import ActionMask


class QNetwork(nn.Module):
    """A trunk with a plain head for the value of each action.

    Parameters
    ----------
    trunk, hidden, actions
        As in `ActorCritic`.
    mask
        Tells which actions may be chosen; the values themselves are not masked.
    """

    def __init__(self, trunk: nn.Module, hidden: int, actions: int, *, mask: ActionMask | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.mask = mask
        self.head = nn.Linear(hidden, actions)

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the values, of shape (N, A)."""
        return self.head(self.trunk(obs))

    def allowed(self, obs: Any) -> torch.Tensor | None:
        """Return whether each action may be chosen, bool of shape (N, A); None when all may."""
        return None if self.mask is None else self.mask(obs)
