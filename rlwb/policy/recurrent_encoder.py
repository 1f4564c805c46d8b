"""A market encoder that is a gated recurrent unit: it walks along a session from decision to decision."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rlwb.market import MarketFeatures
from rlwb.policy.encoder import EncoderCache, MarketEncoder
from rlwb.policy.gru import last_states, scan, states_at
from rlwb.policy.observation import as_tensor


class RecurrentEncoder(MarketEncoder):
    """A GRU over the session's ticks, started from a GRU over the previous session or from 0.

    Without gradients the pass goes from decision to decision, no further than they do, and its states at the decisions
    are cached.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
    """

    #: Steps of zeros in front of the first tick, for a subclass.
    lead = 0

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.previous_gru = nn.GRU(channels, hidden, batch_first=True) if previous_day else None

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        states = scan(self.gru, self.embed(self._lead(today)), self._first(yesterday))
        return states[self.lead :].transpose(0, 1)

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        steps, first = self._lead(today), self._first(yesterday)
        return states_at(self.gru, steps, row, tick + self.lead, first, self.embed)

    def embed(self, steps: torch.Tensor) -> torch.Tensor:
        """Return what the GRU reads of steps (…, C), each on its own; a subclass may put layers here."""
        return steps

    def _lead(self, today: torch.Tensor) -> torch.Tensor:
        """Put `lead` steps of zeros in front of the features (S, T, C)."""
        return nn.functional.pad(today, (0, 0, self.lead, 0)) if self.lead else today

    def _first(self, yesterday: torch.Tensor | None) -> torch.Tensor | None:
        """Return the state before the first step, of shape (S, H): the last one of yesterday."""
        if self.previous_gru is None or yesterday is None:
            return None
        sessions, ticks, _ = yesterday.shape
        every = torch.arange(sessions, device=yesterday.device)
        return states_at(self.previous_gru, yesterday, every, torch.full_like(every, ticks))

    def _begin(self, features: MarketFeatures, sessions: np.ndarray) -> EncoderCache:
        """Return a cache of `sessions` with their states before the first tick."""
        today, yesterday = self.read(features, sessions)
        steps, first = self._lead(today), self._first(yesterday)
        shape = (today.shape[1] + 1, len(sessions))
        states, known = steps.new_empty(*shape, self.hidden), np.zeros(shape, dtype=bool)
        cache = EncoderCache(self.parameters(), features, sessions, states, known, steps)
        every = np.arange(len(sessions))
        before = steps.new_zeros(len(sessions), self.hidden) if first is None else first
        states[0] = self._walk(cache, every, np.zeros_like(every), np.full_like(every, self.lead), before)
        known[0] = True
        return cache

    def _reach(self, cache: EncoderCache, place: np.ndarray, tick: np.ndarray) -> None:
        wanted = np.unique(np.stack([place, tick]), axis=1)
        wanted = wanted[:, ~cache.known[wanted[1], wanted[0]]]
        while wanted.size:
            # The earliest of each session first: the later ones go on from there.
            _, turn = np.unique(wanted[0], return_index=True)
            where, until = wanted[:, turn]
            behind = cache.known[:, where] & (np.arange(len(cache.known))[:, None] <= until)
            since = len(behind) - 1 - np.argmax(behind[::-1], axis=0)
            at = as_tensor(where, cache.states.device)
            before = cache.states[as_tensor(since, at.device), at]
            states = self._walk(cache, where, since + self.lead, until - since, before)
            cache.states[as_tensor(until, at.device), at] = states
            cache.known[until, where] = True
            wanted = np.delete(wanted, turn, axis=1)

    def _walk(
        self, cache: EncoderCache, place: np.ndarray, begin: np.ndarray, count: np.ndarray, before: torch.Tensor
    ) -> torch.Tensor:
        """Return the states `count` steps after `before`, reading from step `begin` on."""
        _, length, width = cache.steps.shape
        table = cache.steps.reshape(-1, width)
        return last_states(self.gru, table, place * length + begin, count, before, self.embed)
