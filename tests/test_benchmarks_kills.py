"""The kills on a sample, and that they notice what they look for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kills
from benchmarks.kills import Kill, Place, Tally

ROOT = Path(__file__).resolve().parents[1]


def test_a_sample_of_kills_loses_nothing() -> None:
    """In a process of its own, which forks before anything has started threads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.kills", "--quick"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == found["resumed"] == found["identical"] == 6
    assert (found["lost"], found["leftovers"]) == (0, 0)
    assert found["enumerated"] > found["changes"] > 300


CHANGES = """
import os, sys
from benchmarks.kill_events import kill_at
folder, number = sys.argv[1:]
kill_at(folder, int(number))
os.mkdir(folder + "/a")
os.makedirs(folder + "/a", exist_ok=True)
with open(folder + "/a/x", "w") as file:
    file.write("whole")
    file.flush()
    os.fsync(file.fileno())
os.replace(folder + "/a/x", folder + "/y")
os.unlink(folder + "/y")
open(os.path.dirname(folder) + "/outside", "w").close()
"""


@pytest.mark.parametrize(
    ("number", "left"),
    [
        (0, {}),
        (1, {"a": None}),
        (2, {"a": None, "a/x": "whole"}),
        (3, {"a": None, "a/x": "whole"}),
        (4, {"a": None, "y": "whole"}),
    ],
)
def test_a_process_is_killed_right_before_a_change(tmp_path: Path, number: int, left: dict[str, str | None]) -> None:
    (tmp_path / "in").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHANGES, str(tmp_path / "in"), str(number)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    found = {
        path.relative_to(tmp_path / "in").as_posix(): path.read_text() if path.is_file() else None
        for path in (tmp_path / "in").rglob("*")
    }
    assert found == left
    assert not (tmp_path / "outside").exists()


def test_what_no_kill_reaches_goes_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHANGES, str(tmp_path / "in"), "5"]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


def test_what_is_lost_different_or_left_over_is_counted(tmp_path: Path) -> None:
    place = Place(tmp_path / "w")
    place.run.mkdir(parents=True)
    for name in ("same", "other"):
        (place.run / name).write_text(name)
    reference = kills.results_of(place)
    (place.run / "other").write_text("changed")
    (place.run / "same").unlink()
    (place.run / ".x.0a1b2c3d.rlwb-new").write_text("")
    found = kills.outcome(place, reference, 0, tmp_path / "log")
    assert (found["different"], found["lost"], found["leftovers"]) == (
        ["run/other"],
        ["run/same"],
        ["run/.x.0a1b2c3d.rlwb-new"],
    )
    tally = Tally()
    tally.add(vars(Kill("train", None, 3, "rename", "x")), found)
    assert (tally.kills, tally.resumed, tally.identical, tally.lost, tally.leftovers) == (1, 1, 0, 1, 1)
    assert tally.faults[0]["number"] == 3
