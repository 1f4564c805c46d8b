"""Kill a small sweep and its members at random moments, resume it, and compare; writes ``results/sweep.json``.

The sweep is the command ``rlwb sweep`` with members in processes of their own. SIGKILL hits the sweep, its group, a
member, or a member's kernel, at a moment that is drawn. After the sweep was killed, all that it had started must end by
itself, and the command that goes on is given. In the end every result of every member, and the tables of the sweep, are
compared with those of a sweep that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.experiment.likeness import compare_runs
from rlwb.experiment.run import RunDirectory
from rlwb.files import write_json

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "market.instruments": "2",
    "market.days": "30",
    "network.hidden": "4",
    "algorithm.batch_size": "50",
    "train.iterations": "4",
    "train.episodes_per_iteration": "20",
    "backtest.top": "2",
    "backtest.bootstrap_samples": "100",
    "baselines": "[twap, hindsight]",
}
GRID = "reward.penalty=10,20"
WORKERS = 2
#: Who is killed: the sweep alone, its whole group, a member's command, or the kernel that does a member's work.
ROLES = ("sweep", "member", "group", "kernel", "sweep", "member")
#: Columns of ``sweep.csv`` that say how a member came to its end, not what came of it.
_HOW = ["attempts", "exits", "seconds"]
#: Seconds that what a killed sweep has started may go on.
_GRACE = 30.0


@dataclass
class Told:
    """What was done to a sweep: who was killed, how often it was resumed, and whose processes outlived it."""

    killed: dict[str, int] = field(default_factory=dict)
    resumed: int = 0
    outlived: list[str] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)


def begin(folder: Path, seeds: int) -> list[str]:
    """Return the words that begin the sweep."""
    sets = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    return ["sweep", "--seeds", str(seeds), "--grid", GRID, *sets, *_always(folder)]


def _always(folder: Path) -> list[str]:
    return ["--workers", str(WORKERS), "--attempts", "9", "--run-dir", str(folder)]


def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command of rlwb in a group of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "rlwb.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def disturbed(folder: Path, log: Path, seeds: int, kills: int, span: float, rng: random.Random) -> tuple[int, Told]:
    """Run a sweep to its end through kills, one in each span of seconds that is drawn; return its exit code."""
    told = Told()
    process = start(begin(folder, seeds), log)
    for number in range(kills):
        role = ROLES[number % len(ROLES)]
        moment = rng.uniform(0.15, 1.0) * span
        _sleep(process, moment)
        if process.poll() is not None:
            break
        family = psutil.Process(process.pid).children(recursive=True)
        victims = [one for one in family if _is(role, one)]
        if role in ("member", "kernel") and not victims:
            continue  # between two members
        told.killed[role] = told.killed.get(role, 0) + 1
        told.moments.append(round(moment, 2))
        if role in ("member", "kernel"):
            rng.choice(victims).kill()
            continue
        if role == "group":
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=_GRACE)
        told.outlived += [" ".join(one.cmdline()[:5]) for one in alive if one.is_running()]
        is_begun = (folder / "sweep.yaml").is_file()
        again = ["sweep", "--resume", *_always(folder)] if is_begun else begin(folder, seeds)
        told.resumed += 1
        process = start(again, log)
    return process.wait(), told


def _sleep(process: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def _is(role: str, process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    module = words[words.index("-m") + 1] if "-m" in words else ""
    return module == {"member": "rlwb.study.job", "kernel": "ipykernel_launcher"}.get(role)


def differences(first: Path, second: Path) -> list[str]:
    """Return what differs between the results of two sweeps, one text each."""
    names = sorted({path.parent.name for folder in (first, second) for path in folder.glob("*/status.json")})
    found = []
    for name in names:
        files = compare_runs(RunDirectory(first / name), RunDirectory(second / name))
        found += [f"{name}/{one}" for one in files if one.is_result and one.verdict not in ("same", "times")]
    for table in ("seeds", "improvement", "sweep"):
        both = [pd.read_csv(folder / f"{table}.csv").drop(columns=_HOW, errors="ignore") for folder in (first, second)]
        if not both[0].equals(both[1]):
            found.append(f"{table}.csv")
    return found


def run(root: Path, *, seeds: int, kills: int, seed: int) -> dict[str, Any]:
    """Run both sweeps and compare them."""
    rng = random.Random(seed)
    clock = time.monotonic()
    calm = start(begin(root / "calm", seeds), root / "calm.log").wait()
    span = time.monotonic() - clock
    if calm != 0:
        raise RuntimeError(f"the sweep that nobody disturbed ended with {calm}:\n{(root / 'calm.log').read_text()}")
    # The kills are to fall into the sweep's own time, which they make longer.
    code, told = disturbed(root / "killed", root / "killed.log", seeds, kills, span / 3, rng)
    if code != 0:
        raise RuntimeError(f"the killed sweep ended with {code}:\n{(root / 'killed.log').read_text()}")
    found = differences(root / "calm", root / "killed")
    members = pd.read_csv(root / "killed" / "sweep.csv")
    return {
        "members": len(members),
        "killed": told.killed,
        "resumed": told.resumed,
        "identical": len(members) if not found else len(members) - len({text.partition("/")[0] for text in found}),
        "different": found,
        "outlived": told.outlived,
        "seconds": {"undisturbed": round(span, 1), "killed": round(time.monotonic() - clock - span, 1)},
        "seed": seed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it, print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each of two settings")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--quick", action="store_true", help="one seed and two kills; nothing is written")
    asked = parser.parse_args(arguments)
    seeds, kills = (1, 2) if asked.quick else (asked.seeds, asked.kills)
    with tempfile.TemporaryDirectory(prefix="rlwb-sweep-") as folder:
        found = run(Path(folder).resolve(), seeds=seeds, kills=kills, seed=asked.seed)
    print(json.dumps(found, indent=2))
    if not asked.quick:
        write_json(RESULTS.with_name("sweep.json"), {**context(), **found})
    return int(bool(found["different"] or found["outlived"]))


if __name__ == "__main__":
    sys.exit(main())
