"""Environments in worker processes: what gymnasium's `AsyncVectorEnv` leaves open.

That class waits for its workers one after the other and never looks whether they live, copies `env_fn` with all its
arrays into each of them, and leaves a busy worker behind when the main process is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import connection
from types import ModuleType
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from rlwb.env.shared import SharedFactory
from rlwb.errors import WorkerError

#: Seconds that workers have to close their environments before they are killed.
CLOSE_SECONDS = 5.0


class DeadWorkerError(WorkerError):
    """A worker process has ended without an answer.

    Attributes
    ----------
    number
        Which one.
    """

    def __init__(self, number: int, how: str) -> None:
        super().__init__(f"Worker {number} {how}")
        self.number = number


class WorkerVectorEnv(AsyncVectorEnv[Any, Any]):
    """One process an environment, each a fresh interpreter (never a fork: threads of the main process do no harm).

    Parameters
    ----------
    make_slot
        Makes an environment in a worker.
    num_envs
        Number of workers.
    shared_memory
        Whether observations come through shared memory instead of a pipe.
    """

    def __init__(self, make_slot: SharedFactory, num_envs: int, *, shared_memory: bool) -> None:
        self._owner = os.getpid()
        self.processes: list[Any] = []
        try:
            with _without_main_module():
                super().__init__(
                    [make_slot] * num_envs,
                    shared_memory=shared_memory,
                    copy=False,
                    context="spawn",
                    autoreset_mode=AutoresetMode.DISABLED,
                )
        except (EOFError, OSError):
            if not self.processes:  # raised by env_fn in this process
                raise
            death = self._death()
            self.close(terminate=True)
            raise death from None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        with self._noticing_death():
            self.reset_async(seed, options)
            self._wait()
            return self.reset_wait()

    def step(self, actions: Any) -> Any:
        with self._noticing_death():
            self.step_async(actions)
            self._wait()
            return self.step_wait()

    def set_attr(self, name: str, values: Any) -> None:
        with self._noticing_death():
            super().set_attr(name, values)

    def close_extras(self, timeout: float | None = CLOSE_SECONDS, terminate: bool = False) -> None:
        """End the workers; unless `terminate`, let each close its environment first and raise what that raises.

        Does nothing in a fork of the process that started them.
        """
        if os.getpid() != self._owner:
            return
        try:
            if not terminate:
                self._close_environments(timeout)
        finally:
            self.closed = True
            for process in self.processes:
                process.kill()
            for pipe, process in zip(self.parent_pipes, self.processes, strict=True):
                process.join()
                process.close()
                if pipe is not None:  # gymnasium has closed that of a worker whose observation it could not take
                    pipe.close()
            self.error_queue.close()

    def _close_environments(self, timeout: float | None) -> None:
        try:
            self.call_async("fault_of_closing")
            self._wait(timeout)
            faults = [fault for fault in self.call_wait() if fault]
        except (DeadWorkerError, EOFError, OSError):
            return  # one has died since its last answer, by no fault of an episode
        if faults:
            raise WorkerError(f"{faults[0]}, raised by close of an environment in a worker.")

    @contextlib.contextmanager
    def _noticing_death(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            raise self._death() from None

    def _wait(self, timeout: float | None = None) -> None:
        """Wait until every worker has answered; raise as soon as one is dead, however long the others take."""
        ends = {process.sentinel for process in self.processes}
        waiting: set[Any] = set(self.parent_pipes)
        while waiting:
            ready = connection.wait([*waiting, *ends], timeout)
            if not ready:
                raise WorkerError(f"Workers were ended: their environments took more than {timeout} s to close.")
            if ends.intersection(ready):
                raise self._death()
            waiting.difference_update(ready)

    def _death(self) -> DeadWorkerError:
        """Return what became of the first worker that is dead."""
        ends = {process.sentinel: number for number, process in enumerate(self.processes)}
        number = min((ends[end] for end in connection.wait(list(ends), CLOSE_SECONDS)), default=-1)
        if number < 0:
            return DeadWorkerError(number, "closed its connection")
        self.processes[number].join()
        code = self.processes[number].exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return DeadWorkerError(number, how + " (often by the system, for lack of memory)" * (-code == signal.SIGKILL))


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    # Workers started meanwhile do not run the user's script again, so it needs no ``__main__`` guard.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
