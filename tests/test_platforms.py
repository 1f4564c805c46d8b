"""What other platforms meet, as far as it can be tried on this one, and the files by which a class starts elsewhere."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.policies import check_names, parse_policies
from rlwb.files import locked, write_text

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_disk_without_locks_is_named_before_anything_is_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, flags: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RlwbError, match=re.escape(str(tmp_path))):
        write_text(tmp_path / "a.txt", "x")
    assert not (tmp_path / "a.txt").exists()


def test_a_lock_that_another_holds_is_still_told_as_such(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock"):
        pass


def test_names_that_some_disks_take_for_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="mine"):
        parse_policies(["Mine=a.zip", "mine=b.zip"])
    assert list(parse_policies(["mine=a.zip", "yours=b.zip"])) == ["mine", "yours"]
    with pytest.raises(ConfigError, match="TWAP"):
        check_names({"TWAP": None}, ["twap"])


def installs(text: str) -> list[list[str]]:
    """Return what each pip install of a script or Makefile installs, options of output aside."""
    lines = re.findall(r"^.*(?:\bpython|\(BIN\)/python) -m pip install (.+)$", text, re.MULTILINE)
    quiet = {"--quiet", "--disable-pip-version-check", "--no-cache-dir"}
    return [[word for word in shlex.split(line) if word not in quiet] for line in lines]


def test_binder_installs_what_make_installs() -> None:
    script = ROOT / ".binder" / "postBuild"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    lock, torch, own = installs(script.read_text())
    assert torch[-2:] == ["--index-url", "https://download.pytorch.org/whl/cpu"]
    made = installs((ROOT / "Makefile").read_text())
    assert all(one in made for one in (lock, torch[:-2], own))
    assert (ROOT / ".binder" / "runtime.txt").read_text().strip() == "python-3.11"


def test_the_container_of_codespaces_is_made_by_make() -> None:
    told = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert re.search(r"python:3\.11\b", told["image"])
    make, target = told["postCreateCommand"].split()
    assert make == "make"
    assert re.search(rf"^{target}: ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert told["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"].endswith("/.venv/bin/python")
