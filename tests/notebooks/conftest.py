"""One small run through the command line, shared by the tests that look at it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from rlwb.experiment.run import RunDirectory
from tests.notebooks.small import command, finish


@pytest.fixture(scope="session")
def commanded(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[RunDirectory, str]:
    """A finished ``rlwb run`` and what it printed; tests that run side by side share it."""
    base = tmp_path_factory.getbasetemp()
    folder: Path = (base if worker_id == "master" else base.parent) / "commanded"
    folder.mkdir(exist_ok=True)
    said = folder / "said.txt"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.is_file():
            said.write_text(finish(command(folder / "run"))[0])
    return RunDirectory(folder / "run"), said.read_text()
