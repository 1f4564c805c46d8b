"""Limits of the machine are told with their figure, and a system without locks in one sentence."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlwb.limits import limit_hit, peak_memory


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/a.pt"), "the disk is full.*/runs/a.pt"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "the disk is full"),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG), "/runs/a.pt"), r"ulimit -f.*/runs/a.pt"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x"), r"ulimit -n, [\d,]+"),
        (MemoryError(), "too little memory .*the most that was used is [0-9,]+ MB"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "too little memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "too little memory"),
        (RuntimeError("can't start new thread"), "too little memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "too little memory"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), "not be written whole"),
    ],
)
def test_k12_a_limit_is_a_sentence_with_its_figure(error: Exception, words: str) -> None:
    found = limit_hit(error)
    assert found is not None
    assert "\n" not in found
    assert re.search(words, found)


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("memory"), OSError(errno.ENOENT, "No such file")])
def test_k12_other_errors_are_none(error: Exception) -> None:
    assert limit_hit(error) is None


PROGRAM = """
import resource, sys
resource.setrlimit(resource.{kind}, ({limit},) * 2)
from rlwb.cli import main
main(["run", "--run-dir", sys.argv[1]])
"""


def test_k12_a_file_size_limit_is_the_input_s_fault_and_no_traceback(tmp_path: Path) -> None:
    program = PROGRAM.format(kind="RLIMIT_FSIZE", limit=100)
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "run"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "ulimit -f" in done.stderr
    assert "fault of rlwb" not in done.stderr


def test_k18_a_system_without_locks_is_told_in_one_sentence() -> None:
    program = "import sys; sys.modules['fcntl'] = None\nfrom rlwb.cli import main\nmain(['run'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "rlwb: rlwb runs on Linux and macOS; on Windows use it under WSL (wsl --install).\n"


def test_the_most_memory_is_in_the_units_of_each_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    used = SimpleNamespace(ru_maxrss=3 * 2**20)
    monkeypatch.setattr(resource, "getrusage", lambda who: used)
    monkeypatch.setattr(sys, "platform", "linux")
    assert peak_memory() == "3,072 MB"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory() == "3 MB"


def test_the_most_memory_is_told() -> None:
    assert float(peak_memory().split()[0].replace(",", "")) >= resource.getpagesize() / 2**20
