"""The loop of one target: change an input that found something new, read it, check what was done, keep what is new."""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.fuzzing.check import Unexpected, check_answer, check_refusal, kind_of, raised_at
from benchmarks.fuzzing.coverage import Arcs
from benchmarks.fuzzing.targets import LIMIT, TARGETS, Target
from benchmarks.fuzzing.tree import Tree

#: Seconds of the processor for one input, and MB that reading it may add to the process: four times the limit, and
#: what small inputs and the first use of a library take.
SECONDS = 10
MEGABYTES = 4 * LIMIT + 64
_ADDRESS_SPACE = 6 << 30
_LAID_OUT = 0.1
#: Inputs that unpack to more bytes are not changed further: every change of them would be slow.
_KEPT = 1 << 14
#: Lines are looked at for so many inputs after news, then for this share of them; it takes several times as long.
_NEWS, _LOOKS = 20, 0.03
#: What readers never do, as Python's audit events name it.
_ACTS = ("os.", "subprocess.", "socket.", "shutil.", "pty.", "ctypes.dlopen")
_HARMLESS = ("os.scandir", "os.listdir", "os.walk", "os.fwalk")


@dataclass
class Result:
    """Counts of one target's run."""

    target: str
    seed: int
    inputs: int = 0
    answers: int = 0
    refusals: int = 0
    unexpected: int = 0
    seconds: float = 0.0
    arcs: int = 0
    corpus: int = 0
    peak_mb: float = 0.0
    slowest_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)


class _SlowError(BaseException):
    """An input took longer than `SECONDS`."""


#: All there were; the last is at work.
_watches: list[Watch] = []


class Watch:
    """Stops an input that takes too long, reads its peak memory, and notes what it does beside reading."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.on = False
        signal.signal(signal.SIGPROF, self._late)
        if not _watches:  # a hook stays until the process ends
            sys.addaudithook(lambda event, arguments: _watches[-1].note(event, arguments))
        _watches.append(self)

    def begin(self) -> float:
        self.acts = []
        _reset_peak()
        before = _resident("VmRSS")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        self.on = True
        return before

    def end(self, before: float) -> float:
        """Return by how many MB the resident memory grew at most."""
        self.on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        return _resident("VmHWM") - before

    def _late(self, number: int, frame: FrameType | None) -> None:
        raise _SlowError

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Keep what is more than reading."""
        if not self.on:
            return
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if writes or (event.startswith(_ACTS) and event not in _HARMLESS):
            self.acts.append(f"{event} {str(arguments)[:80]}")


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:  # no such file, or not ours: the peak is then that of the process
        return


def _resident(name: str) -> float:
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(name)), 0.0)


class Loop:
    """Fuzzes one target.

    Parameters
    ----------
    target
        A key of `TARGETS`.
    seed
        Of all changes.
    keep
        Folder for inputs with an unexpected outcome, one of each kind.
    """

    def __init__(self, target: str, seed: int, keep: Path) -> None:
        self.target: Target = TARGETS[target]
        self.rng = random.Random(f"{target} {seed}")
        self.keep = keep
        self.arcs, self.watch = Arcs(), Watch()
        self.result = Result(target, seed)
        self.known: set[int | str] = set()
        self.corpus: list[Tree] = []
        self.there: Tree | None = None
        self.latest = 0
        self.seen: Counter[str] = Counter()

    def run(self, inputs: int, seconds: float, folder: Path) -> Result:
        """Fuzz until so many inputs or seconds; the input at work lies in `folder`."""
        began = time.perf_counter()
        for tree in self.target.seeds():
            if self._try(tree, folder) != "answer" and "not trusted" not in self.target.name:
                raise SystemExit(f"{self.target.name}: a seed is not read: {list(self.seen)}")
        while self.result.inputs < inputs and time.perf_counter() - began < seconds:
            # The latest finds are changed most: they reach where others have not been.
            place = min(int(self.rng.paretovariate(0.7)), len(self.corpus))
            parent = self.corpus[-place] if self.rng.random() < 0.5 else self.rng.choice(self.corpus)
            self._try(self.target.mutate(parent, self.rng, self.corpus), folder)
        self.result.seconds = round(time.perf_counter() - began, 1)
        self.result.arcs, self.result.corpus = len(self.known), len(self.corpus)
        self.result.kinds = dict(self.seen)
        return self.result

    def _try(self, tree: Tree, folder: Path) -> str:
        self.result.inputs += 1
        try:
            tree.write(folder, self.there)
            self.there = tree
        except (OSError, ValueError):  # a name that the file system does not take
            self.there = None
            return "unwritten"
        began = time.perf_counter()
        outcome, kind = self._outcome(tree, folder)
        self.result.slowest_s = max(self.result.slowest_s, round(time.perf_counter() - began, 3))
        features = {*self.arcs.found, kind}
        if not features <= self.known:
            self.known |= features
            self.latest = self.result.inputs
            if tree.unpacked() <= _KEPT:
                self.corpus.append(tree)
        return outcome

    def _outcome(self, tree: Tree, folder: Path) -> tuple[str, str]:
        traced, before = self._traced(tree), self.watch.begin()
        frame, error = None, None
        try:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    frame = self.arcs.run(lambda: self.target.read(folder)) if traced else self.target.read(folder)
            except (Exception, _SlowError) as raised:
                error = raised
            peak = self.watch.end(before)
            self.result.peak_mb = max(self.result.peak_mb, round(peak, 1))
            if isinstance(error, _SlowError):
                raise Unexpected(f"takes longer than {SECONDS} s")
            if self.watch.acts and not self.target.writes:
                raise Unexpected(f"does more than reading: {self.watch.acts[0]}")
            if peak > MEGABYTES:
                raise Unexpected(f"takes {peak:.0f} MB for {tree.size():,} bytes")
            if error is not None:
                check_refusal(error, folder)
                self.result.refusals += 1
                return "refusal", raised_at(error)
            assert frame is not None
            check_answer(self.target, tree, frame, folder, self.rng.random() < _LAID_OUT)
            self.result.answers += 1
            return "answer", f"answer of {len(frame).bit_length()}"
        except Exception as fault:
            finding = fault
            if not isinstance(fault, Unexpected):
                finding = Unexpected(f"cannot be checked: {type(fault).__name__}: {fault}")
                finding.__cause__ = fault
            self.result.unexpected += 1
            kind = kind_of(str(finding), folder)
            self.seen[kind] += 1
            if self.seen[kind] == 1:
                self._save(tree, finding)
            return "unexpected", kind

    def _traced(self, tree: Tree) -> bool:
        """Tell whether to look at lines."""
        self.arcs.found.clear()
        if tree.size() > 1 << 20:
            return False
        return self.result.inputs - self.latest < _NEWS or self.rng.random() < _LOOKS

    def _save(self, tree: Tree, finding: Exception) -> None:
        place = self.keep / self.target.name.replace(", ", "-") / f"{len(self.seen):03d}"
        tree.write(place)
        text = "".join(traceback.format_exception(finding))
        place.with_suffix(".txt").write_text(f"{finding}\n\n{text}", encoding="utf-8", errors="replace")


def main(arguments: list[str]) -> None:
    """Fuzz a target in this process: target, seed, inputs, seconds, folder of reproducers, result file."""
    target, seed, inputs, seconds, keep, out = arguments
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE,) * 2)
    loop = Loop(target, int(seed), Path(keep))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="rlwb-fuzz-", dir=memory if memory.is_dir() else None) as scratch:
        result = loop.run(int(inputs), float(seconds), Path(scratch) / "input")
    Path(out).write_text(json.dumps(asdict(result)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
