from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from rlwb.errors import ConfigError
from rlwb.parts import Part
from rlwb.study.launch import Handle, Job, Launcher, Outcome, Processes, Progress, make_launcher, run_jobs, told_exit

ROOT = Path(__file__).resolve().parents[2]


class Programs(Processes):
    """Processes whose words are Python code."""

    program = "tests.study.job_program"


@pytest.fixture(autouse=True)
def _tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def number_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def tell_pid(path: Path) -> str:
    return f"import os, pathlib; pathlib.Path({str(path)!r}).write_text(str(os.getpid()))"


@dataclass
class Script(Launcher):
    """Jobs that end with the exit codes of a script, after so many looks at them as `looks` says."""

    codes: dict[str, list[int]]
    looks: Callable[[], int]
    workers: int = 2
    interval: float = 0.0
    started: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    most: int = 0

    def __post_init__(self) -> None:
        self.now: set[str] = set()

    def start(self, job: Job) -> Handle:
        self.started.append(job.name)
        self.now.add(job.name)
        self.most = max(self.most, len(self.now))
        return _Scripted(self, job.name, self.codes[job.name].pop(0), self.looks())

    def close(self) -> None:
        self.stopped += self.now


@dataclass
class _Scripted:
    launcher: Script
    name: str
    code: int
    looks: int

    def poll(self) -> int | None:
        self.looks -= 1
        if self.looks > 0:
            return None
        self.launcher.now.discard(self.name)
        return self.code

    def stop(self) -> None:
        self.launcher.stopped.append(self.name)


def jobs(*names: str) -> list[Job]:
    return [Job(name, (), Path("/nowhere")) for name in names]


@pytest.mark.parametrize("seed", range(20))
def test_outcomes_come_in_the_order_of_the_jobs_whatever_the_timing(seed: int) -> None:
    rng = random.Random(seed)
    launcher = Script({"a": [0], "b": [-9, 0], "c": [1, 2], "d": [0]}, lambda: rng.randint(1, 9), workers=3)
    seen: list[Progress] = []
    done = list(run_jobs(launcher, jobs(*"abcd"), progress=seen.append))
    assert [(one.job.name, one.exits, one.is_done) for one in done] == [
        ("a", (0,), True),
        ("b", (-9, 0), True),
        ("c", (1, 2), False),
        ("d", (0,), True),
    ]
    assert sorted(launcher.started) == list("abbccd")
    assert launcher.most <= 3
    assert launcher.stopped == []
    assert seen[-1].running == ()
    assert {one.job.name for one in seen[-1].ended} == set("abcd")
    assert [one.job.name for one in seen[-1].failed] == ["c"]
    assert all(len(one.running) <= 3 for one in seen)


def test_outcomes_are_told_as_soon_as_their_turn_comes() -> None:
    looks = iter([1, 10**9])
    launcher = Script({"a": [0], "b": [0]}, lambda: next(looks), workers=2)
    outcomes = run_jobs(launcher, jobs("a", "b"))
    assert next(outcomes).job.name == "a"
    outcomes.close()  # type: ignore[attr-defined]
    assert launcher.stopped == ["b"]


def test_one_attempt_is_one_and_none_is_refused() -> None:
    launcher = Script({"a": [3]}, lambda: 1)
    assert [one.exits for one in run_jobs(launcher, jobs("a"), attempts=1)] == [(3,)]
    with pytest.raises(ConfigError, match="attempts"):
        next(run_jobs(launcher, jobs("a"), attempts=0))
    with pytest.raises(ConfigError, match="two jobs are called a"):
        next(run_jobs(launcher, jobs("a", "a")))


def test_no_jobs_are_no_outcomes() -> None:
    assert list(run_jobs(Script({}, lambda: 1), [])) == []


@pytest.mark.parametrize(
    ("exits", "told"),
    [((0,), "done"), ((-9, 1), "killed by SIGKILL, then exit code 1"), ((-15, 0), "killed by SIGTERM, then done")],
)
def test_how_a_job_ended_is_told_in_words(exits: tuple[int, ...], told: str) -> None:
    assert Outcome(jobs("a")[0], exits, 1.0).describe() == told


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert told_exit(-200) == "killed by signal 200"


def test_processes_run_commands_of_rlwb_with_capped_threads_and_logs_of_their_own(tmp_path: Path) -> None:
    from rlwb import __version__

    version = Job("version", ("--version",), tmp_path / "logs" / "version.txt")
    wrong = Job("wrong", ("config", "--set", "train.itertions=3"), tmp_path / "logs" / "wrong.txt")
    with Processes(2) as launcher:
        done = list(run_jobs(launcher, [version, wrong]))
    assert [one.exits for one in done] == [(0,), (2, 2)]
    assert version.log.read_text() == f"rlwb {__version__}\n"
    assert wrong.log.read_text().count("train.iterations") == 2  # both attempts are in it
    told = "import os; print(*(os.environ[f'{one}_NUM_THREADS'] for one in ('OMP', 'MKL', 'NUMBA')))"
    with Programs(2) as launcher:
        both = [Job(f"of {n}", (told,), tmp_path / f"{n}.txt", n) for n in (1, 3)]
        assert all(one.is_done for one in run_jobs(launcher, both))
    assert [one.log.read_text() for one in both] == ["1 1 1\n", "3 3 3\n"]


def test_a_killed_job_is_tried_again_and_then_reported(tmp_path: Path) -> None:
    killed = "import os, signal; print('killed', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    mark = tmp_path / "mark"
    once = (
        f"import os, pathlib\nmark = pathlib.Path({str(mark)!r})\nif not mark.exists():\n    mark.touch()\n    {killed}"
    )
    with Programs(2) as launcher:
        always, first = run_jobs(
            launcher, [Job("always", (killed,), tmp_path / "a"), Job("once", (once,), tmp_path / "o")]
        )
    assert (always.exits, always.is_done) == ((-9, -9), False)
    assert (first.exits, first.is_done) == ((-9, 0), True)
    assert (tmp_path / "a").read_text() == "killed\nkilled\n"


def test_what_a_killed_job_leaves_in_its_group_ends(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = "import subprocess, sys; one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    words = (
        f"{child}; import os, pathlib; pathlib.Path({str(pid)!r}).write_text(str(one.pid)); os.kill(os.getpid(), 9)",
    )
    with Programs(1) as launcher:
        (outcome,) = run_jobs(launcher, [Job("a", words, tmp_path / "log")], attempts=1)
    assert outcome.exits == (-9,)
    wait_for(lambda: not lives(int(pid.read_text())))


def test_stopping_asks_first_and_ends_children_in_groups_of_their_own(tmp_path: Path) -> None:
    """A command notes that it was stopped; kernels, which lead groups of their own, go with it."""
    pid, note = tmp_path / "pid", tmp_path / "note"
    words = textwrap.dedent(f"""
        import pathlib, signal, subprocess, sys, time
        def note(*_):
            pathlib.Path({str(note)!r}).write_text("stopped")
            sys.exit(130)
        signal.signal(signal.SIGTERM, note)
        one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        pathlib.Path({str(pid)!r}).write_text(str(one.pid))
        time.sleep(600)
    """)
    with Programs(1) as launcher:
        handle = launcher.start(Job("a", (words,), tmp_path / "log"))
        kernel = number_in(pid)
        assert handle.poll() is None
        handle.stop()
        assert handle.poll() == 130
        assert note.read_text() == "stopped"
        assert not lives(kernel)


def test_a_closed_launcher_has_stopped_all_and_starts_nothing(tmp_path: Path) -> None:
    launcher = Programs(2)
    with launcher:
        for name in "ab":
            launcher.start(Job(name, (tell_pid(tmp_path / name), "import time; time.sleep(600)"), tmp_path / "log"))
        pids = [number_in(tmp_path / name) for name in "ab"]
    assert not any(map(lives, pids))
    with pytest.raises(ConfigError, match="closed"):
        launcher.start(Job("c", ("1",), tmp_path / "log"))
    launcher.close()  # twice is once


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_job_outlives_what_started_it(tmp_path: Path, how: signal.Signals) -> None:
    starter = f"""
from pathlib import Path
from rlwb.experiment.pipeline import stop_on_terminate
from rlwb.study.launch import Job, run_jobs
from tests.study.test_launch import Programs, tell_pid
stop_on_terminate()
folder = Path({str(tmp_path)!r})
words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(600)"
with Programs(2) as launcher:
    list(run_jobs(launcher, [Job(n, (tell_pid(folder / n), words), folder / "log") for n in "abc"]))
"""
    process = subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, stderr=subprocess.DEVNULL)
    pids = [number_in(tmp_path / name) for name in "ab"]
    assert all(map(lives, pids))
    os.kill(process.pid, how)
    process.wait(60)
    wait_for(lambda: not any(map(lives, pids)))
    assert not (tmp_path / "c").exists()


def test_launchers_are_parts() -> None:
    with make_launcher("processes", workers=3) as one:
        assert (type(one), one.workers) == (Processes, 3)
    with make_launcher(Part(name="processes", workers=2)) as one:
        assert one.workers == 2
    many = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert many is not None
    for threads in (1, 10**6):
        with make_launcher("processes", threads=threads) as one:
            assert one.workers == max(1, many // threads)
    with pytest.raises(ConfigError, match="processes"):
        make_launcher("proceses")
    with pytest.raises(ConfigError, match="workers"):
        make_launcher(Part(name="processes", worker=2))
    with pytest.raises(ConfigError, match="workers is 0"):
        make_launcher("processes", workers=0)


def test_jobs_run_side_by_side_but_no_more_than_workers(tmp_path: Path) -> None:
    """Two jobs that wait for each other both end; with one worker the second would never have begun."""

    def meets(mine: str, other: str) -> str:
        return (
            f"import pathlib, time; pathlib.Path({str(tmp_path / mine)!r}).touch()\n"
            f"while not pathlib.Path({str(tmp_path / other)!r}).exists(): time.sleep(0.01)"
        )

    both = [Job("a", (meets("a", "b"),), tmp_path / "log"), Job("b", (meets("b", "a"),), tmp_path / "log")]
    seen: list[int] = []
    with Programs(2) as launcher:
        assert all(one.is_done for one in run_jobs(launcher, both, progress=lambda now: seen.append(len(now.running))))
    assert max(seen) == 2
