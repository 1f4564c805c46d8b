"""Where learning starts from: chances of the actions with which an order is traded evenly on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.observation import as_tensor

#: Every action stays possible.
_LEAST = 0.01


class EvenStart(nn.Module):
    """Gives each action a chance such that an order is traded evenly on average.

    The action that asks for least has the chance 1 - c, the others share c evenly, and c is chosen so that the mean of
    what is asked for is the position over the steps left; it is kept in [0.01, 0.99]. Choosing among all actions evenly
    instead asks for about half of the position at every step: few orders last, and little is seen of what waiting
    would have brought.

    Parameters
    ----------
    shares
        The shares of the amount that the actions stand for, of shape (A,); an action asks for
        ``min(share * target, position)``.
    """

    def __init__(self, shares: Sequence[float] | np.ndarray) -> None:
        super().__init__()
        given = np.asarray(shares, dtype=np.float64)
        if given.ndim != 1 or not len(given) or not ((given >= 0) & (given <= 1)).all():
            raise ConfigError(f"the shares {shares!r} of an even start are not numbers in [0, 1]; give one an action.")
        # A setting, not a weight: it is in no checkpoint.
        self.register_buffer("shares", torch.tensor(given), persistent=False)

    def forward(self, obs: Any, allowed: torch.Tensor | None = None) -> torch.Tensor:
        """Return the chances, float64 of shape (N, A), each row with sum 1.

        Parameters
        ----------
        obs
            With ``position``, ``target``, ``cur_step`` and ``num_step`` of shape (N,).
        allowed : bool of shape (N, A), optional
            Actions that may be chosen, at least one of every row; the others get the chance 0.
        """
        device = self.shares.device
        position, target, step, steps = (
            as_tensor(obs[name], device).double()[:, None] for name in ("position", "target", "cur_step", "num_step")
        )
        left = position / target
        ask = torch.minimum(self.shares, left)
        may = torch.ones_like(ask, dtype=torch.bool) if allowed is None else allowed
        least = torch.where(may, self.shares, torch.inf).argmin(dim=1, keepdim=True)
        others = may.scatter(1, least, False)
        count = others.sum(dim=1, keepdim=True)
        lowest = ask.gather(1, least)
        way = (ask * others).sum(dim=1, keepdim=True) / count.clamp(min=1) - lowest
        wanted = left / (steps - step).clamp(min=1.0) - lowest
        # Where all ask for the same, no choice moves the mean.
        c = torch.where(way > 0, wanted / way, count / (count + 1.0)).clamp(_LEAST, 1.0 - _LEAST)
        c = torch.where(count > 0, c, 0.0)
        return (others * (c / count.clamp(min=1))).scatter(1, least, 1.0 - c)
