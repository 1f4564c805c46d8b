"""The market part of an observation, read by a causal recurrent network: one pass over a day serves all decisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.gru import scan, states_at

_SESSIONS_PER_PASS = 512
_ALIGN = 16


def as_tensor(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an array or tensor as a tensor on `device`."""
    return torch.as_tensor(value, dtype=dtype, device=device)


class _Pass(NamedTuple):
    """States of whole sessions, and all that they depend on."""

    weights: list[torch.Tensor]
    features: MarketFeatures | None
    sessions: np.ndarray
    states: torch.Tensor


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
    k of one pass over the whole day, whatever later ticks hold, and all decisions and orders of a session
    share that pass. Without gradients the last pass is kept until the weights change.
    """

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
        self._kept: _Pass | None = None

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
        distinct, states = self._keep(session)
        return states[tick, as_tensor(np.searchsorted(distinct, session), device)]

    def encode(self, sessions: np.ndarray) -> torch.Tensor:
        """Return the states of whole sessions after 0, 1, … T ticks, of shape (S, T + 1, H)."""
        return self._pass_over(sessions).transpose(0, 1)

    def _pass_over(self, sessions: np.ndarray) -> torch.Tensor:
        """Return the states of whole sessions with time first, of shape (T + 1, S, H)."""
        today, first = self._read(sessions)
        return scan(self.gru, self._embed(today), first)[self.lead :]

    def _read(self, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the steps of `sessions`, of shape (S, lead + T, C), and the state that their previous ones leave."""
        if self.features is None:
            raise ConfigError(
                "the observation names sessions but the network was given no MarketFeatures; build it with features."
            )
        device = self.gru.weight_ih_l0.device
        today = self._lead(as_tensor(np.asarray(self.features.today[sessions]), device))
        if self.previous_gru is None:
            return today, None
        return today, self._first(as_tensor(self.features.block_previous(sessions), device))

    def _first(self, previous: torch.Tensor) -> torch.Tensor | None:
        return None if self.previous_gru is None else scan(self.previous_gru, previous)[-1]

    def _lead(self, today: torch.Tensor) -> torch.Tensor:
        """Put `lead` steps of zeros in front of the features (S, T, C)."""
        return nn.functional.pad(today, (0, 0, self.lead, 0)) if self.lead else today

    def _embed(self, steps: torch.Tensor) -> torch.Tensor:
        """Return what the GRU reads of steps (…, C), each on its own; a subclass may put layers here."""
        return steps

    def _keep(self, session: np.ndarray) -> tuple[np.ndarray, torch.Tensor]:
        """Return sorted sessions that include all of `session`, and their states under the present weights."""
        kept = self._kept
        if kept is not None and self._still_true(kept) and np.isin(session, kept.sessions).all():
            return kept.sessions, kept.states
        self._kept = None
        distinct = np.unique(session)
        # In multiples of a few rows, so that a session's bits do not depend on its company.
        filled = np.concatenate([distinct, np.repeat(distinct[-1:], -len(distinct) % _ALIGN)])
        parts = [self._pass_over(filled[i : i + _SESSIONS_PER_PASS]) for i in range(0, len(filled), _SESSIONS_PER_PASS)]
        weights = [parameter.detach().clone() for parameter in self.parameters()]
        self._kept = _Pass(weights, self.features, distinct, torch.cat(parts, dim=1)[:, : len(distinct)])
        return distinct, self._kept.states

    def _still_true(self, kept: _Pass) -> bool:
        """Compare the weights themselves: a version counter misses writes through ``.data`` and swapped tensors."""
        return kept.features is self.features and all(
            old.device == new.device and torch.equal(old, new)
            for old, new in zip(kept.weights, self.parameters(), strict=True)
        )

    def forget(self) -> None:
        """Drop the kept pass, to free its memory."""
        self._kept = None
