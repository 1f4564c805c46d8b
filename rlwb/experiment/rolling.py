"""A run over rolling windows: each window a run of its own in the folder ``windows``, and one report of all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.experiment.backtest import (
    interval_of,
    read_frontier,
    read_results,
    write_costs,
    write_headline,
    write_results,
)
from rlwb.experiment.config import RunConfig
from rlwb.experiment.ledger import LOOK, told_looks
from rlwb.experiment.orders import workbench
from rlwb.experiment.run import WINDOWS, RunDirectory, now
from rlwb.experiment.stages import STAGES, supersede
from rlwb.experiment.verdict import verdict_of, write_texts
from rlwb.files import atomic_path
from rlwb.reading import read_table

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult

FOLDER = WINDOWS
_ENDS = ((0, "first"), (1, "last"))


def windows_of(run: RunDirectory) -> list[RunDirectory]:
    """Return the runs of a rolling run's windows, in time order; none of another run."""
    found = sorted((run.path / FOLDER).glob("*/status.json"))
    return [RunDirectory(path.parent) for path in found if path.parent.name.isdecimal()]


def window_configs(run: RunDirectory, config: RunConfig) -> dict[str, RunConfig]:
    """Return name to configuration of each window's run: the run's own, with the dates of the window.

    Raises
    ------
    ConfigError
        When the windows do not fit the dates of the orders.
    """
    splits = workbench(run, config).splits()
    return {f"{number:03d}": config.model_copy(update={"split": one}) for number, one in enumerate(splits, start=1)}


def walk(
    run: RunDirectory,
    config: RunConfig,
    work: Callable[[RunDirectory, RunConfig], None],
    *,
    echo: Callable[[str], None] = print,
) -> None:
    """Do `work`, from orders to backtest, in the run of each window, and pool the results.

    A window's run that is there goes on; those that the settings no longer have are moved to ``superseded/``.
    """
    configs = window_configs(run, config)
    gone = [f"{FOLDER}/{window.path.name}" for window in windows_of(run) if window.path.name not in configs]
    if gone:
        echo(f"windows that there are no longer: {', '.join(gone)}{supersede(run, FOLDER, gone)}")
    begun = [stage for stage in STAGES if run.stage(stage.name)]
    outputs = [*(name for stage in begun for name in stage.outputs), LOOK]
    if own := [name for name in outputs if (run.path / name).exists()]:
        echo(f"results of the run without windows: {', '.join(own)}{supersede(run, FOLDER, own)}")
    run.update_status(stages={})
    for name, one in configs.items():
        dates = " to ".join(map(str, one.split.test)) if isinstance(one.split.test, tuple) else ""
        echo(f"window {name} of {len(configs)}: test {dates}")
        path = run.path / FOLDER / name
        window = RunDirectory.open(path) if RunDirectory(path).is_run() else RunDirectory.create(path, one)
        run.update_stage(f"window {name}", {"state": "running", "started": now()})
        work(window, one)
        run.update_stage(f"window {name}", {"state": "finished", "ended": now()})
    pool(run, config, windows_of(run))


def pool(run: RunDirectory, config: RunConfig, windows: Sequence[RunDirectory]) -> None:
    """Write ``backtest``, ``orders`` and ``figures`` of a rolling run from the backtests of its windows.

    The test orders of all windows count the same, as in a single run. ``rank-01`` is in each window the checkpoint with
    the best validation there, and so on; ``windows.csv`` has one row a window.
    """
    from rlwb.evaluation.pictures import save_picture

    assert config.split.rolling is not None
    found = {window.path.name: _by_rank(read_results(window)) for window in windows}
    names = [name for name in next(iter(found.values())) if all(name in one for one in found.values())]
    results = [_joined(name, [one[name] for one in found.values()]) for name in names]
    for folder in (run.backtest, run.orders, run.figures):  # of other windows or policies
        shutil.rmtree(folder, ignore_errors=True)
    write_results(run.backtest, results)
    table = pd.DataFrame([_row(window) for window in windows])
    for path, frame in {run.backtest / "windows.csv": table, run.orders / "summary.csv": _parts(windows)}.items():
        with atomic_path(path) as target:
            frame.to_csv(target, index=False)
    with atomic_path(run.orders / "data.json") as target:
        shutil.copyfile(windows[-1].orders / "data.json", target)
    about = (
        f"Walk-forward over {len(windows)} {config.split.rolling.describe()}. Each window is trained by itself, with "
        f"the seed {config.seed}, and tested on later days; the test orders of all windows are pooled. The checkpoints "
        "are those of the same rank by validation in each window."
    )
    looks = told_looks(windows, level=config.backtest.confidence)
    head = write_headline(run.backtest, results, config, about=[about, *looks])
    write_texts(run.backtest, head, verdict_of(run, config, results, is_whole=False))
    write_costs(run.backtest, results, config)
    for name, figure in rolling_figures(run, config).items():
        save_picture(figure, run.figures / name)


def rolling_figures(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """Return the figures of a rolling run by name, from its pooled backtest; under rules with costs of the net PA."""
    from rlwb.evaluation import plots

    results, rules = read_results(run), config.execution.rules
    if rules.have_costs:
        results = [result.after_costs() for result in results]
    figures = {
        "pa_by_window": plots.pa_by_window(
            pd.read_csv(run.backtest / "windows.csv", dtype={"window": str}), is_net=rules.have_costs
        ),
        "frontier": plots.frontier(read_frontier(run)),
        **plots.order_figures(results, **interval_of(config)),
    }
    return {name: plots.rename(figure, rules.name_judged) for name, figure in figures.items()}


def _by_rank(results: Sequence[PolicyResult]) -> dict[str, PolicyResult]:
    """Return a window's results by their name in the pooled table: checkpoints by their rank, others as they are."""
    chosen = [one for one in results if one.kind == "checkpoint"]
    ranked = {f"rank-{number:02d}": one for number, one in enumerate(chosen, start=1)}
    return {**ranked, **{one.policy: one for one in results if one.kind != "checkpoint"}}


def _joined(name: str, parts: Sequence[PolicyResult]) -> PolicyResult:
    """Return one result of those of all windows; its validation PA is their mean by test orders."""
    from rlwb.evaluation import PolicyResult

    sizes = np.array([len(one.orders) for one in parts])
    validation = float(np.average([one.validation_pa for one in parts], weights=sizes))
    left = [one.inventory for one in parts if one.inventory is not None]
    inventory = np.concatenate(left) if len(left) == len(parts) and len({one.shape[1] for one in left}) == 1 else None
    orders = pd.concat([one.orders for one in parts], ignore_index=True)
    return PolicyResult(name, parts[0].kind, orders, None, validation, inventory)


def _row(window: RunDirectory) -> dict[str, Any]:
    """Return a window's row: its dates, and the figures of its chosen checkpoints and of its last one."""
    split = window.config.split
    spans = {"train": split.train, "valid": split.valid, "test": split.test}
    dates = {f"{part}_{end}": span[at] for part, span in spans.items() if isinstance(span, tuple) for at, end in _ENDS}
    head = read_table(window.backtest / "headline.csv", "policy", numbers=["n", "pa_mean"])
    chosen, last = (head[head["kind"] == kind].iloc[0] for kind in ("checkpoint", "last"))
    figures = (
        *("orders", "days", "n", "validation_pa", "pa_mean", "pa_lo", "pa_hi"),
        *("pa_net", "pa_net_lo", "pa_net_hi", "ffr"),
    )
    return {"window": window.path.name, **dates, **{name: chosen[name] for name in figures}, "last_pa": last["pa_mean"]}


def _parts(windows: Sequence[RunDirectory]) -> pd.DataFrame:
    """Return the orders of each part of each window, as ``orders/summary.csv`` has them."""
    tables: Mapping[str, pd.DataFrame] = {
        window.path.name: read_table(window.orders / "summary.csv", "part", numbers=["orders"]) for window in windows
    }
    frames = [
        table[table["part"] != "all"].assign(part=lambda one, name=name: name + " " + one["part"])
        for name, table in tables.items()
    ]
    return pd.concat(frames, ignore_index=True)
