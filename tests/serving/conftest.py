"""One small finished run that the tests of serving share."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.serving.export import export_run
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a finished run of three iterations on three synthetic instruments over 15 days; not to be changed."""
    config = tiny()
    run = RunDirectory.create(tmp_path_factory.mktemp("serving") / "run", config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


@pytest.fixture(scope="session")
def bundle_path(finished_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of `finished_run`; not to be changed."""
    return export_run(finished_run.path, tmp_path_factory.mktemp("bundles") / "bundle")
