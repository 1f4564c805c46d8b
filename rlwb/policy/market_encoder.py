"""The market part of an observation, read by a causal recurrent network: one pass over a day serves all decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.gru import last_states, scan, states_at
from rlwb.policy.kept import Kept


def as_tensor(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an array or tensor as a tensor on `device`."""
    return torch.as_tensor(value, dtype=dtype, device=device)


class MarketEncoder(nn.Module):
    """A GRU over the session's ticks, optionally started from a GRU over the previous session.

    Parameters
    ----------
    channels
        Number of features C.
    hidden
        Width H of the state.
    previous_day
        Whether the previous session sets the initial state; otherwise it is 0.
    features
        The panel that ``session`` in an observation refers to; None when observations carry their blocks.

    Notes
    -----
    The network is causal: its state after k ticks depends on these alone. So a decision at tick k reads row
    k of one pass over the day, whatever later ticks hold, and all decisions and orders of a session share
    that pass. Without gradients the pass goes from decision to decision, no further than they do, and its states
    at the decisions are kept until the weights change.
    """

    #: Whether later ticks move no earlier state.
    causal = True
    #: Whether it reads ticks that lie ahead of the decision.
    sees_future = False
    #: Steps of zeros in front of the first tick, for a subclass.
    lead = 0

    def __init__(
        self, channels: int, hidden: int, *, previous_day: bool = False, features: MarketFeatures | None = None
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.previous_gru = nn.GRU(channels, hidden, batch_first=True) if previous_day else None
        self.features = features
        self._kept: Kept | None = None

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the state after the ticks that each observation has seen, of shape (N, H).

        Parameters
        ----------
        obs
            With ``cur_tick`` of shape (N,), and either ``session`` of shape (N,) or the blocks
            ``data_processed`` and ``data_processed_prev`` of shape (N, T, C).
        """
        device = self.gru.weight_ih_l0.device
        tick = as_tensor(obs["cur_tick"], device).long()
        if "session" not in obs:
            today = self._lead(as_tensor(obs["data_processed"], device))
            first = self._first(as_tensor(obs["data_processed_prev"], device))
            row = torch.arange(len(tick), device=device)
            return states_at(self.gru, today, row, tick + self.lead, first, self._embed)
        session = np.asarray(obs["session"])
        if torch.is_grad_enabled():
            distinct, where = np.unique(session, return_inverse=True)
            today, first = self._read(distinct)
            return states_at(self.gru, today, as_tensor(where, device), tick + self.lead, first, self._embed)
        return self._recall(session, tick)

    def encode(self, sessions: np.ndarray) -> torch.Tensor:
        """Return the states of whole sessions after 0, 1, … T ticks, of shape (S, T + 1, H)."""
        return self._pass_over(sessions).transpose(0, 1)

    def _pass_over(self, sessions: np.ndarray) -> torch.Tensor:
        """Return the states of whole sessions with time first, of shape (T + 1, S, H)."""
        today, first = self._read(sessions)
        return scan(self.gru, self._embed(today), first)[self.lead :]

    def _read(self, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the steps of `sessions`, of shape (S, lead + T, C), and the state that their previous ones leave."""
        panel = self._panel()
        device = self.gru.weight_ih_l0.device
        today = self._lead(as_tensor(panel.rows(sessions), device))
        if self.previous_gru is None:
            return today, None
        return today, self._first(as_tensor(panel.block_previous(sessions), device))

    def _panel(self) -> MarketFeatures:
        if self.features is None:
            raise ConfigError(
                "the observation names sessions but the network was given no MarketFeatures; build it with features."
            )
        return self.features

    def _first(self, previous: torch.Tensor) -> torch.Tensor | None:
        if self.previous_gru is None:
            return None
        sessions, ticks, _ = previous.shape
        every = torch.arange(sessions, device=previous.device)
        return states_at(self.previous_gru, previous, every, torch.full_like(every, ticks))

    def _lead(self, today: torch.Tensor) -> torch.Tensor:
        """Put `lead` steps of zeros in front of the features (S, T, C)."""
        return nn.functional.pad(today, (0, 0, self.lead, 0)) if self.lead else today

    def _embed(self, steps: torch.Tensor) -> torch.Tensor:
        """Return what the GRU reads of steps (…, C), each on its own; a subclass may put layers here."""
        return steps

    def _recall(self, session: np.ndarray, tick: torch.Tensor) -> torch.Tensor:
        """Return the states of `session` after `tick` ticks, of shape (N, H), going on from those that are kept."""
        if self._kept is None or not self._kept.serves(session, self.features):
            self._kept = None
            self._kept = self._begin(np.unique(session))
        place = np.searchsorted(self._kept.sessions, session)
        self._reach(self._kept, place, tick.cpu().numpy())
        return self._kept.states[tick, as_tensor(place, tick.device)]

    def _begin(self, sessions: np.ndarray) -> Kept:
        """Return the sessions with their states before the first tick."""
        steps, first = self._read(sessions)
        shape = (steps.shape[1] - self.lead + 1, len(sessions))
        states = steps.new_empty(*shape, self.hidden)
        kept = Kept(self, sessions, self.features, states, np.zeros(shape, dtype=bool), steps)
        every = np.arange(len(sessions))
        before = steps.new_zeros(len(sessions), self.hidden) if first is None else first
        states[0] = self._run(kept, every, np.zeros_like(every), np.full_like(every, self.lead), before)
        kept.known[0] = True
        return kept

    def _reach(self, kept: Kept, place: np.ndarray, tick: np.ndarray) -> None:
        """Find the states of the sessions at `place` after `tick` ticks."""
        wanted = np.unique(np.stack([place, tick]), axis=1)
        wanted = wanted[:, ~kept.known[wanted[1], wanted[0]]]
        while wanted.size:
            # The earliest of each session first: the later ones go on from there.
            _, turn = np.unique(wanted[0], return_index=True)
            where, until = wanted[:, turn]
            behind = kept.known[:, where] & (np.arange(len(kept.known))[:, None] <= until)
            since = len(behind) - 1 - np.argmax(behind[::-1], axis=0)
            at = as_tensor(where, kept.states.device)
            before = kept.states[as_tensor(since, at.device), at]
            states = self._run(kept, where, since + self.lead, until - since, before)
            kept.states[as_tensor(until, at.device), at] = states
            kept.known[until, where] = True
            wanted = np.delete(wanted, turn, axis=1)

    def _run(
        self, kept: Kept, place: np.ndarray, begin: np.ndarray, count: np.ndarray, before: torch.Tensor
    ) -> torch.Tensor:
        """Return the states `count` steps after `before`, reading from step `begin` on."""
        assert kept.steps is not None, "made by _begin"
        _, length, width = kept.steps.shape
        table = kept.steps.reshape(-1, width)
        return last_states(self.gru, table, place * length + begin, count, before, self._embed)

    def forget(self) -> None:
        """Drop the kept states, to free their memory."""
        self._kept = None
