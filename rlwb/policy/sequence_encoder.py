"""Market encoders that turn a whole sequence of rows into states at once: by convolutions, by attention."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

from rlwb.policy.encoder import MarketEncoder

#: Numbers of a row are filled up with 0 to a multiple of this: products of rows that begin anywhere in memory round in
#: several ways, so that a session's bits would depend on its place in the batch.
_ALIGN = 4
#: Rows that one layer of convolutions reads.
_KERNEL = 3


class SequenceEncoder(MarketEncoder):
    """Reads a session as one sequence of rows: an empty row, yesterday's ticks if it reads them, today's ticks.

    The state after k ticks is that of today's tick k - 1, or of the row before today's ticks. Beside its C features a
    row holds the time of day, in (0, 1], and up to three numbers that are always 0; the empty row is 0 throughout.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.

    Attributes
    ----------
    row_width
        Numbers in a row, W.
    """

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.row_width = channels + 1 + -(channels + 1) % _ALIGN

    @abstractmethod
    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        """Turn rows (S, L, W) into states (S, L, H); of a causal encoder, state j knows rows 0 … j alone."""

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        return self._encode(today, yesterday, today.shape[1])

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        # An exported graph reads the whole day, whatever the tick.
        seen = int(tick.max()) if self.causal and not torch.onnx.is_in_onnx_export() else today.shape[1]
        return self._encode(today, yesterday, seen)[row, tick]

    def _encode(self, today: torch.Tensor, yesterday: torch.Tensor | None, seen: int) -> torch.Tensor:
        """Return the states after 0, 1, … `seen` ticks of today, of shape (S, seen + 1, H)."""
        sessions, ticks, _ = today.shape
        before = 0 if yesterday is None else ticks
        clock = torch.arange(1, ticks + 1, dtype=today.dtype, device=today.device) / ticks
        rows = [today.new_zeros(sessions, 1, self.row_width)]
        for block, count in ((yesterday, before), (today, seen)):
            if block is not None:
                time = clock[:count, None].expand(sessions, count, 1)
                rest = today.new_zeros(sessions, count, self.row_width - self.channels - 1)
                rows.append(torch.cat([block[:, :count], time, rest], dim=2))
        return self.transform(torch.cat(rows, dim=1))[:, before:]


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
        self.layers = nn.Sequential(*(_Convolution(hidden, 2**layer) for layer in range(layers)))

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(self.enter(rows))


class _Convolution(nn.Module):
    """``x_t + relu(W [x_{t - 2d}, x_{t - d}, x_t] + b)``, with 0 before the first row."""

    def __init__(self, hidden: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.mix = nn.Linear(_KERNEL * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lags = [self.dilation * back for back in range(_KERNEL - 1, -1, -1)]
        # One product of shifted rows: as fast as the library's convolution, and the same bits in any batch.
        seen = torch.cat([pad(x, (0, 0, lag, 0))[:, : x.shape[1]] for lag in lags], dim=2)
        return x + torch.relu(self.mix(seen))


class AttentionEncoder(SequenceEncoder):
    """A small pre-norm transformer over the ticks (Vaswani et al., arXiv 1706.03762); none sees a later one.

    Time grows with the square of the ticks of a session.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
    layers
        Number of blocks.
    """

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False, layers: int = 2) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        heads = math.gcd(hidden, 4)
        self.enter = nn.Linear(self.row_width, hidden)
        self.blocks = nn.Sequential(*(_Attention(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.enter(rows) + _positions(rows, self.hidden)))


class _Attention(nn.Module):
    """Causal self-attention and two layers, each behind a norm and beside a skip (Xiong et al., arXiv 2002.04745)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend_norm = nn.LayerNorm(hidden)
        self.attend = nn.Linear(hidden, 3 * hidden)
        self.gather = nn.Linear(hidden, hidden)
        self.think = nn.Sequential(
            nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sessions, rows, hidden = x.shape
        parts = self.attend(self.attend_norm(x)).view(sessions, rows, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.gather(found.transpose(1, 2).reshape(sessions, rows, hidden))
        return x + self.think(x)


def _positions(rows: torch.Tensor, hidden: int) -> torch.Tensor:
    """Return sines and cosines of each row's number, of shape (L, H) (arXiv 1706.03762, section 3.5)."""
    number = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device)[:, None]
    half = (hidden + 1) // 2
    rate = torch.exp(torch.arange(half, dtype=rows.dtype, device=rows.device) * (-math.log(1e4) / half))
    return torch.cat([(number * rate).sin(), (number * rate).cos()], dim=1)[:, :hidden]
