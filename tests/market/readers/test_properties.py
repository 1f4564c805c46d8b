"""Any bars, written in each format, are read back; any damage to them is refused, or read as what is there."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.data_sources import WRITERS
from benchmarks.fuzzing.damage import damaged, write_tree
from benchmarks.fuzzing.targets import TARGETS
from rlwb.market import read_bars
from tests.market.readers.sources import write_qlib

FIELDS = ["open", "high", "low", "close", "volume"]
MINUTES = pd.date_range("2024-01-03 09:30", periods=6, freq="min")
cents = st.integers(1, 10_000_000).map(lambda number: number / 100)


@st.composite
def markets(draw: st.DrawFn) -> pd.DataFrame:
    """Return bars of one to three instruments on two days, some minutes absent."""
    frames = []
    for number in range(draw(st.integers(1, 3))):
        days = draw(st.lists(st.sampled_from([0, 1, 68]), min_size=1, max_size=2, unique=True))
        kept = draw(st.lists(st.sampled_from(range(6)), min_size=1, max_size=6, unique=True))
        stamps = [MINUTES[minute] + pd.Timedelta(days=day) for day in sorted(days) for minute in sorted(kept)]
        rows = draw(
            st.lists(st.tuples(*[cents] * 4, st.integers(0, 10**9)), min_size=len(stamps), max_size=len(stamps))
        )
        frame = pd.DataFrame(rows, columns=FIELDS)
        frame.insert(0, "datetime", pd.DatetimeIndex(stamps))
        frame.insert(0, "instrument", f"SH60000{number}")
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def same(read: pd.DataFrame, wanted: pd.DataFrame, dtype: Any = np.float64) -> None:
    stamps = read["datetime"]
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        stamps = stamps.dt.tz_localize(None)
    assert read["instrument"].astype(str).tolist() == wanted["instrument"].tolist()
    assert stamps.tolist() == wanted["datetime"].tolist()
    for field in FIELDS:
        np.testing.assert_array_equal(read[field].astype(dtype), wanted[field].astype(dtype), field)


@pytest.mark.parametrize("name", ["csv", "csv.gz", "parquet", "binance", "lean", "qlib_pickle"])
@given(frame=markets())
@settings(max_examples=15, deadline=None)
def test_any_bars_are_read_back(name: str, frame: pd.DataFrame) -> None:
    write, options = WRITERS[name]
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        write(frame, source)
        same(read_bars(source, options=options), frame, np.float32 if name == "qlib_pickle" else np.float64)


@given(frame=markets())
@settings(max_examples=15, deadline=None)
def test_any_bars_are_read_back_from_a_qlib_directory(frame: pd.DataFrame) -> None:
    steps = frame["datetime"].drop_duplicates().sort_values()
    columns = {
        name: bars.set_index("datetime")[FIELDS].reindex(steps).to_dict("list")
        for name, bars in frame.groupby("instrument")
    }
    with TemporaryDirectory() as folder:
        source = write_qlib(Path(folder) / "q", columns, [str(step) for step in steps])
        same(read_bars(source), frame, np.float32)


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "run" and not name.startswith("configuration")])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_damage_is_refused_in_a_sentence_or_read_as_what_is_there(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "input"
        files = data.draw(damaged(target.seeds()))
        write_tree(files, folder)
        target.check(files, folder)
