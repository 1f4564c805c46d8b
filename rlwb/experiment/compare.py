"""The methods of the field on the same orders: each learner a run of its own, all of them in one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlwb.errors import CheckpointError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.manifest import begin_manifest, end_manifest
from rlwb.experiment.methods import METHODS
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stage import run_stage
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.experiment.views import OrderAudit, audit_order
from rlwb.experiment.work import backtest_policies, make_orders, read_results, train_policy, workbench
from rlwb.files import atomic_path, write_text

if TYPE_CHECKING:
    from rlwb.evaluation import Comparison, PolicyResult

_STAGES = ((ORDERS, make_orders), (TRAIN, train_policy), (BACKTEST, backtest_policies))


def compare(folder: Path, configs: Mapping[str, RunConfig], *, echo: Callable[[str], None] = print) -> Comparison:
    """Train and judge every method on the same orders, and write ``comparison.csv`` and ``comparison.md``.

    Parameters
    ----------
    folder
        Where; each method's run is the folder of its name. What is there and unchanged is not done again.
    configs
        Name in `METHODS` to configuration, from `method_configs`.
    echo
        Receives lines on what happens.

    Returns
    -------
    Comparison
        Baselines first, then the learners. A learner is judged by its one checkpoint with the best validation PA.
    """
    for name, own in configs.items():
        echo(f"{name}: {METHODS[name].title}")
        _see_through(folder / name, own, echo)
    table = compared(folder, list(configs))
    with atomic_path(folder / "comparison.csv") as path:
        table.frame.to_csv(path, index=False)
    write_text(folder / "comparison.md", table.to_markdown())
    return table


def compared(folder: Path, methods: Sequence[str] = tuple(METHODS)) -> Comparison:
    """Return the table of methods whose runs are finished."""
    from rlwb.evaluation import comparison
    from rlwb.evaluation.results import PA_TITLES

    config = RunDirectory.open(folder / methods[0]).config
    settings, rules = config.backtest, config.execution.rules
    chosen_by = f"the best validation {PA_TITLES[rules.judged_by]}"
    notes = [
        f"Of each learner the checkpoint with {chosen_by}; all methods traded the same orders.",
        "Intervals hold the luck of the days, not that of the seed: each learner was trained once.",
        f"Rules: {rules.describe()}.",
    ]
    return comparison(
        {**_fixed(folder, methods), **best_results(folder, methods)},
        level=settings.confidence,
        resamples=settings.bootstrap_samples,
        seed=config.seed,
        notes=notes,
    )


def best_results(folder: Path, methods: Sequence[str] = tuple(METHODS)) -> dict[str, PolicyResult]:
    """Return title to result of each learner's checkpoint with the best validation PA."""
    return {METHODS[name].title: _best(RunDirectory.open(folder / name)) for name in methods}


def audit_method(folder: Path, method: str, order_id: str) -> OrderAudit:
    """Execute one test order again by a method of the table, a learner or a baseline, recording every tick.

    Parameters
    ----------
    method
        A name in `METHODS` that was compared, a baseline's, or ``teacher``.
    """
    learners = [name for name in METHODS if (folder / name / "status.json").is_file()]
    if not learners:
        raise CheckpointError(f"{folder} holds no comparison; make one first.")
    tables = {name: folder / name / "backtest" / "orders" / f"{method}.parquet" for name in learners}
    beside = [name for name, table in tables.items() if table.is_file()]  # a teacher is in its student's run alone
    run = RunDirectory.open(folder / (method if method in learners else [*beside, learners[0]][0]))
    policy = _best(run).policy if method in learners else method
    return audit_order(run, workbench(run, run.config), policy, order_id)


def _see_through(path: Path, config: RunConfig, echo: Callable[[str], None]) -> None:
    """Do the stages of one run that are not done."""
    made = RunDirectory(path).is_run()
    run = RunDirectory.open(path) if made else RunDirectory.create(path, config)
    begin_manifest(run, sys.argv)
    state = "failed"
    try:
        for stage, work in _STAGES:
            run_stage(stage, run, config, work, echo=lambda line: echo(f"  {line}"))
        state = "finished"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        run.update_status(state=state)
        end_manifest(run, state)


def _fixed(folder: Path, methods: Sequence[str]) -> dict[str, PolicyResult]:
    """Return title to result of what stands beside the learners: schedules, the same in every run, then ceilings."""
    beside: dict[str, PolicyResult] = {}
    for name in methods:
        for result in read_results(RunDirectory.open(folder / name)):
            if result.kind not in ("checkpoint", "last"):
                beside.setdefault(result.display_name, result)
    return dict(sorted(beside.items(), key=lambda item: item[1].kind != "baseline"))


def _best(run: RunDirectory) -> PolicyResult:
    """Return the result of the checkpoint with the best validation PA."""
    chosen = [result for result in read_results(run) if result.kind == "checkpoint"]
    return chosen[0]  # the backtest writes them best first
