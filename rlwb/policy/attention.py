"""The market part of an observation, read by a causal attention network."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from rlwb.policy.sequence_encoder import SequenceEncoder


class _Block(nn.Module):
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


class AttentionEncoder(SequenceEncoder):
    """A small pre-norm transformer over the ticks (Vaswani et al., arXiv 1706.03762); none sees a later one.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
    layers
        Number of blocks.

    Notes
    -----
    Time grows with the square of the ticks of a session.
    """

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False, layers: int = 2) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        heads = math.gcd(hidden, 4)
        self.enter = nn.Linear(self.row_width, hidden)
        self.blocks = nn.Sequential(*(_Block(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.enter(rows) + _positions(rows, self.hidden)))


def _positions(rows: torch.Tensor, hidden: int) -> torch.Tensor:
    """Return sines and cosines of each row's number, of shape (L, H) (arXiv 1706.03762, section 3.5)."""
    number = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device)[:, None]
    half = (hidden + 1) // 2
    rate = torch.exp(torch.arange(half, dtype=rows.dtype, device=rows.device) * (-math.log(1e4) / half))
    return torch.cat([(number * rate).sin(), (number * rate).cos()], dim=1)[:, :hidden]
