"""Networks that read the market, the order's own path, its direction and its scalars."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlwb.policy.attention import AttentionEncoder
from rlwb.policy.convolution import ConvolutionEncoder
from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.gru import states_at
from rlwb.policy.network import Network, direction_branch
from rlwb.policy.observation import as_tensor
from rlwb.policy.recurrent_encoder import RecurrentEncoder


class MarketNetwork(Network):
    """A network in the manner of oracle policy distillation's (Fang et al., AAAI 2021, arXiv 2103.10860).

    An encoder of the market, a GRU over the private path (share left and share of steps taken at every step so far),
    and a branch for the direction, joined by two layers.

    Parameters
    ----------
    market
        Reads the bars; its width is that of every part and of the result.
    """

    def __init__(self, market: MarketEncoder) -> None:
        hidden = market.hidden
        super().__init__(width=hidden)
        self.market = market
        self.causal, self.sees_future = market.causal, market.sees_future
        self.private = nn.GRU(2, hidden, batch_first=True)
        self.direction = direction_branch(hidden)
        self.join = nn.Sequential(nn.Linear(3 * hidden + 3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        market = self.market(obs)
        direction = self.direction(as_tensor(obs["acquiring"], self.device).long())
        return self.join(torch.cat([market, self._private(obs), direction, self.scalars(obs)], dim=1))

    def _private(self, obs: Any) -> torch.Tensor:
        """Return the state after each row's private path, of shape (N, H)."""
        device = self.device
        history = as_tensor(obs["position_history"], device).float()
        step = as_tensor(obs["cur_step"], device).long()
        row = torch.arange(len(step), device=device)
        if "path" in obs:
            last, row = torch.unique(as_tensor(obs["path"], device), return_inverse=True)
        else:
            last = row
        history = history[last]
        target = as_tensor(obs["target"], device).float()[last, None]
        steps = as_tensor(obs["num_step"], device).float()[last, None]
        clock = torch.arange(history.shape[1], device=device) / steps
        # After step + 1 entries; the terminal observation of the longest order has no entry of its own.
        read = (step + 1).clamp(max=history.shape[1])
        return states_at(self.private, torch.stack([history / target, clock], dim=2), row, read)


class Recurrent(MarketNetwork):
    """Reads the bars by a GRU.

    Parameters
    ----------
    channels
        Features a tick.
    hidden
        Width of every part and of the result.
    previous_day
        Whether the previous session is read too, which doubles the cost of a pass.
    """

    def __init__(self, channels: int, hidden: int = 64, *, previous_day: bool = False) -> None:
        super().__init__(RecurrentEncoder(channels, hidden, previous_day=previous_day))


class Convolution(MarketNetwork):
    """Reads the bars by dilated causal convolutions.

    Parameters
    ----------
    channels, hidden, previous_day
        See `Recurrent`.
    layers
        Number of layers n; a decision sees the last ``2^(n + 1) - 1`` ticks.
    """

    def __init__(self, channels: int, hidden: int = 64, layers: int = 6, *, previous_day: bool = False) -> None:
        super().__init__(ConvolutionEncoder(channels, hidden, previous_day=previous_day, layers=layers))


class Attention(MarketNetwork):
    """Reads the bars by a small causal transformer.

    Parameters
    ----------
    channels, hidden, previous_day
        See `Recurrent`.
    layers
        Number of blocks.
    """

    def __init__(self, channels: int, hidden: int = 64, layers: int = 2, *, previous_day: bool = False) -> None:
        super().__init__(AttentionEncoder(channels, hidden, previous_day=previous_day, layers=layers))
