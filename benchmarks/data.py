"""How fast bars are read and laid out, in how much memory, and whether Qlib agrees; writes ``results/data.json``."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.data_job import JOBS
from benchmarks.data_sources import WRITERS, market, write_qlib
from benchmarks.machine import describe_machine, load
from benchmarks.qlib_agreement import compare
from benchmarks.run import peer_python, run_job
from benchmarks.table import RESULTS
from rlwb.files import write_json

_QUICK = {"instruments": 2, "days": 3}


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
        figures = [run_job(sys.executable, "data", job, folder, 1) for _ in range(rounds)]
        best = min(figures, key=lambda one: one["seconds"])
        rows.append({"figure": job, **best, "bars_per_s": best["bars"] / best["seconds"]})
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in rows[-1].items() if name != "figure")
        print(f"{job}: {shown}", flush=True)
        for cache in folder.glob("cache of *"):
            shutil.rmtree(cache)
    return rows


def agree(directories: list[Path], python: str | Path, scratch: Path) -> list[dict[str, Any]]:
    """Compare a directory made for the purpose, and `directories`, by both readers; return a row each."""
    made = scratch / "made with holes"
    write_qlib(market(6, 12, seed=1), made, ("1min", "5min", "day"), holes=True)
    rows = compare([made, *directories], python, scratch)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true", help="leave out the agreement with Qlib")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round, to see that all runs")
    parser.add_argument("--instruments", type=int, default=20)
    parser.add_argument("--days", type=int, default=50, help="of 240 bars each")
    parser.add_argument("--rounds", type=int, default=3, help="how often each job runs; the fastest counts")
    parser.add_argument(
        "--qlib", type=Path, nargs="*", default=[], help="Qlib directories of yours, to compare as well"
    )
    parser.add_argument("--python", default="python3.11", help="what makes the peer's environment")
    parser.add_argument("--peer", type=Path, help="an interpreter that has the peer, in place of .bench-venv")
    parser.add_argument("--out", type=Path, help="where the figures go; results/data.json by default")
    args = parser.parse_args()
    sizes = _QUICK if args.quick else {"instruments": args.instruments, "days": args.days}
    results: dict[str, Any] = {
        "machine": f"{describe_machine()}, 1 thread",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load": round(load(), 2),
    }
    with tempfile.TemporaryDirectory(prefix="rlwb-data-") as scratch:
        folder = Path(scratch)
        write_sources(folder, **sizes)
        results["rates"] = measure(folder, 1 if args.quick else args.rounds)
        if not args.no_peer:
            results["qlib"] = agree(args.qlib, args.peer or peer_python(args.python), folder)
    # Results of another size never replace those that are told of.
    out = args.out or RESULTS.with_name("data-quick.json" if args.quick else "data.json")
    write_json(out, results)
    print(f"written to {out}")
    differing = sum(row.get("different", 0) + row.get("only_qlib", 0) for row in results.get("qlib", []))
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
