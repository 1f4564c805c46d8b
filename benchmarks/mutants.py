"""Change the code in one place at a time and see whether the tests notice: ``make mutants``.

A mutant is one change by an operator of cosmic-ray: a comparison at its boundary, an arithmetic sign, a number, a
condition. It is killed when a test of its target fails or takes several times as long as on the code as it stands, and
survives otherwise. Annotations, decorators and the texts of f-strings are left alone. Kernels run as Python, so that a
change in them is not hidden by compiled code.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import itertools
import json
import multiprocessing
import os
import py_compile
import random
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.testing import run_tests
from tqdm.auto import tqdm

from benchmarks.mutation import Mutant, mutants_of
from benchmarks.table import RESULTS
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
_OUT = RESULTS.with_name("mutants.json")
_REASONS = Path(__file__).with_name("mutants_survivors.toml")
_PROGRESS = _ROOT / ".mutants" / "progress.jsonl"
#: Share of the mutants that the tests should kill.
_GOAL = 0.9
_MEMORY = 16 * 2**30
_ENVIRONMENT = {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")


@dataclass(frozen=True)
class Target:
    """A part of rlwb with the tests that hold it.

    Attributes
    ----------
    modules
        Files to mutate, relative to the project.
    tests
        Arguments of pytest: files, the fast ones first, and options such as ``--deselect``.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS: dict[str, Target] = {
    "engine": Target(
        ("rlwb/execution/engine.py", "rlwb/execution/kernel.py"),
        (
            "tests/execution/test_limits.py",
            "tests/execution/test_arrival.py",
            "tests/execution/test_cases_orders.py",
            "tests/execution/test_cases_market.py",
            "tests/execution/test_costs.py",
            "tests/execution/test_engine.py",
        ),
    ),
    "metrics": Target(
        ("rlwb/execution/metrics.py", "rlwb/execution/costs.py", "rlwb/evaluation/metrics.py"),
        (
            "tests/execution/test_metrics.py",
            "tests/execution/test_fees.py",
            "tests/execution/test_costs.py",
            "tests/evaluation/test_metrics.py",
            "tests/execution/test_symmetry.py",
        ),
    ),
    "bootstrap": Target(("rlwb/evaluation/bootstrap.py",), ("tests/evaluation/test_bootstrap.py",)),
    "selection": Target(
        ("rlwb/evaluation/select.py", "rlwb/evaluation/overfitting.py"),
        ("tests/evaluation/test_select.py", "tests/evaluation/test_overfitting.py"),
    ),
    "ppo": Target(
        ("rlwb/policy/ppo.py", "rlwb/policy/episodes.py"),
        (
            "tests/policy/test_episodes.py",
            "tests/policy/test_cut.py",
            "tests/policy/test_decay.py",
            "tests/policy/test_ppo.py",
        ),
    ),
    "dqn": Target(
        ("rlwb/policy/dqn.py", "rlwb/policy/replay.py"),
        (
            "tests/policy/test_replay.py",
            "tests/policy/test_dqn.py",
        ),
    ),
    "resume": Target(
        ("rlwb/trainer/checkpoint.py", "rlwb/trainer/trainer.py"),
        ("tests/trainer/test_checkpoint.py", "tests/trainer/test_trainer.py"),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """How the tests took a mutant."""

    killed: bool
    timed_out: bool


def sample(target: Target, root: Path, most: int, seed: int) -> list[Mutant]:
    """Return at most `most` mutants of a target's modules, each as likely as any other."""
    sources = {module: (root / module).read_text(encoding="utf-8") for module in target.modules}
    return list(itertools.islice(mutants_of(sources, random.Random(seed)), most))


def _enter(root: Path) -> None:
    """Make a worker's own copy of the tree and work in it."""
    copy = Path(tempfile.mkdtemp(dir=root.parent)) / "tree"
    shutil.copytree(root, copy)
    os.chdir(copy)
    os.environ.update(_ENVIRONMENT, PYTHONPATH=str(copy))
    # By hash: a mutant of the same length within a second has the stamp and the size of the file before.
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir("rlwb", quiet=2, invalidation_mode=mode)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _plain_run(tests: Sequence[str]) -> tuple[float, str]:
    """Return the seconds that the tests take on the code as it stands, and what they said if they fail."""
    started = time.monotonic()
    outcome, output = run_tests(_command(tests), 3600)
    return time.monotonic() - started, "" if outcome.value == "survived" else output


def _judge(mutant: Mutant, tests: Sequence[str], limit: float) -> Verdict:
    path = Path(mutant.module)
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutant.text, encoding="utf-8")
        outcome, output = run_tests(_command(tests), limit)
    finally:
        path.write_text(before, encoding="utf-8")
    if outcome.value == "incompetent":
        raise RuntimeError(f"the tests of {mutant.where} could not be started: {output}")
    return Verdict(outcome.value == "killed", output == "timeout")


def _command(tests: Sequence[str]) -> str:
    return " ".join([sys.executable, *_PYTEST, *tests])


class _Progress:
    """What is known of mutants from runs before, on the same modules and tests; kept in a file line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known = {row["key"]: Verdict(row["killed"], row["timed_out"]) for row in map(json.loads, lines)}

    @staticmethod
    def key(target: Target, root: Path, mutant: Mutant) -> str:
        files = [name for name in (*target.modules, *target.tests) if not name.startswith("-")]
        texts = [(root / name).read_text(encoding="utf-8") for name in files]
        texts += [*target.modules, *target.tests, mutant.module, mutant.text]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    def get(self, key: str) -> Verdict | None:
        return self._known.get(key)

    def add(self, key: str, verdict: Verdict) -> None:
        self._known[key] = verdict
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "killed": verdict.killed, "timed_out": verdict.timed_out}) + "\n")


def measure(name: str, target: Target, root: Path, most: int, seed: int, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Return the row of one target, of a copy of the tree: mutants, killed, and survivors with their reason."""
    chosen = sample(target, root, most, seed)
    if not chosen:
        raise SystemExit(f"the target {name} has no mutants; name modules with code in benchmarks/mutants.py.")
    progress = _Progress(_PROGRESS)
    keys = {mutant: progress.key(target, root, mutant) for mutant in chosen}
    todo = [mutant for mutant in chosen if progress.get(keys[mutant]) is None]
    if todo:
        seconds, said = pool.submit(_plain_run, target.tests).result()
        if said:
            raise SystemExit(f"the tests of the target {name} fail on the code as it stands:\n{said[-3000:]}")
        runs = {pool.submit(_judge, mutant, target.tests, 20 + 3 * seconds): mutant for mutant in todo}
        for run in tqdm(as_completed(runs), total=len(runs), unit="mutant", desc=f"{name}, tests {seconds:.0f} s"):
            progress.add(keys[runs[run]], run.result())
    verdicts = {mutant: progress.get(keys[mutant]) or Verdict(False, False) for mutant in chosen}
    survivors = [mutant for mutant in chosen if not verdicts[mutant].killed]
    why = reasons()
    return {
        "target": name,
        "mutants": len(chosen),
        "killed": len(chosen) - len(survivors),
        "timed_out": sum(verdict.timed_out for verdict in verdicts.values()),
        "survived": [
            {"where": one.where, "what": f"{one.before}  →  {one.after}", "why": reason_of(one, why)}
            for one in survivors
        ],
    }


def reasons() -> dict[str, list[dict[str, str]]]:
    """Return why mutants survive, by file: the line as it stands, what it becomes (all changes if left out), why."""
    return tomllib.loads(_REASONS.read_text(encoding="utf-8"))


def reason_of(mutant: Mutant, known: dict[str, list[dict[str, str]]]) -> str:
    """Return the reason that the table gives for a survivor, or "unexplained"."""
    for entry in known.get(mutant.module, []):
        if entry["line"] == mutant.before and entry.get("becomes", mutant.after) == mutant.after:
            return entry["why"]
    return "unexplained"


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of the targets, with the sum as its last line."""
    total = {key: sum(row[key] for row in rows) for key in ("mutants", "killed")}
    lines = ["| target | mutants | killed | share |", "|---|--:|--:|--:|"]
    for row in [*rows, {"target": "all", **total}]:
        share = row["killed"] / row["mutants"]
        lines.append(f"| {row['target']} | {row['mutants']} | {row['killed']} | {share:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="all by default")
    parser.add_argument("--most", type=int, default=32, help="mutants a target")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--quick", action="store_true", help="5 mutants a target, to see that all runs")
    args = parser.parse_args()
    out = _OUT.with_name("mutants-quick.json") if args.quick else _OUT
    rows = {row["target"]: row for row in (json.loads(out.read_text(encoding="utf-8")) if out.exists() else [])}
    folder = tempfile.mkdtemp(prefix="rlwb-mutants-")
    # The tree as it is now: it may change while this runs.
    root = Path(folder) / "tree"
    most, spawn = 5 if args.quick else args.most, multiprocessing.get_context("spawn")
    try:
        shutil.copytree(_ROOT, root, ignore=shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist"))
        with ProcessPoolExecutor(args.jobs, mp_context=spawn, initializer=_enter, initargs=(root,)) as pool:
            for name in args.targets:
                rows[name] = measure(name, TARGETS[name], root, most, args.seed, pool)
                write_json(out, [rows[known] for known in TARGETS if known in rows])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = [rows[known] for known in TARGETS if known in rows]
    print(f"\n{markdown(found)}")
    for one in (one for row in found for one in row["survived"]):
        print(f"\nsurvived: {one['where']}\n    {one['what']}\n    {one['why']}")
    if sum(row["killed"] for row in found) < _GOAL * sum(row["mutants"] for row in found):
        raise SystemExit(f"fewer than {_GOAL:.0%} of the mutants were killed; write tests for those that survived.")


if __name__ == "__main__":
    main()
