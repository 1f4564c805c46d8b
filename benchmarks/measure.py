"""Clocks, memory, and jobs in processes of their own. Plain Python: this module is imported in both environments.

A job is a function of a module's ``JOBS``: it takes a folder and what it is asked for, and returns figures.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
#: Repetitions go on for this long, so that a figure does not hang on one moment.
_SECONDS = 0.5
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS", "NUMBA_NUM_THREADS")


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


def status_memory(name: str) -> float:
    """Return a figure of Linux's ``/proc/self/status`` in MB (1e6 bytes), such as VmHWM; NaN elsewhere."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(name)), float("nan"))


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB (1e6 bytes)."""
    if Path("/proc/self/status").exists():
        return status_memory("VmHWM")  # not ru_maxrss, which survives exec and then tells of the parent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def context(note: str = "") -> dict[str, Any]:
    """Return the machine, the date and the machine's load over the last minute: processes that wanted to run."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "machine": f"{name}, {cores} cores, {platform.system()}, Python {platform.python_version()}{note}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan"),
    }


def run_job(
    module: str, job: str, folder: Path, *, python: str | Path = sys.executable, threads: int = 1, **asked: Any
) -> dict[str, Any]:
    """Run one job of ``benchmarks.<module>`` in a process of its own and return its figures."""
    out, log = folder / "out.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    env = {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
    command = [str(python), "-m", "benchmarks.measure", f"benchmarks.{module}", job, str(folder)]
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=_ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode or not out.exists():
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
        raise SystemExit(f"job {job} of {module} ended with {done.returncode}; the end of what it said:\n{tail}")
    figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return figures


def main(module: str, job: str, place: str) -> None:
    folder = Path(place)
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    figures = importlib.import_module(module).JOBS[job](folder, **asked)
    (folder / "out.json").write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
