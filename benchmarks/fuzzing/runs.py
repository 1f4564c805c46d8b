"""A small finished run, and all that reads one: what a damaged copy gives must be refused, noticed, or the same."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

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
from rlwb.experiment.yamlfile import dump_yaml

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
def _bench() -> Workbench:
    return Workbench(RunConfig.load(None, Layer("fuzz", _TINY)))


class OnceRead(RunDirectory):
    """A run whose configuration is resolved once for each content of its file, for the fuzzer's speed."""

    _resolved: ClassVar[Any] = None

    @cached_property
    def config(self) -> RunConfig:  # type: ignore[override]
        self._loaded = OnceRead._resolved
        config = self.load_config()
        OnceRead._resolved = self._loaded
        return config


_DUMPED: dict[str, str] = {}


def _dumped(value: Any) -> str:
    """Return a value as YAML, of equal ones made once, for the fuzzer's speed."""
    text = repr(value)
    if text not in _DUMPED:
        _DUMPED[text] = dump_yaml(value)
    return _DUMPED[text]


def look(folder: Path, changed: Collection[str] = ("",)) -> dict[str, str] | None:
    """Return what is read of a run as text, or None where going on with it would make something of it again.

    What reads none of the `changed` files is left out. What cannot be read is an `RlwbError`.
    """

    def concerns(*places: str) -> bool:
        return any(name.startswith(places) or not name for name in changed)

    run = OnceRead.open(folder)
    config = run.config
    run.describe()
    kept = [is_unchanged(stage, run, config) for stage in STAGES]
    found: dict[str, str] = {}
    with mock.patch.object(report, "dump_yaml", _dumped):
        page = report.write_report(run).read_text(encoding="utf-8")
    # What the manifest alone says: versions, and when the run began.
    told = r"<details><summary>Versions.*?</details>|(?<=, seed \d\.) [\d :-]*\.(?=</p>)"
    found["page"] = re.sub(told, "", page, flags=re.DOTALL)
    tables: dict[str, Any] = {}
    if concerns("backtest/", "metrics/"):
        results = read_results(run)
        best_of(run, results)
        tables["chosen"], tables["excluded"] = report.selection_tables(run)
        tables["summary"], tables["gap"] = report.summary_table(run), report.rules_gap(run)
        tables["iterations"] = report.iteration_table(run)
        tables |= {f"results of {one.policy}": one.orders for one in results}
        found["steps"] = str([(one.policy, one.iteration, _text(one.inventory)) for one in results])
    if concerns("orders/"):
        tables |= {f"orders of {name}": table for name, table in report.order_parts(run).items()}
    if concerns(*_ACTING) and config == _bench().config:
        for name in ("last", "twap"):
            find_policy(run, _bench(), name)
        best = best_of(run).policy
        report.audit_order(run, _bench(), best, report.typical_order(run, best))
    return found | {name: _text(table) for name, table in tables.items()} if all(kept) else None


def _text(value: Any) -> str:
    return value.to_csv() if isinstance(value, pd.DataFrame) else repr(None if value is None else value.tolist())
