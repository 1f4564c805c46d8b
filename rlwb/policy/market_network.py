"""Networks that read the market, the order's own path, its direction and its scalars; the last sees the future."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.encoder import MarketEncoder, RecurrentEncoder
from rlwb.policy.gru import states_at
from rlwb.policy.network import Network, direction_branch, panel_of
from rlwb.policy.sequence_encoder import AttentionEncoder, ConvolutionEncoder


class MarketNetwork(Network):
    """A network in the manner of oracle policy distillation's (Fang et al., AAAI 2021, arXiv 2103.10860).

    An encoder of the market, a GRU over the private path (share left and share of steps taken at every step so far),
    and a branch for the direction, joined by two layers.

    Parameters
    ----------
    market
        Reads the bars; its width is that of every part and of the result.
    """

    def __init__(self, market: MarketEncoder) -> None:
        hidden = market.hidden
        super().__init__(width=hidden)
        self.market = market
        self.causal, self.sees_future = market.causal, market.sees_future
        self.private = nn.GRU(2, hidden, batch_first=True)
        self.direction = direction_branch(hidden)
        self.join = nn.Sequential(nn.Linear(3 * hidden + 3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def market_states(self, obs: Any) -> torch.Tensor | None:
        return self.market(obs)

    def forward(self, obs: Any) -> torch.Tensor:
        market = self.tensor(obs["market_states"]) if "market_states" in obs else self.market(obs)
        direction = self.direction(self.tensor(obs["acquiring"]).long())
        return self.join(torch.cat([market, self._private(obs), direction, self.scalars(obs)], dim=1))

    def _private(self, obs: Any) -> torch.Tensor:
        """Return the state after each row's private path, of shape (N, H)."""
        history, last, row, read = self.paths(obs)
        target, steps = (self.tensor(obs[name]).float()[last, None] for name in ("target", "num_step"))
        clock = torch.arange(int(history.shape[1]), device=self.device) / steps
        return states_at(self.private, torch.stack([history / target, clock], dim=2), row, read)


class Recurrent(MarketNetwork):
    """Reads the bars by a GRU.

    Parameters
    ----------
    channels
        Features a tick.
    hidden : units
        Width of every part and of the result.
    previous_day
        Whether the previous session is read too, which doubles the cost of a pass.
    """

    def __init__(self, channels: int, hidden: int = 64, *, previous_day: bool = False) -> None:
        super().__init__(RecurrentEncoder(channels, hidden, previous_day=previous_day))


class Convolution(MarketNetwork):
    """Reads the bars by dilated causal convolutions.

    Parameters
    ----------
    channels, previous_day
        See `Recurrent`.
    hidden : units
        Width of every part and of the result.
    layers : layers
        Number of layers n; a decision sees the last ``2^(n + 1) - 1`` ticks.
    """

    def __init__(self, channels: int, hidden: int = 64, layers: int = 6, *, previous_day: bool = False) -> None:
        super().__init__(ConvolutionEncoder(channels, hidden, previous_day=previous_day, layers=layers))


class Attention(MarketNetwork):
    """Reads the bars by a small causal transformer.

    Parameters
    ----------
    channels, previous_day
        See `Recurrent`.
    hidden : units
        Width of every part and of the result.
    layers : blocks
        Number of blocks.
    """

    def __init__(self, channels: int, hidden: int = 64, layers: int = 2, *, previous_day: bool = False) -> None:
        super().__init__(AttentionEncoder(channels, hidden, previous_day=previous_day, layers=layers))


class Oracle(MarketNetwork):
    """The teacher of oracle policy distillation: reads the bars of the whole session, those to come included.

    Parameters
    ----------
    channels, hidden, previous_day
        See `Recurrent`.
    """

    def __init__(self, channels: int, hidden: int = 64, *, previous_day: bool = False) -> None:
        super().__init__(OracleEncoder(channels, hidden, previous_day=previous_day))


class OracleEncoder(MarketEncoder):
    """A GRU over the ticks so far and another one from the close back to the current tick, joined by a layer.

    Its results cannot be attained by trading; whatever shows them must say so.

    The best decision at tick k depends on the rest of the day, ticks k … T - 1, and its value on the price so far too.
    Of the GRU that runs backwards, the state after T - k ticks tells of just that rest, so that one pass over a session
    serves all decisions in it here as well.

    Parameters
    ----------
    channels, hidden, previous_day
        See `MarketEncoder`.
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

        Raises
        ------
        ConfigError
            When the observations carry blocks, which end at the current tick, in place of sessions and features.
        """
        if "session" not in obs:
            raise ConfigError(
                "the teacher reads the rest of the day, which observations with data_processed do not hold; "
                "collect in the native environment, whose observations name their session."
            )
        left = panel_of(obs).shape[1] - np.asarray(obs["cur_tick"])
        return self.both(torch.cat([self.past(obs), self.future({**obs, "cur_tick": left})], dim=1))

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        future = self.future.encode(today.flip(1), None).flip(1)
        return self.both(torch.cat([self.past.encode(today, yesterday), future], dim=2))

    def forget(self) -> None:
        self.past.forget()
        self.future.forget()


class _BackwardEncoder(RecurrentEncoder):
    """Reads a session from its close to its open: its state after k ticks is made of the last k ticks."""

    # The later decisions of an episode need the shorter passes, so going from one to the next would save nothing.
    _begin = MarketEncoder._begin
    _reach = MarketEncoder._reach

    def read(self, features: MarketFeatures, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        today, _ = super().read(features, sessions)
        return today.flip(1), None
