"""Feed readers, configurations and runs with damaged and odd inputs, drawn by hypothesis; writes ``results/fuzz.json``.

An input is answered with the bars that a slow plain reading of it has, or refused with a `DataError` of one sentence
that names the file, within 10 s and a stated memory. Anything else is unexpected: hypothesis makes the input as small
as it can, and it is kept in ``.fuzz/``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import numpy as np

from benchmarks.fuzzing.damage import Tree, write_tree
from benchmarks.fuzzing.targets import LIMIT, TARGETS, Target, UnexpectedError
from benchmarks.measure import context, run_job, status_memory
from benchmarks.table import RESULTS
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
_MINUTES, _QUICK, _ROUND = 14.0, 150, 500
#: Seconds of the processor for one input, and MB that reading it may add to the process.
SECONDS, MEGABYTES = 10, 4 * LIMIT + 64
#: What readers never do, as Python's audit events name it.
_ACTS = ("os.", "subprocess.", "socket.", "shutil.", "pty.", "ctypes.dlopen")
_HARMLESS = ("os.scandir", "os.listdir", "os.walk", "os.fwalk")


class Files(dict[str, bytes]):
    """A tree whose text is short, for hypothesis writes it down."""

    def __repr__(self) -> str:
        return f"{len(self)} files"


class Watch:
    """Counts inputs and their outcomes, and looks at what else reading them does."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.counts = {"inputs": 0, "answers": 0, "refusals": 0}
        self.peak, self.slowest = 0.0, 0.0
        self._acts: list[str] | None = None
        sys.addaudithook(self._note)
        signal.signal(signal.SIGPROF, self._late)

    def try_(self, files: Tree) -> None:
        """Read one input; raise `UnexpectedError` where that does what readers may not do."""
        self.counts["inputs"] += 1
        if not write_tree(files, self.folder):
            return
        began, before = time.perf_counter(), _resident("VmRSS", reset=True)
        self._acts = []
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outcome = self.target.check(files, self.folder)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            acts, self._acts = self._acts, None
        grown = _resident("VmHWM") - before
        self.peak, self.slowest = max(self.peak, grown), max(self.slowest, time.perf_counter() - began)
        if acts and not self.target.writes:
            raise UnexpectedError(f"does more than reading: {acts[0]}")
        if grown > MEGABYTES:
            raise UnexpectedError(f"takes {grown:.0f} MB for {sum(map(len, files.values())):,} bytes")
        self.counts[outcome] += 1

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._acts is not None:
            writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if writes or (event.startswith(_ACTS) and event not in _HARMLESS):
                self._acts.append(f"{event} {str(arguments)[:80]}")

    def _late(self, number: int, frame: FrameType | None) -> None:
        raise UnexpectedError(f"takes longer than {SECONDS} s")


def _resident(name: str, reset: bool = False) -> float:
    """Return the process's memory in MB, now (VmRSS) or at most since the last reset (VmHWM); 0 if it is not told."""
    if reset and os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return float(np.nan_to_num(status_memory(name)))


def run(name: str, seed: int, inputs: int, seconds: float, keep: Path, scratch: Path) -> dict[str, Any]:
    """Fuzz one target in this process until so many inputs or seconds; return its row of the results."""
    target = TARGETS[name]
    drawn = target.inputs()  # a run takes its time to be made
    watch, began = Watch(target, scratch / "input"), time.perf_counter()
    kinds: dict[str, int] = {}
    for number in range(10**9):
        left = inputs - watch.counts["inputs"]
        if left <= 0 or time.perf_counter() - began > seconds:
            break

        @hypothesis.seed(seed * 10**6 + number)
        @hypothesis.settings(
            max_examples=min(left, _ROUND),
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(drawn.map(Files))
        def once(files: Tree) -> None:
            if time.perf_counter() - began < seconds:
                watch.try_(files)

        try:
            once()
        except Exception as error:
            found = f"{type(error).__name__}: {str(error).partition(': too many ')[0][:200]}"
            kinds[found] = kinds.get(found, 0) + 1
            place = keep / name.replace(", ", "-") / f"{len(kinds):03d}"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(scratch / "input", place)
            error.__notes__ = []  # the input as text; its files are kept
            text = "".join(traceback.format_exception(error))
            place.with_suffix(".txt").write_text(text, encoding="utf-8", errors="replace")
    return {
        "target": name,
        "seed": seed,
        **watch.counts,
        "unexpected": sum(kinds.values()),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mb": round(watch.peak, 1),
        "slowest_s": round(watch.slowest, 3),
        "kinds": kinds,
    }


def limited(folder: Path, target: str, seed: int, inputs: int, seconds: float, keep: str) -> dict[str, Any]:
    """`run` as a job, within 6 GB."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2)
    return run(target, seed, inputs, seconds, Path(keep), folder)


JOBS = {"fuzz": limited}


def fuzz(target: str, seed: int, inputs: int, seconds: float, keep: Path) -> dict[str, Any]:
    """Fuzz one target in a process of its own, which may die; return its row."""
    asked = {"target": target, "seed": seed, "inputs": inputs, "seconds": seconds, "keep": str(keep.absolute())}
    with tempfile.TemporaryDirectory(prefix="rlwb-fuzz-") as scratch:
        try:
            row = run_job("fuzz", "fuzz", Path(scratch), **asked)
        except SystemExit as error:  # the process was killed, or ended by a fault of a library
            kinds = {str(error): 1}
            row = {"target": target, "seed": seed, "inputs": 0, "unexpected": 1, "seconds": seconds, "kinds": kinds}
    print(f"{target}: {row['inputs']:,} inputs in {row['seconds']:,.0f} s, {row['unexpected']:,} unexpected")
    for kind, count in row["kinds"].items():
        print(f"  {count:,} x {kind}")
    return row


def merged(out: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `rows` and those of other targets that `out` holds already, in the order of the targets."""
    held = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    by_target = {row["target"]: row for row in [*held, *rows]}
    return [by_target[name] for name in TARGETS if name in by_target]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), help="all by default")
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
    seconds = args.seconds or args.minutes * 60 * args.jobs / len(args.targets)
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda name: fuzz(name, args.seed, inputs, seconds, args.keep), args.targets))
    about = {"limit_s": SECONDS, "limit_mb": MEGABYTES, **context(f", {args.jobs} targets at a time")}
    # A short run never replaces the results that are told of.
    out = args.out or RESULTS.with_name("fuzz-quick.json" if args.quick else "fuzz.json")
    write_json(out, merged(out, [{**row, **about} for row in rows]))
    unexpected = sum(row["unexpected"] for row in rows)
    print(f"{sum(row['inputs'] for row in rows):,} inputs, {unexpected:,} unexpected; written to {out}")
    raise SystemExit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
