"""A finished run for the tests of what is made of one."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A small finished run of five checkpoints, two of them chosen, and seven test days; not to be changed."""
    sizes = {"train.iterations": 5, "market.days": 35, "algorithm.learning_rate": 0.05}  # seven test days
    values = {**sizes, "baselines": [{"name": "twap"}]}
    config = tiny(**values)
    run = RunDirectory.create(tmp_path_factory.mktemp("evidence") / "run", config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


@pytest.fixture
def judged_copy(judged: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of it."""
    shutil.copytree(judged.path, tmp_path / "run", symlinks=True)
    return RunDirectory.open(tmp_path / "run")
