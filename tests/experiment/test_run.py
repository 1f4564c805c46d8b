"""The run's directory: refusals, states, locks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from rlwb.errors import ConfigError, FileError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.run import (
    PIPELINE_ENV,
    RunDirectory,
    begin_manifest,
    default_run_directory,
    end_manifest,
    git_state,
    update_manifest,
)
from tests.experiment.fakes import config


def test_a_new_run_holds_what_was_asked(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "deep" / "down", config(seed=5))
    assert run.config.seed == 5
    assert run.state == "created"
    assert RunDirectory.open(run.path).describe() == "created; finished: nothing yet"


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "r", RunConfig())
    with pytest.raises(ConfigError, match=r"holds a run already .* Go on with: rlwb run --resume --run-dir"):
        RunDirectory.create(tmp_path / "r", RunConfig())


def test_other_peoples_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="exists and is not a run"):
        RunDirectory.create(tmp_path, RunConfig())
    with pytest.raises(ConfigError, match="exists and is not a run"):
        RunDirectory.create(tmp_path / "thesis.txt", RunConfig())
    with pytest.raises(ConfigError, match="holds no run"):
        RunDirectory.open(tmp_path)


def test_e09_what_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written to \(Not a directory\); choose another run directory"):
        RunDirectory.create(tmp_path / "file" / "run", RunConfig())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_e09_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        RunDirectory.create(tmp_path / "run", RunConfig())


def test_e09_a_full_disk_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(5 * 2**20, 0, 5 * 2**20))
    with pytest.raises(ConfigError, match="has 5 MB of free space, a run needs 100"):
        RunDirectory.create(tmp_path / "run", RunConfig())
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_g11_runs_that_start_together_get_their_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(default_run_directory("x"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8
    for path in found:
        RunDirectory.create(path, RunConfig())


def test_two_that_begin_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(RunDirectory, "check_space", lambda self: (self.path / ".lock").touch())
    with pytest.raises(ConfigError, match="another run was begun"):
        RunDirectory.create(tmp_path / "run", RunConfig())


def test_a_killed_run_is_interrupted_and_a_living_one_is_not(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    run.update_status(state="running")
    assert run.state == "interrupted"
    code = (
        "import sys, os; from rlwb.experiment.run import RunDirectory\n"
        "with RunDirectory(sys.argv[1]).lock():\n"
        "    print('held', flush=True); sys.stdin.read(); os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    assert run.state == "running"
    with pytest.raises(ConfigError, match="another process works on"), run.lock():
        pass
    process.stdin.close()
    process.wait(30)
    process.stdout.close()
    assert run.state == "interrupted"
    with run.lock():
        pass


def test_a_kernel_of_the_pipeline_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    monkeypatch.setenv(PIPELINE_ENV, str(run.path))
    with run.lock(), run.lock():
        pass


def test_a_damaged_status_is_named(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    (run.path / "status.json").write_text("{")
    with pytest.raises(FileError, match=r"status\.json cannot be read"):
        run.describe()


def test_stages_are_noted(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    run.update_stage("orders", {"state": "running"})
    run.update_stage("orders", {"state": "finished", "seconds": 1.0})
    assert run.stage("orders") == {"state": "finished", "seconds": 1.0}
    assert run.stage("train") == {}
    assert run.describe() == "created; finished: orders"


def test_the_manifest_says_what_made_it(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config(seed=7))
    begin_manifest(run, ["rlwb", "run"])
    update_manifest(run, data={"sessions": "abc"})
    end_manifest(run, "failed")
    begin_manifest(run, ["rlwb", "run", "--resume"])
    end_manifest(run, "finished")
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["seeds"] == {"seed": 7, "market.seed": 0}
    assert manifest["data"] == {"sessions": "abc"}
    assert manifest["packages"]["numpy"]
    assert manifest["started"] <= manifest["ended"]
    assert manifest["status"] == "finished"
    assert [again["command"][-1] for again in manifest["resumed"]] == ["--resume"]


def test_the_commit_of_another_repository_is_not_ours(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "inside").mkdir()
    assert git_state(tmp_path / "inside") is None
