"""The launcher ``submitit``: jobs of Slurm, in arrays, resumed after they were preempted or ran out of time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rlwb.errors import ConfigError
from rlwb.packages import require_packages
from rlwb.study.launch import STOP_SECONDS, Handle, Job, Launcher, Processes, cores

#: Jobs that are handed to Slurm at once unless `workers` says otherwise; what it lets run is its affair.
_AT_ONCE = 1000


class SubmititJobs(Launcher):
    """Jobs of Slurm, by the package submitit; or of this machine, by its local executor.

    Jobs that are started together become one job array for each number of threads. A job that is preempted, or runs out
    of its time, is stopped as by Ctrl-C, put back into the queue by Slurm, and started again by the same words; those
    of a sweep or a search go on where they stopped. The folder of the jobs' logs and the installation of rlwb must be
    on storage that the nodes share.

    Parameters
    ----------
    workers
        Jobs that are handed in at a time; none hands in up to 1,000 to Slurm, and one for each core to the local
        executor.
    cluster
        ``slurm``, or ``local`` for this machine.
    partition
        Partition of Slurm; none is its default.
    time
        Minutes that a job may take until it is stopped and queued again; three times at most.
    memory
        Memory of a job in GB; none is Slurm's default.
    cpus
        CPUs of a job; none are as many as it has threads.
    array
        Most jobs of an array that run at a time.
    options
        Further parameters of sbatch by name, such as ``{account: mine, qos: low}``.

    Raises
    ------
    ConfigError
        When the package submitit is missing, or Slurm is.
    """

    interval = 0.5
    #: The module that has the command line.
    program = Processes.program

    def __init__(
        self,
        workers: int | None = None,
        cluster: Literal["slurm", "local"] = "slurm",
        partition: str | None = None,
        time: int = 1440,
        memory: float | None = None,
        cpus: int | None = None,
        array: int = 256,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("workers", workers), ("time", time), ("cpus", cpus), ("array", array)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more.")
        require_packages("it", "slurm", "submitit")
        import submitit

        self._submitit = submitit
        if cluster == "slurm" and submitit.SlurmExecutor.affinity() < 0:
            raise ConfigError(
                "there is no srun on this machine, so Slurm cannot be asked; start from a login node of the cluster, "
                "or try the jobs here with cluster=local."
            )
        self.workers = workers or (_AT_ONCE if cluster == "slurm" else cores())
        self._cluster = cluster
        self._cpus = cpus
        self._parameters: dict[str, Any] = {"name": "rlwb", "timeout_min": time}
        if memory is not None:
            self._parameters["mem_gb"] = memory
        if cluster == "slurm":
            self._parameters |= {"slurm_array_parallelism": array, "slurm_additional_parameters": dict(options or {})}
            if partition is not None:
                self._parameters["slurm_partition"] = partition
        self._waiting: list[_SubmittedJob] = []
        self._running: set[_SubmittedJob] = set()
        self._is_open = True

    def start(self, job: Job) -> Handle:
        """Note a job; those that were noted are handed in together at the next look at one of them."""
        if not self._is_open:
            raise ConfigError(f"the launcher is closed; make another one for {job.name}.")
        handle = _SubmittedJob(self, Job(job.name, job.words, job.log.absolute(), job.threads))
        self._waiting.append(handle)
        self._running.add(handle)
        return handle

    def hand_in(self) -> None:
        """Hand in the jobs that were noted, those of the same folder and number of threads as an array.

        Raises
        ------
        ConfigError
            When Slurm refuses them, in its words.
        """
        from submitit.core import utils

        waiting, self._waiting = self._waiting, []

        def kind(one: _SubmittedJob) -> tuple[Path, int]:
            return one.job.log.parent, one.job.threads

        for (folder, threads), same in groupby(sorted(waiting, key=kind), kind):
            folder.mkdir(parents=True, exist_ok=True)
            executor = self._submitit.AutoExecutor(folder / "submitit", cluster=self._cluster)
            executor.update_parameters(cpus_per_task=self._cpus or threads, **self._parameters)
            handles: Sequence[_SubmittedJob] = list(same)
            try:
                with executor.batch():
                    given = [executor.submit(Command(one.job, self.program)) for one in handles]
            except (utils.FailedJobError, utils.FailedSubmissionError) as error:
                told = " ".join(str(error).split()).rstrip(".")
                raise ConfigError(f"Slurm does not take the jobs ({told}); correct the launcher's settings.") from error
            for one, submitted in zip(handles, given, strict=True):
                one.submitted = submitted

    def forget(self, handle: _SubmittedJob) -> None:
        """Take a job that has ended, or was never handed in, off the list."""
        self._running.discard(handle)
        if handle in self._waiting:
            self._waiting.remove(handle)

    def close(self) -> None:
        """Cancel what runs or waits in the queue."""
        self._is_open = False
        for one in list(self._running):
            one.ask_to_end()
        for one in list(self._running):
            one.stop()


class _SubmittedJob:
    """A job that is, or will be, Slurm's."""

    def __init__(self, launcher: SubmititJobs, job: Job) -> None:
        self._launcher, self.job = launcher, job
        self.submitted: Any = None
        self._was_asked = False
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; that of a job that Slurm ended, for lack of memory for example, is that of a kill."""
        if self._code is None:
            if self.submitted is None:
                self._launcher.hand_in()
            if self.submitted.done():
                self._code = self._result()
                self._launcher.forget(self)
        return self._code

    def _result(self) -> int:
        submitted = self.submitted
        if self._was_asked:
            return -signal.SIGTERM
        try:
            return int(submitted.result())
        except Exception as error:
            told = str(error).strip().partition("\n")[0]
            with suppress(OSError), self.job.log.open("a", encoding="utf-8") as log:
                log.write(f"\njob {submitted.job_id} of {self._launcher._cluster} is {submitted.state}: {told}\n")
            return -signal.SIGKILL

    def ask_to_end(self) -> None:
        if self._code is not None or self._was_asked:
            return
        self._was_asked = True
        if self.submitted is None:
            self._code = -signal.SIGTERM
            self._launcher.forget(self)
        else:
            with suppress(Exception):  # it may have ended this moment
                self.submitted.cancel(check=False)

    def stop(self) -> None:
        self.ask_to_end()
        deadline = time.monotonic() + 2 * STOP_SECONDS
        while self._code is None and time.monotonic() < deadline:
            if self.submitted.done(force_check=True):
                self._code = -signal.SIGTERM
            else:
                time.sleep(self._launcher.interval)
        self._launcher.forget(self)


class Command:
    """A job as submitit sends it to a node: called, it runs the job and returns its exit code."""

    def __init__(self, job: Job, program: str) -> None:
        self.job, self.program = job, program
        self.folder = str(Path.cwd())
        self._here: Processes | None = None

    def __call__(self) -> int:
        os.chdir(self.folder)
        with Processes(1) as here:
            self._here, here.program = here, self.program
            handle = here.start(self.job)
            while (code := handle.poll()) is None:
                time.sleep(here.interval)
            return code

    def checkpoint(self) -> Any:
        """Stop the job, and return what goes back into the queue; submitit asks at a preemption, or when time is up."""
        from submitit.helpers import DelayedSubmission

        if self._here is not None:
            self._here.close()
            self._here = None
        return DelayedSubmission(self)
