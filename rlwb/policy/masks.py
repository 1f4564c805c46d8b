"""Which of the shares that a policy may choose differ in what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.policy.observation import as_tensor

#: Shares of the amount closer than this ask for the same; observations are float32 and resolve no finer.
_TOLERANCE = 1e-6


class ActionMask(nn.Module):
    """Leaves one action for each amount that can be asked for.

    An action asks for ``min(share * target, position)``, and for the position in an order's last step
    (`rlwb.execution.CategoricalActionInterpreter`). So all shares that cover the position ask for the same. The
    smallest of them stays, and in the last step it alone; where none covers the position, the largest share stands in
    for it. Of equal shares the first stays.

    Parameters
    ----------
    shares
        The shares of the amount that the actions stand for, of shape (A,).

    Notes
    -----
    What a volume cap, a lot or a halt makes of an ask is the market's answer, not known before, and masks nothing.
    """

    def __init__(self, shares: Sequence[float] | np.ndarray) -> None:
        super().__init__()
        given = np.asarray(shares, dtype=np.float64)
        if given.ndim != 1 or not len(given) or not ((given >= 0) & (given <= 1)).all():
            raise ConfigError(f"the shares {shares!r} of an action mask are not numbers in [0, 1]; give one an action.")
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
        device = self.distinct.device
        position, target, step, steps = (
            as_tensor(obs[name], device).double() for name in ("position", "target", "cur_step", "num_step")
        )
        covering = torch.searchsorted(self.distinct, position / target - _TOLERANCE)
        largest = covering.clamp(max=len(self.distinct) - 1)[:, None]
        is_last = (step >= steps - 1)[:, None]
        return self.is_first & torch.where(is_last, self.rank == largest, self.rank <= largest)


def mask_values(values: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
    """Return `values` with the lowest finite number where an action is not allowed.

    Its probability under a softmax is exactly 0; unlike minus infinity, it leaves entropies and gradients finite.
    """
    return values if allowed is None else values.masked_fill(~allowed, torch.finfo(values.dtype).min)
