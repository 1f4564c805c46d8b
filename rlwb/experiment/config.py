"""The configuration of a run: one frozen tree, checked whole before any work."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator

from rlwb.errors import ConfigError
from rlwb.experiment.parameters import Layer, Section, build, descriptions, flatten, leaves
from rlwb.experiment.sections import (
    BacktestConfig,
    Count,
    CountOrZero,
    ExecutionConfig,
    MarketConfig,
    OrdersConfig,
    PolicyConfig,
    TrainConfig,
)
from rlwb.experiment.yamlfile import dump_yaml, parse_yaml, read_yaml
from rlwb.market import FeatureSettings


class RunConfig(Section):
    """Everything a run depends on.

    Parameters
    ----------
    market
        Where bars come from.
    features
        What the policy sees of the market.
    orders
        Which orders are executed.
    execution
        How they are executed.
    policy
        The network.
    train
        How it is trained.
    backtest
        How it is judged.
    seed
        Of orders, weights, actions and minibatches; the embedded market has its own.
    threads
        Threads of numerical libraries a process. More than one seldom helps networks of this size, and costs much where
        other work shares the machine.
    """

    market: MarketConfig = MarketConfig()
    features: FeatureSettings = FeatureSettings()
    orders: OrdersConfig = OrdersConfig()
    execution: ExecutionConfig = ExecutionConfig()
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()
    backtest: BacktestConfig = BacktestConfig()
    seed: CountOrZero = 0
    threads: Count = 1

    @model_validator(mode="after")
    def _reads_its_features(self) -> RunConfig:
        seen = self.policy.network != "mlp" or self.train.algorithm == "opd"  # a teacher reads bars in any case
        if not seen and self.features != type(self).model_fields["features"].default:
            raise ValueError(
                "features has no effect with policy.network 'mlp', which sees the order's own state alone; drop it or "
                "change the network."
            )
        return self

    @model_validator(mode="after")
    def _can_be_kept(self) -> RunConfig:
        reads_bars = self.policy.network != "mlp"
        if self.train.algorithm == "dqn" and reads_bars and self.train.env != "native":
            raise ValueError(
                f"train.algorithm dqn keeps what it has seen, and train.env {self.train.env} copies the session's bars "
                "into each observation; set train.env to native, or policy.network to mlp."
            )
        if self.train.algorithm == "opd" and self.train.env != "native":
            raise ValueError(
                f"train.algorithm opd asks a teacher that reads the rest of the day, and the observations of train.env "
                f"{self.train.env} end at the current bar; set train.env to native."
            )
        if "hindsight_uncapped" in self.backtest.baselines and self.execution.rules.volume_limit is None:
            raise ValueError(
                "backtest.baselines names hindsight_uncapped, but the rules have no cap to leave out; use hindsight, "
                "or set execution.rules.volume_limit."
            )
        return self

    @classmethod
    def load(cls, file: Path | None = None, *changes: Layer) -> RunConfig:
        """Return the defaults with what `file` and then `changes` say.

        Parameters
        ----------
        file
            A YAML file, relative paths in which start at its folder; None for the defaults alone.
        changes
            More layers, the later ones winning; relative paths in them start at the current directory.

        Raises
        ------
        ConfigError
            For an unknown name, a wrong type or an impossible value, naming the parameter and where it stands.
        """
        return build(cls, cls.layers(file, *changes))

    @classmethod
    def layers(cls, file: Path | None = None, *changes: Layer) -> list[Layer]:
        """Return what `load` builds from: values by dotted name, a layer a place, paths absolute."""
        layers = [] if file is None else [_rooted(Layer(str(file), read_yaml(file)), file.parent)]
        return layers + [_rooted(change, Path()) for change in changes]

    def as_dict(self) -> dict[str, Any]:
        """Return the whole tree as values that YAML and JSON can hold."""
        return self.model_dump(mode="json")

    def as_yaml(self, *, describe: bool = False) -> str:
        """Return the whole tree as YAML; `describe` puts what each parameter does above it."""
        return "\n".join(_described(self)) + "\n" if describe else dump_yaml(self.as_dict())

    def get(self, name: str) -> Any:
        """Return the value at a dotted name."""
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        return value


def parse_assignments(assignments: Sequence[str]) -> Layer:
    """Return the layer that ``--set name=value`` options make; values are read as YAML."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, found, text = assignment.partition("=")
        name = name.strip()
        if not found or not name:
            raise ConfigError(f"--set {assignment}: write it as name=value, for example train.iterations=20.")
        if name in values:
            raise ConfigError(f"--set {name} is given twice; keep one of the two.")
        values[name] = parse_yaml(text, f"--set {name}")
    return Layer("--set", values)


def _rooted(layer: Layer, base: Path) -> Layer:
    values = flatten(layer.values, RunConfig, layer.origin)
    for name, keyword in (("market.source", "synthetic"), ("orders.source", "generated")):
        if isinstance(path := values.get(name), str) and path != keyword:
            values[name] = _from(base, path)
    if isinstance(columns := values.get("features.columns"), (list, tuple)):
        values["features.columns"] = [_from(base, s) if isinstance(s, str) and ".py:" in s else s for s in columns]
    return Layer(layer.origin, values)


def _from(base: Path, path: str) -> str:
    return str((base / Path(path).expanduser()).resolve())


def _described(config: RunConfig) -> list[str]:
    """Return the tree as YAML lines with what each parameter does above it."""
    texts, plain = descriptions(RunConfig), leaves(RunConfig)
    lines: list[str] = []

    def add(values: Mapping[str, Any], prefix: str, indent: str) -> None:
        said = ""
        for key, value in values.items():
            name = f"{prefix}{key}"
            text = texts.get(name, "").replace("``", "").replace("`", "")
            if text != said:  # one text may describe several parameters in a row
                lines.extend(f"{indent}# {line}" for line in textwrap.wrap(text, 116 - len(indent)))
            said = text
            if name in plain:
                lines.append(f"{indent}{key}: {dump_yaml(value, flow=True).rstrip()}")
            else:
                lines.append(f"{indent}{key}:")
                add(value, f"{name}.", indent + "  ")

    add(config.as_dict(), "", "")
    return lines
