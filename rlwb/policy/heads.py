"""What stands on a network: actor and critic for policy gradients, the actions' values for Q-learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlwb.policy.even_start import EvenStart
from rlwb.policy.masks import ActionMask, mask_values
from rlwb.policy.network import Network

#: Stands for the chance 0 under a logarithm.
_TINY = 1e-30


class _Head(nn.Module):
    """A network, and what its actions are."""

    def __init__(self, trunk: Network, actions: int, mask: ActionMask | None, start: EvenStart | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.actions = actions
        self.mask = mask
        self.start = start

    @property
    def causal(self) -> bool:
        """Whether later bars move no earlier output; then one pass serves a day's decisions."""
        return self.trunk.causal

    @property
    def sees_future(self) -> bool:
        """Whether the network reads bars which lie ahead of the decision, so that no one can trade by it."""
        return self.trunk.sees_future

    def allowed(self, obs: Any) -> torch.Tensor | None:
        """Return whether each action may be chosen, bool of shape (N, A); None when all may."""
        return None if self.mask is None else self.mask(obs)


class ActorCritic(_Head):
    """A network with a head for the action logits and one for the value, so that it runs once for both.

    Parameters
    ----------
    trunk
        Observations to features.
    actions
        Number of actions A.
    mask
        Takes actions out of the distribution; all may be chosen by default.
    start
        The distribution of the untrained policy; even over all actions by default.
    """

    def __init__(
        self, trunk: Network, actions: int, *, mask: ActionMask | None = None, start: EvenStart | None = None
    ) -> None:
        super().__init__(trunk, actions, mask, start)
        self.actor = nn.Linear(trunk.width, actions)
        self.critic = nn.Linear(trunk.width, 1)
        # A small last layer starts the policy near `start`, or uniform (Andrychowicz et al., ICLR 2021, section 3.2).
        with torch.no_grad():
            self.actor.weight.mul_(0.01)
            self.actor.bias.zero_()

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the action logits of shape (N, A) and the values of shape (N,)."""
        features = self.trunk(obs)
        allowed = self.allowed(obs)
        logits = self.actor(features)
        if self.start is not None:
            # Actions of the chance 0 are masked below.
            logits = logits + self.start(obs, allowed).clamp(min=_TINY).log().to(logits.dtype)
        return mask_values(logits, allowed), self.critic(features).squeeze(-1)


class QNetwork(_Head):
    """A network with a head for the value of each action.

    Parameters
    ----------
    trunk, actions
        As in `ActorCritic`.
    mask
        Says which actions may be chosen; the values themselves are not masked.
    start
        The chances of random actions; even over all that may be chosen by default.
    """

    def __init__(
        self, trunk: Network, actions: int, *, mask: ActionMask | None = None, start: EvenStart | None = None
    ) -> None:
        super().__init__(trunk, actions, mask, start)
        self.head = nn.Linear(trunk.width, actions)

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the values, of shape (N, A)."""
        return self.head(self.trunk(obs))
