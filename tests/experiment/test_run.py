"""The run's directory: refusals, states, locks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError, FileError, RlwbError
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
from rlwb.files import is_temporary, locked
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
    with locked(tmp_path / "run" / ".lock"), pytest.raises(ConfigError, match="another run was begun"):
        RunDirectory.create(tmp_path / "run", RunConfig())

    def first(self: RunDirectory) -> None:
        monkeypatch.undo()
        RunDirectory.create(self.path, config(seed=5))

    monkeypatch.setattr(RunDirectory, "check_space", first)
    with pytest.raises(ConfigError, match="holds a run already"):
        RunDirectory.create(tmp_path / "run", RunConfig())
    assert RunDirectory(tmp_path / "run").config.seed == 5


CREATION = (".lock", "code/0123/mine.py", ".config.yaml", "config.yaml")


@pytest.mark.parametrize("made", range(len(CREATION) + 1))
def test_k01_a_creation_that_was_killed_is_begun_anew(tmp_path: Path, made: int) -> None:
    """After any of its files, written as a kill may leave it: whole, or under a temporary name."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    for name in CREATION[:made]:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text("")
    (run.path / ".status.0a1b2c3d.rlwb-new.json").write_text("{")
    with pytest.raises(ConfigError, match=r"holds no run; .* start one there with rlwb run --run-dir") as caught:
        RunDirectory.open(run.path)
    assert caught.value.args[0].endswith(f"--run-dir {run.path}.")
    assert RunDirectory.create(run.path, config(seed=5)).config.seed == 5
    assert not [path for path in run.path.rglob("*") if is_temporary(path.name)]


@pytest.mark.parametrize("foreign", ["thesis.txt", "config.yaml", "code/mine.py", "sub/.lock"])
def test_k01_what_no_creation_leaves_is_left_alone(tmp_path: Path, foreign: str) -> None:
    (tmp_path / foreign).parent.mkdir(exist_ok=True)
    (tmp_path / foreign).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="exists and is not a run"):
        RunDirectory.create(tmp_path, config())
    with pytest.raises(ConfigError, match=r"holds no run; correct the path\.$"):
        RunDirectory.open(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def cut(text: str) -> str:
    return text[: text.index("train:") + len("train:\n")]


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda text: "", "it is empty"),
        (cut, "its checksum differs"),
        (lambda text: text.replace("iterations: 3", "iterations: 30"), "its checksum differs"),
        (lambda text: text.partition("\n")[2], "it bears no checksum"),
        (lambda text: text[:-1], "its checksum differs"),
        (lambda text: "\0" * len(text), "it bears no checksum"),
    ],
    ids=["empty", "cut", "edited", "without a checksum", "a byte short", "zeros"],
)
def test_k02_a_runs_own_configuration_is_as_it_was_written(tmp_path: Path, harm: Any, fault: str) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    file = run.path / "config.yaml"
    file.write_text(harm(file.read_text()))
    with pytest.raises(ConfigError, match=fault) as caught:
        run.load_config()
    assert "delete it" in str(caught.value)
    named = "--resume --run-dir" in str(caught.value)
    assert named == (fault in ("its checksum differs", "it bears no checksum") and not run.lacking(file))
    file.unlink()
    assert run.config == config(), "the copy"
    (run.path / ".config.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"it is empty.*rlwb run CONFIG --resume --run-dir"):
        run.load_config()
    (run.path / ".config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"config\.yaml.*it is missing.*rlwb run CONFIG --resume --run-dir"):
        run.load_config()
    run.save_config(config(seed=1))
    assert run.config.seed == 1


def test_k11_what_killed_processes_left_goes_when_the_run_is_held(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    left = [run.path / ".status.0a1b2c3d.rlwb-new.json", run.path / "orders" / ".all.0a1b2c3d.rlwb-new.parquet"]
    left.append(run.path / "checkpoints" / "teacher" / ".latest.0a1b2c3d.rlwb-new")
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    left[-1].unlink()
    left[-1].symlink_to("0003.pt")
    with run.lock():
        assert not any(path.is_symlink() or path.exists() for path in left)


def test_k32_a_run_that_cannot_be_written_is_told_and_can_be_copied(tmp_path: Path) -> None:
    """As another user, whom permissions bind."""
    run = RunDirectory.create(tmp_path / "run", config())
    for path in (run.path, *run.path.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    code = (
        "import os, sys; from pathlib import Path; from rlwb.errors import ConfigError\n"
        "from rlwb.experiment.run import RunDirectory\n"
        "run = RunDirectory(sys.argv[1]); os.setuid(65534) if os.geteuid() == 0 else os.chmod(run.path, 0o555)\n"
        "print(run.describe())\n"
        "for held in (run.lock, run.check_space):\n"
        "    try:\n        with held(): pass\n"
        "    except ConfigError as error: print(error)\n"
    )
    for folder in [*tmp_path.parents][:4]:
        if os.geteuid() == 0 and folder.name.startswith(("pytest", "popen")):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", code, str(run.path)], capture_output=True, text=True, check=True
    ).stdout
    run.path.chmod(0o755)
    lines = said.splitlines()
    assert lines[0] == "created; finished: nothing yet"
    assert len(lines) == 3
    for line in lines[1:]:
        assert line.startswith(f"{run.path} cannot be written to (Permission denied); copy the run")
    again = RunDirectory(shutil.copytree(run.path, tmp_path / "mine"))
    with again.lock():
        assert again.config == config()


def test_k15_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(5 * 2**20, 0, 5 * 2**20))
    with pytest.raises(ConfigError, match="free space"):
        RunDirectory.create(tmp_path / "deep" / "down" / "run", RunConfig())
    with pytest.raises(ConfigError, match="holds no run"):
        RunDirectory.open(tmp_path / "typo")
    assert not list(tmp_path.iterdir())


def test_a_kernel_that_outlives_its_pipeline_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    monkeypatch.setattr("rlwb.experiment.run.KERNEL_SECONDS", 0.2)
    with locked(run.path / ".kernel.lock"), pytest.raises(ConfigError, match="another process works on"), run.lock():
        pass
    with run.lock():
        pass


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


def test_a_run_whose_notebooks_are_run_by_hand_is_what_its_stages_are(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    assert run.state == "created"
    run.update_stage("orders", {"state": "finished"})
    assert run.state == "created"
    for state in ("interrupted", "failed"):
        run.update_stage("train", {"state": state})
        assert run.state == state
    run.update_stage("train", {"state": "running"})
    assert run.state == "interrupted", "its kernel was killed"
    with run.lock():
        assert run.state == "running"
    for stage in ("train", "backtest", "stability"):
        run.update_stage(stage, {"state": "finished"})
    assert run.state == "finished"
    run.update_status(state="finished")
    run.update_stage("train", {"state": "interrupted"})
    assert run.state == "interrupted", "its training was begun again"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "^the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "/runs/a.pt"), "^/runs/a.pt cannot be written to"),
        (PermissionError(errno.EACCES, "Permission denied"), "run cannot be written to"),
        (MemoryError(), "^there is too little memory"),
    ],
)
def test_limits_of_the_machine_are_told_in_a_sentence(tmp_path: Path, error: Exception, words: str) -> None:
    with pytest.raises(RlwbError, match=words), RunDirectory(tmp_path / "run").telling_limits():
        raise error


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
    run.save_config(config(seed=8, execution__rules__commission_bps=1))
    begin_manifest(run, ["rlwb", "run", "--resume"])
    assert run.manifest["seeds"]["seed"] == 8, "of the settings that the run has by now"
    assert "commission_bps 1" in run.manifest["rules"]


def test_the_commit_of_another_repository_is_not_ours(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "inside").mkdir()
    assert git_state(tmp_path / "inside") is None
