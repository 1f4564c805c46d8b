"""The teacher of oracle policy distillation: a network that reads the whole session, the future included."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.even_start import EvenStart
from rlwb.policy.market_encoder import MarketEncoder
from rlwb.policy.masks import ActionMask
from rlwb.policy.networks import ActorCritic, NetworkSettings, Recurrent
from rlwb.policy.whole_pass import WholePassEncoder


class _Backwards(WholePassEncoder):
    """Reads a session from its close to its open: the state at tick k is made of the ticks k … T - 1.

    The later decisions of an episode need the shorter runs, so to go from decision to decision would spare nothing.
    """

    def forward(self, obs: Any) -> torch.Tensor:
        assert self.features is not None, "the causal part has refused this"
        left = self.features.shape[1] - np.asarray(obs["cur_tick"])
        return super().forward({"session": obs["session"], "cur_tick": left})

    def encode(self, sessions: np.ndarray) -> torch.Tensor:
        """Return the states at the ticks 0, 1, … T, of shape (S, T + 1, H)."""
        return super().encode(sessions).flip(1)

    def _read(self, sessions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        steps, first = super()._read(sessions)
        return steps.flip(1), first


class OracleEncoder(MarketEncoder):
    """A GRU over the ticks so far and another one from the close back to the current tick, joined by a layer.

    Parameters
    ----------
    channels, hidden, previous_day, features
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

    def __init__(
        self, channels: int, hidden: int, *, previous_day: bool = False, features: MarketFeatures | None = None
    ) -> None:
        super().__init__(channels, hidden, previous_day=previous_day, features=features)
        self.future = _Backwards(channels, hidden, features=features)
        self.both = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        """Return what each observation's session is, seen from its tick to both sides, of shape (N, H).

        Parameters
        ----------
        obs
            With ``cur_tick`` and ``session`` of shape (N,).

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
        return self.both(torch.cat([super().forward(obs), self.future(obs)], dim=1))

    def encode(self, sessions: np.ndarray) -> torch.Tensor:
        """Return what whole sessions are, seen from the ticks 0, 1, … T to both sides, of shape (S, T + 1, H)."""
        return self.both(torch.cat([super().encode(sessions), self.future.encode(sessions)], dim=2))

    def forget(self) -> None:
        super().forget()
        self.future.forget()


def make_teacher(
    settings: NetworkSettings,
    actions: int,
    *,
    features: MarketFeatures,
    seed: int = 0,
    mask: ActionMask | None = None,
    start: EvenStart | None = None,
) -> ActorCritic:
    """Build a teacher's network with weights drawn from `seed`; torch's global random state is left as it was.

    Parameters
    ----------
    settings
        Its width, and whether it reads yesterday; its kind is always an `OracleEncoder` in a `Recurrent`.
    actions, features, seed, mask, start
        See `make_network`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        trunk = Recurrent(
            features.shape[2],
            settings.hidden,
            previous_day=settings.previous_day,
            features=features,
            encoder=OracleEncoder,
        )
        return ActorCritic(trunk, settings.hidden, actions, mask=mask, start=start)
