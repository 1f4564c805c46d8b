"""The algorithms of tianshou 2, by name, as learners: its arithmetic and optimisers on our networks.

Nothing else of rlwb imports tianshou, which takes seconds; import this module where it is wanted.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tianshou.algorithm
import torch
from tianshou.algorithm.algorithm_base import Algorithm, OnPolicyAlgorithm
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils import RunningMeanStd
from tianshou.utils.net.common import ModuleWithVectorOutput
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic, NoisyLinear
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn
from torch.distributions import Independent, Normal

from rlwb.batch import count_rows, split_shared, take_rows
from rlwb.errors import CheckpointError, ConfigError, RlwbError
from rlwb.learner import Cut, Learner
from rlwb.policy.episodes import check_episodes, last_rows
from rlwb.policy.learner import check_settings, load_by_name
from rlwb.policy.network import Network, device_of, make_network
from rlwb.policy.replay import Replay, Transitions

#: Our names of what tianshou calls otherwise.
_NAMES = {"actor_loss": "policy_loss", "vf_loss": "value_loss", "ent_loss": "entropy"}


class Features(ModuleWithVectorOutput):
    """A network in the form that tianshou calls: without a state from call to call."""

    def __init__(self, trunk: Network) -> None:
        super().__init__(output_dim=trunk.width)
        self.trunk = trunk

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        if hasattr(obs, "items"):
            # Each row refers to what all rows share, so that tianshou can take rows.
            shared = {name for name, part in obs.items() if isinstance(part, np.ndarray) and part.dtype == object}
            obs = {name: part[0] if name in shared else part for name, part in obs.items()}
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
        width, self.shape = trunk.width, (actions, atoms)
        self.advantage = nn.Sequential(NoisyLinear(width, width), nn.ReLU(), NoisyLinear(width, actions * atoms))
        self.value = nn.Sequential(NoisyLinear(width, width), nn.ReLU(), NoisyLinear(width, atoms))

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        features, _ = self.features(obs)
        advantage = self.advantage(features).view(-1, *self.shape)
        logits = self.value(features)[:, None] + advantage - advantage.mean(dim=1, keepdim=True)
        return logits.softmax(dim=2), state


class Family(NamedTuple):
    """What an algorithm wants on an action space.

    `policy` is tianshou's class, `model` makes what it answers by from a network, the number of actions (or of the
    numbers in one) and options, `critic` a critic from a network and that number; `defaults` are options of the policy
    that differ from tianshou's.
    """

    policy: Any
    model: Callable[[Network, int, Mapping[str, Any]], nn.Module]
    critic: Callable[[Network, int], nn.Module] | None = None
    defaults: Mapping[str, Any] = {}


def _logits(trunk: Network, size: int, options: Mapping[str, Any]) -> nn.Module:
    return DiscreteActor(preprocess_net=Features(trunk), action_shape=size, softmax_output=False)


def _normal(trunk: Network, size: int, options: Mapping[str, Any], *, own_sigma: bool = False) -> nn.Module:
    given = {"preprocess_net": Features(trunk), "action_shape": size, "conditioned_sigma": own_sigma}
    return ContinuousActorProbabilistic(**given, unbounded=True)


def _number(trunk: Network, size: int, options: Mapping[str, Any]) -> nn.Module:
    return ContinuousActorDeterministic(preprocess_net=Features(trunk), action_shape=size)


def _critic(trunk: Network, size: int) -> nn.Module:
    return DiscreteCritic(preprocess_net=Features(trunk), last_size=size)


def _state_value(trunk: Network, size: int) -> nn.Module:
    return _critic(trunk, 1)


def _distribution(parts: tuple[torch.Tensor, torch.Tensor]) -> Independent:
    return Independent(Normal(*parts), 1)


_DISCRETE, _BOX = gym.spaces.Discrete, gym.spaces.Box
_ON_POLICY = {
    _DISCRETE: Family(DiscreteActorPolicy, _logits, _state_value),
    _BOX: Family(
        ProbabilisticActorPolicy, _normal, _state_value, {"dist_fn": _distribution, "deterministic_eval": True}
    ),
}
_DETERMINISTIC = {_BOX: Family(ContinuousDeterministicPolicy, _number, ActionValue, {"exploration_noise": "default"})}

#: Name in tianshou to what the algorithm wants on each kind of action space that fits. NPG and TRPO are left out: they
#: differentiate twice, and our compiled recurrent unit has a first derivative alone.
FAMILIES: dict[str, dict[type, Family]] = {
    **dict.fromkeys(("A2C", "PPO", "Reinforce"), _ON_POLICY),
    "DQN": {_DISCRETE: Family(DiscreteQLearningPolicy, _logits)},
    "C51": {_DISCRETE: Family(C51Policy, lambda net, n, own: Values(net, n, own.get("num_atoms", 51), chances=True))},
    "RainbowDQN": {_DISCRETE: Family(C51Policy, lambda net, n, own: RainbowValues(net, n, own.get("num_atoms", 51)))},
    "QRDQN": {
        _DISCRETE: Family(QRDQNPolicy, lambda net, n, own: Values(net, n, own.get("num_quantiles", 200), chances=False))
    },
    "DiscreteSAC": {_DISCRETE: Family(DiscreteSACPolicy, _logits, _critic)},
    "SAC": {_BOX: Family(SACPolicy, partial(_normal, own_sigma=True), ActionValue)},
    **dict.fromkeys(("DDPG", "TD3"), _DETERMINISTIC),
}


@dataclass(frozen=True, kw_only=True)
class TianshouSettings:
    """Settings of an algorithm of tianshou.

    Parameters
    ----------
    algorithm
        Its name in tianshou, for example A2C, DiscreteSAC, RainbowDQN or SAC; `FAMILIES` lists all.
    options
        Numbers, strings and truth values for tianshou's constructors of the algorithm and of its policy, by their names
        there: ``gamma``, ``ent_coef``, ``tau``, ``v_min``, ….
    learning_rate
        Step of Adam, for all networks, above 0.
    batch_size : transitions
        Transitions a gradient step, 1 or more.
    repeat : passes
        Passes over the collected transitions, 1 or more; of an off-policy algorithm, draws of as many from the kept
        ones.
    replay_size : transitions
        Most transitions that an off-policy algorithm keeps, 1 or more; a collect must fit.
    epsilon_start, epsilon_end : share of the actions
        Share of random actions while collecting, at first and at last, in [0, 1]; of algorithms that learn the values
        of actions, the others explore by themselves.
    epsilon_updates : updates
        Updates (training iterations) within which that share falls in a line, 1 or more.
    """

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float = 1e-3
    batch_size: int = 500
    repeat: int = 4
    replay_size: int = 100_000
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_updates: int = 20

    def __post_init__(self) -> None:
        if self.algorithm not in FAMILIES:
            raise ConfigError(f"algorithm is {self.algorithm!r}; of tianshou there are {', '.join(sorted(FAMILIES))}.")
        check_settings(
            positive={"learning_rate": self.learning_rate},
            shares={"epsilon_start": self.epsilon_start, "epsilon_end": self.epsilon_end},
            counts={
                "batch_size": self.batch_size,
                "repeat": self.repeat,
                "replay_size": self.replay_size,
                "epsilon_updates": self.epsilon_updates,
            },
        )


class TianshouLearner(Learner):
    """An algorithm of tianshou on feed-forward heads over a network of rlwb.

    Our networks read an order's whole past from each observation and keep no state between calls, recurrent ones
    included; so what tianshou's maintainers say against recurrent networks (issue 937) does not touch them. Actor and
    critics have networks of their own.

    Parameters
    ----------
    make_trunk
        Returns a network with weights drawn from a seed, a new one at each call.
    action_space
        Of the action interpreter: Discrete, or Box for continuous algorithms.
    settings
        Which algorithm, and its hyper-parameters.
    seed
        Names, with the number of updates made, all random numbers of an update. Exploration is seeded by the noise of
        the whole batch, so that unlike our own learners' it depends on which orders are decided together.

    Raises
    ------
    ConfigError
        When the algorithm does not fit the action space, or tianshou does not know an option.
    """

    def __init__(
        self,
        make_trunk: Callable[[int], Network],
        action_space: gym.Space[Any],
        settings: TianshouSettings,
        *,
        seed: int = 0,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.updates = 0
        self.space = action_space
        self.algorithm = _build(make_trunk, action_space, settings, seed)
        self.replay = Replay(settings.replay_size)

    def check(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        if action_space != self.space:
            raise ConfigError(f"{self.settings.algorithm} was built for {self.space}, not for {action_space}.")

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Choose actions, of shape (N, *space.shape); `noise` seeds what is drawn."""
        policy, exploring = self.algorithm.policy, noise is not None
        seed = 0 if noise is None else zlib.crc32(np.asarray(noise, dtype=np.float64).tobytes())
        if isinstance(policy, DiscreteQLearningPolicy):
            left = max(0.0, 1.0 - self.updates / self.settings.epsilon_updates)
            low, high = self.settings.epsilon_end, self.settings.epsilon_start
            policy.set_eps_training(low + (high - low) * left)
        policy.train(exploring)  # noisy layers are noisy in training alone
        batch = Batch(obs=_rows_of(obs), info=Batch())
        with _seeded(seed), policy_within_training_step(policy, enabled=exploring):
            action = policy(batch).act
            action = action.cpu().numpy() if isinstance(action, torch.Tensor) else np.asarray(action)
            if exploring:
                action = policy.add_exploration_noise(action, batch)
        if not np.isfinite(action).all():
            raise RlwbError(f"{self.settings.algorithm} answers NaN; lower learning_rate, or look for missing numbers.")
        return np.asarray(policy.map_action(action)).reshape(count_rows(obs), *(self.space.shape or ()))

    @property
    def network(self) -> nn.Module:
        """Return the state of the acting policy alone."""
        policy: nn.Module = self.algorithm.policy
        return policy

    @property
    def trunk(self) -> Network:
        """The network of rlwb within it."""
        return next(part.trunk for part in self.network.modules() if isinstance(part, Features))

    def greedy(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the actions that the policy holds best, of shape (N, *space.shape), and what they follow from.

        Raises
        ------
        ConfigError
            When the policy draws its actions outside training too, which is tianshou's default for some.
        """
        policy, space = self.algorithm.policy.train(mode=False), self.space
        if isinstance(policy, DiscreteQLearningPolicy):
            values = policy.compute_q_value(policy.model(obs)[0], None)
            return values.argmax(dim=1), values
        if not getattr(policy, "deterministic_eval", True):
            raise ConfigError(
                f"{self.settings.algorithm} draws its actions at random; set the option deterministic_eval to true."
            )
        found = policy(Batch(obs=obs, info=Batch()))
        action = found.act
        if not isinstance(space, gym.spaces.Box):
            return action, found.logits
        bound = {"clip": lambda value: value.clamp(-1.0, 1.0), "tanh": torch.tanh}.get(policy.action_bound_method)
        action = bound(action) if bound else action
        if policy.action_scaling:
            low, high = (torch.as_tensor(one) for one in (policy.action_space.low, policy.action_space.high))
            action = low + (high - low) * (action + 1.0) / 2.0
        action = action.reshape(-1, *(space.shape or ()))
        return action, action

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> dict[str, float]:
        """Update on episodes laid end to end; return the means of tianshou's losses.

        The ends of episodes that were cut off are what tianshou calls truncated.
        """
        s, done = self.settings, np.asarray(done, dtype=bool)
        reward = np.asarray(reward, dtype=np.float64)
        check_episodes(obs, action, reward, done)
        new = Transitions.of(obs, np.asarray(action), reward, done, cut)
        with _seeded(zlib.crc32(np.array([self.seed, self.updates]).tobytes())):
            if isinstance(self.algorithm, OnPolicyAlgorithm):
                with policy_within_training_step(self.algorithm.policy):
                    made = [self.algorithm.update(self._buffer(new), min(s.batch_size, len(done)), s.repeat)]
            else:
                self.replay.add(new)
                buffer = self._buffer(self.replay.everything())
                steps = max(1, round(s.repeat * len(done) / s.batch_size))
                with policy_within_training_step(self.algorithm.policy):
                    made = [self.algorithm.update(buffer, s.batch_size) for _ in range(steps)]
        self.updates += 1
        losses = [{name: v for name, v in one.get_loss_stats_dict().items() if np.ndim(v) == 0} for one in made]
        means = {_NAMES.get(name, name): float(np.mean([one[name] for one in losses])) for name in losses[-1]}
        if not np.isfinite(list(means.values())).all():
            raise RlwbError(
                f"the losses of update {self.updates} are {means}; lower learning_rate, or scale the reward."
            )
        return {"gradient_steps": len(made), **means}

    def _buffer(self, rows: Transitions) -> ReplayBuffer:
        """Return transitions as tianshou keeps them, the next observation being that of the next row."""
        real, count = rows.real, len(rows.real)
        following = np.minimum(real + 1, last_rows(rows.done)[real])
        terminated = rows.done[real]
        truncated = np.zeros_like(terminated) if rows.beyond is None else rows.beyond[following]
        done, action = terminated | truncated, rows.action[real]
        if isinstance(self.space, gym.spaces.Box):
            action = self.algorithm.policy.map_action_inverse(action.reshape(count, -1).astype(np.float32))
        obs, after = (_rows_of(take_rows(rows.obs, part)) for part in (real, following))
        buffer = ReplayBuffer.from_data(obs, action, rows.reward[real], terminated, truncated, done, after)
        buffer.last_index[0] = count - 1  # from_data leaves it at 0, so that the first row counts as the last
        return buffer

    def state_dict(self) -> dict[str, Any]:
        algorithm = vars(self.algorithm)
        statistics = {name: value for name, value in algorithm.items() if isinstance(value, RunningMeanStd)}
        return {
            "algorithm": self.algorithm.state_dict(),
            # tianshou keeps these beside its state.
            "counters": {name: value for name, value in algorithm.items() if type(value) in (int, float)},
            "statistics": {name: [float(v.mean), float(v.var), v.count] for name, v in statistics.items()},
            "updates": self.updates,
            "replay": self.replay.state_dict(),
        }

    def weights(self) -> dict[str, Any]:
        return {"policy": self.algorithm.policy.state_dict()}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        load_by_name(self.algorithm.policy, weights["policy"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            # tianshou takes the optimisers' states out of what it is given.
            self.algorithm.load_state_dict(dict(state["algorithm"]))
            for name, value in state["counters"].items():
                setattr(self.algorithm, name, value)
            for name, (mean, variance, count) in state["statistics"].items():
                kept = getattr(self.algorithm, name)
                kept.mean, kept.var, kept.count = mean, variance, count
            self.updates = state["updates"]
            self.replay.load_state_dict(state["replay"])
        except (AttributeError, KeyError, RuntimeError, ValueError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(
                f"the state is not that of {self.settings.algorithm} on this network ({first}); build the policy with "
                "the settings it was saved with."
            ) from error


def _build(
    make_trunk: Callable[[int], Network], space: gym.Space[Any], settings: TianshouSettings, seed: int
) -> Algorithm[Any, Any]:
    """Return the algorithm with its policy, critics and optimisers."""
    families = FAMILIES[settings.algorithm]
    family = next((one for fitting, one in families.items() if isinstance(space, fitting)), None)
    if family is None:
        kinds = " or ".join(kind.__name__ for kind in families)
        raise ConfigError(
            f"{settings.algorithm} needs a {kinds} action space, but the action interpreter's is {space}; use another "
            "algorithm or another action interpreter."
        )
    kind = getattr(tianshou.algorithm, settings.algorithm)
    of_policy, of_algorithm = (inspect.signature(one).parameters for one in (family.policy, kind))
    unknown = sorted(settings.options.keys() - of_policy.keys() - of_algorithm.keys())
    if unknown:
        known = sorted({*of_policy, *of_algorithm} - {"policy", "optim"})
        raise ConfigError(
            f"tianshou's {settings.algorithm} does not take {', '.join(unknown)}; it takes {', '.join(known)}."
        )
    numbers = itertools.count(10 * seed)
    size = int(space.n) if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape or ()))

    def network(model: Callable[..., nn.Module], *more: Any) -> nn.Module:
        number = next(numbers)
        trunk = make_trunk(number)
        return make_network(lambda: model(trunk, size, *more), number).to(device_of(trunk))

    own = {name: value for name, value in settings.options.items() if name in of_policy}
    own["actor" if "actor" in of_policy else "model"] = network(family.model, settings.options)
    if isinstance(space, gym.spaces.Box):  # tianshou's networks answer with the numbers in a row
        space = gym.spaces.Box(space.low.reshape(-1), space.high.reshape(-1), dtype=np.float32)
    parts: dict[str, Any] = {"policy": family.policy(action_space=space, **{**family.defaults, **own})}
    for name in of_algorithm:
        if name in ("critic", "critic2") and family.critic is not None:
            parts[name] = network(family.critic)
        elif name == "optim" or (name.endswith("_optim") and name != "critic2_optim"):
            parts[name] = AdamOptimizerFactory(lr=settings.learning_rate)
    return kind(**parts, **{name: value for name, value in settings.options.items() if name in of_algorithm})


def _rows_of(obs: Any) -> Any:
    """Return observations as tianshou's batches, in which each row refers to what all rows share."""
    arrays, shared = split_shared(obs)
    if not isinstance(arrays, dict):
        return arrays
    count = count_rows(arrays)
    for name, value in shared.items():
        arrays[name] = np.empty(count, dtype=object)
        arrays[name].fill(value)
    return Batch(arrays)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, from which tianshou draws, and put them back as they were."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
