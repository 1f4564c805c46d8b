"""Order execution as other libraries ask for it: by an id and keywords, with observations that they take."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from gymnasium.envs.registration import EnvSpec

from rlwb.env import DataQueue, EnvWrapper, GymVectorEnv
from rlwb.errors import ConfigError
from rlwb.execution import OrderBatch
from rlwb.execution.flat import observe_as
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.pipeline import check_config
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.files import as_json
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward
from rlwb.simulator import Simulator

Config = RunConfig | Mapping[str, Any] | str | os.PathLike[str] | None
"""A configuration: its values, its file, the directory of a run, or None for the synthetic market and the defaults."""

PARTS = ("train", "valid", "test", "all")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Order execution of one configuration, as its parts.

    Attributes
    ----------
    orders
        The orders of one part of the split.
    simulator, state_interpreter, action_interpreter, reward
        As in `EnvWrapper`.
    config
        The configuration.
    """

    config: RunConfig
    orders: OrderBatch
    simulator: Simulator[Any]
    state_interpreter: StateInterpreter[Any]
    action_interpreter: ActionInterpreter[Any]
    reward: Reward[Any]


class OrderExecutionEnv(EnvWrapper):
    """One order after another of one part of a configuration's split, without end; ``rlwb/OrderExecution-v0``.

    An episode is an order. Those of the training part come in a new order every epoch, those of the other parts in
    the sequence of their table. ``reset(seed=…)`` starts over.

    Parameters
    ----------
    config
        The configuration, see `Config`; what it names of your own code is run. By default the synthetic market.
    part
        Whose orders: ``"train"``, ``"valid"``, ``"test"`` or ``"all"``.
    observation
        ``"flat"``: one vector of float32 with amounts as shares (`rlwb.execution.FlatStateInterpreter`, whose `names`
        say which number is what); ``"dict"``: the same parts as a dict of arrays; ``"declared"``: the dict of the
        configuration's state interpreter as it is, with numbers in boxes without dimensions and amounts in units.
    render_mode
        ``"ansi"`` lets `render` tell the order's state as text.

    Raises
    ------
    ConfigError
        For a configuration that a run would refuse, an unknown part, or an unknown observation.
    """

    def __init__(
        self,
        config: Config = None,
        part: str = "train",
        observation: str = "flat",
        render_mode: str | None = None,
    ) -> None:
        one = problem(config, part, observation)
        states = DataQueue(one.orders, repeat=-1, shuffle=part == "train", seed=one.config.seed)
        parts = (one.simulator, one.state_interpreter, one.action_interpreter)
        super().__init__(*parts, states, one.reward, render_mode=render_mode)

    @property
    def spec(self) -> EnvSpec | None:
        """By which `gymnasium.make` makes another one; its arguments are plain values, so that ``to_json`` works."""
        return self._spec

    @spec.setter
    def spec(self, value: EnvSpec | None) -> None:
        self._spec = value
        if value is not None and "config" in value.kwargs:
            value.kwargs["config"] = _plain(value.kwargs["config"])


def order_executions(
    num_envs: int = 64,
    config: Config = None,
    part: str = "train",
    observation: str = "flat",
    **options: Any,
) -> GymVectorEnv:
    """Return the native environment of many orders side by side; ``gymnasium.make_vec("rlwb/OrderExecution-v0", …)``.

    Parameters
    ----------
    num_envs
        Orders side by side; hundreds are fast.
    config, part, observation
        As of `OrderExecutionEnv`.
    options
        Further ones of `rlwb.env.GymVectorEnv`, such as ``autoreset_mode``.
    """
    one = problem(config, part, observation)
    options = {"shuffle": part == "train", "seed": one.config.seed, **options}
    parts = {name: getattr(one, name) for name in ("state_interpreter", "action_interpreter", "reward")}
    return GymVectorEnv(one.simulator, one.orders, num_envs=num_envs, **parts, **options)


def problem(config: Config = None, part: str = "train", observation: str = "flat") -> Problem:
    """Return order execution as its parts; recent ones are kept, so that many environments share one market."""
    if part not in PARTS:
        raise ConfigError(f"part is {part!r}; choose one of {', '.join(PARTS)}.")
    found, run = _resolved(config)
    prepared = _prepare(as_json(found.as_dict()), None if run is None else str(run.path))
    bench, sees = prepared.bench, prepared.bench.state_interpreter(prepared.features)
    parts = (bench.simulator, observe_as(sees, observation), bench.action_interpreter, bench.reward)
    return Problem(found, prepared.batch(part), *parts)


class _Prepared:
    """A market with its orders and features."""

    def __init__(self, bench: Workbench, tables: Mapping[str, pd.DataFrame]) -> None:
        self.bench = bench
        self.features = bench.features(tables["train"])
        self._tables = tables
        self._batches: dict[str, OrderBatch] = {}

    def batch(self, part: str) -> OrderBatch:
        if part not in self._batches:
            self._batches[part] = self.bench.align(self._tables[part])
        return self._batches[part]


@lru_cache(maxsize=4)
def _prepare(config: str, path: str | None) -> _Prepared:
    found = RunConfig.load(None, Layer("config", json.loads(config)))
    if path is not None:
        run = RunDirectory.open(path)
        bench = workbench(run, found)
        return _Prepared(bench, {part: load_orders(run, bench, part) for part in PARTS})
    check_config(found)
    if found.split.rolling is not None:
        raise ConfigError("split.rolling makes a run of every window; give the dates of one as split.train and so on.")
    bench = Workbench(found)
    return _Prepared(bench, bench.make_orders()[0])


def _resolved(config: Config) -> tuple[RunConfig, RunDirectory | None]:
    """Return a configuration, and the run that it is of, if any."""
    if config is None or isinstance(config, RunConfig):
        return config or RunConfig.load(), None
    if isinstance(config, Mapping):
        return RunConfig.load(None, Layer("config", dict(config))), None
    path = Path(config)
    if path.is_dir():
        run = RunDirectory.open(path)
        return run.config, run
    return RunConfig.load(path), None


def _plain(config: Config) -> Any:
    """Return a configuration as JSON can hold it."""
    if isinstance(config, RunConfig):
        return config.as_dict()
    return str(config) if isinstance(config, os.PathLike) else config
