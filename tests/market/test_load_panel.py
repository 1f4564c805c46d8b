"""A saved panel as a source of sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Sessions, load_sessions, store
from tests.market.helpers import random_bars

CLOCK = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)


@pytest.fixture
def panel(tmp_path: Path) -> Path:
    bars = random_bars(CLOCK, ["A", "B"], ["2024-01-03", "2024-01-04"])
    bars.loc[0, "close"] = 0.0
    return Sessions.from_bars(bars, CLOCK).save(tmp_path / "panel")


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
    with pytest.raises(DataError, match="were not clean: 1 bars: a price of 0"):
        load_sessions(panel, strict=True)
    with pytest.raises(DataError, match="has no instrument C; the nearest of its 2 names"):
        load_sessions(panel, instruments="C")
    with pytest.raises(DataError, match="no session from 2025-01-01 to None; its days are 2024-01-03 to 2024-01-04"):
        load_sessions(panel, start="2025-01-01")
    with pytest.raises(ConfigError, match="needs a calendar"):
        load_sessions(panel.parent)


def test_checksums_are_computed_again_only_for_files_that_were_touched(
    panel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    real = store._checksum
    monkeypatch.setattr(store, "_checksum", lambda path: computed.append(path.name) or real(path))
    load_sessions(panel)
    assert len(computed) == len(list(panel.glob("*.npy")))
    computed.clear()
    load_sessions(panel)
    assert computed == []
    path = panel / "field_close.npy"
    harmed = bytearray(path.read_bytes())
    harmed[-1] ^= 1
    times = path.stat()
    path.write_bytes(harmed)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"the checksum of field_close\.npy differs"):
        load_sessions(panel)
