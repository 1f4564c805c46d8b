"""The parts of a run, made from its configuration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

import rlwb
from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    OrderBatch,
    align_orders,
    split_orders,
)
from rlwb.experiment.config import RunConfig
from rlwb.experiment.own_code import described
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.market import MarketFeatures, Normaliser, Sessions
from rlwb.parts import Part, load, make
from rlwb.reward import Reward
from rlwb.simulator import Simulator


class Workbench:
    """What a configuration asks for, each part made when it is first used.

    Parameters
    ----------
    config
        The configuration.
    cache_dir
        Folder of prepared panels; None prepares bars anew each time.
    """

    def __init__(self, config: RunConfig, *, cache_dir: Path | None = None) -> None:
        self.config = config
        self.cache_dir = cache_dir
        self._latest: MarketFeatures | None = None

    def make(self, kind: str, part: Part, **provided: Any) -> Any:
        """Return a part of the run; it is given what it asks for by name (`rlwb.parts.PROVIDED`)."""
        engine = provided.pop("engine", None) or self.engine
        given = {"seed": self.config.seed, "sessions": self.sessions, "engine": engine}
        made = make(kind, part, **given, rules=engine.rules, max_step=engine.max_step, **provided)
        base = _BASES.get(kind, object)
        if not isinstance(made, base):
            raise ConfigError(
                f"{kind} {part.name} makes a {type(made).__name__}, which is no {base.__name__}; derive it from "
                f"{base.__module__}.{base.__name__}."
            )
        return made

    @cached_property
    def sessions(self) -> Sessions:
        """The panel of all bars."""
        panel: Sessions = make("market", self.config.market, cache_dir=self.cache_dir)
        return panel

    @cached_property
    def engine(self) -> Engine:
        """What executes orders, under the configured rules."""
        return Engine(self.sessions, self.config.execution.ticks_per_step, self.config.execution.rules)

    @cached_property
    def simulator(self) -> Simulator[Any]:
        """The market's answer to decisions."""
        return self.simulator_under(self.config.execution.rules)

    def simulator_under(self, rules: ExecutionRules) -> Simulator[Any]:
        """Return the simulator under rules of execution, the run's or others."""
        same = rules == self.config.execution.rules
        engine = self.engine if same else Engine(self.sessions, self.config.execution.ticks_per_step, rules)
        made: Simulator[Any] = self.make("simulator", self.config.simulator, engine=engine)
        return made

    @cached_property
    def action_interpreter(self) -> ActionInterpreter[Any]:
        """The actions of the policy."""
        made: ActionInterpreter[Any] = self.make("action_interpreter", self.config.action_interpreter)
        return made

    @cached_property
    def reward(self) -> Reward[Any]:
        """The reward of the learner."""
        made: Reward[Any] = self.make("reward", self.config.reward)
        return made

    def check(self) -> None:
        """Make all parts that need no features, so that each can refuse its settings."""
        for kind in ("simulator", "action_interpreter", "reward"):
            self.make(kind, getattr(self.config, kind))
        for part in self.config.baselines:
            self.make("baseline", part)

    def make_orders(self) -> tuple[dict[str, pd.DataFrame], list[str]]:
        """Return the order tables of all parts, and in words what was noticed on the way."""
        table = self.make("orders", self.config.orders)
        notes = list(table.attrs.get("notes", ()))
        parts = split_orders(table, self.config.split)
        notes += parts["all"].attrs.get("notes", ())
        return parts, list(dict.fromkeys(notes))

    def align(self, table: pd.DataFrame) -> OrderBatch:
        """Align orders with the sessions, under the configured rules."""
        return align_orders(table, self.sessions, self.engine.rules)

    def features(
        self, train_orders: pd.DataFrame | None = None, normaliser: Normaliser | None = None
    ) -> MarketFeatures:
        """Return the features, normalised by the sessions of `train_orders` or by a checkpoint's statistics."""
        if normaliser is not None:
            # The checkpoints of a run share their statistics, so one panel of features serves all of them.
            if self._latest is None or self._latest.normaliser.as_dict() != normaliser.as_dict():
                self._latest = MarketFeatures.build(self.sessions, self.config.features, normaliser=normaliser)
            return self._latest
        assert train_orders is not None
        days = train_orders["date"].to_numpy().astype("datetime64[D]")
        return MarketFeatures.build(self.sessions, self.config.features, fit_rows=np.isin(self.sessions.dates, days))

    def state_interpreter(self, features: MarketFeatures) -> StateInterpreter[Any]:
        """Return what the policy observes, and its teacher if it has one."""
        made: StateInterpreter[Any] = self.make("state_interpreter", self.config.state_interpreter, features=features)
        return made

    @cached_property
    def is_taught(self) -> bool:
        """Whether the algorithm learns from a teacher, told by its parameter ``teacher``."""
        return "teacher" in inspect.signature(load("algorithm", self.config.algorithm.name)).parameters

    def learner(self, features: MarketFeatures, teacher: Learner | None = None) -> Learner:
        """Return the untrained policy.

        Parameters
        ----------
        features
            What its network reads.
        teacher
            The trained teacher, to learn by distillation; to act, a student needs none.
        """
        if self.is_taught and teacher is None:
            return self._ppo(self.config.network, features)
        part, provided = self.config.algorithm, self._shapes(features)
        algorithm = load("algorithm", part.name)
        head = algorithm.head if isinstance(algorithm, type) and issubclass(algorithm, Learner) else None
        if head is not None:
            provided["network"] = self._network(self.config.network, head, features)
        trunk = partial(self._trunk, self.config.network, provided)
        made: Learner = self.make("algorithm", part, make_trunk=trunk, teacher=teacher, **provided)
        return made

    def teacher(self, features: MarketFeatures) -> Learner:
        """Return the untrained teacher: PPO by the student's settings, on a network that sees the rest of the day."""
        hidden = {name: value for name, value in self.config.network.settings.items() if name == "hidden"}
        return self._ppo(Part(name="rlwb.policy.market_network:Oracle", **hidden), features)

    def _ppo(self, network: Part, features: MarketFeatures) -> Learner:
        from rlwb.policy import PPO, PPOSettings

        names = {field.name for field in dataclasses.fields(PPOSettings)}
        settings = {name: value for name, value in self.config.algorithm.settings.items() if name in names}
        return PPO(self._network(network, PPO.head, features), PPOSettings(**settings), seed=self.config.seed)

    def _shapes(self, features: MarketFeatures) -> dict[str, Any]:
        space = self.action_interpreter.action_space
        size = int(space.n) if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape or ()))
        sees = self.state_interpreter(features)
        return {
            "features": features,
            "channels": features.shape[2],
            "ticks": features.shape[1],
            "previous_day": self.config.features.previous_day,
            "actions": size,
            "observation_space": sees.observation_space,
            "action_space": space,
        }

    def _trunk(self, part: Part, shapes: Mapping[str, Any], seed: int) -> Any:
        """Return a network without a head, its weights drawn from a seed."""
        from rlwb.policy import make_network

        made = make_network(lambda: self.make("network", part, **shapes), seed)
        return made.to(device_of(self.config.train.device))

    def _network(self, part: Part, make_head: Any, features: MarketFeatures) -> Any:
        """Return a network with the head that an algorithm asks for, its weights drawn from the run's seed."""
        from rlwb.policy import ActionMask, EvenStart, make_network

        shapes, head, acts = self._shapes(features), self.config.head, self.action_interpreter
        if (head.mask_actions or head.even_start) and not isinstance(acts, CategoricalActionInterpreter):
            raise ConfigError("head.mask_actions and head.even_start need categorical actions; turn them off.")
        shares = acts.shares if isinstance(acts, CategoricalActionInterpreter) else None
        options = {
            "mask": ActionMask(shares) if head.mask_actions and shares is not None else None,
            "start": EvenStart(shares) if head.even_start and shares is not None else None,
        }

        def build() -> Any:
            return make_head(self.make("network", part, **shapes), shapes["actions"], **options)

        return make_network(build, self.config.seed).to(device_of(self.config.train.device))

    def meta(self, features: MarketFeatures) -> dict[str, Any]:
        """Return what a checkpoint must carry for its policy to be built and fed again."""
        config = described(self.config)
        return {
            "rlwb": rlwb.__version__,
            **{name: config[name] for name in _OF_THE_POLICY},
            "ticks_per_step": self.config.execution.ticks_per_step,
            "max_step": self.engine.max_step,
            "rules": dataclasses.asdict(self.config.execution.rules),
            "normaliser": features.normaliser.as_dict(),
        }

    def restore(self, state: Mapping[str, Any], path: Path) -> tuple[Learner, MarketFeatures]:
        """Return the policy of a checkpoint, and the features normalised as in its training.

        Raises
        ------
        CheckpointError
            When the checkpoint was made by another algorithm, or for another network, other actions or other steps, or
            holds a teacher, which cannot act where the future is not known.
        """
        if state["meta"].get("sees_future"):
            raise CheckpointError(
                f"the checkpoint {path} holds a teacher, which sees the rest of the day and cannot act in a market; "
                "use one of its student."
            )
        return self._restored(state, path, self.learner)

    def restore_teacher(self, state: Mapping[str, Any], path: Path) -> tuple[Learner, MarketFeatures]:
        """Return the teacher of a checkpoint, to show what there is to gain; else as `restore`."""
        if not state["meta"].get("sees_future"):
            raise CheckpointError(f"the checkpoint {path} holds no teacher; it can act by `restore`.")
        return self._restored(state, path, self.teacher)

    def _restored(self, state: Mapping[str, Any], path: Path, build: Any) -> tuple[Learner, MarketFeatures]:
        features = self.features(normaliser=Normaliser.from_dict(state["meta"]["normaliser"]))
        wanted, found = self.meta(features), state["meta"]
        for name in (*_OF_THE_POLICY, "max_step"):
            if _plain(found.get(name)) != _plain(wanted[name]):
                raise CheckpointError(
                    f"the checkpoint {path} was made with {name} {found.get(name)!r}, the configuration says "
                    f"{wanted[name]!r}; use the configuration that it was trained with."
                )
        learner = build(features)
        learner.load_state_dict(state["vessel"]["policy"])
        return learner, features


_BASES: dict[str, type[Any]] = {
    "simulator": Simulator,
    "state_interpreter": StateInterpreter,
    "action_interpreter": ActionInterpreter,
    "reward": Reward,
    "algorithm": Learner,
}
#: Places in the configuration that a policy is made from.
_OF_THE_POLICY = ("algorithm", "network", "head", "state_interpreter", "action_interpreter", "features")


def _plain(value: Any) -> Any:
    """Return `value` with tuples as lists, which files make of them."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def device_of(name: str) -> str:
    """Return the device for ``cpu``, ``cuda`` or ``auto``."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device is cuda but torch finds no GPU; set it to cpu or auto.")
    return name
