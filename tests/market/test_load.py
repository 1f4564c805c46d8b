"""The cache of panels: keyed by all that it depends on, mapped, whole or not at all."""

from __future__ import annotations

import json
import logging
import mmap
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, Sessions, load_sessions
from rlwb.market.dataset import importing
from tests.market.helpers import day_bars, random_bars

SMALL = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)


def is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def panels(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "bars.parquet"
    random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04"]).assign(halted=False).to_parquet(path)
    return path


def test_a_saved_panel_opens_equal_and_mapped(source: Path, tmp_path: Path) -> None:
    built = load_sessions(source, SMALL)
    opened = Sessions.open(built.save(tmp_path / "panel"))
    assert opened.fingerprint == built.fingerprint
    assert opened.report == built.report
    assert opened.calendar == built.calendar
    assert opened.instruments.tolist() == built.instruments.tolist()
    assert (opened.dates == built.dates).all()
    assert opened.halted is not None
    for name, array in built.fields.items():
        assert np.array_equal(opened.fields[name], array, equal_nan=True)
        assert is_mapped(opened.fields[name])
        assert not opened.fields[name].flags.writeable
    recomputed = Sessions(
        opened.calendar, opened.instruments, opened.dates, opened.num_ticks, opened.fields, halted=opened.halted
    )
    assert recomputed.fingerprint == built.fingerprint


def test_other_processes_map_the_files_instead_of_copying(source: Path, tmp_path: Path) -> None:
    opened = Sessions.open(load_sessions(source, SMALL).save(tmp_path / "panel"))
    message = pickle.dumps(opened)
    assert len(message) < 500
    assert pickle.loads(message).fingerprint == opened.fingerprint
    loose = load_sessions(source, SMALL)
    assert pickle.loads(pickle.dumps(loose)).fingerprint == loose.fingerprint


def test_the_cache_builds_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    monkeypatch.setattr("rlwb.market.load.PanelBuilder", lambda *_, **__: pytest.fail("built again"))
    second = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    assert second.fingerprint == first.fingerprint
    assert second.directory is not None
    assert panels(tmp_path / "cache") == [second.directory.name]


def test_a31_every_dependency_changes_the_key(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    base = load_sessions(source, SMALL, cache_dir=cache)
    others = [
        load_sessions(source, Calendar(segments=(("10:00", "10:05"),), infer_early_close_minutes=0), cache_dir=cache),
        load_sessions(source, SMALL, cache_dir=cache, instruments=["A"]),
        load_sessions(source, SMALL, cache_dir=cache, start="2024-01-04"),
        load_sessions(source, SMALL, cache_dir=cache, volume_multiplier=100),
        load_sessions(source, SMALL, cache_dir=cache, min_coverage=0.25),
        load_sessions(source, SMALL, cache_dir=cache, strict=True),
    ]
    assert len(panels(cache)) == 1 + len(others)
    assert others[3].fields["volume"][0, 0] == 100 * base.fields["volume"][0, 0]
    bars = random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04"], seed=1)
    bars.assign(halted=False).to_parquet(source)  # the same name, other content
    changed = load_sessions(source, SMALL, cache_dir=cache)
    assert changed.fingerprint == load_sessions(source, SMALL).fingerprint != base.fingerprint


def test_a31_five_minute_bars_and_one_minute_bars_do_not_meet(tmp_path: Path) -> None:
    one, five = Calendar.preset("cn"), Calendar.preset("cn", tick_minutes=5)
    source = tmp_path / "bars"
    source.mkdir()
    day_bars(five).drop(columns="instrument").to_csv(source / "A.csv", index=False)
    assert load_sessions(source, five, cache_dir=tmp_path).fields["close"].shape == (1, 48)
    day_bars(one).drop(columns="instrument").to_csv(source / "A.csv", index=False)
    assert load_sessions(source, one, cache_dir=tmp_path).fields["close"].shape == (1, 240)
    with pytest.raises(DataError, match="between ticks"):
        load_sessions(source, five, cache_dir=tmp_path)


def test_a21_file_names_are_part_of_the_key(tmp_path: Path) -> None:
    keys = set()
    for name in ("600000.SH", "600000.SZ", "BRK.B", "BRK-B"):
        folder = tmp_path / name
        folder.mkdir()
        day_bars(SMALL).drop(columns="instrument").to_csv(folder / f"{name}.csv", index=False)
        load_sessions(folder, SMALL, cache_dir=tmp_path / "cache")
        keys.add(name)
    assert len(panels(tmp_path / "cache")) == len(keys)


@pytest.mark.parametrize("harm", ["flip", "cut", "meta", "missing", "no_meta"])
def test_a_damaged_panel_is_noticed_and_built_again(
    source: Path, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    directory = first.directory
    assert directory is not None
    expected, target = first.fingerprint, directory / "field_close.npy"
    content = bytearray(target.read_bytes())
    del first
    if harm == "flip":
        content[-3] ^= 1
        target.write_bytes(content)
    elif harm == "cut":
        target.write_bytes(content[: len(content) // 2])
    elif harm == "missing":
        target.unlink()
    elif harm == "meta":
        (directory / "sessions.json").write_text('{"format": 1')
    else:
        (directory / "sessions.json").unlink()
    with pytest.raises(DataError, match=str(directory)):
        Sessions.open(directory)
    with caplog.at_level(logging.WARNING):
        again = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    assert again.fingerprint == expected
    assert again.report.counts["cache_rebuilt"] == 1
    assert "built again" in caplog.text
    assert load_sessions(source, SMALL, cache_dir=tmp_path / "cache").fingerprint == expected
    assert panels(tmp_path / "cache") == [directory.name]


def test_a_failed_save_leaves_nothing_and_the_old_panel_intact(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = load_sessions(source, SMALL)
    sessions.save(tmp_path / "panel")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlwb.market.store.write_json", full)
    with pytest.raises(OSError, match="No space"):
        sessions.select(np.array([0])).save(tmp_path / "panel")
    assert len(Sessions.open(tmp_path / "panel")) == len(sessions)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.parquet", "panel"]


def test_a_folder_of_something_else_is_not_replaced(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(DataError, match="not a saved panel"):
        load_sessions(source, SMALL).save(tmp_path / "mine")


def test_another_format_is_refused(source: Path, tmp_path: Path) -> None:
    meta = load_sessions(source, SMALL).save(tmp_path / "panel") / "sessions.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 99}))
    with pytest.raises(DataError, match="another format"):
        Sessions.open(tmp_path / "panel")


def _load(task: tuple[Path, Path]) -> str:
    return load_sessions(task[0], SMALL, cache_dir=task[1]).fingerprint


def test_processes_that_build_at_once_agree(source: Path, tmp_path: Path) -> None:
    """Eight at a time, from nothing; none sees a panel that is being replaced."""
    with multiprocessing.get_context("fork").Pool(4) as pool:
        prints = pool.map(_load, [(source, tmp_path / "cache")] * 8)
    assert set(prints) == {load_sessions(source, SMALL).fingerprint}


def test_a31_other_contents_of_the_same_size_and_time_are_other_data(source: Path, tmp_path: Path) -> None:
    before = source.stat()
    first = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    bars = random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04"]).assign(halted=False)
    bars.loc[3, "volume"] += 1.0
    bars.to_parquet(source)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_mtime_ns == before.st_mtime_ns
    second = load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    assert second.fields["volume"][0, 3] == first.fields["volume"][0, 3] + 1.0


def test_a31_bars_that_change_while_they_are_read_are_not_cached_under_the_old_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importing.bars_of

    def late(*args: Any, **options: Any) -> Any:
        random_bars(SMALL, ["A"], ["2024-01-05"]).to_parquet(source)
        return real(*args, **options)

    monkeypatch.setattr(importing, "bars_of", late)
    with pytest.raises(DataError, match="changed while it was read"):
        load_sessions(source, SMALL, cache_dir=tmp_path / "cache")
    assert not panels(tmp_path / "cache")


def test_a_panel_that_was_replaced_does_not_come_back_as_another(source: Path, tmp_path: Path) -> None:
    load_sessions(source, SMALL).save(tmp_path / "panel")
    message = pickle.dumps(Sessions.open(tmp_path / "panel"))
    assert len(pickle.loads(message)) == 4
    load_sessions(source, SMALL).select(np.arange(2)).save(tmp_path / "panel")
    with pytest.raises(DataError, match="was replaced by another"):
        pickle.loads(message)
