"""How fast bars are read and laid out, in how much memory, and whether Qlib agrees; writes ``results/data.json``."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.data_sources import WRITERS, market, write_qlib
from benchmarks.measure import context, peak_memory, run_job, seconds
from benchmarks.run import peer_arguments, peer_python, results_file
from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market import Calendar, Sessions, import_bars, load_sessions, read_bars

_QUICK = {"instruments": 2, "days": 3}
_FIELDS = ("open", "high", "low", "close", "volume")
_COLUMNS = ("datetime", *_FIELDS)
_CALENDAR = Calendar.preset("cn", tick_minutes=1)
_ZONES = {"binance": "UTC"}


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


JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {
    **{f"read {name}": partial(read, name) for name in WRITERS},
    **{f"import {name}": partial(bring_in, name) for name in ("csv", "parquet", "qlib", "binance")},
    **{f"lay out {name}": partial(lay_out, name) for name in ("csv", "parquet")},
}


def write_sources(folder: Path, instruments: int, days: int) -> None:
    """Write the market in the files of every reader, a folder each."""
    frame = market(instruments, days)
    for name, (write, _) in WRITERS.items():
        if name != "qlib":
            (folder / name).mkdir(parents=True)
        write(frame, folder / name)


def measure(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return a row a job: the fastest of the rounds, which other work on the machine disturbed least."""
    rows = []
    for job in JOBS:
        figures = [run_job("data", job, folder) for _ in range(rounds)]
        best = min(figures, key=lambda one: one["seconds"])
        rows.append({"figure": job, **best, "bars_per_s": best["bars"] / best["seconds"]})
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in rows[-1].items() if name != "figure")
        print(f"{job}: {shown}", flush=True)
        for cache in folder.glob("cache of *"):
            shutil.rmtree(cache)
    return rows


def frequencies(directory: Path) -> list[str]:
    """Return the frequencies of a Qlib directory that have bars with prices."""
    names = [path.stem for path in sorted((directory / "calendars").glob("*.txt"))]
    return [name for name in names if any((directory / "features").glob(f"*/close.{name}.bin"))]


def agree(directories: Sequence[Path], python: Path, scratch: Path) -> list[dict[str, Any]]:
    """Compare both readers on a directory made for the purpose and on `directories`; a row a directory and frequency.

    A bar is the same where its five values are the same float32 (NaN where NaN). Qlib gives a row for every step of
    its calendar; those without any value are no bars.
    """
    made = scratch / "made with holes"
    write_qlib(market(6, 12, seed=1), made, ("1min", "5min", "day"), holes=True)
    pairs = [(path, freq) for path in (made, *directories) for freq in frequencies(path)]
    places = {str(number): (str(path.absolute()), freq) for number, (path, freq) in enumerate(pairs)}
    run_job("peer.qlib_reader", "read", scratch, python=python, places=places)
    with np.load(scratch / "qlib.npz") as theirs:
        rows = [_row(str(number), path, freq, dict(theirs)) for number, (path, freq) in enumerate(pairs)]
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return rows


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    peer_arguments(parser)
    parser.add_argument("--instruments", type=int, default=20)
    parser.add_argument("--days", type=int, default=50, help="of 240 bars each")
    parser.add_argument("--rounds", type=int, default=3, help="how often each job runs; the fastest counts")
    parser.add_argument("--qlib", type=Path, nargs="*", default=[], help="Qlib directories, to compare as well")
    args = parser.parse_args()
    sizes = _QUICK if args.quick else {"instruments": args.instruments, "days": args.days}
    results: dict[str, Any] = context(", 1 thread")
    with tempfile.TemporaryDirectory(prefix="rlwb-data-") as scratch:
        folder = Path(scratch)
        write_sources(folder, **sizes)
        results["rates"] = measure(folder, 1 if args.quick else args.rounds)
        if (python := peer_python(args)) is not None:
            results["qlib"] = agree(args.qlib, python, folder)
    out = results_file(args, "data")
    write_json(out, results)
    print(f"written to {out}")
    differing = sum(row.get("different", 0) + row.get("only_qlib", 0) for row in results.get("qlib", []))
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
