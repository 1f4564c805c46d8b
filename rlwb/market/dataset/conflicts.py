"""Bars that contradict each other, kept beside the data set for people to judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rlwb.market.dataset.bars import MUST, Block
from rlwb.market.dataset.layout import CONFLICTS
from rlwb.market.dataset.merge import Conflicts

_SIDES = ("kept", "other")
COLUMNS = ("instrument", "datetime", *(f"{side}_{name}" for side in _SIDES for name in ("source", "row", *MUST)))


def write_conflicts(path: Path, conflicts: Sequence[Conflicts]) -> int:
    """Write one row a conflict; return how many there are."""
    frame = pd.concat([_frame(one) for one in conflicts], ignore_index=True)
    frame.to_parquet(path, index=False)
    return len(frame)


def read_conflicts(directory: Path) -> pd.DataFrame:
    """Return all conflicts of a data set, in the order of their sources.

    Returns
    -------
    pandas.DataFrame
        instrument, datetime, and for the bar that was kept and the other one its source (number), row, open, high,
        low, close and volume, as ``kept_close`` and ``other_close``.
    """
    files = sorted((directory / CONFLICTS).glob("*.parquet"))
    frames = [pd.read_parquet(path) for path in files]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def _frame(conflicts: Conflicts) -> pd.DataFrame:
    kept = conflicts.kept
    columns: dict[str, object] = {
        "instrument": pd.Series([conflicts.instrument] * len(kept), dtype=object),
        "datetime": kept.stamp.view("datetime64[us]"),
    }
    for side, block in zip(_SIDES, (kept, conflicts.other), strict=True):
        columns |= {f"{side}_{name}": values for name, values in _values(block).items()}
    return pd.DataFrame(columns)


def _values(block: Block) -> dict[str, np.ndarray]:
    return {"source": block.source, "row": block.row, **{name: block.values[name] for name in MUST}}
