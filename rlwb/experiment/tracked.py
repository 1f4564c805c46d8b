"""A run shown by the trackers of its configuration while it goes on, from the files that it writes."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Any

from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described
from rlwb.experiment.run import PIPELINE_ENV, RunDirectory, last_iteration
from rlwb.experiment.stages import (
    BACKTEST,
    STABILITY,
    TRAIN,
    Stage,
    differences,
    is_unchanged,
    settings_of,
    stages_of,
    training_id,
)
from rlwb.files import as_json, write_json
from rlwb.parts import Part, make
from rlwb.reading import read_json
from rlwb.tracking.tracker import Status, TrackedRun, Tracker, Trackers

POLL_SECONDS = 1.0
"""Time between two looks at the files of a training."""

PATIENCE_SECONDS = 120.0
"""Time that the end of a run waits for its trackers."""

_SERIES = {"teacher/": "teacher", "": ""}
"""Names of figures to the folder of ``metrics/`` and ``checkpoints/`` that they are in, a teacher's first."""

_INTERVALS = ("pa", "pa_net", "over_twap", "net_over_twap", "objective")
_JUDGED = (
    *("pa_mean", *_INTERVALS, *(f"{name}_{end}" for name in _INTERVALS for end in ("lo", "hi"))),
    *("pa_value_weighted", "win_rate", "glr", "ffr", "std", "cvar"),
)
"""Columns of the headline that are figures of the test."""

#: Runs that this process follows.
_followed: set[Path] = set()
#: Files of a run that are kept, by what they are called among the artefacts, with the stage that must be done.
_KEPT = {
    "run": (None, "config.yaml", "manifest.json", "report.html"),
    "metrics": (TRAIN, "metrics/*.csv", "metrics/teacher/*.csv"),
    "backtest": (BACKTEST, "backtest/*.csv", "backtest/*.json", "backtest/*.md"),
}


@contextmanager
def tracked(run: RunDirectory, config: RunConfig) -> Iterator[None]:
    """Show a run by the trackers of its configuration while the body works on it, and how it has ended.

    A thread looks at the run's files, so that neither the training waits for a tracker nor a tracker can end it. A row
    is shown once a checkpoint holds its iteration, so that a run which goes on repeats none. A run that is followed
    already, here or by the pipeline of this kernel, is not followed twice.

    Results of other settings, which wait in the directory to be set aside, are not shown; a training of others is
    another run of the trackers.

    Raises
    ------
    ConfigError
        Before the body, where a tracker refuses its settings.
    """
    if not config.trackers or run.path in _followed or os.environ.get(PIPELINE_ENV) == str(run.path):
        yield
        return
    made = [(part, make("tracker", part)) for part in config.trackers]
    follower = _Follower(run, config, made)
    _followed.add(run.path)
    follower.start()
    status: Status = "interrupted"
    try:
        yield
        status = "finished"
    except Exception:
        status = "failed"
        raise
    finally:
        _followed.discard(run.path)
        follower.end(status)


class _Follower(threading.Thread):
    """The thread that looks at a run's files and tells trackers."""

    def __init__(self, run: RunDirectory, config: RunConfig, made: Sequence[tuple[Part, Tracker]]) -> None:
        super().__init__(name="rlwb-trackers", daemon=True)
        self._run, self._config = run, config
        self._wanted = settings_of(TRAIN, config)
        self._parts = [part for part, _ in made]
        self._trackers = Trackers([(part.name, tracker) for part, tracker in made])
        self._ended = threading.Event()
        self._status: Status = "interrupted"
        self._seen: dict[Path, tuple[int, int]] = {}

    def end(self, status: Status) -> None:
        """Let the thread tell how the run has ended, and wait until it has, though not for ever."""
        self._status = status
        self._ended.set()
        self.join(PATIENCE_SECONDS)
        if self.is_alive():
            self._trackers.give_up(f"it has not answered for {PATIENCE_SECONDS:.0f} s")

    def run(self) -> None:
        try:
            state = _State(self._run, training_id(self._config))
            self._trackers.start(self._tracked_run(state))
            while self._trackers and not self._ended.wait(POLL_SECONDS):
                self._send_rows()
            self._seen.clear()
            self._send_rows()
            for number, part in enumerate(self._parts):
                key = hashlib.blake2b(as_json(part.model_dump()).encode(), digest_size=8).hexdigest()
                self._send_files(number, state, key)
            self._trackers.finish(self._status)
        except Exception as error:  # whatever a damaged file holds; no run ends by its trackers
            self._trackers.give_up(f"the run's files could not be read ({type(error).__name__}: {error})")

    def _tracked_run(self, state: _State) -> TrackedRun:
        run, parent = self._run, self._run.path.parent
        parent = parent.parent if parent.name == "trials" else parent  # of a search
        name = run.path.name if state.number == 1 else f"{run.path.name}-{state.number}"
        return TrackedRun(state.id, name, parent, parent.name, flat(self._config), _facts(run, self._config))

    def _send_rows(self) -> None:
        trained = self._run.stage(TRAIN.name).get("settings", {})
        if differences(trained, self._wanted, ignore=TRAIN.extends):  # of another training, or none yet
            return
        for series, folder in _SERIES.items():
            last = last_iteration(self._run.checkpoints / folder)
            files = [self._run.metrics / folder / f"{name}.csv" for name in ("train", "validation")]
            if not last or True not in [self._is_new(path, last) for path in files]:
                continue
            rows: dict[int, dict[str, float]] = {}
            for path, prefix in zip(files, ("train", "val"), strict=True):
                for row in _rows(path):
                    step = int(row.pop("iteration"))
                    rows.setdefault(step, {}).update({f"{prefix}/{name}": one for name, one in row.items()})
            self._trackers.send(series, [(step, rows[step]) for step in sorted(rows) if step <= last])

    def _is_new(self, path: Path, last: int) -> bool:
        """Tell whether a file is another than at the last look, or more of it is held by a checkpoint."""
        with suppress(OSError):
            now = (path.stat().st_mtime_ns, last)
            is_new = self._seen.get(path) != now
            self._seen[path] = now
            return is_new
        return False

    def _send_files(self, number: int, state: _State, key: str) -> None:
        """Send one tracker what it does not have: the figures of the test, pictures, files."""
        run, step = self._run, last_iteration(self._run.checkpoints)
        sent = state.sent(key) if self._trackers.goes_on.get(number) else {}
        told = dict(sent)

        def send(path: Path, do: Callable[[Tracker], None]) -> None:
            name, content = path.relative_to(run.path).as_posix(), _hash(path)
            if sent.get(name) != content and self._trackers.each(number, do):
                told[name] = content

        done = self._done()
        headline = run.backtest / "headline.csv"
        if BACKTEST in done:
            send(headline, methodcaller("log", step, _judged(headline)))
        for path in sorted(run.figures.glob("*.png")) if STABILITY in done else ():
            send(path, methodcaller("figure", f"figures/{path.stem}", path, step))
        for kind, path in _kept(run, done):
            send(path, methodcaller("artefact", path, kind))
        state.note(key, told)

    def _done(self) -> list[Stage]:
        """Return the stages whose results, and those that they come from, are of the run's settings."""
        done: list[Stage] = []
        stages = stages_of(self._run)
        for stage in stages:
            earlier = [one for one in stage.after if one in stages]
            if all(one in done for one in earlier) and is_unchanged(stage, self._run, self._config):
                done.append(stage)
        return done


class _State:
    """The record of what trackers were sent of a run: ``tracking.json`` in its directory."""

    def __init__(self, run: RunDirectory, training: str) -> None:
        self._path = run.path / "tracking.json"
        known: dict[str, Any] = {}
        with suppress(Exception):  # a damaged one is begun anew
            known = read_json(self._path) if self._path.exists() else {}
        if known.get("training") != training:
            known = {"id": secrets.token_hex(6), "training": training, "number": int(known.get("number", 0)) + 1}
        self._known = known
        self.id, self.number = str(known["id"]), int(known["number"])
        self._write()

    def sent(self, key: str) -> dict[str, str]:
        """Return file to hash of what a tracker, known by the `key` of its settings, was sent."""
        return dict(self._known.get("sent", {}).get(key, {}))

    def note(self, key: str, sent: Mapping[str, str]) -> None:
        """Remember what a tracker was sent."""
        self._known["sent"] = {**self._known.get("sent", {}), key: dict(sent)}
        self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk ends no run here
            write_json(self._path, self._known)


def flat(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as parameter by dotted name to number, truth value, text or None; lists as JSON."""
    tree = {name: one for name, one in described(config).items() if name != "trackers"}
    found = {name: value_at(tree, name) for name in leaves(tree)}
    return {name: as_json(one) if isinstance(one, (list, dict)) else one for name, one in found.items()}


def _facts(run: RunDirectory, config: RunConfig) -> dict[str, str]:
    """Return what the manifest knows of how a run is made, as texts."""
    manifest = run.manifest
    git = manifest.get("git") or {}
    commit = {"commit": git["commit"], "changed": git.get("changed")} if git.get("commit") else {}
    seeds = {"seed": config.seed, "market.seed": config.market.settings.get("seed")}
    data = {f"data.{name}": one for name, one in manifest.get("data", {}).items() if isinstance(one, str)}
    own = {"run": run.path, "rlwb": manifest.get("rlwb"), "python": manifest.get("python")}
    sweep = {"sweep": run.path.parent.name} if (run.path.parent / "sweep.yaml").is_file() else {}
    facts = {**own, **commit, **seeds, **data, **sweep}
    return {name: str(one) for name, one in facts.items() if one is not None}


def _rows(path: Path) -> list[dict[str, float]]:
    """Return the rows of a table of figures; an empty cell is missing."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: float(cell or "nan") for name, cell in row.items()} for row in csv.DictReader(file)]


def _judged(headline: Path) -> dict[str, float]:
    """Return the figures of the test by ``test/<policy>/<figure>``."""
    with headline.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cells = {f"test/{row['policy']}/{name}": row.get(name) for row in rows for name in _JUDGED}
    return {name: float(cell) for name, cell in cells.items() if cell not in (None, "")}


def _kept(run: RunDirectory, done: Sequence[Stage]) -> Iterator[tuple[str, Path]]:
    """Yield kind and path of the files that trackers keep: tables, report, the chosen checkpoints and the last."""
    for kind, (stage, *patterns) in _KEPT.items():
        for pattern in patterns if stage in (None, *done) else ():
            yield from ((kind, path) for path in sorted(run.path.glob(str(pattern))))
    if TRAIN not in done:
        return
    chosen = {last_iteration(run.checkpoints)}
    with suppress(OSError, ValueError, KeyError):
        selection = json.loads((run.backtest / "selection.json").read_text(encoding="utf-8"))
        chosen |= {int(name.rpartition("-")[2]) for name in selection["chosen"]}
    for path in sorted(run.checkpoints.glob("*.pt")):
        if path.stem.isdecimal() and int(path.stem) in chosen:
            yield "checkpoints", path


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
