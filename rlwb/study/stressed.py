"""``rlwb stress`` of a run or of a sweep: the matrix of each member, and what the seeds say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stability import read_stability
from rlwb.experiment.stress import launch_stress, read_stress, stress_tables
from rlwb.files import atomic_path
from rlwb.study.members import is_done
from rlwb.study.sweep import remembered_sweep, sweep_folder

Echo = Callable[[str], None]

#: Metrics of the matrix that are put together over seeds.
_METRICS = ("pa_net", "cvar", "ffr", "net_over_twap")
_OVER_SEEDS = {"seeds": "count", "mean": "mean", "std_seeds": "std", "least": "min", "most": "max"}


def launch_stressed(
    path: Path, only: Sequence[str] = (), *, trust_code: bool = False, echo: Echo = print, progress: Echo | None = None
) -> dict[str, pd.DataFrame]:
    """Do what ``rlwb stress`` asks for: judge a run under the conditions, of a sweep each member that is done.

    The reports of the runs are written anew. A sweep gets ``stress.csv`` and ``stability.csv``, what its seeds have in
    common, one row a setting, policy, condition and metric, and one a setting and group of orders. The tables are
    returned: of a run its `conditions` and `verdicts`, of a sweep its `stress` and `stability`.

    Raises
    ------
    ConfigError
        When no member of a sweep is done.
    """
    if not sweep_folder(path).memory.is_file():
        run = launch_stress(path, only, trust_code=trust_code, echo=echo, progress=progress)
        write_report(run)
        return stress_tables(run)
    sweep = remembered_sweep(path)
    runs = {name: RunDirectory(path / name) for name in sweep.members}
    done = {name: run for name, run in runs.items() if is_done(run)}
    if not done:
        raise ConfigError(f"no member of the sweep {path} is done; go on with it by rlwb sweep --resume first.")
    for name, run in done.items():
        echo(name)
        write_report(launch_stress(run.path, only, trust_code=trust_code, echo=lambda line: None, progress=progress))
    settings = {name: setting.title for name, (setting, _) in sweep.members.items()}
    tables = {"stress": _conditions(done, settings), "stability": _groups(done, settings)}
    for name, table in tables.items():
        if len(table):
            with atomic_path(path / f"{name}.csv") as target:
                table.to_csv(target, index=False)
    echo(f"{len(done)} of {len(runs)} members; together: {path / 'stress.csv'}, {path / 'stability.csv'}")
    return tables


def _conditions(runs: dict[str, RunDirectory], settings: dict[str, str]) -> pd.DataFrame:
    """Return mean, spread and ends over seeds of each metric, one row a setting, policy, condition and metric."""
    tables = {name: read_stress(run) for name, run in runs.items()}
    parts = [one.assign(setting=settings[name]) for name, one in tables.items() if one is not None]
    table = pd.concat(parts)
    some = table[table["metric"].isin(_METRICS)]
    keys = ["setting", "condition", "family", "policy", "kind", "metric"]
    return some.groupby(keys, sort=False)["estimate"].agg(**_OVER_SEEDS).reset_index()


def _groups(runs: dict[str, RunDirectory], settings: dict[str, str]) -> pd.DataFrame:
    """Return mean, spread and ends over seeds of the chosen checkpoints' net PA, one row a setting and group of orders.

    ``apart`` is the number of seeds in which the group differs from the rest by an adjusted p of at most 0.05.
    """
    tables = {name: read_stability(run) for name, run in runs.items()}
    parts = [one.assign(setting=settings[name]) for name, one in tables.items() if one is not None]
    if not parts:  # runs of an earlier version
        return pd.DataFrame()
    table = pd.concat(parts)
    own = table[table["kind"] == "checkpoint"]
    found = own.assign(is_apart=own["p_adjusted"] <= 0.05).groupby(["setting", "by", "group"], sort=False)
    return found["judged"].agg(**_OVER_SEEDS).assign(apart=found["is_apart"].sum()).reset_index()
