"""The market part of an observation, read by a causal dilated convolution."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad

from rlwb.policy.sequence_encoder import SequenceEncoder

#: Rows that one layer reads.
_KERNEL = 3


class _Layer(nn.Module):
    """``x_t + relu(W [x_{t - 2d}, x_{t - d}, x_t] + b)``, with 0 before the first row."""

    def __init__(self, hidden: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.mix = nn.Linear(_KERNEL * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[1]
        lags = [self.dilation * back for back in range(_KERNEL - 1, -1, -1)]
        # One product of shifted rows: as fast as the library's convolution, and the same bits in any batch.
        seen = torch.cat([pad(x, (0, 0, lag, 0))[:, :rows] for lag in lags], dim=2)
        return x + torch.relu(self.mix(seen))


class ConvolutionEncoder(SequenceEncoder):
    """Residual causal convolutions whose dilation doubles from layer to layer (van den Oord et al., arXiv 1609.03499).

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
    layers
        Number of layers n. A state sees the last ``2^(n + 1) - 1`` rows, with 6 layers 127, and nothing before them.
    """

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False, layers: int = 6) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.enter = nn.Linear(self.row_width, hidden)
        self.layers = nn.Sequential(*(_Layer(hidden, 2**layer) for layer in range(layers)))

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(self.enter(rows))
