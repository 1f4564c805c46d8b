"""The launcher ``ray``: jobs on the machines of a Ray cluster, which share the folders that the jobs write to."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlwb.env.ray_actors import Connection
from rlwb.errors import ConfigError
from rlwb.study.launch import STOP_SECONDS, Handle, Job, Launcher, Processes

#: Seconds within which a job that runs answers that it will stop.
_ANSWER_SECONDS = 5.0
#: Variables of this process that jobs have on other machines, too.
_PASSED_ON = ("PYTHONPATH", "MPLBACKEND", "XDG_STATE_HOME")


class RayJobs(Launcher):
    """Jobs on a Ray cluster, each where as many CPUs are free as it has threads.

    The cluster is that of `rlwb.env.ray_actors.Connection`: the one in RAY_ADDRESS, or this machine. All its machines
    must have rlwb installed, and see the working directory and the jobs' folders under the same paths, by a network
    file system for example; a machine that does not ends the sweep with a sentence. A job whose machine or process is
    lost counts as killed, so that it is started again, elsewhere if need be.

    Parameters
    ----------
    workers
        Jobs at a time; none is one for each CPU of the cluster as it is now. More than fit wait until there is room,
        which lets a cluster that grows by itself grow.
    gpus
        GPUs that each job has for itself; a part of one lets several jobs share it.
    memory
        Memory that each job sets aside, in GB (1e9 bytes); none sets nothing aside.

    Raises
    ------
    ConfigError
        When the package ray is missing, or no cluster is at the address.
    """

    interval = 0.5
    #: The module that has the command line.
    program = Processes.program

    def __init__(self, workers: int | None = None, gpus: float = 0.0, memory: float | None = None) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers is {workers}; it must be 1 or more.")
        self._connection = Connection(workers or 1)
        self._ray = self._connection.ray
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._options: dict[str, Any] = {"num_gpus": gpus} if gpus else {}
        if memory is not None:
            self._options["memory"] = int(memory * 1e9)
        self._running: set[_RayJob] = set()
        self._tokens: dict[Path, Path] = {}
        self._is_open = True

    def start(self, job: Job) -> Handle:
        if not self._is_open:
            raise ConfigError(f"the launcher is closed; make another one for {job.name}.")
        log = job.log.absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.parent not in self._tokens:
            token = log.parent / f".shared-{secrets.token_hex(8)}"
            token.touch()
            self._tokens[log.parent] = token
        # More CPUs than any machine has would be waited for forever; a cluster that grows may have none yet.
        largest = max((int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]), default=0)
        cpus = min(job.threads, largest or job.threads)
        remote = self._ray.remote(num_cpus=cpus, max_concurrency=2, **self._options)(_Runner).remote()
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        asked = Job(job.name, job.words, log, job.threads)
        ended = remote.run.remote(asked, self.program, str(Path.cwd()), str(self._tokens[log.parent]), passed)
        handle = _RayJob(self._ray, remote, ended, asked, self._running)
        self._running.add(handle)
        return handle

    def close(self) -> None:
        """Stop what still runs; the cluster ends if it was started here and nothing else uses it."""
        if not self._is_open:
            return
        self._is_open = False
        for one in list(self._running):
            one.ask_to_end()
        for one in list(self._running):
            one.stop()
        for token in self._tokens.values():
            token.unlink(missing_ok=True)
        self._connection.close()


class _RayJob:
    """A job on a cluster; `running` is the set of its launcher's that run."""

    def __init__(self, ray: Any, remote: Any, ended: Any, job: Job, running: set[_RayJob]) -> None:
        self._ray, self._remote, self._ended, self._job, self._running = ray, remote, ended, job, running
        self._stopping: Any = None
        self._asked = 0.0
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; that of a job whose process or machine is lost is that of a killed one.

        Raises
        ------
        ConfigError
            When the job's machine does not see the folders of this one.
        """
        if self._code is None and self._ray.wait([self._ended], timeout=0)[0]:
            self._code = self._result()
            self._release()
        return self._code

    def _result(self) -> int:
        try:
            code, refusal = self._ray.get(self._ended)
        except self._ray.exceptions.RayError as error:
            with suppress(OSError), self._job.log.open("a", encoding="utf-8") as log:
                log.write(f"\nthe process or the machine of this job was lost: {str(error).partition(chr(10))[0]}\n")
            return -signal.SIGKILL
        if refusal is not None:
            self._release()
            raise ConfigError(refusal)
        return int(code)

    def ask_to_end(self) -> None:
        if self.poll() is None and self._stopping is None:
            self._stopping, self._asked = self._remote.stop.remote(), time.monotonic()

    def stop(self) -> None:
        self.ask_to_end()
        if self._code is None:
            # One that waits for room on the cluster has no process that could answer.
            patience = max(0.0, self._asked + _ANSWER_SECONDS - time.monotonic())
            if self._ray.wait([self._stopping], timeout=patience)[0]:
                self._ray.wait([self._ended], timeout=2 * STOP_SECONDS)
            self._code = -signal.SIGTERM
            self._release()

    def _release(self) -> None:
        self._running.discard(self)
        with suppress(Exception):
            self._ray.kill(self._remote)


class _Runner:
    """Runs one job in a process of Ray's, as a process below it that does not outlive it."""

    def __init__(self) -> None:
        self._is_stopped = False

    def run(self, job: Job, program: str, folder: str, token: str, passed: Mapping[str, str]) -> tuple[int, str | None]:
        """Return the exit code of the job when it has ended, and None or why it cannot run on this machine."""
        if not Path(token).exists() or not Path(folder).is_dir():
            missing = folder if Path(token).exists() else job.log.parent
            return 0, (
                f"the machine {socket.gethostname()} of the Ray cluster does not see {missing} of the machine that "
                "starts the jobs; put runs on storage that all machines share, under the same path."
            )
        os.chdir(folder)
        os.environ.update(passed)
        with Processes(1) as here:
            here.program = program
            handle = here.start(job)
            while (code := handle.poll()) is None:
                if self._is_stopped:
                    handle.stop()
                time.sleep(here.interval)
            return code, None

    def stop(self) -> None:
        """Let the job be stopped."""
        self._is_stopped = True
