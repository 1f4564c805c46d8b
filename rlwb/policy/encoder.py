"""Market encoders: networks that read a session's bars, one pass over a session serving all decisions in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.gru import ALIGN, last_states, next_states, scan, states_at
from rlwb.policy.network import Network, panel_of

_SESSIONS_PER_PASS = 512
#: Methods that say how a session is read.
_WHOLE = {"encode", "transform", "states_at"}
#: Methods that say how it is read further.
_STEPS = {"advance", "further"}


class EncoderCache(NamedTuple):
    """Encoded sessions, and copies of what their states depend on.

    `sessions` are rows of the panel, sorted, of shape (S,); `states` those after 0, 1, … T ticks, of shape
    (T + 1, S, H), and `known` says which of them have been computed. An encoder that computes states when they are
    asked for keeps the features in `today`.
    """

    weights: list[torch.Tensor]
    features: MarketFeatures
    sessions: np.ndarray
    states: torch.Tensor  # time first, allocated lazily: untouched pages use no memory
    known: np.ndarray
    today: torch.Tensor | None = None

    def is_valid_for(self, weights: Iterable[torch.Tensor], features: MarketFeatures, sessions: np.ndarray) -> bool:
        """Return whether weights and features are unchanged and every session is cached.

        The weights themselves are compared: a version counter misses writes through ``.data`` and swapped tensors.
        """
        pairs = zip(self.weights, weights, strict=True)
        same = (old.device == new.device and torch.equal(old, new) for old, new in pairs)
        return features is self.features and all(same) and bool(np.isin(sessions, self.sessions).all())


class MarketEncoder(Network):
    """Reads the bars of sessions; a subclass says by `encode` how.

    Where observations carry the blocks ``data_processed`` and ``data_processed_prev``, each row is read by itself.
    Where they name ``session`` and hold the panel under ``features``, each session is read once for all its decisions,
    and without gradients its states are cached until weights or features change.

    An encoder whose states depend on later ticks as well says ``causal = False``: it is given each observation's own
    block, in which the ticks from the current one on are 0, and shares nothing between decisions.

    Parameters
    ----------
    channels
        Features a tick, C.
    hidden
        Width H of a state.
    previous_day
        Whether the previous session is read too.
    """

    causal = True
    #: Whether `advance` may go on from an earlier tick than the last, when bars have changed.
    rewinds = True

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__(width=hidden)
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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # What a class says of whole days anew, its parent's steps do not say.
        if not _STEPS & vars(cls).keys() and _WHOLE & vars(cls).keys():
            for name in ("memory", "begin", "advance"):
                setattr(cls, name, getattr(MarketEncoder, name))

    def memory(self, slots: int, ticks: int) -> tuple[torch.Tensor, ...]:
        """Return room for what `advance` needs beside the states, of so many sessions of `ticks` ticks.

        `begin` and `advance` fill it at the rows `slots` that they are given. Memory that is not touched takes none.
        """
        days = 2 if self.previous_day else 1
        return (torch.empty(slots, days, ticks, self.channels),)

    def begin(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, yesterday: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the states before the first tick of S sessions, of shape (S, H).

        Parameters
        ----------
        memory
            From `memory`.
        slots : int64 of shape (S,)
            Where in it the sessions are kept.
        yesterday : float32 of shape (S, T, C), optional
            See `encode`.
        """
        (days,) = memory
        days[slots, 0] = 0.0
        if yesterday is not None:
            days[slots, 1] = yesterday
        return self.encode(days[slots, 0], yesterday)[:, 0]

    def advance(
        self,
        memory: tuple[torch.Tensor, ...],
        slots: torch.Tensor,
        states: torch.Tensor,
        ticks: torch.Tensor,
        since: int,
        of: int,
    ) -> torch.Tensor:
        """Return the states after each of n further ticks, of shape (S, n, H).

        Built-in encoders read what they keep of the day; here the day is read again from its beginning.

        Parameters
        ----------
        memory, slots
            As in `begin`.
        states : float32 of shape (S, H)
            Those after `since` ticks.
        ticks : float32 of shape (S, n, C)
            Features of the ticks ``since`` … ``since + n - 1``.
        since
            How many of today's ticks were read before.
        of
            Ticks of a day, T.
        """
        (days,) = memory
        stop = since + ticks.shape[1]
        days[slots, 0, since:] = 0.0
        yesterday = days[slots, 1] if self.previous_day else None
        if self.causal:
            days[slots, 0, since:stop] = ticks
            return self.encode(days[slots, 0], yesterday)[:, since + 1 : stop + 1]
        found = []
        for tick in range(since, stop):
            days[slots, 0, tick] = ticks[:, tick - since]
            found.append(self.encode(days[slots, 0], yesterday)[:, tick + 1])
        return torch.stack(found, dim=1)

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the state after the ticks that each observation has seen, of shape (N, H)."""
        tick = self.tensor(obs["cur_tick"]).long()
        if "session" not in obs or not self.causal:
            every = torch.arange(tick.shape[0], device=self.device)
            return self.states_at(self.today(obs), self.yesterday(obs) if self.previous_day else None, every, tick)
        features, session = panel_of(obs), np.asarray(obs["session"])
        if not torch.is_grad_enabled():
            return self._recall(features, session, tick)
        distinct, where = np.unique(session, return_inverse=True)
        return self.states_at(*self.read(features, distinct), self.tensor(where), tick)

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        """Return the states of the sessions `row` after `tick` ticks, both int64 of shape (N,), of shape (N, H)."""
        return self.encode(today, yesterday)[row, tick]

    def read(self, features: MarketFeatures, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return today and, where it is read, yesterday of whole sessions, each float32 of shape (S, T, C)."""
        today = self.tensor(features.rows(sessions))
        return today, self.tensor(features.block_previous(sessions)) if self.previous_day else None

    def forget(self) -> None:
        """Drop the cached states, to free their memory."""
        self._cache = None

    def _recall(self, features: MarketFeatures, session: np.ndarray, tick: torch.Tensor) -> torch.Tensor:
        """Return the states of `session` after `tick` ticks, of shape (N, H), computing those that are not cached."""
        if self._cache is None or not self._cache.is_valid_for(self.parameters(), features, session):
            self._cache = None
            weights = [weight.detach().clone() for weight in self.parameters()]
            sessions = np.unique(session)
            self._cache = EncoderCache(weights, features, sessions, *self._begin(features, sessions))
        place = np.searchsorted(self._cache.sessions, session)
        self._reach(self._cache, place, tick.cpu().numpy())
        return self._cache.states[tick, self.tensor(place)]

    def _begin(
        self, features: MarketFeatures, sessions: np.ndarray
    ) -> tuple[torch.Tensor, np.ndarray, torch.Tensor | None]:
        """Return `states`, `known` and `today` of a cache: here all states, by a pass over whole sessions."""
        # In multiples of a few rows, so that a session's bits do not depend on its company.
        filled = np.concatenate([sessions, np.repeat(sessions[-1:], -len(sessions) % ALIGN)])
        cuts = range(0, len(filled), _SESSIONS_PER_PASS)
        parts = [self.encode(*self.read(features, filled[low : low + _SESSIONS_PER_PASS])) for low in cuts]
        states = torch.cat([part.transpose(0, 1) for part in parts], dim=1)[:, : len(sessions)]
        return states, np.ones(states.shape[:2], dtype=bool), None

    def _reach(self, cache: EncoderCache, place: np.ndarray, tick: np.ndarray) -> None:
        """Compute the states of the sessions at `place` after `tick` ticks that are not known yet: here none is."""

    def __getstate__(self) -> dict[str, Any]:
        # A copy or a file holds weights alone; the cache refers to the whole panel.
        return {**self.__dict__, "_cache": None}


class RecurrentEncoder(MarketEncoder):
    """A GRU over the session's ticks, started from a GRU over the previous session or from 0.

    Without gradients the pass goes from decision to decision, no further than they do, and its states at the decisions
    are cached.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
    """

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.previous_gru = nn.GRU(channels, hidden, batch_first=True) if previous_day else None

    def embed(self, ticks: torch.Tensor) -> torch.Tensor:
        """Return what the GRU reads of ticks (…, C), each on its own; a subclass may put layers here."""
        return ticks

    def first(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        """Return the state before the first tick, of shape (S, H): the last one of yesterday."""
        if self.previous_gru is None or yesterday is None:
            return today.new_zeros(today.shape[0], self.hidden)
        sessions, ticks, _ = yesterday.shape
        every = torch.arange(sessions, device=yesterday.device)
        return states_at(self.previous_gru, yesterday, every, torch.full_like(every, ticks))

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        return scan(self.gru, self.embed(today), self.first(today, yesterday)).transpose(0, 1)

    def memory(self, slots: int, ticks: int) -> tuple[torch.Tensor, ...]:
        return ()

    def begin(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, yesterday: torch.Tensor | None
    ) -> torch.Tensor:
        return self.first(torch.zeros(len(slots), 1, self.channels), yesterday)

    def advance(
        self,
        memory: tuple[torch.Tensor, ...],
        slots: torch.Tensor,
        states: torch.Tensor,
        ticks: torch.Tensor,
        since: int,
        of: int,
    ) -> torch.Tensor:
        # Step by step, so that the bits are those of a backtest.
        found = torch.empty(*ticks.shape[:2], self.hidden)
        for number in range(ticks.shape[1]):
            found[:, number] = states = next_states(self.gru, ticks[:, number], states, self.embed)
        return found

    def states_at(
        self, today: torch.Tensor, yesterday: torch.Tensor | None, row: torch.Tensor, tick: torch.Tensor
    ) -> torch.Tensor:
        return states_at(self.gru, today, row, tick, self.first(today, yesterday), self.embed)

    def _begin(
        self, features: MarketFeatures, sessions: np.ndarray
    ) -> tuple[torch.Tensor, np.ndarray, torch.Tensor | None]:
        today, yesterday = self.read(features, sessions)
        shape = (today.shape[1] + 1, len(sessions))
        states, known = today.new_empty(*shape, self.hidden), np.zeros(shape, dtype=bool)
        states[0], known[0] = self.first(today, yesterday), True
        return states, known, today

    def _reach(self, cache: EncoderCache, place: np.ndarray, tick: np.ndarray) -> None:
        assert cache.today is not None
        _, ticks, channels = cache.today.shape
        table = cache.today.reshape(-1, channels)
        wanted = np.unique(np.stack([place, tick]), axis=1)
        wanted = wanted[:, ~cache.known[wanted[1], wanted[0]]]
        while wanted.size:
            # The earliest of each session first: the later ones go on from there.
            _, turn = np.unique(wanted[0], return_index=True)
            where, until = wanted[:, turn]
            behind = cache.known[:, where] & (np.arange(ticks + 1)[:, None] <= until)
            since = ticks - np.argmax(behind[::-1], axis=0)
            at = self.tensor(where)
            before = cache.states[self.tensor(since), at]
            after = last_states(self.gru, table, where * ticks + since, until - since, before, self.embed)
            cache.states[self.tensor(until), at] = after
            cache.known[until, where] = True
            wanted = np.delete(wanted, turn, axis=1)
