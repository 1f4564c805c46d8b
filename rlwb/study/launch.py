"""Launchers: they start commands of rlwb as jobs, a few at a time; and `run_jobs`, which sees them through.

A job is a whole command, so a launcher knows nothing of runs. `Processes` starts jobs on this machine; a cluster's
launchers are parts of the kind ``launcher`` as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import psutil

from rlwb.errors import ConfigError
from rlwb.experiment.pipeline import thread_environment
from rlwb.parts import Part, make

#: Seconds that a job has to end by itself when it is stopped, before it is killed.
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Job:
    """A command of rlwb to run.

    Attributes
    ----------
    name
        Unique among the jobs of a sweep or search.
    words
        Arguments of the command line, for example ``("run", "--resume", "--run-dir", "runs/mine")``.
    log
        The file that all its output is appended to.
    threads
        Threads of numerical libraries that it may use.
    """

    name: str
    words: tuple[str, ...]
    log: Path
    threads: int = 1


class Handle(Protocol):
    """A job that was started."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs or waits, negative where a signal killed it."""

    def stop(self) -> None:
        """End it and all its children; return when they are gone."""


class Launcher(ABC):
    """Starts jobs; a context manager that stops those which still run at its end.

    Attributes
    ----------
    workers
        Jobs at a time.
    interval
        Seconds between two looks at the jobs.
    """

    workers: int
    interval: float = 0.1

    @abstractmethod
    def start(self, job: Job) -> Handle:
        """Start a job."""

    @abstractmethod
    def close(self) -> None:
        """Stop what still runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Processes(Launcher):
    """Jobs as processes of this machine; none outlives this process, however that ends.

    Parameters
    ----------
    workers : jobs
        Jobs at a time; none is one for each core that this process may use.
    """

    #: The module that has the command line.
    program = "rlwb.cli"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = cores() if workers is None else _at_least_one("workers", workers)
        # A job reads from this pipe, whose other end the system closes with this process, and ends when it closes.
        self._pipe, self._held = os.pipe()
        self._running: set[_Process] = set()

    def start(self, job: Job) -> Handle:
        """Start a job in a group of its own, so that an interrupt at the keyboard reaches this process alone."""
        if self._held < 0:
            raise ConfigError(f"the launcher is closed; make another one for {job.name}.")
        job.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **thread_environment(job.threads), "TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"}
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rlwb.study.job", str(self._pipe), self.program, *job.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[self._pipe],
                start_new_session=True,
            )
        handle = _Process(process, self._running)
        self._running.add(handle)
        return handle

    def close(self) -> None:
        """Stop what still runs; no further job can be started."""
        stop_all(list(self._running))
        if self._held >= 0:
            os.close(self._held)
            os.close(self._pipe)
            self._held = -1


class _Process:
    """A job as a process; `running` is the set of its launcher's that run."""

    def __init__(self, process: subprocess.Popen[bytes], running: set[_Process]) -> None:
        self._process = process
        self._running = running
        self._was_asked = False

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None and self in self._running:
            self._running.discard(self)
            with suppress(ProcessLookupError, PermissionError):  # what a killed job has left behind in its group
                os.killpg(self._process.pid, signal.SIGKILL)
        return code

    def ask_to_end(self) -> None:
        """Send the signal at which a command of rlwb notes that it was stopped, and ends."""
        if self.poll() is None and not self._was_asked:  # twice would interrupt how it ends
            self._was_asked = True
            self._process.terminate()

    def stop(self) -> None:
        if self.poll() is not None:
            return
        family = self._family()
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        for one in {*family, *self._family()}:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        psutil.wait_procs(family, timeout=STOP_SECONDS)
        self.poll()

    def _family(self) -> list[psutil.Process]:
        """Return the process and all that it has started, kernels in groups of their own among them."""
        try:
            leader = psutil.Process(self._process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def stop_all(handles: Sequence[Handle]) -> None:
    """Stop several jobs; those that can be asked to end do so side by side."""
    for one in handles:
        getattr(one, "ask_to_end", bool)()
    for one in handles:
        one.stop()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_launcher(part: Part | str, *, workers: int | None = None, threads: int = 1) -> Launcher:
    """Return a launcher by name, with its settings.

    Parameters
    ----------
    part
        ``processes``, ``submitit``, ``ray``, or one of your own, with its settings.
    workers
        Jobs at a time; None leaves that to the launcher, and of ``processes`` makes as many as there are cores for
        jobs of so many `threads`.

    Raises
    ------
    ConfigError
        For an unknown name or setting, or a missing package.
    """
    part = Part.model_validate(part)
    if workers is None and part.name == "processes" and part.settings.get("workers") is None:
        workers = max(1, cores() // threads)
    settings = part.settings if workers is None else {**part.settings, "workers": workers}
    launcher: Launcher = make("launcher", Part(name=part.name, **settings))
    return launcher


@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Attributes
    ----------
    exits
        The exit code of each attempt, in order; negative where a signal killed it.
    seconds
        How long all attempts took together.
    """

    job: Job
    exits: tuple[int, ...]
    seconds: float

    @property
    def is_done(self) -> bool:
        """Whether the last attempt ended well."""
        return self.exits[-1] == 0

    def describe(self) -> str:
        """Say in a few words how it ended, for example ``killed by SIGKILL, then exit code 1``."""
        return ", then ".join(map(told_exit, self.exits))


def told_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return "done" if code == 0 else f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


@dataclass(frozen=True)
class Progress:
    """The state of jobs at a moment: those that run, in their order, and those that have ended."""

    jobs: int
    running: tuple[Job, ...]
    ended: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Those that have failed in their last attempt."""
        return tuple(one for one in self.ended if not one.is_done)


@dataclass
class _Started:
    job: Job
    handle: Handle
    began: float
    exits: tuple[int, ...] = field(default=())


def run_jobs(
    launcher: Launcher,
    jobs: Sequence[Job],
    *,
    attempts: int = 2,
    progress: Callable[[Progress], Any] | None = None,
) -> Iterator[Outcome]:
    """Run jobs, as many at a time as the launcher takes, and yield how each ended, in the order of `jobs`.

    A job that fails is started again, up to `attempts` times in all, before others are begun. Whoever drops the
    iterator, or is interrupted, stops the jobs that run.

    Parameters
    ----------
    progress
        Called at every look at the jobs, several times a second.

    Raises
    ------
    ConfigError
        For two jobs of the same name, or fewer than one attempt.
    """
    _at_least_one("attempts", attempts)
    names = [job.name for job in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two jobs are called {twice[0]}; give each a name of its own.")
    waiting, running, ended = list(reversed(jobs)), list[_Started](), dict[str, Outcome]()
    told = 0
    try:
        while True:
            while waiting and len(running) < launcher.workers:
                job = waiting.pop()
                running.append(_Started(job, launcher.start(job), time.monotonic()))
            if progress is not None:
                progress(Progress(len(jobs), tuple(one.job for one in running), tuple(ended.values())))
            while told < len(jobs) and names[told] in ended:
                yield ended[names[told]]
                told += 1
            if not running and not waiting:
                return
            time.sleep(launcher.interval)
            for one in list(running):
                code = one.handle.poll()
                if code is None:
                    continue
                one.exits += (code,)
                if code != 0 and len(one.exits) < attempts:
                    one.handle = launcher.start(one.job)
                    continue
                running.remove(one)
                ended[one.job.name] = Outcome(one.job, one.exits, time.monotonic() - one.began)
    finally:
        stop_all([one.handle for one in running])


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} is {value}; it must be 1 or more.")
    return value
