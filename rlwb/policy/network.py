"""The base of networks: from a batch of observations to a vector of features a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures

Built = TypeVar("Built", bound=nn.Module)
#: Shares are kept this far from 0 and 1 where their log odds are taken.
_EDGE = 1e-3


class Network(nn.Module, ABC):
    """Turns N observations into features of shape (N, width); an `ActorCritic` or a `QNetwork` stands on them.

    Write your own by a constructor and `forward`. The constructor's keyword parameters are the network's settings;
    ``channels`` (features a tick), ``ticks`` (ticks a session) and ``previous_day`` (whether the panel has yesterday)
    are given by the run where it asks for them::

        class LSTM(Network):
            def __init__(self, channels: int, hidden: int = 64) -> None:
                super().__init__(width=hidden)
                self.market = nn.LSTM(channels, hidden, batch_first=True)
                self.join = nn.Linear(hidden + 3, hidden)

            def forward(self, obs):
                _, (state, _) = self.market(self.today(obs))
                return torch.relu(self.join(torch.cat([state[0], self.scalars(obs)], dim=1)))

    Parameters
    ----------
    width
        Number of features of a row.

    Attributes
    ----------
    causal
        Whether bars at and after the current tick move no output even where ``obs`` names a whole session, so that one
        pass over a session may serve all decisions in it. Observations of an update then hold ``path``, int64 of shape
        (N,): for each row the last row of its episode, whose ``position_history`` begins with the row's own.
    sees_future
        Whether the network reads bars which lie ahead of the decision, so that no one can trade by it.
    reads_path
        Whether more of an order's path than its position moves the output, as ``position_history`` does.
    """

    causal: bool = False
    sees_future: bool = False
    reads_path: bool = True

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 1:
            raise ConfigError(f"hidden is {width}; a network needs a width of at least 1.")
        self.width = width

    @abstractmethod
    def forward(self, obs: Any) -> torch.Tensor:
        """Return the features, float32 of shape (N, width).

        Parameters
        ----------
        obs
            What the state interpreter gives, usually a dict of arrays with N rows: with the bars themselves, or with
            ``session`` and ``cur_tick`` in the panel ``features``.
        """

    def fit(self, features: MarketFeatures, rows: np.ndarray) -> None:
        """Estimate what gradients do not learn from the training sessions, `rows` of the panel; by default nothing."""
        return

    def market_states(self, obs: Any) -> torch.Tensor | None:
        """Return what `forward` makes of the market alone, of shape (N, …), None where it reads none.

        It may be given to `forward` under ``market_states``, so that what is made of the order's own path can be
        repeated without it.
        """
        return None

    def waiting(self, obs: Any) -> torch.Tensor | None:
        """Return what the network expects waiting to cost, bp of shape (N,); None where it forecasts no prices.

        See `rlwb.learner.Expectation`.
        """
        return None

    def today(self, obs: Any) -> torch.Tensor:
        """Return the session's features so far, float32 of shape (N, T, C), 0 from the current tick on."""
        if "session" not in obs:
            return self.tensor(obs["data_processed"])
        return self.tensor(panel_of(obs).block(np.asarray(obs["session"]), np.asarray(obs["cur_tick"])))

    def yesterday(self, obs: Any) -> torch.Tensor:
        """Return the previous session's features, float32 of shape (N, T, C), 0 where there is none."""
        if "session" not in obs:
            return self.tensor(obs["data_processed_prev"])
        return self.tensor(panel_of(obs).block_previous(np.asarray(obs["session"])))

    def scalars(self, obs: Any) -> torch.Tensor:
        """Return share left, share of steps taken, and one over the steps left: float32 of shape (N, 3)."""
        target, position, step, steps = (part.float() for part in order_numbers(obs, self.device))
        return torch.stack([position / target, step / steps, 1.0 / (steps - step).clamp(min=1.0)], dim=1)

    def paths(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor | slice, torch.Tensor, torch.Tensor]:
        """Return which orders' histories to read once, and where in them each row stands.

        ``path``, where observations have it, names the last row of each row's episode, whose history holds all others'.

        Returns
        -------
        history : float32 of shape (P, S)
            The position before each step, of one row an episode.
        last : int64 of shape (P,)
            These rows; a slice where they are all.
        row, read : int64 of shape (N,) each
            Which history is a row's, and how many of its entries the row knows.
        """
        history = self.tensor(obs["position_history"]).float()
        step = self.tensor(obs["cur_step"]).long()
        # After step + 1 entries; the terminal observation of the longest order has no entry of its own.
        read = (step + 1).clamp(max=int(history.shape[1]))
        if "path" not in obs:
            return history, slice(None), torch.arange(step.shape[0], device=self.device), read
        last, row = torch.unique(self.tensor(obs["path"]), return_inverse=True)
        return history[last], last, row, read

    def tensor(self, value: Any) -> torch.Tensor:
        """Return an array as a tensor where the weights are."""
        return torch.as_tensor(value, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are; the CPU for a network without any."""
        return device_of(self)


class _OnAnother(Network):
    """A network on the features of another, which it reads the market as."""

    def __init__(self, trunk: Network) -> None:
        super().__init__(trunk.width)
        self.trunk = trunk
        self.causal, self.sees_future, self.reads_path = trunk.causal, trunk.sees_future, trunk.reads_path

    def fit(self, features: MarketFeatures, rows: np.ndarray) -> None:
        self.trunk.fit(features, rows)

    def market_states(self, obs: Any) -> torch.Tensor | None:
        return self.trunk.market_states(obs)


class Dialled(_OnAnother):
    """A network that also knows the order's place on the objective's dial.

    Each setting has a layer of its own on the features of any network, so that a network need not know of the dial, and
    nothing changes without one. The place, ``aversion`` of the observations, holds the weights of the settings that it
    lies between, and so mixes their layers.

    Parameters
    ----------
    trunk
        The network.
    settings
        Number of settings of the dial.
    """

    def __init__(self, trunk: Network, settings: int) -> None:
        super().__init__(trunk)
        self.layers = nn.Linear(trunk.width, settings * trunk.width)

    def forward(self, obs: Any) -> torch.Tensor:
        place = self.tensor(obs["aversion"])
        each = self.layers(self.trunk(obs)).view(*place.shape, self.width)
        return torch.relu((place[:, :, None] * each).sum(dim=1))


class Informed(_OnAnother):
    """A network that also reads the order's forms, ``forms`` of the observations.

    Parameters
    ----------
    trunk
        The network, which need not know of them.
    forms
        How many numbers they are.
    """

    def __init__(self, trunk: Network, forms: int) -> None:
        super().__init__(trunk)
        self.join = nn.Linear(trunk.width + forms, trunk.width)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.relu(self.join(torch.cat([self.trunk(obs), self.tensor(obs["forms"])], dim=1)))


class MLP(Network):
    """Two layers on the order's scalars and its direction; it reads no bars.

    Parameters
    ----------
    hidden : units
        Width H of the layers and of the result.
    """

    causal = True
    reads_path = False

    def __init__(self, hidden: int = 64) -> None:
        super().__init__(width=hidden)
        self.direction = direction_branch(hidden)
        self.layers = nn.Sequential(nn.Linear(3 + hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        direction = self.direction(self.tensor(obs["acquiring"]).long())
        return self.layers(torch.cat([self.scalars(obs), direction], dim=1))


def direction_branch(hidden: int) -> nn.Module:
    """Return layers from the direction, 0 or 1 of shape (N,), to features of shape (N, hidden)."""
    return nn.Sequential(nn.Embedding(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())


def device_of(module: nn.Module) -> torch.device:
    """Return where a module's weights are; the CPU for one without any."""
    return next((weight.device for weight in module.parameters()), torch.device("cpu"))


def even_share(obs: Any, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the even share of the position, one over the steps left, and where it is the last step, each (N,)."""
    _, _, step, steps = (part.float() for part in order_numbers(obs, device))
    even = 1.0 / (steps - step).clamp(min=1.0)
    return even, even >= 1.0


def log_odds(share: torch.Tensor) -> torch.Tensor:
    """Return the log odds of shares, which are kept from 0 and 1, where these are infinite."""
    return torch.logit(share.clamp(_EDGE, 1.0 - _EDGE))


def order_numbers(obs: Any, device: torch.device) -> list[torch.Tensor]:
    """Return ``target``, ``position``, ``cur_step`` and ``num_step`` of observations, each of shape (N,)."""
    return [torch.as_tensor(obs[name], device=device) for name in ("target", "position", "cur_step", "num_step")]


def panel_of(obs: Any) -> MarketFeatures:
    """Return the panel of features whose rows the ``session`` of observations are; raise `ConfigError` without one."""
    if "features" not in obs:
        raise ConfigError(
            "the observation names sessions but holds no features, the MarketFeatures that they are rows of; add them "
            "under 'features', as FullHistoryStateInterpreter does."
        )
    panel: MarketFeatures = obs["features"]
    return panel


def make_network(build: Callable[[], Built], seed: int) -> Built:
    """Build a module with weights drawn from `seed`; torch's global random state is left as it was.

    Parameters
    ----------
    build
        Called without arguments, for example ``lambda: ActorCritic(Recurrent(channels=5), actions=5)``.
    seed
        Names the stream of random numbers that the weights are drawn from.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which reaches the generators of all devices.
        torch.default_generator.manual_seed(seed)
        return build()
