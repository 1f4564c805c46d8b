from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import Pipe, resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

from rlwb.env.workers import SharedPickle
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


class Here:
    """A worker of this process; `alive` are those that nobody has ended."""

    alive: ClassVar[set[Here]] = set()

    def __init__(self, make: SharedPickle, *args: Any) -> None:
        self.pipe, self._end = Pipe()
        self._make, self._served = lambda: make.load()(*args), None
        self.alive.add(self)

    def send(self, name: str, *args: Any) -> None:
        answer = None if self._served is None else getattr(self._served, name)(*args)
        self._served = self._served or self._make()
        self._end.send((answer, None))

    def kill(self) -> None:
        self.alive.discard(self)


class Interrupts:
    """Interrupts this process, and once more so many lines and calls later; `second` tells where that was."""

    def __init__(self, later: int) -> None:
        self.later, self.second = later, ""

    def within(self, work: Callable[[Any], None], what: Any) -> None:
        before = sys.gettrace()
        try:
            work(what)
        finally:
            sys.settrace(before)

    def begin(self) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not self.within.__code__:
            frame.f_trace, frame = self._trace, frame.f_back
        sys.settrace(self._trace)
        raise KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, value: Any) -> Any:
        self.later -= 1
        if self.later == 0:
            self.second = f"{frame.f_code.co_name}, line {frame.f_lineno}"
            signal.raise_signal(signal.SIGINT)
        return self._trace


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the second in a weakref's callback
@pytest.mark.parametrize("where", ["in a step", "between"])
def test_a_second_interrupt_at_any_line_leaves_no_worker(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    class Stops(Callback):
        def on_train_end(self, trainer, vessel) -> None:
            if where == "between":
                interrupts.begin()
            patches.setattr(Here, "send", lambda self, name, *given: interrupts.begin())

    monkeypatch.setattr("rlwb.env.slots.Worker", Here)
    vessel = corridor_vessel(episode_per_iter=2, repeat=1)
    for later in itertools.count(1):
        interrupts = Interrupts(later)
        with monkeypatch.context() as patches:
            trainer = Trainer(max_iters=2, finite_env_type="subproc", callbacks=[Stops()])
            with pytest.raises(KeyboardInterrupt):
                interrupts.within(trainer.fit, vessel)
        assert not Here.alive, f"interrupted in {interrupts.second}"
        if not interrupts.second:
            break
    assert later > 40


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
