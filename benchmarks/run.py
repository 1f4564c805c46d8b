"""Measure rlwb and the peer in turn and write one row a figure. See README.md beside this file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import FIGURES, NOTHING, PEER, Round, make_row
from benchmarks.measure import context, run_job
from benchmarks.parts import write_market
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
#: Side to the module with its jobs.
_MODULES = {"rlwb": "ours", "peer": "peer.worker"}
#: Largest difference between the two networks' answers that counts as the same: some roundings of float32.
_SAME = 1e-5


def peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that run the peer."""
    parser.add_argument("--no-peer", action="store_true", help="measure rlwb alone")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round, to see that all runs")
    parser.add_argument("--python", default="python3.11", help="what makes the peer's environment")
    parser.add_argument("--peer", type=Path, help="an interpreter that has the peer, in place of .bench-venv")
    parser.add_argument("--out", type=Path, help="where the figures go; a file in results/ by default")


def peer_python(args: argparse.Namespace) -> Path | None:
    """Return the peer's interpreter, making its environment the first time; None where rlwb is measured alone."""
    if args.no_peer or args.peer:
        return None if args.no_peer else args.peer
    stamp = _PEER_VENV / ".installed"
    python = _PEER_VENV / "bin" / "python"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print("making the peer's environment in .bench-venv, some 2.4 GB", flush=True)
        subprocess.run([args.python, "-m", "venv", "--clear", str(_PEER_VENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def environment(extra: str, python: str) -> Path:
    """Return the interpreter of an environment with rlwb, ``serve`` and another extra, made the first time."""
    venv = _ROOT / f".bench-{extra}-venv"
    stamp = venv / ".installed"
    if not stamp.exists():
        print(f"making an environment with rlwb[serve,{extra}] in {venv.name}", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(_ROOT / "pins.txt")]
        subprocess.run([*pip, "--editable", f"{_ROOT}[serve,{extra}]"], check=True)
        stamp.touch()
    return venv / "bin" / "python"


def results_file(args: argparse.Namespace, name: str) -> Path:
    """Return where results go; those of another size never replace those that are told of."""
    out: Path = args.out or RESULTS.with_name(f"{name}-quick.json" if args.quick else f"{name}.json")
    return out


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
        yield "rlwb", job


def check_sameness(peer: Path, folder: Path, schedule: Schedule) -> None:
    """Let the peer write its files and network; stop unless rlwb's copy of the network answers the same."""
    run_job("peer.worker", "prepare", folder, python=peer, threads=schedule.threads)
    found = run_job("ours", "check", folder, threads=schedule.threads)
    print(f"{schedule.ticks} ticks, largest difference of the two networks: {found}", flush=True)
    if max(found.values()) > _SAME:
        raise SystemExit("the two networks answer differently, so their speeds cannot be compared.")


def measure(schedules: list[Schedule], rounds: int, peer: Path | None, work: Path) -> list[Round]:
    """Run all jobs `rounds` times."""
    for schedule in schedules:
        write_market(schedule, work / str(schedule.ticks))
        if peer is not None:
            check_sameness(peer, work / str(schedule.ticks), schedule)
    measured: list[Round] = []
    for number in range(rounds):
        one: dict[tuple[str, str, int], dict[str, float]] = {}
        for schedule in schedules:
            ticks = schedule.ticks
            for side, job in jobs(ticks, peer is not None):
                python = peer if side == "peer" and peer else sys.executable
                figures = run_job(_MODULES[side], job, work / str(ticks), python=python, threads=schedule.threads)
                one[side, job, ticks] = figures
                shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
                print(f"round {number + 1}, {ticks} ticks, {side} {job}: {shown}", flush=True)
            if peer is not None:
                pas = {side: one[side, "backtest", ticks]["pa"] for side in ("rlwb", "peer")}
                print(f"{ticks} ticks, mean PA of the same policy in bp: {pas}", flush=True)
        measured.append(one)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    peer_arguments(parser)
    parser.add_argument("--rounds", type=int, help="how often each job runs; 3 by default")
    parser.add_argument("--episodes", type=int, help="episodes of the training iteration")
    parser.add_argument("--repeat", type=int, help="passes of the update")
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    parser.add_argument("--ticks", type=int, nargs="+", default=[48, 240], help="48, 240 or both")
    args = parser.parse_args()
    changes: dict[str, Any] = {"threads": args.threads, **(_QUICK if args.quick else {})}
    changes.update({name: value for name in ("episodes", "repeat") if (value := getattr(args, name)) is not None})
    peer, out = peer_python(args), results_file(args, "speed")
    about = context(f", {args.threads} thread(s) a side{', small sizes' if args.quick else ''}")
    schedules = [Schedule.of(ticks, **changes) for ticks in args.ticks]
    with tempfile.TemporaryDirectory(prefix="rlwb-bench-", ignore_cleanup_errors=True) as work:
        measured = measure(schedules, args.rounds or (1 if args.quick else 3), peer, Path(work))
    rows = [{**row, **about} for figure in FIGURES if (row := make_row(figure, measured)) is not None]
    if peer is None:
        rows = [{**row, "against": NOTHING} if row["against"].startswith(PEER) else row for row in rows]
    write_json(out, rows)
    print(f"\n{markdown(rows)}\n\nwritten to {out}")


if __name__ == "__main__":
    main()
