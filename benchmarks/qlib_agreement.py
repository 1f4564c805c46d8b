"""Whether rlwb and Qlib's own reader give the same bars of Qlib directories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market import read_bars

_ROOT = Path(__file__).resolve().parents[1]
_FIELDS = ("open", "high", "low", "close", "volume")
_COLUMNS = ("datetime", *_FIELDS)


def frequencies(directory: Path) -> list[str]:
    """Return the frequencies of a Qlib directory that have bars with prices."""
    names = [path.stem for path in sorted((directory / "calendars").glob("*.txt"))]
    return [name for name in names if any((directory / "features").glob(f"*/close.{name}.bin"))]


def compare(directories: Sequence[Path], python: str | Path, scratch: Path) -> list[dict[str, Any]]:
    """Read all directories with both readers, Qlib's in its own environment; return a row a directory and frequency.

    A bar is the same where its five values are the same float32 (NaN where NaN). Qlib gives a row for every step of
    its calendar; those without any value are no bars.
    """
    places = {f"{number}": (path, freq) for number, (path, freq) in enumerate(_pairs(directories))}
    job, out = scratch / "qlib.json", scratch / "qlib.npz"
    job.write_text(
        json.dumps({key: (str(path.absolute()), freq) for key, (path, freq) in places.items()}), encoding="utf-8"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    command = [str(python), "-m", "benchmarks.peer.qlib_reader", str(job), str(out)]
    done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Qlib's reader failed; the end of what it said:\n{done.stderr[-2000:]}")
    with np.load(out) as theirs:
        return [_row(key, path, freq, dict(theirs)) for key, (path, freq) in places.items()]


def _pairs(directories: Sequence[Path]) -> list[tuple[Path, str]]:
    return [(path, freq) for path in directories for freq in frequencies(path)]


def _row(key: str, path: Path, freq: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    names = sorted(name.split("/")[1] for name in arrays if name.startswith(f"{key}/") and name.endswith("/datetime"))
    try:
        ours = read_bars(path, kind="qlib", options={"freq": freq})
    except DataError as error:
        return {"directory": path.name, "freq": freq, "refused": str(error).replace(str(path.parent), "…")}
    frames = [_frame(name, {field: arrays[f"{key}/{name}/{field}"] for field in _COLUMNS}) for name in names]
    theirs = pd.concat(frames) if frames else _frame("", dict.fromkeys(_COLUMNS, np.empty(0)))
    return {"directory": path.name, "freq": freq, **differences(ours, theirs)}


def _frame(name: str, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    frame = pd.DataFrame(columns)
    frame.insert(0, "instrument", name)
    frame["datetime"] = frame["datetime"].astype("datetime64[ns]")
    return frame[frame[list(_FIELDS)].notna().any(axis=1)]


def differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, int]:
    """Count the bars that both, and one alone, have, and those of both whose values differ as float32."""
    key = ["instrument", "datetime"]
    ours, theirs = (
        frame[[*key, *_FIELDS]].astype({"instrument": str, **dict.fromkeys(_FIELDS, np.float32)})
        for frame in (ours, theirs)
    )
    both = ours.merge(theirs, on=key, suffixes=("", "_theirs"), validate="one_to_one")
    left = both[list(_FIELDS)].to_numpy()
    right = both[[f"{field}_theirs" for field in _FIELDS]].to_numpy()
    same = ((left == right) | (np.isnan(left) & np.isnan(right))).all(axis=1)
    return {
        "instruments": int(theirs["instrument"].nunique()),
        "bars_compared": len(both),
        "different": int((~same).sum()),
        "only_rlwb": len(ours) - len(both),
        "only_qlib": len(theirs) - len(both),
    }
