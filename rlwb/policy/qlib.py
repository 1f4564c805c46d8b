"""Policies that were trained in Qlib: its network for order execution, and its weights.

The network is ``qlib.rl.order_execution.network.Recurrent`` of pyqlib 0.9.7 with one GRU layer: the same layers and the
same answers up to rounding, on rlwb's causal path. Left out is the branch for yesterday, which that network makes and
never uses.
"""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rlwb.errors import CheckpointError, ConfigError
from rlwb.learner import Cut
from rlwb.policy.dqn import DQN
from rlwb.policy.encoder import RecurrentEncoder
from rlwb.policy.gru import states_at
from rlwb.policy.heads import ActorCritic, QNetwork
from rlwb.policy.network import Network
from rlwb.policy.ppo import PPO


def _sums(factory: Any = None) -> OrderedDict[str, Any]:
    """Stand for `collections.defaultdict`, which torch's safe loading does not fill."""
    return OrderedDict()


#: What Qlib's trainer saves beside the weights: numbers of numpy, and sums by name. All of it is plain values.
_PLAIN: list[Any] = [
    *((np.float64(0).__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *(np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?"))),
    *((_sums, "collections.defaultdict"), float),
]
#: What Qlib calls the parts of its network.
_SOURCES = {
    "market.gru": "raw_rnn",
    "market.front": "raw_fc",
    "private": "pri_rnn",
    "private_front": "pri_fc",
    "direction": "dire_fc",
    "join": "fc",
}
_FIRST = "extractor.raw_rnn.weight_ih_l0"


class _Market(RecurrentEncoder):
    """A linear layer in front of the GRU, and a tick of zeros in front of the day."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(channels, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.front = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU())

    def embed(self, ticks: torch.Tensor) -> torch.Tensor:
        return self.front(ticks)

    def first(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        # Qlib reads its state after k ticks at row k, behind the tick of zeros.
        every = torch.arange(today.shape[0], device=today.device)
        return states_at(self.gru, torch.zeros_like(today[:, :1]), every, torch.ones_like(every), embed=self.embed)


class QlibRecurrent(Network):
    """Qlib's network for order execution: three branches, joined by two layers.

    Unlike `Recurrent` it divides the clock by the most steps an order can have, not by the order's own, as Qlib's
    interpreter does.

    Parameters
    ----------
    channels
        Features a tick.
    hidden : units
        Width of the branches, Qlib's ``hidden_dim``.
    output : units
        Width of the result, Qlib's ``output_dim``.
    """

    causal = True

    def __init__(self, channels: int, hidden: int = 64, output: int = 32) -> None:
        super().__init__(width=output)
        self.market = _Market(channels, hidden)
        self.private_front = nn.Sequential(nn.Linear(2, hidden), nn.ReLU())
        self.private = nn.GRU(hidden, hidden, batch_first=True)
        self.direction = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.join = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, output), nn.ReLU())

    def market_states(self, obs: Any) -> torch.Tensor | None:
        return self.market(obs)

    def forward(self, obs: Any) -> torch.Tensor:
        market = self.tensor(obs["market_states"]) if "market_states" in obs else self.market(obs)
        buy = self.tensor(obs["acquiring"]).float()
        direction = self.direction(torch.stack([buy, 1 - buy], dim=1))
        return self.join(torch.cat([market, self._private(obs), direction], dim=1))

    def _private(self, obs: Any) -> torch.Tensor:
        """Return the state after each row's private path, of shape (N, H)."""
        history, last, row, read = self.paths(obs)
        share = history / self.tensor(obs["target"]).float()[last, None]
        length = int(history.shape[1])
        clock = torch.arange(length, device=self.device).float() / length
        path = torch.stack([share, clock.expand_as(share)], dim=2)
        return states_at(self.private, path, row, read, embed=self.private_front)


class QlibPolicy(NamedTuple):
    """A policy out of a checkpoint of Qlib's, with the meaning of its actions.

    Attributes
    ----------
    policy
        `PPO`, or `DQN` for a checkpoint of Qlib's DQN; it acts as it did there, and may be trained further.
    action_values : float64 of shape (A,)
        The shares of the amount that its actions stand for, for a `rlwb.execution.CategoricalActionInterpreter`.
    """

    policy: PPO | DQN
    action_values: np.ndarray


def from_qlib(
    checkpoint: str | Path | Mapping[str, Any],
    action_values: Sequence[float] | None = None,
    *,
    trust: bool = False,
    seed: int = 0,
) -> QlibPolicy:
    """Return the policy of a checkpoint that Qlib's trainer, or ``torch.save`` of a policy's state, has written.

    Parameters
    ----------
    checkpoint
        The file, or the state itself: the trainer's whole one, a vessel's, or the policy's alone, under any prefix.
    action_values
        Shares of the amount that the actions stand for, Qlib's ``values``. A checkpoint holds their number alone; by
        default they are 0, 1/n, …, 1, which is what an integer ``values`` means there.
    trust
        Whether code that the file names may be run. Weights need none; say so only of files whose origin you know.
    seed
        Of a further training.

    Raises
    ------
    CheckpointError
        When the file is no checkpoint, names code and is not trusted, or holds another network.
    """
    name = "the state" if isinstance(checkpoint, Mapping) else str(checkpoint)
    state = checkpoint if isinstance(checkpoint, Mapping) else load_state(Path(checkpoint), trust=trust)
    weights = _policy_weights(state)
    actor, head = _actor(weights, name)
    trunk = _trunk(weights, f"{actor}extractor.", name)
    actions = len(head["weight"])
    values = np.linspace(0.0, 1.0, actions) if action_values is None else action_values
    if len(values) != actions:
        raise ConfigError(f"{name} chooses among {actions} actions, but {len(values)} action values are given.")
    policy: PPO | DQN
    if actor.endswith("model."):
        q_network = QNetwork(trunk, actions)
        _fill(q_network.head, head, name)
        policy = DQN(q_network, seed=seed)
    else:
        network = ActorCritic(trunk, actions)
        _fill(network.actor, head, name)
        _fill(network.critic, _critic(weights, actor, name), name)
        policy = PPO(network, seed=seed)
    return QlibPolicy(policy, np.asarray(values, dtype=np.float64))


class QlibLearner(PPO):
    """A policy out of Qlib's checkpoint as the ``algorithm`` of a run: it acts, and learns only if asked to.

    Parameters
    ----------
    checkpoint
        Path of the file; see `from_qlib`.
    actions
        Number of actions of the run.
    channels
        Features a tick of the run.
    learn
        Whether training goes on from the weights, by PPO with its default settings; otherwise they stay.
    trust
        See `from_qlib`.
    seed
        See `PPO`.
    """

    def __init__(
        self,
        checkpoint: str,
        actions: int,
        channels: int,
        *,
        learn: bool = False,
        trust: bool = False,
        seed: int = 0,
    ) -> None:
        found = from_qlib(checkpoint, trust=trust).policy
        if not isinstance(found, PPO):
            raise ConfigError(f"{checkpoint} holds Qlib's DQN; call rlwb.policy.from_qlib, which gives a DQN.")
        read = found.network.trunk.market.channels
        if read != channels or found.network.actions != actions:
            raise ConfigError(
                f"{checkpoint} reads {read} features a tick and chooses among {found.network.actions} actions, the run "
                f"has {channels} and {actions}; set features.columns and action_interpreter.values as in Qlib."
            )
        super().__init__(found.network, seed=seed)
        self.learns = learn

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> dict[str, float]:
        """Update as `PPO` does, or leave the weights and report a loss of 0."""
        if self.learns:
            return super().learn(obs, action, reward, done, cut)
        self.updates += 1
        return dict.fromkeys(self.figures, 0.0)


def load_state(path: Path, *, trust: bool = False) -> Mapping[str, Any]:
    """Return what a file of torch holds, plain values and tensors alone unless its code is trusted.

    Known are the numbers and sums of numpy and collections that Qlib's trainer puts beside the weights.
    """
    if not path.is_file():
        raise CheckpointError(f"the checkpoint {path} does not exist; give the path of a saved state.")
    try:
        with torch.serialization.safe_globals([] if trust else _PLAIN):
            state = torch.load(path, map_location="cpu", weights_only=not trust)
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"{path} needs the package {error.name}, which is not installed; where Qlib is, save the weights alone: "
            "torch.save(policy.state_dict(), 'weights.pt')."
        ) from error
    except Exception as error:  # a damaged file may raise anything
        if zipfile.is_zipfile(path) and not trust and (found := _named(path)):
            raise CheckpointError(
                f"{path} is not weights alone: it names {', '.join(found)}. Where Qlib is installed, save the weights "
                "alone, torch.save(policy.state_dict(), 'weights.pt'), or say trust=True if you know where it is from."
            ) from error
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged or no checkpoint ({reason}); use another one.") from error
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not the state of a policy; use another one.")
    return state


def _named(path: Path) -> list[str]:
    """Return the names of classes and functions that a file needs beyond plain values."""
    try:
        with torch.serialization.safe_globals(_PLAIN):
            return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # a damaged file, which is told as such
        return []


def _policy_weights(state: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
    """Return the policy's part of a state: the trainer's, the vessel's, or the policy's own."""
    for part in ("vessel", "policy", "state_dict"):
        if isinstance(state.get(part), Mapping):
            state = state[part]
    return {key: value for key, value in state.items() if isinstance(key, str) and isinstance(value, torch.Tensor)}


def _actor(weights: Mapping[str, torch.Tensor], name: str) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the prefix of what chooses actions, and its last layer."""
    prefixes = sorted((key.removesuffix(_FIRST) for key in weights if key.endswith(_FIRST)), key=len)
    for kind in ("actor.", "model."):
        for prefix in prefixes:
            layer = {part: weights.get(f"{prefix}layer_out.0.{part}") for part in ("weight", "bias")}
            if prefix.endswith(kind) and all(value is not None for value in layer.values()):
                return prefix, layer
    found = ", ".join(sorted({key.rsplit(".", 1)[0] for key in weights})[:4]) or "no weights"
    raise CheckpointError(
        f"{name} holds no policy on Qlib's Recurrent network (…extractor.raw_rnn and …layer_out); it holds {found}."
    )


def _critic(weights: Mapping[str, torch.Tensor], actor: str, name: str) -> dict[str, torch.Tensor]:
    critic = f"{actor.removesuffix('actor.')}critic."
    for key, value in weights.items():
        rest = key.removeprefix(f"{critic}extractor.")
        if rest != key and not torch.equal(value, weights[f"{actor}extractor.{rest}"]):
            raise CheckpointError(
                f"{name}: actor and critic have networks of their own, Qlib's share one; {key} differs."
            )
    try:
        return {part: weights[f"{critic}value_out.{part}"] for part in ("weight", "bias")}
    except KeyError as error:
        raise CheckpointError(f"{name} has an actor and no critic: {error.args[0]} is missing.") from None


def _trunk(weights: Mapping[str, torch.Tensor], prefix: str, name: str) -> QlibRecurrent:
    """Return the network with its weights."""
    own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
    try:
        gates, hidden = own["raw_rnn.weight_hh_l0"].shape
        gates //= hidden
        channels, output = own["raw_fc.0.weight"].shape[1], len(own["fc.2.weight"])
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{name} holds another network than Qlib's Recurrent ({error}).") from error
    if gates != 3 or any(key.endswith("_l1") for key in own):
        kind = {1: "rnn", 3: "gru", 4: "lstm"}.get(gates, "other")
        layers = 1 + max(int(key.rpartition("_l")[2]) for key in own if key.startswith("raw_rnn.weight_ih_l"))
        raise CheckpointError(
            f"{name} was trained with rnn_type {kind} and {layers} layer(s); rlwb has that network with one GRU layer."
        )
    trunk = QlibRecurrent(channels, hidden, output)
    sources = {key: _source(key) for key in trunk.state_dict()}
    if lacking := sorted(set(sources.values()) - set(own)):
        raise CheckpointError(f"{name} holds another network than Qlib's Recurrent: {lacking[0]} is missing.")
    _fill(trunk, {key: own[source] for key, source in sources.items()}, name)
    left = {key for key in own if not key.startswith("prev_rnn.")} - set(sources.values())
    if left:
        raise CheckpointError(f"{name} holds another network than Qlib's Recurrent: it also has {sorted(left)[0]}.")
    return trunk


def _fill(layers: nn.Module, weights: Mapping[str, torch.Tensor], name: str) -> None:
    """Load weights into layers, which must be of their shapes."""
    try:
        layers.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise CheckpointError(f"{name} holds another network than Qlib's Recurrent ({reason}).") from error


def _source(key: str) -> str:
    """Return what Qlib calls a weight of `QlibRecurrent`."""
    own = next(own for own in _SOURCES if key.startswith(f"{own}."))
    return f"{_SOURCES[own]}{key.removeprefix(own)}"
