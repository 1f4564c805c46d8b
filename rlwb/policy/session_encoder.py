"""Market encoders of other kinds than a GRU: what they read, and the pass over a day that serves all decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.market import MarketFeatures
from rlwb.policy.market_encoder import as_tensor
from rlwb.policy.whole_pass import WholePassEncoder

#: Numbers of a row are filled up with 0 to a multiple of this: products of rows that begin anywhere in memory round in
#: several ways, so that a session's bits would depend on its place in the batch.
_ALIGN = 4


class SessionEncoder(WholePassEncoder, ABC):
    """Reads a session as one sequence of rows: an empty row, yesterday's ticks if it reads them, today's ticks.

    The state after k ticks is that of today's tick k - 1, or of the row before today's ticks. Beside its C features a
    row holds the time of day, in (0, 1], and up to three numbers that are always 0; the empty row is 0 throughout.
    Parameters and observations are those of `MarketEncoder`.

    A subclass whose rows depend on later ones says ``causal = False``. It is then given each observation's own block,
    in which the ticks from the current one on are 0, and shares nothing between decisions.
    """

    causal = True

    def __init__(
        self, channels: int, hidden: int, *, previous_day: bool = False, features: MarketFeatures | None = None
    ) -> None:
        # Not the parent's own, whose GRUs these encoders do without.
        nn.Module.__init__(self)
        self.width = channels + 1 + -(channels + 1) % _ALIGN
        self.hidden = hidden
        self.previous_day = previous_day
        self.features = features
        self._kept = None

    @abstractmethod
    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        """Turn rows (S, L, W) into states (S, L, H); of a causal encoder, state j knows rows 0 … j alone."""

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the state after the ticks that each observation has seen, of shape (N, H).

        Parameters
        ----------
        obs
            As in `MarketEncoder`.
        """
        tick = as_tensor(obs["cur_tick"], self._device).long()
        if "session" in obs and self.causal and not torch.is_grad_enabled():
            return self._recall(np.asarray(obs["session"]), tick)
        today, previous, row = self._blocks(obs)
        seen = int(tick.max()) if self.causal else today.shape[1]
        return self._states(today, previous, seen)[row, tick]

    def _blocks(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return today's and yesterday's blocks (S, T, C), and which of the S belongs to each observation."""
        row = torch.arange(len(obs["cur_tick"]), device=self._device)
        if "session" not in obs:
            today, previous = (as_tensor(obs[name], self._device) for name in ("data_processed", "data_processed_prev"))
            return today, previous, row
        if self.causal:
            distinct, where = np.unique(np.asarray(obs["session"]), return_inverse=True)
            return *self._read_blocks(distinct), as_tensor(where, self._device)
        return *self._read_blocks(np.asarray(obs["session"]), np.asarray(obs["cur_tick"])), row

    def _read_blocks(self, sessions: np.ndarray, ticks: np.ndarray | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return today up to, not including, `ticks`, or the whole of it, and yesterday."""
        panel = self._panel()
        today = panel.rows(sessions) if ticks is None else panel.block(sessions, ticks)
        previous = panel.block_previous(sessions) if self.previous_day else np.empty_like(today[:, :0])
        return as_tensor(today, self._device), as_tensor(previous, self._device)

    def _pass_over(self, sessions: np.ndarray) -> torch.Tensor:
        today, previous = self._read_blocks(sessions)
        return self._states(today, previous, today.shape[1]).transpose(0, 1)

    def _states(self, today: torch.Tensor, previous: torch.Tensor, seen: int) -> torch.Tensor:
        """Return the states after 0, 1, … `seen` ticks of today, of shape (S, seen + 1, H)."""
        sessions, ticks, _ = today.shape
        before = ticks if self.previous_day else 0
        rows = today.new_zeros(sessions, 1 + before + seen, self.width)
        clock = torch.arange(1, ticks + 1, dtype=today.dtype, device=today.device) / ticks
        for block, low, count in ((previous, 1, before), (today, 1 + before, seen)):
            rows[:, low : low + count, : block.shape[2]] = block[:, :count]
            rows[:, low : low + count, block.shape[2]] = clock[:count]
        return self.transform(rows)[:, before:]

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device
