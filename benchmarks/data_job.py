"""Reading and laying out bars, one job a process. Run as ``python -m benchmarks.data_job JOB FOLDER OUT``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data_sources import WRITERS
from benchmarks.measure import peak_memory, run_job, seconds
from rlwb.market import Calendar, Sessions, load_sessions, read_bars
from rlwb.market.dataset.importing import import_bars


def read(name: str, folder: Path) -> dict[str, float]:
    """Read the source of one format: once for the memory, then again and again for the time."""
    source, options = folder / name, WRITERS[name][1]
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file()) / 1e6
    bare = peak_memory()
    bars = len(read_bars(source, options=options))
    peak = _grown(bare)
    took = seconds(lambda: read_bars(source, options=options))
    return {"bars": bars, "files_mb": size, "seconds": took, "peak_mb": peak}


def lay_out(name: str, folder: Path) -> dict[str, float]:
    """Read, validate and lay out one format into a cached panel, then open that."""
    cache = _new(folder / f"cache of {name}")
    bare, began = peak_memory(), time.perf_counter()
    sessions = load_sessions(folder / name, _CALENDAR, cache_dir=cache)
    took, peak = time.perf_counter() - began, _grown(bare)
    opened = seconds(lambda: Sessions.open(sessions.directory, verify=False))
    return {"bars": sessions.report.totals["bars_read"], "seconds": took, "peak_mb": peak, "open_seconds": opened}


def bring_in(name: str, folder: Path) -> dict[str, float]:
    """Import one format into a new data set, then once more, which finds nothing new."""
    place = _new(folder / f"cache of imported {name}")
    calendar = Calendar.preset("cn", tick_minutes=1, timezone=_ZONES.get(name, "Asia/Shanghai"))
    bare, began = peak_memory(), time.perf_counter()
    imported = import_bars([folder / name], place, calendar=calendar)
    took, peak = time.perf_counter() - began, _grown(bare)
    again = seconds(lambda: import_bars([folder / name], place), least=0)
    return {"bars": imported.bars, "seconds": took, "peak_mb": peak, "again_seconds": again}


def _new(place: Path) -> Path:
    """Return a folder that an earlier round has left nothing in."""
    shutil.rmtree(place, ignore_errors=True)
    return place


def _grown(bare: float) -> float:
    return max(0.0, peak_memory() - bare)  # the kernel counts the peak to some pages, so that it may seem to fall


_CALENDAR = Calendar.preset("cn", tick_minutes=1)
_ZONES = {"binance": "UTC"}
JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{f"read {name}": partial(read, name) for name in WRITERS},
    **{f"import {name}": partial(bring_in, name) for name in ("csv", "parquet", "qlib", "binance")},
    **{f"lay out {name}": partial(lay_out, name) for name in ("csv", "parquet")},
}

if __name__ == "__main__":
    run_job(JOBS)
