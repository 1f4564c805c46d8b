"""Market encoders that turn a whole sequence of rows into states at once."""

from __future__ import annotations

from abc import abstractmethod

import torch

from rlwb.policy.encoder import MarketEncoder

#: Numbers of a row are filled up with 0 to a multiple of this: products of rows that begin anywhere in memory round in
#: several ways, so that a session's bits would depend on its place in the batch.
_ALIGN = 4


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
        seen = int(tick.max()) if self.causal else today.shape[1]
        return self._encode(today, yesterday, seen)[row, tick]

    def _encode(self, today: torch.Tensor, yesterday: torch.Tensor | None, seen: int) -> torch.Tensor:
        """Return the states after 0, 1, … `seen` ticks of today, of shape (S, seen + 1, H)."""
        sessions, ticks, channels = today.shape
        before = 0 if yesterday is None else ticks
        rows = today.new_zeros(sessions, 1 + before + seen, self.row_width)
        clock = torch.arange(1, ticks + 1, dtype=today.dtype, device=today.device) / ticks
        for block, low, count in ((yesterday, 1, before), (today, 1 + before, seen)):
            if block is not None:
                rows[:, low : low + count, :channels] = block[:, :count]
                rows[:, low : low + count, channels] = clock[:count]
        return self.transform(rows)[:, before:]
