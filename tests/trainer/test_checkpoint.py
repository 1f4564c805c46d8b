from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rlwb.errors import CheckpointError
from rlwb.trainer import find_resumable, list_checkpoints, load_checkpoint, save_checkpoint
from rlwb.trainer.checkpoint import FORMAT, checkpoint_name, point_latest


def save(folder: Path, iteration: int) -> Path:
    path = folder / checkpoint_name(iteration)
    save_checkpoint(path, {"iteration": iteration, "weights": torch.arange(5000.0)})
    return path


def test_values_come_back_plain(tmp_path: Path) -> None:
    state = {
        "count": np.int64(3),
        "mean": np.float64(0.1),
        "rows": [{"pa": np.float32(0.5)}, {"pa": float("nan")}],
        "pair": (np.bool_(True), None),
        "array": np.arange(3),
        "best": -np.inf,
        1: "an integer key",
    }
    save_checkpoint(tmp_path / "deep" / "a.pt", state)
    loaded = load_checkpoint(tmp_path / "deep" / "a.pt")
    assert loaded["count"] == 3
    assert type(loaded["count"]) is int
    assert loaded["mean"] == 0.1
    assert loaded["rows"][0] == {"pa": 0.5}
    assert np.isnan(loaded["rows"][1]["pa"])
    assert loaded["pair"] == (True, None)
    assert loaded["best"] == -np.inf
    assert loaded[1] == "an integer key"
    assert torch.equal(loaded["array"], torch.arange(3))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="what cannot be stored is a function"):
        save_checkpoint(path, {"what cannot be stored": lambda: 0})
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["0001.pt"]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("iteration: 3\n")


def code(path: Path) -> None:
    torch.save({"format": FORMAT, "run": os.system}, path)


def foreign(path: Path) -> None:
    torch.save({"model": torch.zeros(2)}, path)


def tensor(path: Path) -> None:
    torch.save(torch.zeros(2), path)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [half, zero, text, code, foreign, tensor, flipped])
def test_e07_a_damaged_file_is_named_and_the_one_before_it_taken(tmp_path: Path, damage) -> None:
    good, bad = save(tmp_path, 2), save(tmp_path, 3)
    point_latest(bad)
    damage(bad)
    with pytest.raises(CheckpointError, match=r"0003\.pt"):
        load_checkpoint(bad)
    found, faults = find_resumable(tmp_path)
    assert found == good
    assert list(faults) == ["0003.pt"]
    assert "0003.pt" in faults["0003.pt"]


def test_e07_any_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    whole = save(tmp_path, 1).read_bytes()
    path = tmp_path / "cut.pt"
    for stop in np.random.default_rng(0).integers(1, len(whole), size=60):
        path.write_bytes(whole[:stop])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_e07_any_changed_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole = save(tmp_path, 1).read_bytes()
    path = tmp_path / "changed.pt"
    for place in np.random.default_rng(0).integers(0, len(whole), size=150):
        data = bytearray(whole)
        data[place] ^= 0x55
        path.write_bytes(bytes(data))
        try:
            state = load_checkpoint(path)
        except CheckpointError:
            continue
        assert torch.equal(state["weights"], torch.arange(5000.0)), place


def test_nothing_to_resume(tmp_path: Path) -> None:
    assert find_resumable(tmp_path / "nowhere") == (None, {})
    zero(tmp_path / "0001.pt")
    found, faults = find_resumable(tmp_path)
    assert found is None
    assert list(faults) == ["0001.pt"]
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path / "0002.pt")
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint(tmp_path)


def test_checkpoints_are_listed_by_number_and_strays_ignored(tmp_path: Path) -> None:
    for name in ("0010.pt", "0009.pt", "12000.pt", "best.pt", ".0011.pt", "0012.pt.tmp", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert list(list_checkpoints(tmp_path)) == [9, 10, 12000]


def test_latest_is_a_relative_link_that_survives_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    for iteration in (1, 2):
        save(folder, iteration)
        point_latest(Path("a") / checkpoint_name(iteration))
    assert (folder / "latest").readlink() == Path("0002.pt")
    folder.rename(tmp_path / "b")
    assert load_checkpoint(tmp_path / "b" / "latest")["iteration"] == 2
    assert sorted(found.name for found in (tmp_path / "b").iterdir()) == ["0001.pt", "0002.pt", "latest"]


def test_latest_is_a_copy_where_links_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    point_latest(save(tmp_path, 4))
    assert not (tmp_path / "latest").is_symlink()
    assert load_checkpoint(tmp_path / "latest")["iteration"] == 4


def test_e11_a_checkpoint_is_read_onto_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked, load = save(tmp_path, 1), [], torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: asked.append(k) or load(*a, **k))
    assert load_checkpoint(path)["weights"].device.type == "cpu"
    assert asked == [{"map_location": "cpu", "weights_only": True}]
