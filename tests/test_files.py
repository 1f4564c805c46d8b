import json
import math
import os
import signal
import stat
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from rlwb import files
from rlwb.files import atomic_path, is_temporary, put_in_place, sweep, temporary_folder, write_json, write_text


def test_file_appears_whole_with_its_folders(tmp_path):
    target = tmp_path / "a" / "b" / "x.txt"
    with atomic_path(target) as path:
        assert path.suffix == ".txt"
        assert path.parent == target.parent
        path.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_failure_leaves_the_old_file_and_no_scraps(tmp_path):
    target = tmp_path / "x.txt"
    write_text(target, "old")

    def fail():
        with atomic_path(target) as path:
            path.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "x", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_two_writers_do_not_meet(tmp_path):
    target = tmp_path / "x.npy"
    with atomic_path(target) as one, atomic_path(target) as other:
        assert one != other
        np.save(one, [1])
        np.save(other, [2])
    assert np.load(target).tolist() == [1]
    assert list(tmp_path.iterdir()) == [target]


class Side(IntEnum):
    BUY = 1


@dataclass
class Setting:
    rate: float
    folder: Path


def test_json_is_valid_and_keeps_numbers(tmp_path):
    value = {
        "nan": math.nan,
        "inf": [math.inf, -math.inf],
        "numpy": [np.float32(0.5), np.int64(3), np.array([1.0, np.nan]), np.bool_(True)],
        "path": Path("a/b"),
        "date": np.datetime64("2024-01-02"),
        "setting": Setting(1e-4, Path("x")),
        "side": Side.BUY,
        3: (1, None, True),
        "text": "é",
    }
    write_json(tmp_path / "x.json", value)

    def refuse(name):
        raise AssertionError(name)

    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"), parse_constant=refuse) == {
        "nan": None,
        "inf": ["Infinity", "-Infinity"],
        "numpy": [0.5, 3, [1.0, None], True],
        "path": "a/b",
        "date": "2024-01-02",
        "setting": {"rate": 1e-4, "folder": "x"},
        "side": 1,
        "3": [1, None, True],
        "text": "é",
    }


def killed(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_k11_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(tmp_path):
    def die():
        with atomic_path(tmp_path / "x.txt") as path:
            path.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    killed(die)
    (left,) = tmp_path.iterdir()
    assert is_temporary(left.name)
    with atomic_path(tmp_path / "y.txt") as mine, temporary_folder(tmp_path, "z") as folder:
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([mine, folder])
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["y.txt"]


@pytest.mark.parametrize(
    "name", ["x.tmp", ".x.tmp", ".x.0a1b2c3d.tmp", "x.0a1b2c3d.rlwb-new", ".x.0a1b2c3.rlwb-new.csv"]
)
def test_k11_what_others_call_temporary_is_theirs(tmp_path, name):
    (tmp_path / name).touch()
    sweep(tmp_path)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_k11_a_folder_is_the_old_or_the_new_one_whenever_its_writer_is_killed(tmp_path, monkeypatch, moment):
    target = tmp_path / "panel"
    target.mkdir()
    (target / "old").touch()
    moves = {"before": 0, "between": 1, "after": 2}[moment]

    def die():
        real, done = Path.replace, []

        def replace(self, other):
            if len(done) == moves:
                os.kill(os.getpid(), signal.SIGKILL)
            done.append(other)
            return real(self, other)

        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr("shutil.rmtree", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        with temporary_folder(tmp_path, "panel") as new:
            (new / "new").touch()
            put_in_place(target, new)

    killed(die)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["panel"]
    assert [path.name for path in target.iterdir()] == ["new" if moment == "after" else "old"]


def test_a_new_folder_that_another_sweeps_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, swept = files._held, []

    def late(path: Path, *given: int) -> int:
        if not swept:
            swept.append(path)
            sweep(tmp_path)
        return held(path, *given)

    monkeypatch.setattr(files, "_held", late)
    with temporary_folder(tmp_path, "panel") as folder:
        assert swept == [folder]
        assert folder.is_dir()
