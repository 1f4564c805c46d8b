"""What stands on a network: actor and critic or the actions' values, which actions differ, and where learning starts.

An action stands for a share of the order's amount: it asks for ``min(share * target, position)``, and for the position
in an order's last step where the rules complete orders (`rlwb.execution.CategoricalActionInterpreter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.network import Network, order_numbers

#: Shares of the amount closer than this ask for the same; observations are float32 and resolve no finer.
_TOLERANCE = 1e-6
#: The least chance of an action at the start: every one stays possible.
_LEAST = 0.01
#: Stands for the chance 0 under a logarithm.
_TINY = 1e-30


class ActionMask(nn.Module):
    """Leaves one action for each amount that can be asked for.

    All shares that cover the position ask for the same. The smallest of them stays, and in the last step it alone where
    the rules complete orders; where none covers the position, the largest share stands in for it. Of equal shares the
    first stays. What a volume cap, a lot or a halt makes of an ask is the market's answer, not known before, and masks
    nothing.

    Parameters
    ----------
    shares
        The shares of the amount that the actions stand for, of shape (A,).
    complete_at_end
        Whether the last step asks for the whole position, whatever the action.
    """

    def __init__(self, shares: Sequence[float] | np.ndarray, *, complete_at_end: bool = True) -> None:
        super().__init__()
        given = _checked(shares, "an action mask")
        self.complete_at_end = complete_at_end
        distinct, first, rank = np.unique(given, return_index=True, return_inverse=True)
        # Settings, not weights: they are in no checkpoint.
        self.register_buffer("distinct", torch.tensor(distinct), persistent=False)
        self.register_buffer("rank", torch.tensor(rank), persistent=False)
        self.register_buffer("is_first", torch.tensor(np.isin(np.arange(len(given)), first)), persistent=False)

    def forward(self, obs: Any) -> torch.Tensor:
        """Return whether each action may be chosen, bool of shape (N, A); at least one of every row may.

        Parameters
        ----------
        obs
            With ``position``, ``target``, ``cur_step`` and ``num_step`` of shape (N,).
        """
        target, position, step, steps = (part.double() for part in order_numbers(obs, self.distinct.device))
        covering = (self.distinct < (position / target - _TOLERANCE)[:, None]).sum(dim=1)
        largest = covering.clamp(max=len(self.distinct) - 1)[:, None]
        may = self.rank <= largest
        if self.complete_at_end:
            may = may & ((step < steps - 1)[:, None] | (self.rank == largest))
        return self.is_first & may


class EvenStart(nn.Module):
    """Gives each action a chance such that an order is traded evenly on average.

    The action that asks for least has the chance 1 - c, the others share c evenly, and c is chosen so that the mean of
    what is asked for is the position over the steps left; it is kept in [0.01, 0.99]. Choosing among all actions evenly
    instead asks for about half of the position at every step: few orders last, and little is seen of what waiting
    would have brought.

    Parameters
    ----------
    shares
        The shares of the amount that the actions stand for, of shape (A,).
    """

    def __init__(self, shares: Sequence[float] | np.ndarray) -> None:
        super().__init__()
        # A setting, not a weight: it is in no checkpoint.
        self.register_buffer("shares", torch.tensor(_checked(shares, "an even start")), persistent=False)

    def forward(self, obs: Any, allowed: torch.Tensor | None = None) -> torch.Tensor:
        """Return the chances, float64 of shape (N, A), each row with sum 1.

        Parameters
        ----------
        obs
            With ``position``, ``target``, ``cur_step`` and ``num_step`` of shape (N,).
        allowed : bool of shape (N, A), optional
            Actions that may be chosen, at least one of every row; the others get the chance 0.
        """
        numbers = order_numbers(obs, self.shares.device)
        target, position, step, steps = (part.double()[:, None] for part in numbers)
        left = position / target
        ask = torch.minimum(self.shares, left)
        may = torch.ones_like(ask, dtype=torch.bool) if allowed is None else allowed
        least = torch.where(may, self.shares, torch.inf).argmin(dim=1, keepdim=True)
        is_least = torch.arange(len(self.shares), device=least.device) == least
        others = may & ~is_least
        count = others.sum(dim=1, keepdim=True)
        lowest = ask.gather(1, least)
        way = (ask * others).sum(dim=1, keepdim=True) / count.clamp(min=1) - lowest
        wanted = left / (steps - step).clamp(min=1.0) - lowest
        # Where all ask for the same, no choice moves the mean.
        c = torch.where(way > 0, wanted / way, count / (count + 1.0)).clamp(_LEAST, 1.0 - _LEAST)
        c = torch.where(count > 0, c, 0.0)
        return torch.where(is_least, 1.0 - c, others * (c / count.clamp(min=1)))


def _checked(shares: Sequence[float] | np.ndarray, owner: str) -> np.ndarray:
    given = np.asarray(shares, dtype=np.float64)
    if given.ndim != 1 or not len(given) or not ((given >= 0) & (given <= 1)).all():
        raise ConfigError(f"the shares {shares!r} of {owner} are not numbers in [0, 1]; give one an action.")
    return given


def mask_values(values: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
    """Return `values` with the lowest finite number where an action is not allowed.

    Its probability under a softmax is exactly 0; unlike minus infinity, it leaves entropies and gradients finite.
    """
    return values if allowed is None else values.masked_fill(~allowed, torch.finfo(values.dtype).min)


class Categorical:
    """The distribution of choices among A actions, of N rows.

    Parameters
    ----------
    logits : of shape (N, A)
        Logarithms of the chances, up to a number for each row.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def best(self) -> torch.Tensor:
        """Return the most probable actions, int64 of shape (N,)."""
        return self.logits.argmax(dim=1)

    def draw(self, noise: np.ndarray) -> np.ndarray:
        """Return the quantiles at `noise`, of shape (N,) in [0, 1): int64 of shape (N,)."""
        cumulative = self.logits.double().softmax(dim=1).cumsum(dim=1).cpu().numpy()
        choice = (cumulative <= np.asarray(noise)[:, None]).sum(axis=1)
        # The sum may end just below 1 and the noise lie above it; what has no probability is never chosen.
        return np.minimum(choice, (cumulative < cumulative[:, -1:]).sum(axis=1))

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Return log pi(a) of actions of shape (N,), of shape (N,)."""
        return self.logits.log_softmax(dim=1).gather(1, action.long()[:, None])[:, 0]

    def entropy(self) -> torch.Tensor:
        """Return the entropies in nats, of shape (N,)."""
        log_p = self.logits.log_softmax(dim=1)
        return -(log_p.exp() * log_p).sum(dim=1)


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
        features, allowed = self.trunk(obs), self.allowed(obs)
        logits = self.actor(features)
        if self.start is not None:
            # Actions of the chance 0 are masked below.
            logits = logits + self.start(obs, allowed).clamp(min=_TINY).log().to(logits.dtype)
        return mask_values(logits, allowed), self.critic(features).squeeze(-1)

    def distribution(self, scores: torch.Tensor) -> Categorical:
        """Return the distribution of actions that the first part of what `forward` returns stands for."""
        return Categorical(scores)


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
