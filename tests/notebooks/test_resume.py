"""A training that is killed, and taken up again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.trainer import list_checkpoints
from tests.notebooks.small import command, finish, small_config
from tests.notebooks.test_same_numbers import assert_same


def rows(run: RunDirectory) -> int:
    path = run.metrics / "train.csv"
    return len(path.read_text().splitlines()) - 1 if path.is_file() else 0


def wait_for(condition: object, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_e19_killed_in_training_and_taken_up_again(tmp_path: Path) -> None:
    """The orphaned kernel ends by itself, and the run goes on to the numbers of one that was not killed."""
    run = RunDirectory(tmp_path / "run")
    process = command(run.path, train__iterations=500)
    wait_for(lambda: rows(run) >= 2)
    kernels = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(k.is_running() and k.status() != psutil.STATUS_ZOMBIE for k in kernels), 20)
    done = max(list_checkpoints(run.checkpoints))
    assert 2 <= done < 500
    assert run.state == "interrupted"
    assert f"training stopped after iteration {done} and goes on from there" in run.describe()

    out, _ = finish(command(run.path, "--resume", train__iterations=done + 2))
    assert "orders: unchanged, kept" in out
    assert f"continued after iteration {done}" in out
    whole = RunDirectory.create(tmp_path / "whole", small_config(train__iterations=done + 2))
    for step in (make_orders, train_policy, backtest_policies):
        step(whole, whole.config)
    assert_same(whole, run)

    out, _ = finish(command(run.path, "--resume", train__iterations=done + 2))
    assert out.count("unchanged, kept") == 4


def test_fewer_iterations_than_trained_are_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_config(train__iterations=2))
    make_orders(run, run.config)
    train_policy(run, run.config, progress="none")
    with pytest.raises(ConfigError, match=r"train\.iterations is 1, but 2 iterations are trained already; set it to 2"):
        train_policy(run, small_config(train__iterations=1), progress="none")
    train_policy(run, small_config(train__iterations=3), progress="none")
    assert rows(run) == 3
