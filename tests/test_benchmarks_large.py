"""The measurement of a large market, on a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.large import fitting, market_parts, train, write_market
from benchmarks.measure import status_memory
from rlwb.errors import DataError
from rlwb.market import Sessions


def test_the_market_has_the_asked_size_and_parts_that_differ(tmp_path: Path) -> None:
    held, seconds = write_market(tmp_path / "market", 23, 3, 48)
    assert held == 23
    assert seconds is not None
    sessions = Sessions.open(tmp_path / "market")
    assert sessions.fields["close"].shape == (23 * 3, 48)
    assert sessions.index.names.tolist() == [f"L{number:06d}" for number in range(23)]
    assert len(np.unique(sessions.fields["close"][:, -1])) == 69
    assert write_market(tmp_path / "market", 23, 3, 48) == (23, None)  # used again
    with pytest.raises(DataError, match="another market"):
        write_market(tmp_path / "market", 23, 4, 48)


def test_no_more_is_written_than_the_disk_holds() -> None:
    instrument = 250 * 240 * 5 * 8
    assert fitting(5000, 250, 240, 20 * 10**9) == 5000
    assert fitting(5000, 250, 240, 10 * instrument) == 9
    assert fitting(5000, 250, 240, instrument) == 0
    assert [len(part) for part in market_parts(41, 2, 48)] == [40, 40, 2]


def test_training_tells_its_figures(tmp_path: Path) -> None:
    write_market(tmp_path / "market", 2, 10, 48)
    figures = train(tmp_path, str(tmp_path / "market"), iterations=2, episodes=10)
    assert figures["train_orders"] == 2 * 5 * 2  # instruments, 60 % of the nine days after the first, sides
    assert len(figures["iteration_seconds"]) == 2
    assert figures["transitions"] >= 10
    assert figures["peak_resident_mb"] > 50
    stages = {"open", "orders", "features", "bind", "train", "rows"}
    assert figures["peak_own_mb_by_stage"].keys() == stages
    assert all(figures[f"{stage}_seconds"] >= 0 for stage in stages)
    if np.isfinite(status_memory("RssAnon")):
        assert 0 < figures["peak_own_mb"] <= figures["peak_resident_mb"]
