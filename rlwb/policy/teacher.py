"""The teacher of oracle policy distillation: a network that reads the whole session, the future included."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.encoder import EncoderCache, MarketEncoder
from rlwb.policy.market_network import MarketNetwork
from rlwb.policy.observation import panel_of
from rlwb.policy.recurrent_encoder import RecurrentEncoder


class _BackwardEncoder(RecurrentEncoder):
    """Reads a session from its close to its open: its state after k ticks is made of the last k ticks.

    The later decisions of an episode need the shorter passes, so going from decision to decision would save nothing.
    """

    def read(self, features: MarketFeatures, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        today, _ = super().read(features, sessions)
        return today.flip(1), None

    def _begin(self, features: MarketFeatures, sessions: np.ndarray) -> EncoderCache:
        return MarketEncoder._begin(self, features, sessions)

    def _reach(self, cache: EncoderCache, place: np.ndarray, tick: np.ndarray) -> None:
        """All states are known from the first."""


class OracleEncoder(MarketEncoder):
    """A GRU over the ticks so far and another one from the close back to the current tick, joined by a layer.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.

    Notes
    -----
    Its results cannot be attained by trading; whatever shows them must say so.

    The best decision at tick k depends on the rest of the day, ticks k … T - 1, and its value on the price so far too.
    Of the GRU that runs backwards, the state after T - k ticks tells of just that rest, so that one pass over a session
    serves all decisions in it here as well.
    """

    causal = False
    sees_future = True

    def __init__(self, channels: int, hidden: int, *, previous_day: bool = False) -> None:
        super().__init__(channels, hidden, previous_day=previous_day)
        self.past = RecurrentEncoder(channels, hidden, previous_day=previous_day)
        self.future = _BackwardEncoder(channels, hidden)
        self.both = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        """Return what each observation's session is, seen from its tick to both sides, of shape (N, H).

        Parameters
        ----------
        obs
            With ``cur_tick`` and ``session`` of shape (N,), and ``features``.

        Raises
        ------
        ConfigError
            When the observations carry blocks, which end at the current tick.
        """
        if "session" not in obs:
            raise ConfigError(
                "the teacher reads the rest of the day, which observations with data_processed do not hold; "
                "collect in the native environment, whose observations name their session."
            )
        left = panel_of(obs).shape[1] - np.asarray(obs["cur_tick"])
        return self.both(torch.cat([self.past(obs), self.future({**obs, "cur_tick": left})], dim=1))

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        """Return what whole sessions are, seen from the ticks 0, 1, … T to both sides, of shape (S, T + 1, H)."""
        future = self.future.encode(today.flip(1), None).flip(1)
        return self.both(torch.cat([self.past.encode(today, yesterday), future], dim=2))

    def forget(self) -> None:
        self.past.forget()
        self.future.forget()


class Oracle(MarketNetwork):
    """The teacher's network: reads the bars of the whole session, those to come included.

    Parameters
    ----------
    channels, hidden, previous_day
        See `Recurrent`.
    """

    def __init__(self, channels: int, hidden: int = 64, *, previous_day: bool = False) -> None:
        super().__init__(OracleEncoder(channels, hidden, previous_day=previous_day))
