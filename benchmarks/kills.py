"""Kill a small run before every change that it makes to files, resume it, and compare; writes ``results/kills.json``.

The four notebooks' cells run in forks of this process instead of kernels of their own, with the same changes to files:
those of the command, of the cells, and of papermill; figures are written as the numbers that their lines have. A fork
is killed by SIGKILL before a change, another resumes the run, and every result is compared with that of a run that
nobody disturbed. Files that are synced are cut to half as well, as a kill within the write leaves them. A sample is
repeated with real kernels, of which the kernel or the command is killed, and resumed by the command that was printed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from papermill.iorw import load_notebook_node, write_ipynb
from papermill.parameterize import parameterize_notebook

from benchmarks.kill_events import kill_at, watch
from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.experiment import pipeline
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STAGES
from rlwb.files import write_json
from rlwb.trainer import load_checkpoint

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "market.instruments": "2",
    "market.days": "12",
    "network.hidden": "4",
    "algorithm.batch_size": "50",
    "algorithm.repeat": "1",
    "train.iterations": "3",
    "train.episodes_per_iteration": "12",
    "backtest.top": "2",
    "backtest.bootstrap_samples": "100",
    "baselines": "[twap, hindsight]",
}
_OWN = '''from rlwb.execution.rewards import PAPenaltyReward


class Mine(PAPenaltyReward):
    """A reward of one's own, so that the run keeps its code."""
'''
#: Real kernels: who is killed, and before which of its changes to files.
REAL = (("command", 4), ("command", 25), ("kernel", 9), ("kernel", 24), ("kernel", 60), ("command", 60))
#: Figures that a clock makes.
_CLOCK = ("seconds",)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d)?")


@dataclass
class Place:
    """A folder of its own for one run, what it keeps beside it, and the user's state."""

    folder: Path

    @property
    def run(self) -> Path:
        """The run's directory; its name, which the page shows, is the same everywhere."""
        return self.folder / "run"

    def clear(self, snapshot: Path | None = None) -> None:
        """Make the folder what it was in a snapshot, or empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if snapshot is None:
            self.folder.mkdir(parents=True)
        else:
            shutil.copytree(snapshot, self.folder, symlinks=True)


@dataclass
class Tally:
    """What became of the kills."""

    kills: int = 0
    resumed: int = 0
    identical: int = 0
    lost: int = 0  # results that a resumed run lacks
    leftovers: int = 0  # files that it has and the undisturbed one has not
    by_stage: dict[str, int] = field(default_factory=dict)
    by_change: dict[str, int] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add(self, where: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Count one kill."""
        self.kills += 1
        for counts, name in ((self.by_stage, where["stage"]), (self.by_change, where["change"])):
            counts[name] = counts.get(name, 0) + 1
        self.resumed += outcome["resumed"]
        self.identical += not outcome["different"] and outcome["resumed"]
        self.lost += len(outcome["lost"])
        self.leftovers += len(outcome["leftovers"])
        if not outcome["resumed"] or outcome["different"] or outcome["lost"] or outcome["leftovers"]:
            self.faults.append({**where, **outcome})


def execute_here(source: str, target: str, *, parameters: Mapping[str, Any], **how: Any) -> None:
    """Run a notebook's cells in this process, and write it after each as papermill does."""
    book = parameterize_notebook(load_notebook_node(source), dict(parameters), report_mode=False)
    environment = how["kernel_manager_class"].kernel_spec.env
    before, cells = dict(os.environ), {"__name__": "__main__"}
    os.environ.update(environment)
    try:
        for cell in book.cells:
            if cell.cell_type == "code":
                lines = [line for line in cell.source.splitlines() if not line.startswith("%")]
                exec(compile("\n".join(lines), source, "exec"), cells)
            write_ipynb(book, target)
    finally:
        plt.close("all")
        os.environ.clear()
        os.environ.update(before)


def write_numbers(figure: Figure, path: Path, **how: Any) -> None:
    """Write the numbers of a figure's lines to `path`: drawing would take half of all the time."""
    path.write_text("".join(line.get_xydata().tobytes().hex() for axes in figure.axes for line in axes.lines))


def drive(place: Place, own: Path, told: Callable[[str], None] = lambda source: None) -> None:
    """Do what ``rlwb run`` does, or ``rlwb run --resume`` where a run was begun; tell of each notebook beforehand."""

    def execute(source: str, target: str, **how: Any) -> None:
        told(source)
        execute_here(source, target, **how)

    pipeline.papermill.execute_notebook = execute
    Figure.savefig = write_numbers
    os.environ["XDG_STATE_HOME"] = str(place.folder / "state")
    if RunDirectory(place.run).is_run():
        pipeline.launch(None, [], place.run, resume=True, echo=lambda line: None)
    else:
        words = [f"{name}={value}" for name, value in {**SETTINGS, "reward": f"{own}:Mine"}.items()]
        pipeline.launch(None, words, place.run, resume=False, echo=lambda line: None)


def in_fork(work: Callable[[], None], log: Path) -> int:
    """Do work in a fork whose output goes to a file; return its exit status, negative for a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            for number in (1, 2):
                os.dup2(handle, number)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def results_of(place: Place) -> dict[str, str]:
    """Return file to hash of what a run leaves; of what holds times, less those."""
    found = {}
    for path in sorted(place.folder.rglob("*")):
        name = path.relative_to(place.folder).as_posix()
        if path.is_dir() or path.name.endswith(".lock") or name.startswith("run/superseded/"):
            continue
        found[name] = hashlib.blake2b(_content(path), digest_size=16).hexdigest()
    return found


def _content(path: Path) -> bytes:
    if path.name in ("manifest.json", "status.json"):
        known = json.loads(path.read_text())
        stages = {name: (stage["state"], stage["settings"]) for name, stage in known.get("stages", {}).items()}
        return json.dumps([known.get("state"), known.get("status"), known.get("data"), stages]).encode()
    if path.suffix == ".pt" or path.name == "latest":
        return repr(_timeless(load_checkpoint(path))).encode()
    if path.name == "train.csv":
        return pd.read_csv(path).drop(columns=list(_CLOCK)).to_csv().encode()
    if path.name in ("audit.json", "looks.jsonl"):
        lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        return json.dumps([{**json.loads(line), "at": None, "backtest": None} for line in lines]).encode()
    if path.suffix == ".html":
        page = re.sub(
            r'<h2 id="training">.*?(?=<h2 id="data">)', "", path.read_text(), flags=re.DOTALL
        )  # steps a second
        return re.sub(_TIME, "", page.partition('<h2 id="made">')[0]).encode()
    if path.suffix == ".ipynb":
        sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
        return "\n".join(source for source in sources if "run_dir = " not in source).encode()
    if path.name == ".verified.json":  # marks of files
        return b""
    return path.read_bytes()


def _timeless(value: Any) -> Any:
    """Return what a checkpoint holds as plain values, less what a clock has made."""
    if isinstance(value, Mapping):
        return {key: _timeless(one) for key, one in value.items() if key not in _CLOCK}
    if isinstance(value, (list, tuple)):
        return [_timeless(one) for one in value]
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), hashlib.blake2b(np.ascontiguousarray(value.numpy()).data).hexdigest()
    return value


def trace(place: Place, own: Path, note: Path, snapshots: Path | None = None) -> None:
    """Drive a run and write its changes to files, and where among them each notebook begins.

    The folder is copied to `snapshots` before each notebook.
    """
    changes: list[tuple[str, str]] = []
    begins: dict[str, int] = {}

    def told(source: str) -> None:
        name = Path(source).name
        begins[name] = len(changes)
        if snapshots is not None:
            shutil.copytree(place.folder, snapshots / name, symlinks=True)

    base = str(place.folder)
    watch(base, lambda kind, path: changes.append((kind, os.path.relpath(path, base))))
    drive(place, own, told)
    kept = list(changes)
    note.write_text(json.dumps({"changes": kept, "begins": begins}))


@dataclass(frozen=True)
class Kill:
    """One kill: in which stage's part of a run, before which of its changes, and whether a file is cut to half."""

    stage: str
    snapshot: str | None
    number: int
    change: str
    path: str
    torn: bool = False


def enumerate_kills(root: Path, own: Path) -> tuple[list[Kill], dict[str, str]]:
    """Return every kill, and the results of a run that nobody disturbs.

    A stage's part begins with the command that takes the run up, and ends where the next stage's begins; that of the
    first begins with the run, that of the last ends with it.
    """
    place, kills = Place(root / "trace"), []
    books = [stage.notebook for stage in STAGES]
    reference: dict[str, str] = {}
    for number, stage in enumerate(STAGES):
        snapshot = stage.notebook if number else None
        place.clear(root / "snapshots" / snapshot if snapshot else None)
        note = root / "trace.json"
        first = None if number else root / "snapshots"
        code = in_fork(lambda: trace(place, own, note, first), root / "trace.log")  # noqa: B023 - done at once
        if code:
            raise RuntimeError(f"the undisturbed run failed:\n{(root / 'trace.log').read_text()}")
        told = json.loads(note.read_text())
        end = told["begins"][books[number + 1]] if number + 1 < len(books) else len(told["changes"])
        for at, (kind, path) in enumerate(told["changes"][:end]):
            kills.append(Kill(stage.name, snapshot, at, kind, path))
            if kind == "fsync":
                kills.append(Kill(stage.name, snapshot, at, kind, path, torn=True))
        found = results_of(place)
        if different := [name for name in found if reference.get(name, found[name]) != found[name]]:
            raise RuntimeError(f"two runs that nobody disturbed differ in {', '.join(different)}")
        reference = reference or found
    return kills, reference


def outcome(place: Place, reference: Mapping[str, str], code: int, log: Path) -> dict[str, Any]:
    """Return what became of a killed run that was resumed with exit status `code`."""
    found = results_of(place) if code == 0 else {}
    return {
        "resumed": code == 0,
        "different": sorted(name for name in found if name in reference and found[name] != reference[name]),
        "lost": sorted(set(reference) - set(found)) if code == 0 else [],
        "leftovers": sorted(set(found) - set(reference)),
        **({} if code == 0 else {"said": log.read_text()[-2000:]}),
    }


def try_kill(kill: Kill, root: Path, place: Place, own: Path, reference: Mapping[str, str]) -> dict[str, Any]:
    """Kill a run in a fork, resume it in another, and compare."""
    place.clear(root / "snapshots" / kill.snapshot if kill.snapshot else None)
    log = place.folder.with_suffix(".log")

    def doomed() -> None:
        kill_at(str(place.folder), kill.number, torn=kill.torn)
        drive(place, own)

    if (code := in_fork(doomed, log)) != -signal.SIGKILL:
        raise RuntimeError(f"the run ended with {code} before {kill}:\n{log.read_text()}")
    code = in_fork(lambda: drive(place, own), log)
    return outcome(place, reference, code, log)


def real_kill(role: str, number: int, place: Place, own: Path, reference: Mapping[str, str]) -> dict[str, Any]:
    """Kill ``rlwb run`` or its kernel, go on as it says, and compare."""
    place.clear()
    hook, log = place.folder.with_suffix(".hook"), place.folder.with_suffix(".log")
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(
        "from benchmarks.kill_events import from_environment\n\nfrom_environment()\n"
    )
    plain = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(place.folder / "state")}
    doomed = {"RLWB_KILL_BELOW": str(place.folder), "RLWB_KILL_ROLE": role, "RLWB_KILL_AT": str(number)}
    sets = [f"--set={name}={value}" for name, value in {**SETTINGS, "reward": f"{own}:Mine"}.items()]
    begin = ["run", "--run-dir", str(place.run), *sets]

    def call(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "rlwb.cli", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
        log.write_text(done.stdout + done.stderr)
        return done.returncode, done.stdout

    code, said = call(begin, {**plain, **doomed, "PYTHONPATH": f"{hook}:{ROOT}"})
    if code == 0 or (role == "command") != (code == -signal.SIGKILL):
        raise RuntimeError(f"the {role} was not killed, exit status {code}:\n{log.read_text()}")
    printed = re.search(r"Go on with: rlwb (.*)", said)
    again = shlex.split(printed[1]) if printed else ["run", "--resume", "--run-dir", str(place.run)]
    if not RunDirectory(place.run).is_run():
        again = begin
    code, _ = call(again, plain)
    drawn = ("run/figures/", "run/report.html")
    plainly = {name: content for name, content in reference.items() if not name.startswith(drawn)}
    found = outcome(place, plainly, code, log)
    return {**found, "leftovers": [name for name in found["leftovers"] if name not in reference]}


def work_through(
    jobs: Sequence[Any], do: Callable[[Any, Place], dict[str, Any]], root: Path, workers: int, until: float = math.inf
) -> list[Any]:
    """Return job and outcome of each job that begins before `until`, done in `workers` forks with a folder each."""
    files = [root / f"worker-{number}.jsonl" for number in range(workers)]

    def worker(number: int) -> None:
        with files[number].open("w") as file:
            for index in range(number, len(jobs), workers):
                if time.monotonic() > until:
                    return
                file.write(json.dumps([index, do(jobs[index], Place(root / f"worker-{number}"))]) + "\n")
                file.flush()

    sys.stdout.flush()
    children = []
    for number in range(workers):
        if (child := os.fork()) == 0:
            code = 1
            try:
                worker(number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RuntimeError(f"a worker failed: {codes}")
    return [(jobs[index], found) for file in files for index, found in map(json.loads, file.read_text().splitlines())]


def run(*, quick: int | None, real: int, workers: int, root: Path, minutes: float = math.inf) -> dict[str, Any]:
    """Return the figures of ``kills.json``.

    `quick` is the size of a sample, `real` that of kills of real kernels. After `minutes` no other kill begins; they
    come in an order that is spread over the run.
    """
    began = time.monotonic()
    torch.set_num_threads(1)
    own = root / "mine.py"
    own.write_text(_OWN)
    warm = Place(root / "warm")
    warm.clear()
    with (
        Path(os.devnull).open("w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        drive(warm, own)  # so that forks find everything imported and compiled
    kills, reference = enumerate_kills(root, own)
    chosen = kills if quick is None else [kills[at] for at in np.linspace(0, len(kills) - 1, quick).round().astype(int)]
    spread = [chosen[at] for at in np.random.default_rng(0).permutation(len(chosen))]
    tally, of_real = Tally(), Tally()

    def one_kill(kill: Kill, place: Place) -> dict[str, Any]:
        return try_kill(kill, root, place, own, reference)

    for kill, found in work_through(spread, one_kill, root, workers, began + 60 * minutes):
        tally.add(asdict(kill), found)
    for (role, number), found in work_through(
        REAL[:real], lambda one, at: real_kill(*one, at, own, reference), root, workers
    ):
        of_real.add({"stage": role, "change": "any", "number": number}, found)
    return {
        **asdict(tally),
        "enumerated": len(kills),
        "changes": sum(not kill.torn for kill in kills),
        "with_kernels": asdict(of_real),
        "seconds": round(time.monotonic() - began, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it, print the figures, and write them unless it was a sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample of the kills; nothing is written")
    parser.add_argument("--real", type=int, default=None, help="kills with real kernels")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no kill after so many minutes")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    asked = parser.parse_args(arguments)
    real = asked.real if asked.real is not None else 0 if asked.quick else len(REAL)
    how = {"quick": 6 if asked.quick else None, "real": real, "workers": asked.workers, "minutes": asked.minutes}
    with tempfile.TemporaryDirectory(prefix="rlwb-kills-") as folder:
        found = run(root=Path(folder).resolve(), **how)
    print(json.dumps({name: value for name, value in found.items() if name != "faults"}, indent=2))
    for fault in [*found["faults"], *found["with_kernels"]["faults"]][:20]:
        print(json.dumps(fault))
    if not asked.quick:
        write_json(RESULTS.with_name("kills.json"), {**context(), **found})
    return int(bool(found["faults"] or found["with_kernels"]["faults"]))


if __name__ == "__main__":
    sys.exit(main())
