"""Market encoders that turn a whole sequence of rows into states at once: by convolutions, by attention."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.gru import is_exporting

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

    def further(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, rows: torch.Tensor, first: int
    ) -> torch.Tensor:
        """Turn rows (S, n, W), of which `first` is the number of the first, into states by what `memory` keeps."""
        raise NotImplementedError

    def begin(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, yesterday: torch.Tensor | None
    ) -> torch.Tensor:
        rows = torch.zeros(len(slots), 1, self.row_width)
        if yesterday is not None:
            rows = torch.cat([rows, self._rows(yesterday, 0, yesterday.shape[1])], dim=1)
        return self.further(memory, slots, rows, 0)[:, -1]

    def advance(
        self,
        memory: tuple[torch.Tensor, ...],
        slots: torch.Tensor,
        states: torch.Tensor,
        ticks: torch.Tensor,
        since: int,
        of: int,
    ) -> torch.Tensor:
        first = 1 + since + (of if self.previous_day else 0)
        return self.further(memory, slots, self._rows(ticks, since, of), first)

    def _rows(self, ticks: torch.Tensor, since: int, of: int) -> torch.Tensor:
        """Return the rows of ticks (S, n, C), the first of which is number `since` of a day's `of`."""
        sessions, count, channels = ticks.shape
        time = torch.arange(since + 1, since + count + 1, dtype=ticks.dtype, device=ticks.device) / of
        rest = ticks.new_zeros(sessions, count, self.row_width - channels - 1)
        return torch.cat([ticks, time[:, None].expand(sessions, count, 1), rest], dim=2)

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        return self._encode(today, yesterday, today.shape[1])

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        # An exported graph reads the whole day, whatever the tick.
        seen = int(tick.max()) if self.causal and not is_exporting() else today.shape[1]
        return self._encode(today, yesterday, seen)[row, tick]

    def _encode(self, today: torch.Tensor, yesterday: torch.Tensor | None, seen: int) -> torch.Tensor:
        """Return the states after 0, 1, … `seen` ticks of today, of shape (S, seen + 1, H)."""
        ticks = today.shape[1]
        before = 0 if yesterday is None else ticks
        rows = [today.new_zeros(today.shape[0], 1, self.row_width)]
        if yesterday is not None:
            rows.append(self._rows(yesterday, 0, ticks))
        rows.append(self._rows(today[:, :seen], 0, ticks))
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

    rewinds = False

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False, layers: int = 6) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.enter = nn.Linear(self.row_width, hidden)
        self.layers = nn.Sequential(*(_Convolution(hidden, 2**layer) for layer in range(layers)))

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(self.enter(rows))

    def memory(self, slots: int, ticks: int) -> tuple[torch.Tensor, ...]:
        """Of each layer, the last rows that it read."""
        return tuple(torch.empty(slots, layer.reach, self.hidden) for layer in self._convolutions)

    def further(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, rows: torch.Tensor, first: int
    ) -> torch.Tensor:
        x = self.enter(rows)
        for layer, kept in zip(self._convolutions, memory, strict=True):
            past = kept[slots] if first else x.new_zeros(len(x), layer.reach, self.hidden)
            window = torch.cat([past, x], dim=1)
            kept[slots] = window[:, -layer.reach :]
            x = layer.mixed(x, window)
        return x

    @property
    def _convolutions(self) -> list[_Convolution]:
        return [layer for layer in self.layers if isinstance(layer, _Convolution)]


class _Convolution(nn.Module):
    """``x_t + relu(W [x_{t - 2d}, x_{t - d}, x_t] + b)``, with 0 before the first row."""

    def __init__(self, hidden: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        #: Rows before its own that it reads.
        self.reach = (_KERNEL - 1) * dilation
        self.mix = nn.Linear(_KERNEL * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mixed(x, pad(x, (0, 0, self.reach, 0)))

    def mixed(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """Return what becomes of rows x (S, n, H); `window` (S, reach + n, H) has those before them too."""
        # One product of shifted rows: as fast as the library's convolution, and the same bits in any batch.
        seen = [window[:, lag : lag + x.shape[1]] for lag in range(0, self.reach + 1, self.dilation)]
        return x + torch.relu(self.mix(torch.cat(seen, dim=2)))


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

    def memory(self, slots: int, ticks: int) -> tuple[torch.Tensor, ...]:
        """Of each block, keys and values of all rows."""
        rows = 1 + ticks * (2 if self.previous_day else 1)
        return tuple(torch.empty(2, slots, rows, self.hidden) for _ in self.blocks)

    def further(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, rows: torch.Tensor, first: int
    ) -> torch.Tensor:
        x = self.enter(rows) + _positions(rows, self.hidden, first)
        for block, kept in zip(self.blocks, memory, strict=True):
            x = block(x, kept, slots, first)
        return self.norm(x)


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

    def forward(
        self, x: torch.Tensor, kept: torch.Tensor | None = None, slots: torch.Tensor | None = None, first: int = 0
    ) -> torch.Tensor:
        """Return what becomes of rows x (S, n, H).

        `kept` (2, slots, rows, H) has keys and values of the `first` rows before them, and receives theirs.
        """
        query, key, value = self.attend(self.attend_norm(x)).chunk(3, dim=2)
        mask = None
        if kept is not None:
            stop = first + x.shape[1]
            kept[0, slots, first:stop], kept[1, slots, first:stop] = key, value
            key, value = kept[0, slots, :stop], kept[1, slots, :stop]
            if first and x.shape[1] > 1:
                mask = torch.ones(x.shape[1], stop, dtype=torch.bool).tril(first)
        parts = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        found = scaled_dot_product_attention(*parts, attn_mask=mask, is_causal=not first)
        x = x + self.gather(found.transpose(1, 2).flatten(2))
        return x + self.think(x)


def _positions(rows: torch.Tensor, hidden: int, first: int = 0) -> torch.Tensor:
    """Return sines and cosines of each row's number, from `first` on: (L, H) (arXiv 1706.03762, section 3.5)."""
    number = torch.arange(first, first + rows.shape[1], dtype=rows.dtype, device=rows.device)[:, None]
    half = (hidden + 1) // 2
    rate = torch.exp(torch.arange(half, dtype=rows.dtype, device=rows.device) * (-math.log(1e4) / half))
    return torch.cat([(number * rate).sin(), (number * rate).cos()], dim=1)[:, :hidden]
