"""The noise twin of a run: the same training and backtest on a market in which nothing can be learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.experiment.compare import do_stages
from rlwb.experiment.config import RunConfig
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.pipeline import launch
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.verdict import TWIN, VERDICT
from rlwb.parts import Part
from rlwb.reading import read_json


def twin_config(config: RunConfig) -> RunConfig:
    """Return the configuration with a market in which nothing can be learnt: no signal, or returns of random sign.

    Raises
    ------
    ConfigError
        For a market of one's own, and one in which nothing can be learnt already.
    """
    off = {"synthetic": ("signal", 0.0), "bars": ("noise_seed", config.seed)}
    name, own = config.market.name, config.market.settings
    if name not in off:
        raise ConfigError(
            f"the market {name} has no noise twin; those of synthetic and bars are known, so write its bars to a file "
            "and read them from there."
        )
    setting, value = off[name]
    if own.get(setting) == value or (name == "bars" and own.get(setting) is not None):
        raise ConfigError(
            f"market.{setting} is {own[setting]}: nothing can be learnt there, so it is its own noise twin."
        )
    market = Part(name=name, **{**own, setting: value})
    return config.model_copy(update={"market": market, "trackers": ()})


def launch_with_twin(
    config_file: Path | None,
    changes: Sequence[str],
    run_dir: Path | None,
    *,
    resume: bool,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> RunDirectory:
    """Do what `rlwb.experiment.pipeline.launch` does, and make the noise twin of the run.

    A market that has none is refused before any work.
    """
    asked: dict[str, Any] = {"resume": resume, "trust_code": trust_code, "also": twin_config, "echo": echo}
    run = launch(config_file, changes, run_dir, **asked)
    make_twin(run, echo)
    return run


def make_twin(run: RunDirectory, echo: Callable[[str], None] = print) -> RunDirectory:
    """Make the noise twin of a finished run in its folder ``twin``, or go on with it, and write both reports.

    Settings, seeds and orders are those of the run; what is done and unchanged is not done again.
    """
    config = twin_config(run.config)
    twin = RunDirectory(run.path / TWIN)
    if not twin.is_run():
        check_feasible(config, twin.path)
        twin = RunDirectory.create(twin.path, config)
    echo(f"noise twin: {twin.path}")
    do_stages(twin, config, partial(_indented, echo))
    write_report(twin)
    echo(f"report: {write_report(run)}")
    for one in read_json(run.path / VERDICT)["reasons"]:
        if one["topic"] == "twin":
            echo(one["sentence"])
    return twin


def twin_table(run: RunDirectory) -> pd.DataFrame:
    """Return outcome and effect of a run and of its noise twin, in basis points; of a run without one its own alone."""
    told = {}
    for title, path in {"run": run.backtest, "noise twin": run.path / TWIN / "backtest"}.items():
        if (path / "headline.json").exists() and (verdict := read_json(path / "headline.json").get("verdict")):
            told[title] = verdict
    columns = {"outcome": "outcome", "effect": "gain over the mark, bp", "lo": "low", "hi": "high"}
    rows = {title: {shown: one[name] for name, shown in columns.items()} for title, one in told.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(columns.values())).round(2)


def _indented(echo: Callable[[str], None], line: str) -> None:
    echo(f"  {line}")
