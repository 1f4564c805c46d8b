"""Market encoders: networks that read a session's bars, one pass over a session serving all decisions in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy import observation
from rlwb.policy.gru import ALIGN
from rlwb.policy.network import check_width, device_of
from rlwb.policy.observation import as_tensor, panel_of

_SESSIONS_PER_PASS = 512


@dataclass
class EncoderCache:
    """Encoded sessions, and what their states depend on.

    Attributes
    ----------
    weights
        Copies of the encoder's weights, as they were.
    features
        The panel of features.
    sessions : int64 of shape (S,)
        Rows of the panel, sorted.
    states : float32 of shape (T + 1, S, H)
        States after 0, 1, … T ticks, time first; allocated lazily: untouched pages use no memory.
    known : bool of shape (T + 1, S)
        Which states have been computed.
    steps : float32 of shape (S, L, C), optional
        What the encoder reads of the sessions, for one that computes states when they are asked for.
    """

    weights: Iterable[torch.Tensor]
    features: MarketFeatures
    sessions: np.ndarray
    states: torch.Tensor
    known: np.ndarray
    steps: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def __post_init__(self) -> None:
        self.weights = [weight.detach().clone() for weight in self.weights]

    def is_valid_for(self, weights: Iterable[torch.Tensor], features: MarketFeatures, sessions: np.ndarray) -> bool:
        """Return whether weights and features are unchanged and every session is cached.

        The weights themselves are compared: a version counter misses writes through ``.data`` and swapped tensors.
        """
        same = (
            old.device == new.device and torch.equal(old, new) for old, new in zip(self.weights, weights, strict=True)
        )
        return features is self.features and all(same) and bool(np.isin(sessions, self.sessions).all())


class MarketEncoder(nn.Module, ABC):
    """Reads the bars of sessions; a subclass says by `encode` how.

    Observations come in two forms. Where they carry the blocks ``data_processed`` and ``data_processed_prev``, each row
    is read by itself. Where they name ``session`` and hold the panel under ``features``, each session is read once for
    all its decisions, and without gradients its states are cached until weights or features change.

    Parameters
    ----------
    channels
        Features a tick, C.
    hidden
        Width H of a state.
    previous_day
        Whether the previous session is read too.

    Attributes
    ----------
    causal
        Whether the state after k ticks depends on these alone. An encoder whose states depend on later ticks as well
        says False: it is given each observation's own block, in which the ticks from the current one on are 0, and
        shares nothing between decisions.
    sees_future
        Whether it reads ticks that lie ahead of the decision.
    """

    causal: bool = True
    sees_future: bool = False

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__()
        check_width(hidden)
        if channels < 1:
            raise ConfigError(
                f"channels is {channels}, but {type(self).__name__} reads bars; give it the number of features a tick."
            )
        self.channels = channels
        self.hidden = hidden
        self.previous_day = previous_day
        self._cache: EncoderCache | None = None

    @abstractmethod
    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        """Return the states after 0, 1, … T ticks, of shape (S, T + 1, H).

        Parameters
        ----------
        today : float32 of shape (S, T, C)
            Features of S sessions.
        yesterday : float32 of shape (S, T', C), optional
            Those of the previous sessions, 0 where there is none; None unless ``previous_day``.
        """

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the state after the ticks that each observation has seen, of shape (N, H).

        Parameters
        ----------
        obs
            With ``cur_tick`` of shape (N,), and either ``session`` of shape (N,) and ``features``, or the blocks
            ``data_processed`` and ``data_processed_prev`` of shape (N, T, C).
        """
        tick = as_tensor(obs["cur_tick"], self.device).long()
        if "session" not in obs or not self.causal:
            row = torch.arange(len(tick), device=self.device)
            before = observation.yesterday(obs, self.device) if self.previous_day else None
            return self.states_at(observation.today(obs, self.device), before, row, tick)
        session = np.asarray(obs["session"])
        if not torch.is_grad_enabled():
            return self._recall(panel_of(obs), session, tick)
        distinct, where = np.unique(session, return_inverse=True)
        return self.states_at(*self.read(panel_of(obs), distinct), as_tensor(where, self.device), tick)

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        """Return the states of the sessions `row` after `tick` ticks, both int64 of shape (N,), of shape (N, H)."""
        return self.encode(today, yesterday)[row, tick]

    def read(self, features: MarketFeatures, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return today and, where it is read, yesterday of whole sessions, each float32 of shape (S, T, C)."""
        today = as_tensor(features.rows(sessions), self.device)
        return today, as_tensor(features.block_previous(sessions), self.device) if self.previous_day else None

    def forget(self) -> None:
        """Drop the cached states, to free their memory."""
        self._cache = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return device_of(self)

    def _recall(self, features: MarketFeatures, session: np.ndarray, tick: torch.Tensor) -> torch.Tensor:
        """Return the states of `session` after `tick` ticks, of shape (N, H), computing those that are not cached."""
        if self._cache is None or not self._cache.is_valid_for(self.parameters(), features, session):
            self._cache = None
            self._cache = self._begin(features, np.unique(session))
        place = np.searchsorted(self._cache.sessions, session)
        self._reach(self._cache, place, tick.cpu().numpy())
        return self._cache.states[tick, as_tensor(place, tick.device)]

    def _begin(self, features: MarketFeatures, sessions: np.ndarray) -> EncoderCache:
        """Return a cache of `sessions`: here with all states, by a pass over whole sessions."""
        # In multiples of a few rows, so that a session's bits do not depend on its company.
        filled = np.concatenate([sessions, np.repeat(sessions[-1:], -len(sessions) % ALIGN)])
        cuts = range(0, len(filled), _SESSIONS_PER_PASS)
        parts = [self.encode(*self.read(features, filled[low : low + _SESSIONS_PER_PASS])) for low in cuts]
        states = torch.cat([part.transpose(0, 1) for part in parts], dim=1)[:, : len(sessions)]
        return EncoderCache(self.parameters(), features, sessions, states, np.ones(states.shape[:2], dtype=bool))

    def _reach(self, cache: EncoderCache, place: np.ndarray, tick: np.ndarray) -> None:
        """Compute the states of the sessions at `place` after `tick` ticks that are not known yet: here none is."""

    def __getstate__(self) -> dict[str, Any]:
        # A copy or a file holds weights alone; the cache refers to the whole panel.
        return {**self.__dict__, "_cache": None}
