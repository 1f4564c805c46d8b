from __future__ import annotations

import os
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from rlwb.errors import WorkerError
from rlwb.trainer import Callback, Trainer
from tests.env.test_workers import children
from tests.trainer.corridor import Walker, corridor
from tests.trainer.corridor_vessel import corridor_vessel


def resident(pid: int | str) -> int:
    """Memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Watch(Callback):
    def __init__(self) -> None:
        self.workers: list[set[int]] = []
        self.memory: list[int] = []

    def on_iter_end(self, trainer, vessel) -> None:
        self.workers.append(children())
        self.memory.append(sum(resident(pid) for pid in ["self", *self.workers[-1]]))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts processes in /proc")
def test_e17_fifty_iterations_keep_the_same_workers_and_memory() -> None:
    resource_tracker.ensure_running()  # Python keeps it from the first workers on
    before, watch = children(), Watch()
    vessel = corridor_vessel(episode_per_iter=8, batch_size=10**6, repeat=1)
    trainer = Trainer(max_iters=50, val_every_n_iters=10, finite_env_type="subproc", concurrency=4, callbacks=[watch])
    trainer.fit(vessel)
    assert all(workers == watch.workers[0] for workers in watch.workers)
    assert len(watch.workers[0] - before) == 4
    assert watch.memory[49] < 1.03 * watch.memory[4]
    assert children() == before
    trainer.test(vessel)
    assert children() == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts processes in /proc")
def test_no_worker_outlives_a_fit_that_fails() -> None:
    class Breaks(Callback):
        def on_train_end(self, trainer, vessel) -> None:
            raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        Trainer(max_iters=2, finite_env_type="subproc", concurrency=2, callbacks=[Breaks()]).fit(corridor_vessel())
    assert children() == before


class Trips(Walker):
    """Falls over in the middle of an episode that starts at 2."""

    def step(self, action: int) -> None:
        if self.initial == 2:
            raise ZeroDivisionError("tripped")
        super().step(action)


def test_a_simulator_that_raises_ends_the_fit_with_its_own_error() -> None:
    vessel = corridor_vessel(simulator=corridor(Trips))
    trainer = Trainer(max_iters=1, finite_env_type="dummy", concurrency=2)
    with pytest.raises(WorkerError, match=r"ZeroDivisionError in step of episode .*tripped"):
        trainer.fit(vessel)
    trainer.fit(corridor_vessel())
    assert trainer.current_iter == 1


def test_validations_of_more_episodes_than_a_collect_start_more_workers_once() -> None:
    watch = Watch()
    vessel = corridor_vessel(episode_per_iter=1)
    Trainer(max_iters=3, val_every_n_iters=1, finite_env_type="subproc", concurrency=3, callbacks=[watch]).fit(vessel)
    assert len(watch.workers[0]) == len(watch.workers[2])
    assert watch.workers[1] == watch.workers[2]
