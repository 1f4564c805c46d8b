"""Small data sets for tests."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rlwb.market import Calendar, read_bars

CLOCK = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)
DAYS = ("2024-01-03", "2024-01-04", "2024-02-01")


def content(directory: Path) -> dict[str, bytes]:
    """Return every file of a folder by its path, but for the lock."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def bars_of(source: Path) -> pd.DataFrame:
    """Return the bars of a source sorted, ids as plain text."""
    bars = read_bars(source)
    bars["instrument"] = bars["instrument"].astype(str)
    return bars.sort_values(["instrument", "datetime"], ignore_index=True)
