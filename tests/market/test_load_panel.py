"""A saved panel as a source of sessions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, build_sessions, load_sessions, store
from tests.market.helpers import random_bars

CLOCK = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)


@pytest.fixture
def panel(tmp_path: Path) -> Path:
    bars = random_bars(CLOCK, ["A", "B"], ["2024-01-03", "2024-01-04"])
    bars.loc[0, "close"] = 0.0
    return build_sessions(bars, CLOCK).save(tmp_path / "panel")


def test_it_is_opened_as_it_is_or_in_part(panel: Path) -> None:
    whole = load_sessions(panel)
    assert whole.directory == panel
    assert whole.report.counts["price_zero"] == 1
    part = load_sessions(panel, CLOCK, instruments=["B"], start="2024-01-04", end="2024-01-04")
    assert (part.instruments.tolist(), part.dates.astype(str).tolist()) == (["B"], ["2024-01-04"])
    assert part.fields["close"].tolist() == whole.fields["close"][3:].tolist()


def test_what_cannot_be_is_refused(panel: Path) -> None:
    with pytest.raises(ConfigError, match="a saved panel, where volume_multiplier has no effect"):
        load_sessions(panel, volume_multiplier=100)
    with pytest.raises(ConfigError, match="has a calendar of its own"):
        load_sessions(panel, Calendar.preset("cn"))
    with pytest.raises(DataError, match="were not clean: 1 bar: a price of 0"):
        load_sessions(panel, strict=True)
    with pytest.raises(DataError, match="has no instrument C; the nearest of its 2 names"):
        load_sessions(panel, instruments="C")
    with pytest.raises(DataError, match="no session from 2025-01-01 to None; its days are 2024-01-03 to 2024-01-04"):
        load_sessions(panel, start="2025-01-01")
    with pytest.raises(ConfigError, match="needs a calendar"):
        load_sessions(panel.parent)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose checksums were computed since."""
    names: list[str] = []
    real = store._checksum
    monkeypatch.setattr(store, "_checksum", lambda path: names.append(path.name) or real(path))
    return names


def files_of(panel: Path) -> list[str]:
    return sorted(path.name for path in panel.glob("*.npy"))


def harm(path: Path) -> None:
    """Change the last byte, and leave size and time of change as they were."""
    content, times = bytearray(path.read_bytes()), path.stat()
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_panel_opens_at_once_after_it_was_written(panel: Path, computed: list[str]) -> None:
    assert load_sessions(panel).report.counts["price_zero"] == 1
    assert computed == []


def test_a_file_that_was_touched_is_computed_again(panel: Path, computed: list[str]) -> None:
    (panel / "field_open.npy").touch()
    load_sessions(panel)
    assert sorted(computed) == files_of(panel)
    computed.clear()
    load_sessions(panel)
    assert computed == []


@pytest.mark.parametrize("opened", [False, True])
def test_damage_is_noticed_by_checksum(panel: Path, opened: bool) -> None:
    if opened:
        load_sessions(panel)
    harm(panel / "field_close.npy")
    with pytest.raises(DataError, match=r"the checksum of field_close\.npy differs"):
        load_sessions(panel)
    with pytest.raises(DataError, match="differs"):
        load_sessions(panel)  # nor is it forgotten


def test_a_copy_is_verified_though_its_mark_and_times_are_copied(panel: Path, computed: list[str]) -> None:
    copy = panel.with_name("copy")
    shutil.copytree(panel, copy, copy_function=shutil.copy2)
    assert (copy / ".verified.json").exists()
    load_sessions(copy)
    assert sorted(computed) == files_of(panel)
    shutil.copytree(panel, panel.with_name("harmed"))
    harm(panel.with_name("harmed") / "dates.npy")
    with pytest.raises(DataError, match="damaged"):
        load_sessions(panel.with_name("harmed"))


def test_a_panel_that_changes_while_it_is_written_is_not_taken_for_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = build_sessions(random_bars(CLOCK, ["A"], ["2024-01-03"]), CLOCK)
    real = store._map

    def late(folder: Path, names: Any) -> Any:
        if folder.suffix == ".rlwb-new":
            harm(folder / "field_close.npy")
        return real(folder, names)

    monkeypatch.setattr(store, "_map", late)
    with pytest.raises(DataError, match="differs"):
        load_sessions(sessions.save(tmp_path / "panel"))
