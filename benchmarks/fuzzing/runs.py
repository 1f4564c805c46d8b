"""A small finished run, and all that reads one: what a damaged copy gives must be refused, noticed, or the same."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fuzzing.damage import Tree
from rlwb.experiment import report
from rlwb.experiment.backtest import backtest_policies, find_policy, read_results
from rlwb.experiment.compare import best_of
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STAGES, is_unchanged, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.experiment.workbench import Workbench

_TINY = {
    "market": {"name": "synthetic", "instruments": 2, "days": 12},
    "network.hidden": 4,
    "train": {"iterations": 2, "episodes_per_iteration": 20},
    "algorithm": {"name": "ppo", "batch_size": 20, "repeat": 1},
    "backtest": {"top": 2, "bootstrap_samples": 100},
    "execution.rules.volume_limit": 0.1,
}
#: Files that policies are made of and act on.
_ACTING = ("checkpoints/", "orders/test", "backtest/baselines.json", "backtest/orders/")
#: The stages' work, called without their notebooks.
_WORK = dict(zip(STAGES, (make_orders, train_policy, backtest_policies, report.draw_stability), strict=True))


def make_run(folder: Path) -> RunDirectory:
    """Do a small run."""
    config = RunConfig.load(None, Layer("fuzz", _TINY))
    run = RunDirectory.create(folder, config)
    with recorded(run, list(_WORK)):
        for stage, work in _WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


@cache
def finished() -> list[Tree]:
    """Return the files of a small finished run; its figures are small ones, for nothing reads what is in them."""
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(Path(scratch) / "input")
        paths = [path for path in sorted(run.path.rglob("*")) if path.is_file() and not path.is_symlink()]
        return [{path.relative_to(run.path).as_posix(): path.read_bytes() for path in paths if path.name != ".lock"}]


@cache
def _bench(text: str) -> Workbench:
    return Workbench(RunConfig.load(None, Layer("fuzz", _TINY)))


class OnceRead(RunDirectory):
    """A run whose configuration is read once, for the fuzzer's speed."""

    @cached_property
    def config(self) -> RunConfig:  # type: ignore[override]
        return self.load_config()


def look(folder: Path, changed: Collection[str] = ("checkpoints/",)) -> dict[str, str] | None:
    """Return all that is read of a run as text, or None where going on with it would make something of it again.

    Policies act again where one of the `changed` files may matter to them. What cannot be read is an `RlwbError`.
    """
    run = OnceRead.open(folder)
    config = run.config
    run.describe()
    kept = [is_unchanged(stage, run, config) for stage in STAGES]
    page = report.write_report(run).read_text(encoding="utf-8")
    results = read_results(run)
    bench = _bench(config.as_yaml())
    chosen, excluded = report.selection_tables(run)
    best = best_of(run, results).policy
    if config == bench.config and any(name.startswith(_ACTING) for name in changed):
        for name in ("last", "twap"):
            find_policy(run, bench, name)
        report.audit_order(run, bench, best, report.typical_order(run, best))
    tables = {
        "summary": report.summary_table(run),
        "gap": report.rules_gap(run),
        "iterations": report.iteration_table(run),
        "chosen": chosen,
        "excluded": excluded,
        **{f"orders of {name}": table for name, table in report.order_parts(run).items()},
        **{f"results of {one.policy}": one.orders for one in results},
    }
    found = {name: _text(table) for name, table in tables.items()}
    found["page"] = re.sub(r"<details><summary>Versions.*?</details>", "", page, flags=re.DOTALL)
    found["steps"] = str([(one.policy, one.iteration, _text(one.inventory)) for one in results])
    return found if all(kept) else None


def _text(value: Any) -> str:
    return value.to_csv() if isinstance(value, pd.DataFrame) else repr(None if value is None else value.tolist())
