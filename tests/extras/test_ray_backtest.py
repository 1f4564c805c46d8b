"""A backtest that is divided among processes of Ray leaves the files of one that is not."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwb.env.ray_actors import Actors, Connection
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, STABILITY, TRAIN, file_hashes, settings_of
from rlwb.experiment.training import train_policy
from tests.experiment.test_work import tiny

#: With impact the policies trade the orders once more without it.
RULES = {"algorithm.name": "dqn", "execution.rules.temporary_impact_bps": 10.0, "execution.rules.volume_limit": 1.0}
OWN = {"train.actors": 2, "backtest.actors": 2}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = Connection(2)
    yield
    connection.close()


def test_a_backtest_is_the_same_on_ray_even_when_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    submit, one_at_a_time = Actors.submit, threading.Lock()

    def deadly(pool: Actors, method: str, *args: Any) -> Any:
        # Policies submit from threads of their own, of which a second would ask the dead process for its id.
        with one_at_a_time:
            call = submit(pool, method, *args)
            if method == "play" and not killed:
                killed.append(pool.processes()[0])
                os.kill(killed[0], signal.SIGKILL)
            return call

    here = RunDirectory.create(tmp_path / "here", tiny(**RULES))
    make_orders(here, here.config)
    train_policy(here, here.config, progress="none")
    shutil.copytree(here.path, tmp_path / "ray", symlinks=True)
    there = RunDirectory.open(tmp_path / "ray")
    monkeypatch.setattr(Actors, "submit", deadly)
    backtest_policies(here, tiny(**RULES))
    assert not killed
    backtest_policies(there, tiny(**RULES, **OWN))
    assert killed
    assert file_hashes(here, ("backtest",)) == file_hashes(there, ("backtest",))


def test_where_work_is_done_is_no_reason_to_do_it_again() -> None:
    for stage in (TRAIN, BACKTEST, STABILITY):
        assert settings_of(stage, tiny(**RULES)) == settings_of(stage, tiny(**RULES, **OWN))
