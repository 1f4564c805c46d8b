"""A finished run judged on other dates, orders and bars, without training."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}


def do(run: RunDirectory, config: RunConfig) -> list[str]:
    """Do the stages of a run; return what became of each."""
    with recorded(run, list(WORK)):
        return [run_stage(stage, run, config, work, echo=lambda line: None) for stage, work in WORK.items()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", tiny())
    do(run, tiny())
    return run


@pytest.fixture
def copied(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained.path, tmp_path / "run", symlinks=True)
    return RunDirectory.open(tmp_path / "run")


@pytest.mark.parametrize("split", [{"split.test": 0.1}, {"split.test": ["2023-01-13", "2023-01-16"]}])
def test_k06_other_test_dates_do_not_train_again(trained: RunDirectory, tmp_path: Path, split: dict[str, Any]) -> None:
    """Shares of the dates and dates alike; the training reads the rows of its orders, not how they were asked for."""
    first = dict(split)
    if isinstance(split["split.test"], list):
        first |= {"split.train": ["2023-01-02", "2023-01-09"], "split.valid": ["2023-01-10", "2023-01-12"]}
    before = {**first, "split.test": ["2023-01-17", "2023-01-20"]} if len(first) > 1 else {}
    run = RunDirectory.create(tmp_path / "run", tiny(**before))
    assert do(run, tiny(**before)) == ["done"] * 3
    weights = {path.name: path.stat().st_mtime_ns for path in run.checkpoints.glob("*.pt")}
    assert do(run, tiny(**first)) == ["done", "unchanged", "done"]
    assert {path.name: path.stat().st_mtime_ns for path in run.checkpoints.glob("*.pt")} == weights


def test_k06_orders_of_ones_own_that_were_moved_do_not_train_again(trained: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shutil.copy(trained.orders / "all.parquet", tmp_path / "a" / "mine.parquet")
    here = tiny(**{"orders.source": str(tmp_path / "a" / "mine.parquet")})
    run = RunDirectory.create(tmp_path / "run", here)
    do(run, here)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = tiny(**{"orders.source": str(tmp_path / "b" / "mine.parquet"), "split.test": 0.1})
    assert do(run, moved) == ["done", "unchanged", "done"]
