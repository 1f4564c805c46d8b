"""Feed every reader with damaged and odd inputs, guided by the lines that they reach; writes ``results/fuzz.json``.

An input is answered with the bars that a slow plain reading of it has, or refused with a `DataError` of one sentence
that names the file, within 10 s and a stated memory. Anything else is unexpected, and kept in ``.fuzz/``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.loop import MEGABYTES, SECONDS
from benchmarks.fuzzing.targets import TARGETS
from benchmarks.machine import describe_machine
from benchmarks.table import RESULTS
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
_MINUTES, _QUICK = 14.0, 150
#: Seconds of a target before its first input.
_START = 3


def fuzz(target: str, seed: int, inputs: int, seconds: float, keep: Path) -> dict[str, Any]:
    """Fuzz one target in a process of its own, which may die; return its counts."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, "1"), "PYTHONHASHSEED": "0"}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rlwb-fuzz-") as scratch:
        out = Path(scratch) / "out.json"
        values = [target, str(seed), str(inputs), str(seconds), str(keep.absolute()), str(out)]
        command = [sys.executable, "-m", "benchmarks.fuzzing.loop", *values]
        done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, check=False)
        if out.exists():
            result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        else:  # the process ended: killed, or by a fault of a library
            result = {"target": target, "seed": seed, "inputs": 0, "unexpected": 1}
            result["seconds"] = round(time.perf_counter() - began, 1)
            result["kinds"] = {f"ended with {done.returncode}: {done.stderr.strip()[-500:]}": 1}
    print(
        f"{target}: {result['inputs']:,} inputs in {result['seconds']:,.0f} s, {result['unexpected']:,} unexpected",
        *(f"  {count:,} x {kind}" for kind, count in result["kinds"].items()),
        sep="\n",
        flush=True,
    )
    return result


def seconds_of(names: list[str], minutes: float, jobs: int) -> dict[str, float]:
    """Return the seconds of each target with which all of them end within `minutes`, the longest first."""
    shares = {name: TARGETS[name].share for name in sorted(names, key=lambda name: -TARGETS[name].share)}
    whole = minutes * 60 * min(jobs, len(names)) - _START * len(names)
    return {name: max(1.0, whole * share / sum(shares.values())) for name, share in shares.items()}


def merged(out: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `rows` and those of other targets that `out` holds already, in the order of the targets."""
    held = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    by_target = {row["target"]: row for row in [*held, *rows]}
    return [by_target[name] for name in TARGETS if name in by_target]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=list(TARGETS), help="all by default; rows of others stay"
    )
    parser.add_argument("--minutes", type=float, default=_MINUTES, help=f"of all together; {_MINUTES:g} by default")
    parser.add_argument("--seconds", type=float, help="of each target, in place of --minutes")
    parser.add_argument("--inputs", type=int, default=10**9, help="of each target at most; no limit by default")
    parser.add_argument("--seed", type=int, default=0, help="of all changes; another seed tries other inputs")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time; 2 by default")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK} inputs of each target, to see that all runs")
    parser.add_argument("--keep", type=Path, default=_ROOT / ".fuzz", help="folder of unexpected inputs; .fuzz/")
    parser.add_argument("--out", type=Path, help="where the rows go; results/fuzz.json by default")
    args = parser.parse_args()
    inputs = _QUICK if args.quick else args.inputs
    seconds = seconds_of(args.targets, args.minutes, args.jobs)
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = [
            pool.submit(fuzz, name, args.seed, inputs, args.seconds or seconds[name], args.keep) for name in seconds
        ]
        rows = [future.result() for future in futures]
    context = {
        "limit_s": SECONDS,
        "limit_mb": MEGABYTES,
        "machine": f"{describe_machine()}, {args.jobs} targets at a time",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }
    # A short run never replaces the results that are told of.
    out = args.out or RESULTS.with_name("fuzz-quick.json" if args.quick else "fuzz.json")
    write_json(out, merged(out, [{**row, **context} for row in rows]))
    unexpected = sum(row["unexpected"] for row in rows)
    print(f"{sum(row['inputs'] for row in rows):,} inputs, {unexpected:,} unexpected; written to {out}")
    raise SystemExit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
