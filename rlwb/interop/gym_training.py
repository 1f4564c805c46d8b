"""Plain environments of gymnasium trained by rlwb: `train_gym`, its vessel and its settings."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

from rlwb.env import FiniteVectorEnv, check_env, vectorize_env
from rlwb.errors import ConfigError
from rlwb.experiment.notebook import is_attended
from rlwb.learner import Learner
from rlwb.parts import BUILT_IN, Part, load, make
from rlwb.policy import Network, make_network
from rlwb.policy.learner import NetworkLearner
from rlwb.policy.space_network import SpaceNetwork
from rlwb.record import TrainingRecord
from rlwb.seeds import Stream, derived_seed
from rlwb.trainer import Callback, Checkpoint, MetricsWriter, ProgressLines, Trainer, TrainingVessel, find_resumable
from rlwb.values import suggestion

logger = logging.getLogger(__name__)

EnvLike: TypeAlias = str | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]]

#: Settings of our algorithms where they differ from those for order execution; of all others, what they say themselves.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {
        "learning_rate": 1e-3,
        "batch_size": 64,
        "repeat": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "entropy_coef": 0.0,
        "max_grad_norm": 0.5,
    },
    "dqn": {
        "learning_rate": 1e-3,
        "batch_size": 64,
        "repeat": 8,
        "gamma": 0.99,
        "target_every": 200,
        "epsilon_updates": 60,
        "epsilon_end": 0.02,
        "return_scaling": False,
        "max_grad_norm": 10.0,
    },
    "tianshou": {"batch_size": 64, "repeat": 10},
}
#: Most iterations, and episodes of each; of an algorithm of one's own the last.
_LENGTHS = {"ppo": (200, 16), "dqn": (400, 8), "": (200, 16)}
#: Algorithms that learn from the replay of a market.
_OF_MARKETS = ("opd", "pathwise", "all_actions", "qlib")


class StopAt(Callback):
    """Stops a training when a validation figure has reached a value.

    Parameters
    ----------
    monitor
        Name in ``trainer.metrics``.
    value
        What is enough.
    """

    can_stop = True

    def __init__(self, monitor: str, value: float) -> None:
        self.monitor = self.watches = monitor
        self.value = value

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        trainer.should_stop |= trainer.metrics[self.monitor] >= self.value


class _Startable(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that starts from a seed: its initial state, or the episode's own where that is None."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.action_space
        self._first = int(space.start) if isinstance(space, gym.spaces.Discrete) else 0
        if self._first:
            self.action_space = gym.spaces.Discrete(int(space.n))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        own = (options or {}).get("initial_state")
        return self.env.reset(seed=seed if own is None else own)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(action + self._first if self._first else action)


class GymVessel(TrainingVessel):
    """Carries the training of a policy on an environment of gymnasium.

    An initial state is the seed that an episode is reset with; None draws it from the vessel's seed, the iteration and
    the episode's number.

    Parameters
    ----------
    env_fn
        Makes the environment.
    policy
        What learns.
    validation_episodes, test_episodes
        Number of episodes of a validation and of a test, each with seeds of its own, always the same.
    episode_per_iter, seed, run
        See `TrainingVessel`.
    """

    def __init__(
        self,
        env_fn: Callable[[], gym.Env[Any, Any]],
        policy: Learner,
        *,
        validation_episodes: int = 20,
        test_episodes: int = 100,
        episode_per_iter: int = 16,
        seed: int = 0,
        run: str | None = None,
    ) -> None:
        self.env_fn = env_fn
        env = self.make_one()
        self.observation_space, self.action_space, self.spec = env.observation_space, env.action_space, env.spec
        self.name = env.spec.id if env.spec else type(env.unwrapped).__qualname__
        env.close()
        policy.check(self.observation_space, self.action_space)
        self._carry(
            policy,
            [None],
            [derived_seed(seed, Stream.EPISODE, 0, number) for number in range(validation_episodes)],
            [derived_seed(seed, Stream.EPISODE, 1, number) for number in range(test_episodes)],
            episode_per_iter,
            seed,
            run,
        )

    def make_one(self) -> gym.Env[Any, Any]:
        """Return a new environment that starts as the vessel asks."""
        return _Startable(self.env_fn())

    def record(self) -> TrainingRecord:
        return TrainingRecord(
            **self.policy.record(),
            simulator=self.name,
            observation={"space": repr(self.observation_space)},
            action={"space": repr(self.action_space)},
            threads=torch.get_num_threads(),
            run=self.run,
        )

    def make_env(self, states: Sequence[Any], **kwargs: Any) -> FiniteVectorEnv:
        return vectorize_env(self.make_one, states, **kwargs)

    def check_env(self) -> dict[str, float]:
        return check_env(self.make_one, None)


def train_gym(
    env: EnvLike,
    algorithm: str | Learner | Callable[..., Learner] = "ppo",
    *,
    iterations: int | None = None,
    episodes_per_iteration: int | None = None,
    stop_at: float | None = None,
    validate_every: int = 5,
    validation_episodes: int = 20,
    test_episodes: int = 100,
    network: Any = None,
    hidden: int = 64,
    folder: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    callbacks: Iterable[Callback] = (),
    finite_env_type: str = "dummy",
    concurrency: int = 16,
    seed: int = 0,
    threads: int = 1,
    progress: Literal["bar", "lines", "none"] | None = None,
    **settings: Any,
) -> Trainer:
    """Train a policy on an environment of gymnasium; return the trainer.

    ``trainer.test(trainer.vessel)`` then runs it greedily on fresh episodes, ``trainer.vessel.policy`` acts.

    Parameters
    ----------
    env
        An environment's id, a function that makes one, or an environment, which is copied.
    algorithm
        ``"ppo"``, ``"dqn"``, the name of an algorithm of tianshou such as ``"SAC"``, ``file.py:Name`` or
        ``package.module:Name`` of your own, or its class or an object of it (`rlwb.learner.Learner`).
    iterations
        Most iterations, those of an earlier training in `folder` included; by default 200, of DQN 400.
    episodes_per_iteration
        Episodes that an iteration collects and learns from; by default 16, of DQN 8.
    stop_at
        Mean return of a validation that ends the training; by default the environment's ``reward_threshold``, where
        its spec has one.
    validate_every, validation_episodes
        Iterations between two validations, and greedy episodes of each; fewer iterations are validated at their end.
    test_episodes
        Episodes of ``trainer.test``; no training or validation has their seeds.
    network
        A function from the observation space to a `rlwb.policy.Network`, a name, or a name with settings; by default
        `SpaceNetwork`, two layers on the observation as a vector.
    hidden
        Width of the default network's layers.
    folder
        Where ``checkpoints/`` and ``metrics/`` are kept. A training with the same settings that was stopped there goes
        on from its last checkpoint, and ends as if it had not been stopped.
    checkpoint_every
        Iterations between two checkpoints.
    callbacks
        See `rlwb.trainer.Callback`.
    finite_env_type, concurrency
        See `rlwb.env.vectorize_env`: by default so many environments side by side in this process.
    seed
        Of all random numbers; the same seed gives the same weights, for any `finite_env_type` and `concurrency`.
    threads
        Threads of torch while it trains.
    progress
        A bar, or a line an iteration; None is a bar where someone watches, and nothing elsewhere.
    settings
        Of the algorithm, by name; of tianshou's, those of `TianshouSettings` and of its own constructors.

    Raises
    ------
    ConfigError
        When the environment, the algorithm or a setting is unknown or does not fit, before any training.
    """
    if threads < 1:
        raise ConfigError(f"threads is {threads}; give the number of torch's threads, at least 1.")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        maker = _maker(env)
        learner = _learner(algorithm, maker, network, hidden, seed, settings)
        most, episodes = _LENGTHS.get(algorithm if isinstance(algorithm, str) else "", _LENGTHS[""])
        episodes = episodes if episodes_per_iteration is None else episodes_per_iteration
        vessel = GymVessel(
            maker,
            learner,
            validation_episodes=validation_episodes,
            test_episodes=test_episodes,
            episode_per_iter=episodes,
            seed=seed,
        )
        vessel.run = _fingerprint(_limits(vessel.spec), algorithm, settings, network, hidden, episodes, seed)
        if stop_at is None and vessel.spec is not None:
            stop_at = vessel.spec.reward_threshold
        all_callbacks = [*callbacks]
        if stop_at is not None:
            all_callbacks.append(StopAt("val/reward", stop_at))
        resume = None
        if folder is not None:
            checkpoints = Path(folder) / "checkpoints"
            resume, faults = find_resumable(checkpoints)
            for fault in faults.values():
                logger.warning("%s", fault)
            saved = Checkpoint(checkpoints, checkpoint_every, keep_last=2, monitor="val/reward")
            all_callbacks += [MetricsWriter(Path(folder) / "metrics"), saved]
        progress = progress or ("bar" if is_attended() else "none")
        if progress == "lines":
            all_callbacks.append(ProgressLines({"reward": "return", "val/reward": "validation return"}))
        most = most if iterations is None else iterations
        trainer = Trainer(
            max_iters=most,
            val_every_n_iters=min(validate_every, most),
            callbacks=all_callbacks,
            finite_env_type=finite_env_type,
            concurrency=concurrency,
            progress=progress == "bar",
        )
        trainer.fit(vessel, resume)
        return trainer
    finally:
        torch.set_num_threads(before)


def _maker(env: EnvLike) -> Callable[[], gym.Env[Any, Any]]:
    """Return a function that makes the environment."""
    if isinstance(env, gym.Env):
        return partial(copy.deepcopy, env)
    if callable(env):
        return env
    try:
        gym.spec(env)
    except gym.error.Error as error:
        raise ConfigError(f"there is no environment {env!r} ({str(error).rstrip('.')}); register it first.") from error
    return partial(gym.make, env, disable_env_checker=True)  # a trial episode checks it


def _learner(
    algorithm: str | Learner | Callable[..., Learner],
    maker: Callable[[], gym.Env[Any, Any]],
    network: Any,
    hidden: int,
    seed: int,
    settings: Mapping[str, Any],
) -> Learner:
    """Return the learner that is asked for, with a network for the environment's spaces."""
    if isinstance(algorithm, Learner):
        if settings:
            raise ConfigError(f"{', '.join(settings)} cannot be set of a learner that is made already; make it so.")
        return algorithm
    env = _Startable(maker())
    observation_space, space = env.observation_space, env.action_space
    env.close()
    if isinstance(space, gym.spaces.Box):
        actions = int(np.prod(space.shape))
    elif isinstance(space, gym.spaces.Discrete):
        actions = int(space.n)
    else:
        raise ConfigError(f"the action space is {space}; it must be Discrete or Box, so wrap the environment.")

    def trunk() -> Network:
        if network is None:
            return SpaceNetwork(observation_space, hidden)
        if callable(network):
            return network(observation_space)
        return make("network", network, observation_space=observation_space)

    provided = {
        "make_trunk": lambda number: make_network(trunk, number),
        "observation_space": observation_space,
        "action_space": space,
        "actions": actions,
        "seed": seed,
    }
    if not isinstance(algorithm, str):
        if not callable(algorithm):
            raise ConfigError(f"algorithm is {algorithm!r}; give a name, a class, or an object of one.")
        taken = inspect.signature(algorithm).parameters
        return algorithm(**{name: value for name, value in provided.items() if name in taken}, **settings)
    part = _part(algorithm, settings)
    if part.name in ("ppo", "dqn") and not isinstance(space, gym.spaces.Discrete):
        raise ConfigError(
            f"{part.name} chooses among actions, the environment's are {space}; name an algorithm of tianshou for "
            "numbers, such as SAC, TD3 or PPO."
        )
    kind = load("algorithm", part.name)
    head = kind.head if isinstance(kind, type) and issubclass(kind, Learner) else None
    if head is not None:
        provided["network"] = make_network(lambda: head(trunk(), actions), seed)
    learner: Learner = make("algorithm", part, **provided)
    if isinstance(learner, NetworkLearner):  # episodes may be long
        learner.whole_episodes = learner.network.causal
    return learner


def _part(algorithm: str, settings: Mapping[str, Any]) -> Part:
    """Return an algorithm by name, with its settings; those that `TianshouSettings` does not have are tianshou's."""
    own = [name for name in BUILT_IN["algorithm"] if name not in ("tianshou", *_OF_MARKETS)]
    if algorithm in own:
        return Part(name=algorithm, **{**DEFAULTS[algorithm], **settings})
    if ":" in algorithm:
        return Part(name=algorithm, **settings)
    from rlwb.policy.tianshou import FAMILIES, TianshouSettings

    if algorithm not in FAMILIES:
        hint = suggestion(algorithm, [*own, *FAMILIES])
        raise ConfigError(f"there is no algorithm {algorithm!r}; {hint} Your own is file.py:Name or a class.")
    fields = {one.name for one in dataclasses.fields(TianshouSettings)}
    given = {**DEFAULTS["tianshou"], **{name: value for name, value in settings.items() if name in fields}}
    options = {name: value for name, value in settings.items() if name not in fields}
    return Part(
        **{**given, "name": "tianshou", "algorithm": algorithm, "options": {**given.get("options", {}), **options}}
    )


def _limits(spec: EnvSpec | None) -> Any:
    """Return what an environment's registration says of it beside its name."""
    return spec and (spec.max_episode_steps, spec.kwargs, [(one.name, one.kwargs) for one in spec.additional_wrappers])


def _fingerprint(*told: Any) -> str:
    """Return a hash of what tells one training from another."""
    return hashlib.sha256(json.dumps(_in_json(told), sort_keys=True).encode()).hexdigest()


def _in_json(value: Any) -> Any:
    """Return a value as JSON can write it: a mapping with other keys than names in pairs, objects by their names."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _in_json(part) for key, part in value.items()}
        return sorted(([_in_json(key), _in_json(part)] for key, part in value.items()), key=json.dumps)
    if isinstance(value, (list, tuple)):
        return [_in_json(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _in_json(value.tolist())
    known = value is None or isinstance(value, (str, int, float))
    return value if known else getattr(value, "__qualname__", type(value).__name__)
