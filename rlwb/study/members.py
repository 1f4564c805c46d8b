"""The members of a sweep: one run for each setting of a grid and each seed, and how they are called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory, asked_words
from rlwb.experiment.yamlfile import dump_yaml, parse_yaml
from rlwb.parts import Part
from rlwb.seeds import check_seed
from rlwb.values import shown

#: Characters that no folder's name has.
_NO_FILE_NAME = re.compile(r"[^\w.=+-]+")
_ORIGIN = "--seeds"


@dataclass(frozen=True)
class Setting:
    """A point of the grid.

    Attributes
    ----------
    name
        Of its members' folders, for example ``penalty-20``; empty where there is no grid.
    config
        The configuration of its members, but for the seed.
    grid
        Dotted name to value of what makes it another setting.
    """

    name: str
    config: RunConfig
    grid: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name in tables."""
        return ", ".join(f"{name} = {_text(value)}" for name, value in self.grid.items()) or "as configured"

    def member(self, seed: int) -> str:
        """Return the name of the member of a seed, and of its folder."""
        return f"{self.name}-seed-{seed}" if self.name else f"seed-{seed}"

    def of_seed(self, seed: int) -> RunConfig:
        """Return the configuration of the member of a seed."""
        return self.config.model_copy(update={"seed": seed})


@dataclass(frozen=True)
class Sweep:
    """The members of a sweep, and the words that asked for them.

    Attributes
    ----------
    settings
        The points of its grid, one without a grid.
    seeds
        The seeds of each.
    asked
        ``file``, ``set``, ``grid`` and ``seeds`` as they were given.
    """

    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    asked: Mapping[str, Any]

    @property
    def members(self) -> dict[str, tuple[Setting, int]]:
        """Name of each member to its setting and seed."""
        return {one.member(seed): (one, seed) for one in self.settings for seed in self.seeds}

    def words(self) -> list[str]:
        """Return the words that asked for it."""
        grid = [word for one in self.asked["grid"] for word in ("--grid", one)]
        return [*asked_words(self.asked), *grid, "--seeds", str(self.asked["seeds"])]


def is_done(run: RunDirectory) -> bool:
    """Tell whether a run is finished and has its result."""
    return run.is_run() and run.state == "finished" and (run.backtest / "summary.csv").is_file()


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds that ``--seeds`` names: 0 to n - 1 for a number n, or those of a list, ``0,3,7`` or ``7,``."""
    try:
        numbers = [int(one) for one in text.removesuffix(",").split(",")]
    except ValueError:
        raise ConfigError(
            f"{_ORIGIN} is {shown(text)}; give their number, or a list such as 0,3,7, or 7, of one seed."
        ) from None
    seeds = [check_seed(one) for one in numbers] if "," in text else range(numbers[0])
    if not seeds:
        raise ConfigError(f"{_ORIGIN} is {shown(text)}; give at least one.")
    if twice := [seed for seed in seeds if list(seeds).count(seed) > 1]:
        raise ConfigError(f"{_ORIGIN} names {twice[0]} twice; keep one.")
    return tuple(seeds)


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """Return dotted name to values of ``--grid name=value,value`` options; values are read as YAML."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        name, found, text = word.partition("=")
        name = name.strip()
        if not found or not name or not name.isprintable():
            raise ConfigError(f"--grid {shown(word)}: write it as name=value,value, for example reward.penalty=10,20.")
        if name in grid:
            raise ConfigError(f"--grid {name} is given twice; write all its values in one.")
        if name == "seed":
            raise ConfigError("--grid seed: seeds are given with --seeds.")
        is_list = text.strip().startswith("[")
        values = parse_yaml(text if is_list else f"[{text}]", f"--grid {name}")
        if not values:
            raise ConfigError(f"--grid {name} has no value; give some, for example {name}=10,20.")
        if twice := [value for value in values if values.count(value) > 1]:
            raise ConfigError(f"--grid {name} names {shown(twice[0])} twice; keep one.")
        grid[name] = values
    return grid


def make_settings(
    file: Path | None, changes: Layer, grid: Mapping[str, Sequence[Any]], layers: Sequence[Layer] = ()
) -> list[Setting]:
    """Return the settings of a grid, the last name's values varying fastest; without a grid one.

    All are given the orders of one seed, that of the configuration, so that their members trade the same ones.

    Raises
    ------
    ConfigError
        For what `RunConfig.load` refuses, and a name that is in the grid and among the `changes`.
    """
    if both := [name for name in grid if name in changes.values]:
        raise ConfigError(f"--grid {both[0]} is given by --set, too; keep one of the two.")
    named = _folder_names(grid)
    settings = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        config = RunConfig.load(file, *layers, changes, Layer("--grid", point))
        if config.orders.name == "generated" and config.orders.settings.get("seed") is None:
            orders = Part(name=config.orders.name, **{**config.orders.settings, "seed": config.seed})
            config = config.model_copy(update={"orders": orders})
        name = "-".join(named[key][grid[key].index(value)] for key, value in point.items())
        settings.append(Setting(name, config, point))
    return settings


def _folder_names(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return for each name of a grid what its values are called in folders' names."""
    last = [name.rpartition(".")[2] for name in grid]
    named = {}
    for name, values in grid.items():
        short = name.rpartition(".")[2]
        short = short if last.count(short) == 1 else name
        texts = [_NO_FILE_NAME.sub("_", _text(value)).strip("_")[:40] for value in values]
        if len(set(texts)) < len(texts) or not all(texts):  # cut, or of other characters
            texts = [f"{number}-{text}".rstrip("-") for number, text in enumerate(texts, start=1)]
        named[name] = [f"{short}-{text}" for text in texts]
    return named


def _text(value: Any) -> str:
    return dump_yaml(value, flow=True).strip()
