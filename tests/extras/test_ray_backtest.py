"""Runs whose training collects, and whose backtest is computed, in processes of Ray: the files are the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="the large extras are not installed; make test installs them")

from rlwb.env.ray_actors import Actors, Connection  # noqa: E402 - after the check for ray
from rlwb.experiment.backtest import backtest_policies  # noqa: E402
from rlwb.experiment.orders import make_orders  # noqa: E402
from rlwb.experiment.run import RunDirectory  # noqa: E402
from rlwb.experiment.stages import BACKTEST, TRAIN, file_hashes, settings_of  # noqa: E402
from rlwb.experiment.training import train_policy  # noqa: E402
from tests.experiment.test_work import tiny  # noqa: E402

#: With impact the policies trade the orders once more without it.
RULES = {"algorithm.name": "dqn", "execution.rules.temporary_impact_bps": 10.0, "execution.rules.volume_limit": 1.0}
OWN = {"train.actors": 2, "backtest.actors": 2}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = Connection(2)
    yield
    connection.close()


def test_a_run_is_the_same_on_ray_even_when_a_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    submit = Actors.submit

    def deadly(pool: Actors, method: str, *args: Any) -> Any:
        if method != "play" or killed:
            return submit(pool, method, *args)
        killed.append(pool.processes()[0])
        call = submit(pool, method, *args)
        os.kill(killed[0], signal.SIGKILL)
        return call

    monkeypatch.setattr(Actors, "submit", deadly)
    found = {}
    for name, changes in {"here": {}, "ray": OWN}.items():
        config = tiny(**RULES, **changes)
        run = RunDirectory.create(tmp_path / name, config)
        make_orders(run, config)
        train_policy(run, config, progress="none")
        backtest_policies(run, config)
        found[name] = file_hashes(run, ("orders", "metrics", "backtest"))
    assert killed
    times = {"metrics/train.csv"}  # which says how many seconds an iteration took
    assert {k: v for k, v in found["here"].items() if k not in times} == {
        k: v for k, v in found["ray"].items() if k not in times
    }
    for stage in (TRAIN, BACKTEST):
        assert settings_of(stage, tiny(**RULES)) == settings_of(stage, tiny(**RULES, **OWN))
