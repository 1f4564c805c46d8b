"""Slots in processes of their own.

Each worker is a fresh interpreter (never a fork, so threads of the main process do no harm, and never a re-run of the
user's script, so no ``__main__`` guard is needed). It talks to the main process over one socket. A worker whose main
process is gone ends itself; a worker that is gone closes the socket, which the main process notices at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from rlwb.env.batch import empty_batch, write_row
from rlwb.env.runner import EnvFn, Outcome, describe
from rlwb.env.shared import anonymous_file, dump_shared, shared_batch
from rlwb.env.vector import Slots
from rlwb.errors import ConfigError, WorkerError

#: Seconds that an idle worker has to close its environment before it is killed.
CLOSE_SECONDS = 5.0


class DeadWorkerError(WorkerError):
    """A worker process has ended without an answer."""


class Worker:
    """One worker process, seen from the main process."""

    def __init__(self, number: int, files: tuple[int, int]) -> None:
        self.number = number
        self.task = "its start"
        self.connection: Connection
        self.connection, child = multiprocessing.Pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from rlwb.env.worker_process import main; main({child.fileno()}, {files[0]}, {files[1]})"
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=(child.fileno(), *files)
            )
        finally:
            child.close()

    def send(self, message: bytes, task: str) -> None:
        """Give the worker a task; `task` names it in error messages."""
        self.task = task
        try:
            self.connection.send_bytes(message)
        except OSError:
            raise DeadWorkerError(self._obituary()) from None

    def receive(self) -> Any:
        """Wait for the answer to the last task."""
        try:
            kind, value = cloudpickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise DeadWorkerError(self._obituary()) from None
        if kind == "error":
            name, text, traceback = value
            raise WorkerError(f"{name} in {self.task}, in worker {self.number}: {text}\n\n{traceback.rstrip()}")
        self.task = ""
        return value

    def _obituary(self) -> str:
        try:
            code = self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"Worker {self.number} closed its connection in {self.task}; see its output above."
        how = f"ended with exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = f"was killed by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += " (often by the system, for lack of memory)"
        return f"Worker {self.number} {how} in {self.task}; see its output above."


def close_environments(workers: Sequence[Worker]) -> None:
    """Let idle workers close their environments, and raise what that raised."""
    closing = {worker.connection: worker for worker in workers if not worker.task}
    for worker in closing.values():
        # One that has died since its last answer has nothing left to close.
        with contextlib.suppress(DeadWorkerError):
            worker.send(cloudpickle.dumps(("close", None)), "close")
    while closing:
        ready = wait(list(closing), CLOSE_SECONDS)
        if not ready:
            names = [worker.number for worker in closing.values()]
            raise WorkerError(
                f"Workers {names} were ended: their environments took more than {CLOSE_SECONDS} s to close."
            )
        for connection in ready:
            with contextlib.suppress(DeadWorkerError):
                closing.pop(connection).receive()  # type: ignore[call-overload]


def end_workers(workers: list[Worker], files: list[int], owner: int) -> None:
    """End all workers, wait until they are gone, and close the shared files.

    Does nothing in a fork of the process `owner` that started them: there they are not its own.
    """
    if os.getpid() != owner:
        return
    while workers:
        worker = workers.pop()
        worker.process.kill()
        worker.process.wait()
        worker.connection.close()
    while files:
        os.close(files.pop())


class WorkerSlots(Slots):
    """Environments in worker processes, started when they are first needed.

    Parameters
    ----------
    env_fn, concurrency, loglevel
        As in `vectorize_env`.
    shared
        Whether observations come through shared memory instead of the socket.
    """

    def __init__(self, env_fn: EnvFn, concurrency: int, loglevel: int, shared: bool) -> None:
        self._concurrency = concurrency
        self._shared = shared
        self._workers: list[Worker] = []
        self._owner = os.getpid()
        self._files = [anonymous_file(), anonymous_file()]  # arrays of env_fn; observations
        # Also when this object is forgotten without a close, and when the interpreter ends.
        self._finalizer = weakref.finalize(self, end_workers, self._workers, self._files, self._owner)
        try:
            function = dump_shared(env_fn, self._files[0])
        except Exception as error:
            self._finalizer()
            raise ConfigError(
                f"env_fn cannot be sent to worker processes ({type(error).__name__}: {error}); leave out of it what "
                "cannot be pickled, or use finite_env_type='dummy'."
            ) from error
        self._setup = cloudpickle.dumps((*function, loglevel))

    def open(self, n: int) -> None:
        new = range(len(self._workers), n)
        for number in new:
            self._workers.append(Worker(number, (self._files[0], self._files[1])))
            self._workers[number].send(self._setup, "env_fn")
        spaces = self._gather(new)
        if new.start == 0 and new:
            space = cloudpickle.loads(spaces[0])
            if self._shared:
                self.batch = shared_batch(space, self._concurrency, self._files[1])
            else:
                self.batch = empty_batch(space, self._concurrency)
        if self._shared:
            for number in new:
                self._workers[number].send(cloudpickle.dumps(("share", (self._concurrency, number))), "its start")
            self._gather(new)

    def reset(self, orders: Sequence[tuple[int, int, Any, int]]) -> list[Outcome]:
        return self._run("reset", orders)

    def step(self, orders: Sequence[tuple[int, int, Any, Any]]) -> list[Outcome]:
        return self._run("step", orders)

    def close(self, at_once: bool) -> None:
        try:
            if not at_once and self._finalizer.alive and os.getpid() == self._owner:
                close_environments(self._workers)
        finally:
            self._finalizer()

    def _run(self, verb: str, orders: Sequence[tuple[int, int, Any, Any]]) -> list[Outcome]:
        for slot, episode, state, argument in orders:
            task = f"{verb} of episode {episode} ({describe(state)})"
            value = (state, argument) if verb == "reset" else argument
            self._workers[slot].send(cloudpickle.dumps((verb, value)), task)
        outcomes: list[Outcome] = self._gather([order[0] for order in orders])
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome.obs is not None:
                write_row(self.batch, order[0], outcome.obs)
        return outcomes

    def _gather(self, slots: Sequence[int]) -> list[Any]:
        """Return the answers of some workers; whichever fails first is reported first, however slow the others are."""
        waiting = {self._workers[slot].connection: slot for slot in slots}
        answers = {}
        while waiting:
            for connection in wait(list(waiting)):
                slot = waiting.pop(connection)  # type: ignore[call-overload]
                answers[slot] = self._workers[slot].receive()
        return [answers[slot] for slot in slots]
