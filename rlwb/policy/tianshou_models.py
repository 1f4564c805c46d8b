"""What tianshou's algorithms want for networks: feed-forward heads on a network of rlwb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.utils.net.common import ModuleWithVectorOutput
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic, NoisyLinear
from torch import nn
from torch.distributions import Independent, Normal

from rlwb.errors import ConfigError
from rlwb.policy.network import Network

#: Makes a model on a network.
Model = Callable[[Network], nn.Module]


class Features(ModuleWithVectorOutput):
    """A network in the form that tianshou calls: without a state from call to call."""

    def __init__(self, trunk: Network) -> None:
        super().__init__(output_dim=trunk.width)
        self.trunk = trunk

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        if hasattr(obs, "items"):
            # Each row refers to what all rows share, so that tianshou can take rows.
            obs = {name: part[0] if _is_shared(part) else part for name, part in obs.items()}
        return self.trunk(obs), state


class ActionValue(nn.Module):
    """The value Q(s, a) of a continuous action, of shape (N, 1)."""

    def __init__(self, trunk: Network, size: int) -> None:
        super().__init__()
        self.features = Features(trunk)
        self.layers = nn.Sequential(nn.Linear(trunk.width + size, trunk.width), nn.ReLU(), nn.Linear(trunk.width, 1))

    def forward(self, obs: Any, act: Any, info: Any = None) -> torch.Tensor:
        features, _ = self.features(obs)
        action = torch.as_tensor(act, dtype=features.dtype, device=features.device).flatten(1)
        return self.layers(torch.cat([features, action], dim=1))


class Values(nn.Module):
    """The distribution of each action's value: by quantiles, or by the chances of atoms, of shape (N, A, K)."""

    def __init__(self, trunk: Network, actions: int, size: int, *, chances: bool) -> None:
        super().__init__()
        self.features = Features(trunk)
        self.head = nn.Linear(trunk.width, actions * size)
        self.shape = (actions, size)
        self.chances = chances

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        features, _ = self.features(obs)
        values = self.head(features).view(-1, *self.shape)
        return (values.softmax(dim=2) if self.chances else values), state


class RainbowValues(nn.Module):
    """The chances of atoms of each action's value, by noisy duelling layers (Hessel et al., arXiv 1710.02298)."""

    def __init__(self, trunk: Network, actions: int, atoms: int) -> None:
        super().__init__()
        self.features = Features(trunk)
        width, self.actions, self.atoms = trunk.width, actions, atoms
        self.advantage = nn.Sequential(NoisyLinear(width, width), nn.ReLU(), NoisyLinear(width, actions * atoms))
        self.value = nn.Sequential(NoisyLinear(width, width), nn.ReLU(), NoisyLinear(width, atoms))

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        features, _ = self.features(obs)
        advantage = self.advantage(features).view(-1, self.actions, self.atoms)
        logits = self.value(features)[:, None] + advantage - advantage.mean(dim=1, keepdim=True)
        return logits.softmax(dim=2), state


#: Returns the policy of an action space: from what makes networks, options of the policy and options of the algorithm.
MakePolicy = Callable[[gym.Space[Any], Callable[[Model], Any], Mapping[str, Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Family:
    """Algorithms that want the same networks.

    Attributes
    ----------
    policy_kind
        Class of the policy for an action space.
    policy
        Makes the policy.
    critic
        Makes the critic's model for an action space; None where there is no critic.
    spaces
        Action spaces that fit.
    defaults
        Options of the policy that differ from tianshou's.
    """

    policy_kind: Callable[[gym.Space[Any]], type]
    policy: MakePolicy
    critic: Callable[[gym.Space[Any]], Model] | None = None
    spaces: tuple[type, ...] = (gym.spaces.Discrete,)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def check(self, name: str, space: gym.Space[Any]) -> None:
        """Raise `ConfigError` for an action space that does not fit."""
        if not isinstance(space, self.spaces):
            kinds = " or ".join(kind.__name__ for kind in self.spaces)
            raise ConfigError(
                f"{name} needs a {kinds} action space, but the action interpreter's is {space}; use another algorithm "
                "or another action interpreter."
            )


def _is_shared(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == object


def _size(space: gym.Space[Any]) -> int:
    """Return the number of actions, or of the numbers in one."""
    return int(space.n) if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape or ()))


def _flat(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return the space with its numbers in a row, the only form that tianshou's networks answer in."""
    if isinstance(space, gym.spaces.Discrete):
        return space
    assert isinstance(space, gym.spaces.Box)
    return gym.spaces.Box(space.low.reshape(-1), space.high.reshape(-1), dtype=np.float32)


def _normal(parts: tuple[torch.Tensor, torch.Tensor]) -> Independent:
    return Independent(Normal(*parts), 1)


def _actor(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    """Logits of actions, or means and deviations of numbers."""
    size = _size(space)
    if isinstance(space, gym.spaces.Discrete):
        actor = network(
            lambda trunk: DiscreteActor(preprocess_net=Features(trunk), action_shape=size, softmax_output=False)
        )
        return DiscreteActorPolicy(actor=actor, action_space=space, **options)
    actor = network(
        lambda trunk: ContinuousActorProbabilistic(preprocess_net=Features(trunk), action_shape=size, unbounded=True)
    )
    return ProbabilisticActorPolicy(
        actor=actor, dist_fn=_normal, action_space=_flat(space), **{"deterministic_eval": True, **options}
    )


def _value(space: gym.Space[Any]) -> Model:
    return lambda trunk: DiscreteCritic(preprocess_net=Features(trunk))


def _values(space: gym.Space[Any]) -> Model:
    return lambda trunk: DiscreteCritic(preprocess_net=Features(trunk), last_size=_size(space))


def _action_value(space: gym.Space[Any]) -> Model:
    return lambda trunk: ActionValue(trunk, _size(space))


def _discrete_sac(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    actor = network(
        lambda trunk: DiscreteActor(preprocess_net=Features(trunk), action_shape=_size(space), softmax_output=False)
    )
    return DiscreteSACPolicy(actor=actor, action_space=space, **options)


def _q(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    model = network(
        lambda trunk: DiscreteActor(preprocess_net=Features(trunk), action_shape=_size(space), softmax_output=False)
    )
    return DiscreteQLearningPolicy(model=model, action_space=space, **options)


def _c51(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    atoms = options.get("num_atoms", 51)
    model = network(lambda trunk: Values(trunk, _size(space), atoms, chances=True))
    return C51Policy(model=model, action_space=space, **options)


def _rainbow(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    atoms = options.get("num_atoms", 51)
    return C51Policy(
        model=network(lambda trunk: RainbowValues(trunk, _size(space), atoms)), action_space=space, **options
    )


def _quantiles(space: gym.Space[Any], network: Any, options: Any, algorithm: Any) -> Any:
    count = algorithm.get("num_quantiles", 200)
    model = network(lambda trunk: Values(trunk, _size(space), count, chances=False))
    return QRDQNPolicy(model=model, action_space=space, **options)


def _sac(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    actor = network(
        lambda trunk: ContinuousActorProbabilistic(
            preprocess_net=Features(trunk), action_shape=_size(space), unbounded=True, conditioned_sigma=True
        )
    )
    return SACPolicy(actor=actor, action_space=_flat(space), **options)


def _deterministic(space: gym.Space[Any], network: Any, options: Any, _: Any) -> Any:
    actor = network(
        lambda trunk: ContinuousActorDeterministic(preprocess_net=Features(trunk), action_shape=_size(space))
    )
    return ContinuousDeterministicPolicy(actor=actor, action_space=_flat(space), **options)


def _actor_kind(space: gym.Space[Any]) -> type:
    return DiscreteActorPolicy if isinstance(space, gym.spaces.Discrete) else ProbabilisticActorPolicy


_ON_POLICY = Family(_actor_kind, _actor, _value, (gym.spaces.Discrete, gym.spaces.Box))
_DETERMINISTIC = Family(
    lambda _: ContinuousDeterministicPolicy,
    _deterministic,
    _action_value,
    (gym.spaces.Box,),
    {"exploration_noise": "default"},
)

#: Name in tianshou to what the algorithm wants. NPG and TRPO are left out: they differentiate twice, and our compiled
#: recurrent unit has a first derivative alone.
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("A2C", "PPO", "Reinforce"), _ON_POLICY),
    "DQN": Family(lambda _: DiscreteQLearningPolicy, _q),
    "C51": Family(lambda _: C51Policy, _c51),
    "RainbowDQN": Family(lambda _: C51Policy, _rainbow),
    "QRDQN": Family(lambda _: QRDQNPolicy, _quantiles),
    "DiscreteSAC": Family(lambda _: DiscreteSACPolicy, _discrete_sac, _values),
    "SAC": Family(lambda _: SACPolicy, _sac, _action_value, (gym.spaces.Box,)),
    **dict.fromkeys(("DDPG", "TD3"), _DETERMINISTIC),
}
