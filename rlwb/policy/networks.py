"""Networks of order execution: trunks that turn observations into features, and the actor and critic on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy.attention import AttentionEncoder
from rlwb.policy.convolution import ConvolutionEncoder
from rlwb.policy.even_start import EvenStart
from rlwb.policy.gru import states_at
from rlwb.policy.market_encoder import MarketEncoder, as_tensor
from rlwb.policy.masks import ActionMask, mask_values
from rlwb.policy.q_network import QNetwork

#: Kind of network to what reads its bars.
_ENCODERS = {"recurrent": MarketEncoder, "convolution": ConvolutionEncoder, "attention": AttentionEncoder}


@dataclass(frozen=True)
class NetworkSettings:
    """The shape of a network.

    Parameters
    ----------
    kind
        ``"recurrent"``, ``"convolution"`` and ``"attention"`` read the session's bars, each in its way, and the
        inventory path; ``"mlp"`` reads the order's scalars alone.
    hidden
        Width of all layers.
    previous_day
        Whether the bars of the previous session are read too; doubles the cost of a pass.
    """

    kind: Literal["recurrent", "convolution", "attention", "mlp"] = "recurrent"
    hidden: int = 64
    previous_day: bool = False

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ConfigError(f"hidden is {self.hidden}; a network needs a width of at least 1.")


#: Stands for the chance 0 under a logarithm.
_TINY = 1e-30


def _scalars(obs: Any, device: torch.device) -> torch.Tensor:
    """Return what the order's numbers say whatever its size: share left, share of steps taken, steps left; (N, 3)."""
    target = as_tensor(obs["target"], device).float()
    position = as_tensor(obs["position"], device).float()
    step = as_tensor(obs["cur_step"], device).float()
    steps = as_tensor(obs["num_step"], device).float()
    return torch.stack([position / target, step / steps, 1.0 / (steps - step).clamp(min=1.0)], dim=1)


def _direction_branch(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())


class MLP(nn.Module):
    """Two layers on the order's scalars and its direction.

    Parameters
    ----------
    hidden
        Width H of the features.
    """

    causal = True

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.direction = _direction_branch(hidden)
        self.layers = nn.Sequential(nn.Linear(3 + hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the features, float32 of shape (N, H)."""
        device = self.layers[0].weight.device
        direction = self.direction(as_tensor(obs["acquiring"], device).long())
        return self.layers(torch.cat([_scalars(obs, device), direction], dim=1))


class Recurrent(nn.Module):
    """A network in the manner of oracle policy distillation's (Fang et al., AAAI 2021, arXiv 2103.10860).

    A GRU over the market, a GRU over the private path (share left and share of steps taken at every step so
    far), and a branch for the direction, joined by two layers. Another encoder may stand in for the first.

    Parameters
    ----------
    channels
        Market features a tick.
    hidden
        Width H of every part and of the result.
    previous_day, features
        See `MarketEncoder`.
    encoder
        Class of what reads the market.
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        *,
        previous_day: bool = False,
        features: MarketFeatures | None = None,
        encoder: type[MarketEncoder] = MarketEncoder,
    ) -> None:
        super().__init__()
        self.market = encoder(channels, hidden, previous_day=previous_day, features=features)
        self.causal, self.sees_future = encoder.causal, encoder.sees_future
        self.private = nn.GRU(2, hidden, batch_first=True)
        self.direction = _direction_branch(hidden)
        self.join = nn.Sequential(nn.Linear(3 * hidden + 3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the features, float32 of shape (N, H).

        ``path`` in `obs`, int64 of shape (N,), names for each row a row whose ``position_history`` begins with
        the row's own: the last of its episode. Then one pass serves the episode.
        """
        device = self.private.weight_ih_l0.device
        market = self.market(obs)
        direction = self.direction(as_tensor(obs["acquiring"], device).long())
        return self.join(torch.cat([market, self._private(obs, device), direction, _scalars(obs, device)], dim=1))

    def _private(self, obs: Any, device: torch.device) -> torch.Tensor:
        history = as_tensor(obs["position_history"], device).float()
        step = as_tensor(obs["cur_step"], device).long()
        row = torch.arange(len(step), device=device)
        if "path" in obs:
            last, row = torch.unique(as_tensor(obs["path"], device), return_inverse=True)
        else:
            last = row
        history = history[last]
        target = as_tensor(obs["target"], device).float()[last, None]
        steps = as_tensor(obs["num_step"], device).float()[last, None]
        clock = torch.arange(history.shape[1], device=device) / steps
        # After step + 1 entries; the terminal observation of the longest order has no entry of its own.
        read = (step + 1).clamp(max=history.shape[1])
        return states_at(self.private, torch.stack([history / target, clock], dim=2), row, read)


class ActorCritic(nn.Module):
    """A trunk with a head for the action logits and one for the value, so that the trunk runs once for both.

    Parameters
    ----------
    trunk
        Observations to features of width `hidden`.
    hidden, actions
        Width of the features, number of actions A.
    mask
        Takes actions out of the distribution; see `ActionMask`.
    start
        The distribution of the untrained policy; even over all actions by default.
    """

    def __init__(
        self,
        trunk: nn.Module,
        hidden: int,
        actions: int,
        *,
        mask: ActionMask | None = None,
        start: EvenStart | None = None,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.mask = mask
        self.start = start
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)
        # A small last layer starts the policy near `start`, or uniform (Andrychowicz et al., ICLR 2021, section 3.2).
        with torch.no_grad():
            self.actor.weight.mul_(0.01)
            self.actor.bias.zero_()

    @property
    def causal(self) -> bool:
        """Whether the trunk says that later bars move no earlier output; then one pass serves a day's decisions."""
        return getattr(self.trunk, "causal", False)

    @property
    def sees_future(self) -> bool:
        """Whether the trunk says that it reads bars which lie ahead of the decision, so that no one can trade by it."""
        return getattr(self.trunk, "sees_future", False)

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the action logits of shape (N, A) and the values of shape (N,)."""
        features = self.trunk(obs)
        allowed = None if self.mask is None else self.mask(obs)
        logits = self.actor(features)
        if self.start is not None:
            # Actions of the chance 0 are masked below.
            logits = logits + self.start(obs, allowed).clamp(min=_TINY).log().to(logits.dtype)
        return mask_values(logits, allowed), self.critic(features).squeeze(-1)


Network = TypeVar("Network", ActorCritic, QNetwork)


def make_network(
    settings: NetworkSettings,
    actions: int,
    *,
    channels: int = 0,
    features: MarketFeatures | None = None,
    seed: int = 0,
    mask: ActionMask | None = None,
    start: EvenStart | None = None,
    kind: type[Network] = ActorCritic,
) -> Network:
    """Build a network with weights drawn from `seed`; torch's global random state is left as it was.

    Parameters
    ----------
    settings
        Its shape.
    actions
        Number of actions.
    channels, features
        Market features a tick, or the panel that has them; needed by networks that read bars.
    mask
        Which actions may be chosen; all by default.
    start
        What the untrained policy chooses; evenly among all actions by default.
    kind
        What stands on the trunk: `ActorCritic` for PPO, `QNetwork` for DQN.
    """
    if features is not None:
        channels = features.shape[2]
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which reaches the generators of all devices.
        torch.default_generator.manual_seed(seed)
        if settings.kind == "mlp":
            trunk: nn.Module = MLP(settings.hidden)
        elif channels < 1:
            raise ConfigError(f"the {settings.kind} network needs the market's features; give features or channels.")
        else:
            trunk = Recurrent(
                channels,
                settings.hidden,
                previous_day=settings.previous_day,
                features=features,
                encoder=_ENCODERS[settings.kind],
            )
        return kind(trunk, settings.hidden, actions, mask=mask, start=start)
