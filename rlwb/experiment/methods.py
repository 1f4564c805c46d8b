"""The methods of the field, and the configuration of each from what is said once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.parameters import Layer, build, nearest
from rlwb.experiment.sections import BASELINES, BacktestConfig, TrainConfig, unused_settings


@dataclass(frozen=True)
class Method:
    """A learner of the comparison.

    Attributes
    ----------
    title
        How the table names it.
    changes
        Its settings by dotted name, on top of those that all methods share.
    """

    title: str
    changes: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Method] = {
    "ddqn": Method("DDQN", {"train.algorithm": "dqn"}),
    "ppo": Method("PPO", {"train.algorithm": "ppo"}),
    "ppo_sparse": Method("PPO, sparse reward", {"train.algorithm": "ppo", "train.reward": "sparse"}),
    "opd": Method("OPD", {"train.algorithm": "opd"}),
    "ppo_convolution": Method("PPO, convolution", {"train.algorithm": "ppo", "policy.network": "convolution"}),
    "ppo_attention": Method("PPO, attention", {"train.algorithm": "ppo", "policy.network": "attention"}),
    "ppo_mlp": Method("PPO, order's state alone", {"train.algorithm": "ppo", "policy.network": "mlp"}),
}
"""Name to learner, in the order of the table."""


def method_configs(
    methods: Sequence[str] = tuple(METHODS), file: Path | None = None, *changes: Layer
) -> dict[str, RunConfig]:
    """Return the configuration of each method, from what is said once for all of them.

    A setting of one algorithm, like ``train.opd.distillation``, goes to the methods that use it.

    Parameters
    ----------
    methods
        Names in `METHODS`.
    file, changes
        See `RunConfig.load`.

    Raises
    ------
    ConfigError
        For an unknown method, one that the shared settings do not suit, a setting that none of the methods uses, and
        what `RunConfig.load` refuses.
    """
    if not methods:
        raise ConfigError(f"no method was named; choose among {', '.join(METHODS)}.")
    layers = RunConfig.layers(file, *changes)
    said = {name: value for layer in layers for name, value in layer.values.items()}
    chosen = {key: str(said.get(f"train.{key}", getattr(TrainConfig(), key))) for key in ("algorithm", "reward")}
    apart = unused_settings(**chosen)
    own = [Layer(at, {name: of[name] for name in of if _train_key(name) in apart}) for at, of in layers]
    rest = [Layer(at, {name: of[name] for name in of if _train_key(name) not in apart}) for at, of in layers]
    shared = build(RunConfig, rest)
    for layer in own:
        for name in layer.values:
            if all(_train_key(name) in _unused(shared, method) for method in methods):
                raise ConfigError(
                    f"{layer.origin}: {name} has no effect on any of {', '.join(methods)}; drop it or compare a method "
                    "that uses it."
                )
    return {name: method_config(shared, name, *own) for name in methods}


def method_config(config: RunConfig, name: str, *own: Layer) -> RunConfig:
    """Return the configuration of a method: the shared one, its own changes, and defaults for what it does not use.

    Parameters
    ----------
    config
        What all methods share.
    name
        A name in `METHODS`.
    own
        Settings by dotted name for which `config` has no use and this method may have.
    """
    unused, changes = _unused(config, name), METHODS[name].changes
    tree = config.as_dict()
    for key in unused:
        tree["train"].pop(key)
    if changes.get("policy.network") == "mlp":
        tree.pop("features")  # the order's state alone reads none
    if config.backtest.baselines == BacktestConfig().baselines:
        tree["backtest"]["baselines"] = _all_baselines(config)
    for dotted in changes:
        section, _, leaf = dotted.partition(".")
        tree[section].pop(leaf, None)
    mine = [Layer(at, {key: of[key] for key in of if _train_key(key) not in unused}) for at, of in own]
    return RunConfig.load(None, Layer("the shared settings", tree), *mine, Layer(f"method {name}", changes))


def _unused(config: RunConfig, name: str) -> dict[str, str]:
    """Return the settings of the section train that a method has no use for."""
    if name not in METHODS:
        guess = nearest(name, list(METHODS))
        hint = f"did you mean {guess}?" if guess else f"choose among {', '.join(METHODS)}."
        raise ConfigError(f"there is no method {name!r} to compare; {hint}")
    changes = METHODS[name].changes
    return unused_settings(
        *(changes.get(f"train.{key}", getattr(config.train, key)) for key in ("algorithm", "reward"))
    )


def _train_key(name: str) -> str:
    """Return the setting or group of the section train that a dotted name is in; none for other sections."""
    section, _, rest = name.partition(".")
    return rest.partition(".")[0] if section == "train" else ""


def _all_baselines(config: RunConfig) -> list[str]:
    capped = config.execution.rules.volume_limit is not None
    return [name for name in BASELINES if name != "hindsight_uncapped" or capped]
