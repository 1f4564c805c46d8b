"""How time and memory grow with orders and with ticks; writes ``results/scale.json``, ``.png`` and ``.svg``."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load
from benchmarks.table import RESULTS
from rlwb.files import atomic_path, write_json

_ROOT = Path(__file__).resolve().parents[1]
JOBS = ("engine", "collect", "update")
_LABELS = {
    "engine": "engine, an even schedule",
    "collect": "collect, recurrent policy",
    "update": "PPO update, one pass",
}
_ORDERS = tuple(10**power for power in range(2, 7))
_TICKS = (48, 240, 390)


def run_point(job: str, orders: int, ticks: int, folder: Path) -> dict[str, float]:
    """Measure one point in a process of its own."""
    out, log = folder / "out.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    (folder / "point.json").write_text(json.dumps({"orders": orders, "ticks": ticks}), encoding="utf-8")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.scale_job", job, str(folder), str(out)]
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=_ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        raise SystemExit(f"{job} of {orders} orders with {ticks} ticks failed:\n{tail}")
    figures: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return figures


def measure(jobs: Iterable[str], orders: Sequence[int], ticks: Sequence[int], budget: float) -> list[dict[str, Any]]:
    """Measure all points; a line of points ends where the next would take longer than `budget` seconds."""
    points = []
    with tempfile.TemporaryDirectory(prefix="rlwb-scale-") as folder:
        for job in jobs:
            for day in ticks:
                for count in orders:
                    found = run_point(job, count, day, Path(folder))
                    points.append({"job": job, "ticks": day, "orders": count, **found})
                    print(f"{job}, {day} ticks, {count:,} orders: {found['seconds']:.3g} s", flush=True)
                    if found["seconds"] * 10 > budget and count != orders[-1]:
                        print(f"{job}, {day} ticks: more orders would take over {budget:g} s, left out", flush=True)
                        break
    return points


def measure_iterations(ticks: int = 48, orders: int = 1000) -> dict[str, float]:
    """Return the peak memory in MB after so many short training iterations."""
    with tempfile.TemporaryDirectory(prefix="rlwb-scale-") as folder:
        return run_point("iterations", orders, ticks, Path(folder))


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw time and memory against orders, to `path` with the endings .png and .svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(JOBS), figsize=(12, 6.5), sharex=True, layout="constrained")
    for column, job in enumerate(JOBS):
        points = [point for point in results["points"] if point["job"] == job]
        for ticks in sorted({point["ticks"] for point in points}):
            line = [point for point in points if point["ticks"] == ticks]
            counts = [point["orders"] for point in line]
            axes[0, column].loglog(counts, [point["seconds"] for point in line], "o-", label=f"{ticks} ticks")
            axes[1, column].loglog(counts, [max(point["memory"], 0.1) for point in line], "o-", label=f"{ticks} ticks")
        axes[0, column].set_title(_LABELS[job])
        axes[1, column].set_xlabel("orders")
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("memory added, MB")
    axes[0, 0].legend(frameon=False)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.suptitle(f"Cost of orders and ticks: {results['machine']}", fontsize=10)
    for suffix in (".png", ".svg"):
        with atomic_path(path.with_suffix(suffix)) as temporary:
            figure.savefig(temporary, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, nargs="+", default=_ORDERS)
    parser.add_argument("--ticks", type=int, nargs="+", default=_TICKS, help="48, 78, 240 or 390")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--budget", type=float, default=600, help="seconds that a point may take")
    parser.add_argument("--out", type=Path, default=RESULTS.with_name("scale.json"))
    args = parser.parse_args()
    results: dict[str, Any] = {
        "machine": f"{describe_machine()}, 1 thread",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load": round(load(), 2),
        "points": measure(args.jobs, sorted(args.orders), args.ticks, args.budget),
        "memory_over_iterations": measure_iterations(),
    }
    write_json(args.out, results)
    plot(results, args.out)
    print(f"peak memory in MB after iterations: {results['memory_over_iterations']}")


if __name__ == "__main__":
    main()
