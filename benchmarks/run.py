"""Measure rlwb and the peer in turn and write one row a figure. See README.md beside this file."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import FIGURES, NOTHING, PEER
from benchmarks.machine import describe_machine, load
from benchmarks.market import write_market
from benchmarks.rows import Round, make_row
from benchmarks.schedule import Schedule
from benchmarks.table import RESULTS, markdown
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
_PEER_VENV = _ROOT / ".bench-venv"
_REQUIREMENTS = Path(__file__).parent / "peer" / "requirements.txt"
_QUICK = {
    "days": 12,
    "episodes": 60,
    "simulated": 20,
    "backtested": 60,
    "judged": 400,
    "gathered": 500,
    "iterations": 2,
}
#: Modules that run a side's jobs.
_MODULES = {
    "rlwb": "benchmarks.ours",
    "own": "benchmarks.own",
    "peer": "benchmarks.peer.worker",
    "rlwb quality": "benchmarks.quality_job",
    "peer quality": "benchmarks.peer.quality",
    "data": "benchmarks.data_job",
}
#: Largest difference between the two networks' answers that counts as the same: some roundings of float32.
_SAME = 1e-5


def peer_python(base: str) -> Path:
    """Return the peer's interpreter, making its environment the first time."""
    stamp = _PEER_VENV / ".installed"
    python = _PEER_VENV / "bin" / "python"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print("making the peer's environment in .bench-venv, some 2.4 GB", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", str(_PEER_VENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def run_job(python: str | Path, side: str, job: str, folder: Path, threads: int) -> dict[str, Any]:
    """Run one job in a process of its own and return its figures."""
    out, log = folder / "out.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": "0"}
    with log.open("w", encoding="utf-8") as file:
        command = [str(python), "-m", _MODULES[side], job, str(folder), str(out)]
        done = subprocess.run(command, cwd=_ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode or not out.exists():
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
        raise SystemExit(f"{side}'s job {job} failed with {done.returncode}; the end of what it said:\n{tail}")
    figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return figures


def jobs(ticks: int, peer: bool) -> Iterator[tuple[str, str]]:
    """Yield side and job of one round, the two sides of each figure next to each other."""
    for job in (
        ("simulate", "environment", "train", "backtest") if ticks == 48 else ("environment", "train", "backtest")
    ):
        yield "rlwb", job
        if peer:
            yield "peer", job
            if job in ("train", "backtest"):
                yield "peer", f"{job}, kept"
    own = ("specification", "blocks", "roofline", "gather", "iterations", "main_job")
    for job in own if ticks == 48 else ("blocks", "roofline", "judge"):
        yield "own", job


def check_sameness(pythons: dict[str, str | Path], folder: Path, schedule: Schedule) -> None:
    """Let the peer write its files and network; stop unless rlwb's copy of the network answers the same."""
    run_job(pythons["peer"], "peer", "prepare", folder, schedule.threads)
    found = run_job(pythons["rlwb"], "rlwb", "check", folder, schedule.threads)
    print(f"{schedule.ticks} ticks, largest difference of the two networks: {found}", flush=True)
    if max(found.values()) > _SAME:
        raise SystemExit("the two networks answer differently, so their speeds cannot be compared.")


def measure(schedules: list[Schedule], rounds: int, pythons: dict[str, str | Path], work: Path) -> list[Round]:
    """Run all jobs `rounds` times."""
    folders = {schedule.ticks: work / str(schedule.ticks) for schedule in schedules}
    for schedule in schedules:
        write_market(schedule, folders[schedule.ticks])
        if "peer" in pythons:
            check_sameness(pythons, folders[schedule.ticks], schedule)
    measured: list[Round] = []
    for number in range(rounds):
        one: dict[tuple[str, str, int], dict[str, float]] = {}
        for schedule in schedules:
            for side, job in jobs(schedule.ticks, "peer" in pythons):
                python = pythons["peer" if side == "peer" else "rlwb"]
                figures = run_job(python, side, job, folders[schedule.ticks], schedule.threads)
                one[side, job, schedule.ticks] = figures
                shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
                print(f"round {number + 1}, {schedule.ticks} ticks, {side} {job}: {shown}", flush=True)
            _compare_backtests(one, schedule.ticks)
        measured.append(one)
    return measured


def _compare_backtests(one: Round, ticks: int) -> None:
    ours, theirs = (one.get((side, "backtest", ticks), {}).get("pa") for side in ("rlwb", "peer"))
    if ours is not None and theirs is not None:
        print(f"{ticks} ticks, mean PA of the same policy: rlwb {ours:.6f} bp, peer {theirs:.6f} bp", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peer", action="store_true", help="measure rlwb alone")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round, to see that all runs")
    parser.add_argument("--rounds", type=int, help="how often each job runs; 3 by default")
    parser.add_argument("--episodes", type=int, help="episodes of the training iteration")
    parser.add_argument("--repeat", type=int, help="passes of the update")
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    parser.add_argument("--ticks", type=int, nargs="+", default=[48, 240], help="48, 240 or both")
    parser.add_argument("--python", default="python3.11", help="what makes the peer's environment")
    parser.add_argument("--peer", type=Path, help="an interpreter that has the peer, in place of .bench-venv")
    parser.add_argument("--out", type=Path, help="where the rows go; results/speed.json by default")
    args = parser.parse_args()
    changes: dict[str, Any] = {"threads": args.threads, **(_QUICK if args.quick else {})}
    changes.update({name: value for name in ("episodes", "repeat") if (value := getattr(args, name)) is not None})
    rounds = args.rounds or (1 if args.quick else 3)
    pythons: dict[str, str | Path] = {"rlwb": sys.executable}
    if not args.no_peer:
        pythons["peer"] = args.peer or peer_python(args.python)
    # Results of another size never replace those that docs/speed.md shows.
    out = args.out or (RESULTS.with_name("speed-quick.json") if args.quick else RESULTS)
    context = {
        "machine": f"{describe_machine()}, {args.threads} thread(s) a side{', small sizes' if args.quick else ''}",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load": round(load(), 2),
    }
    schedules = [Schedule.of(ticks, **changes) for ticks in args.ticks]
    work = Path(tempfile.mkdtemp(prefix="rlwb-bench-"))
    try:
        measured = measure(schedules, rounds, pythons, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows = [row for figure in FIGURES if (row := make_row(figure, measured)) is not None]
    if args.no_peer:
        rows = [{**row, "against": NOTHING} if row["against"].startswith(PEER) else row for row in rows]
    rows = [{**row, **context} for row in rows]
    write_json(out, rows)
    print(f"\n{markdown(rows)}\n\nwritten to {out.relative_to(_ROOT) if out.is_relative_to(_ROOT) else out}")


if __name__ == "__main__":
    main()
