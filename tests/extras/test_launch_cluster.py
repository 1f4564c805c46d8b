"""Jobs on a Ray cluster of this machine, and by submitit's local executor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwb.env.ray_actors import Connection
from rlwb.errors import ConfigError
from rlwb.parts import Part
from rlwb.study.launch import Job, Launcher, make_launcher, run_jobs
from tests.study.test_launch import ROOT, lives, number_in, tell_pid, wait_for

COUNT = (
    "import pathlib; p = pathlib.Path({path!r}); "
    "n = len(p.read_text()) if p.exists() else 0; p.write_text('x' * (n + 1))"
)
SLEEP = "import time; time.sleep(600)"
UNLESS_BEFORE = f"n or exec({SLEEP!r})"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = Connection(2)
    yield
    connection.close()


@pytest.fixture(autouse=True)
def _tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def launcher_of(name: str, **settings: Any) -> Launcher:
    own = {"cluster": "local", "time": 5} if name == "submitit" else {}
    made = make_launcher(Part(name=name, workers=2, **own, **settings))
    made.program = "tests.study.job_program"  # type: ignore[attr-defined]
    return made


def job(name: str, folder: Path, *words: str) -> Job:
    return Job(name, words, folder / "logs" / f"{name}.log")


@pytest.mark.parametrize("name", ["ray", "submitit"])
def test_jobs_end_with_their_exit_codes_and_a_failed_one_is_started_again(name: str, tmp_path: Path) -> None:
    fails_once = COUNT.format(path=str(tmp_path / "tries")) + "; raise SystemExit(0 if n else 3)"
    asked = [
        job("good", tmp_path, "import os; print('threads', os.environ['OMP_NUM_THREADS'], os.getcwd())"),
        job("again", tmp_path, fails_once),
        job("bad", tmp_path, "import sys; sys.exit(5)"),
    ]
    with launcher_of(name) as launcher:
        done = list(run_jobs(launcher, asked))
    assert [(one.job.name, one.exits) for one in done] == [("good", (0,)), ("again", (3, 0)), ("bad", (5, 5))]
    assert (tmp_path / "logs" / "good.log").read_text() == f"threads 1 {Path.cwd()}\n"
    assert not list((tmp_path / "logs").glob(".shared*"))


@pytest.mark.parametrize("name", ["ray", "submitit"])
def test_closing_stops_what_runs_and_what_it_has_started(name: str, tmp_path: Path) -> None:
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_sleeper(tmp_path / 'child')!r}])"
    with launcher_of(name) as launcher:
        handle = launcher.start(
            job("long", tmp_path, tell_pid(tmp_path / "pid"), child, "import time; time.sleep(600)")
        )
        assert handle.poll() is None
        pids = [number_in(tmp_path / "pid"), number_in(tmp_path / "child")]
    wait_for(lambda: not any(map(lives, pids)))
    assert handle.poll() == -signal.SIGTERM


def _sleeper(path: Path) -> str:
    return f"{tell_pid(path)}; {SLEEP}"


def test_a_job_whose_ray_worker_is_killed_is_killed_and_started_again(tmp_path: Path) -> None:
    words = [
        tell_pid(tmp_path / "pid"),
        COUNT.format(path=str(tmp_path / "tries")),
        UNLESS_BEFORE,
    ]
    with launcher_of("ray") as launcher:
        running = run_jobs(launcher, [job("killed", tmp_path, *words)], progress=_Kill(tmp_path))
        (done,) = running
    assert done.exits == (-signal.SIGKILL, 0)
    assert "was lost" in done.job.log.read_text()


class _Kill:
    """Kills the process of Ray's above the job, once that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.victim = folder, 0

    def __call__(self, progress: object) -> None:
        if not self.victim and (self.folder / "tries").exists():
            pid = number_in(self.folder / "pid")
            self.victim = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            os.kill(self.victim, signal.SIGKILL)
            wait_for(lambda: not lives(pid))


def test_a_machine_that_does_not_share_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with launcher_of("ray") as launcher:
        monkeypatch.setattr(Path, "touch", lambda self, *args: None)
        with pytest.raises(ConfigError, match=rf"machine .* does not see {tmp_path}/logs"):
            list(run_jobs(launcher, [job("lost", tmp_path, "pass")]))


def test_a_preempted_job_is_stopped_politely_and_started_again_by_the_same_words(tmp_path: Path) -> None:
    polite = (
        "import signal, sys, pathlib; "
        f"signal.signal(15, lambda *a: (pathlib.Path({str(tmp_path / 'stopped')!r}).touch(), sys.exit(9)))"
    )
    words = [polite, COUNT.format(path=str(tmp_path / "tries")), UNLESS_BEFORE]
    with launcher_of("submitit") as launcher:
        handle = launcher.start(job("preempted", tmp_path, *words))
        assert handle.poll() is None
        wait_for((tmp_path / "tries").exists)
        time.sleep(0.2)
        _preempt(handle)
        wait_for(lambda: handle.poll() is not None)
        assert handle.poll() == 0
    assert (tmp_path / "stopped").exists()
    assert (tmp_path / "tries").read_text() == "xx"


def _preempt(handle: Any) -> None:
    """Send the signal of Slurm's to the program that runs the job on the node."""
    import psutil

    (task,) = psutil.Process(int(handle.submitted.job_id)).children()
    task.send_signal(signal.SIGUSR2)


def test_slurm_without_slurm_is_refused() -> None:
    with pytest.raises(ConfigError, match="srun"):
        make_launcher("submitit")
    with pytest.raises(ConfigError, match="time"):
        make_launcher(Part(name="submitit", time=0))


def test_what_slurm_refuses_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in {"srun": "exit 0", "sbatch": "echo 'sbatch: error: invalid partition: x' >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    refused = pytest.raises(ConfigError, match=r"Slurm does not take the jobs \(sbatch: error: invalid partition: x\)")
    with make_launcher(Part(name="submitit", partition="x")) as launcher, refused:
        list(run_jobs(launcher, [job("one", tmp_path, "pass"), job("two", tmp_path, "pass")]))
