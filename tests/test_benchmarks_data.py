"""The measurement of readers on small sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import JOBS, differences, frequencies, write_sources
from benchmarks.data_sources import market, write_qlib
from rlwb.market import read_bars


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder, instruments=2, days=1)
    return folder


@pytest.mark.parametrize("job", list(JOBS))
def test_every_job_reads_all_bars(job: str, sources: Path) -> None:
    for _ in range(2):  # a second round finds nothing done by the first
        figures = JOBS[job](sources)
        assert figures["bars"] == 2 * (390 if "lobster" in job else 240)
        assert figures["seconds"] > 0
        assert figures["peak_mb"] >= 0


def test_bars_that_differ_from_qlibs_are_counted(tmp_path: Path) -> None:
    write_qlib(market(3, 5), tmp_path / "q", ("1min", "5min", "day"), holes=True)
    assert frequencies(tmp_path / "q") == ["1min", "5min", "day"]
    ours = read_bars(tmp_path / "q", kind="qlib", options={"freq": "5min"})
    theirs = ours.astype({"instrument": str}).copy()
    assert differences(ours, theirs)["different"] == 0
    theirs.loc[3, "close"] += 0.01
    theirs.loc[4, "volume"] = np.nan if theirs.loc[4, "volume"] == theirs.loc[4, "volume"] else 1.0
    counted = differences(ours, theirs.drop(index=[0, 1]))
    assert counted == {
        "instruments": 3,
        "bars_compared": len(ours) - 2,
        "different": 2,
        "only_rlwb": 2,
        "only_qlib": 0,
    }
