"""A market larger than one would load: written in parts, opened mapped, trained on; writes ``results/large.json``."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, load
from benchmarks.scale_job import DAYS
from benchmarks.table import RESULTS
from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market import Sessions
from rlwb.market.sessions import save_parts
from rlwb.market.store import META
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions

_ROOT = Path(__file__).resolve().parents[1]
_FIELDS = 5
#: Instruments a part; their bars at one minute take 50 MB for 250 days.
_PART = 20
#: Share of the free disk that a market may take.
_USABLE = 0.9


def market_parts(instruments: int, days: int, ticks: int) -> Iterator[Sessions]:
    """Return the synthetic market some instruments at a time; each part has a common factor of its own."""
    session, minutes = DAYS[ticks]
    for low in range(0, instruments, _PART):
        count = min(_PART, instruments - low)
        part = synthetic_sessions(
            SyntheticSettings(instruments=count, days=days, session=session, tick_minutes=minutes, seed=low // _PART)
        )
        names = np.repeat([f"L{low + number:06d}" for number in range(count)], days)
        yield Sessions(part.calendar, names, part.dates, part.num_ticks, part.fields, report=part.report)


def fitting(instruments: int, days: int, ticks: int, free: int) -> int:
    """Return as many of the instruments as `free` bytes of disk hold, in float64."""
    return min(instruments, int(_USABLE * free) // (days * ticks * _FIELDS * 8))


def write_market(folder: Path, instruments: int, days: int, ticks: int) -> tuple[int, float | None]:
    """Write the market to `folder` unless it is there; return its number of instruments, and the seconds it took."""
    if (folder / META).exists():
        there = Sessions.open(folder, verify=False)
        if (len(there), there.calendar.num_ticks) == (instruments * days, ticks):
            print(f"{folder} holds the market already", flush=True)
            return instruments, None
        raise DataError(f"{folder} holds {there}, another market; name another folder or remove it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = fitting(instruments, days, ticks, shutil.disk_usage(folder.parent).free)
    if held < instruments:
        print(f"the disk holds {held:,} of the {instruments:,} instruments", flush=True)
    if not held:
        raise DataError(f"the disk of {folder} does not hold a single instrument; free some or name another folder.")
    began = time.perf_counter()
    save_parts(market_parts(held, days, ticks), folder)
    return held, time.perf_counter() - began


def train(folder: Path, iterations: int, episodes: int) -> dict[str, Any]:
    """Train on the market in a process of its own; return its figures."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="rlwb-large-") as scratch:
        out = Path(scratch) / "out.json"
        job = {"market": str(folder.absolute()), "iterations": iterations, "episodes": episodes}
        (Path(scratch) / "large.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.large_job", "train", scratch, str(out)]
        if subprocess.run(command, cwd=_ROOT, env=env, check=False).returncode:
            raise SystemExit("the training failed; its message stands above.")
        figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return figures


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the market, train on it, and return all figures."""
    instruments, seconds = write_market(folder, args.instruments, args.days, args.ticks)
    files = [path.stat().st_size for path in folder.iterdir()]
    return {
        "machine": f"{describe_machine()}, 1 thread",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load": round(load(), 2),
        "instruments": instruments,
        "days": args.days,
        "ticks": args.ticks,
        "sessions": instruments * args.days,
        "bars": instruments * args.days * args.ticks,
        "disk_mb": sum(files) / 1e6,
        "write_seconds": seconds,
        **train(folder, args.iterations, args.episodes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instruments", type=int, default=5000)
    parser.add_argument("--days", type=int, default=250)
    parser.add_argument("--ticks", type=int, default=240, choices=sorted(DAYS))
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=1000, help="episodes an iteration")
    parser.add_argument("--folder", type=Path, help="kept, and used again; a temporary one by default")
    parser.add_argument("--out", type=Path, default=RESULTS.with_name("large.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlwb-large-") as scratch:
        results = measure(args, args.folder or Path(scratch) / "market")
    write_json(args.out, results)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
