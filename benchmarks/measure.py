"""Clocks and memory. Plain Python: this module is imported in both environments."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Repetitions go on for this long, so that a figure does not hang on one moment.
_SECONDS = 0.5


class Timer:
    """Adds up the seconds spent in the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began
                self.calls += 1

        return timed


def seconds(function: Callable[[], Any], least: float = _SECONDS) -> float:
    """Return the mean seconds of a call, over as many calls as fill `least` seconds; the first is not counted."""
    function()
    calls, began = 0, time.perf_counter()
    while True:
        function()
        calls += 1
        passed = time.perf_counter() - began
        if passed >= least:
            return passed / calls


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB (1e6 bytes)."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss, which survives exec and then tells of the parent.
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def run_job(jobs: dict[str, Callable[[Path], dict[str, Any]]]) -> None:
    """Run the job that the command line names: ``JOB FOLDER OUT``; write its figures to OUT as JSON."""
    name, folder, out = sys.argv[1:]
    if name not in jobs:
        raise SystemExit(f"there is no job {name}; there are {', '.join(jobs)}.")
    Path(out).write_text(json.dumps(jobs[name](Path(folder))), encoding="utf-8")
