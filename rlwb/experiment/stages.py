"""The four stages of a run, and when one need not be done again."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import rlwb
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described
from rlwb.experiment.run import RunDirectory, begin_manifest, end_manifest, now, update_manifest
from rlwb.files import as_json
from rlwb.reading import read_json

Work = Callable[[RunDirectory, RunConfig], None]

SOURCES = ("market.source", "orders.source")
"""Parameters that name files outside a run; the files' contents count, not their place."""


@dataclass(frozen=True)
class Stage:
    """One step of a run, told by a notebook.

    Attributes
    ----------
    depends
        Dotted names of the parameters, or groups of them, that its result depends on.
    inputs
        Patterns of the files of the run that it reads.
    outputs
        Files and folders of the run that it makes.
    extends
        Parameters out of `depends` whose change only lengthens or shortens what was done; a stage that has any can
        be taken up where it stopped.
    indifferent
        Parameters out of `depends` that do not change the result.
    """

    name: str
    notebook: str
    depends: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    after: tuple[Stage, ...] = ()
    extends: tuple[str, ...] = ()
    indifferent: tuple[str, ...] = ()


_PROBLEM = ("market", "features", "execution", "simulator", "state_interpreter", "action_interpreter", "reward", "seed")
_POLICY = ("network", "head", "algorithm")

ORDERS = Stage(
    name="orders",
    notebook="01_orders.ipynb",
    depends=("market", "orders", "split", "seed", "execution.rules.lot_size", "execution.rules.price_field"),
    inputs=(),
    outputs=("orders",),
)

TRAIN = Stage(
    name="train",
    notebook="02_training.ipynb",
    depends=(*_PROBLEM, *_POLICY, "train"),
    inputs=("orders/train.parquet", "orders/valid.parquet"),
    outputs=("checkpoints", "metrics"),
    after=(ORDERS,),
    extends=("train.iterations", "train.patience", "train.keep", "train.checkpoint_every"),
    indifferent=("train.env", "train.concurrency", "train.device"),
)

BACKTEST = Stage(
    name="backtest",
    notebook="03_backtest.ipynb",
    depends=(*_PROBLEM, *_POLICY, "baselines", "backtest"),
    inputs=(
        *("orders/train.parquet", "orders/valid.parquet", "orders/test.parquet"),
        *("checkpoints/*.pt", "checkpoints/teacher/*.pt"),
        *("metrics/validation.csv", "metrics/teacher/validation.csv"),
    ),
    outputs=("backtest",),
    after=(ORDERS, TRAIN),
)

STABILITY = Stage(
    name="stability",
    notebook="04_stability.ipynb",
    depends=("backtest", "seed"),
    inputs=("backtest/**/*", "metrics/*.csv"),
    outputs=("figures",),
    after=(BACKTEST,),
)

STAGES = (ORDERS, TRAIN, BACKTEST, STABILITY)
"""In the order of a run."""


def settings_of(stage: Stage, config: RunConfig) -> dict[str, Any]:
    """Return dotted name to value of all that `stage` depends on; files and code count by their contents."""
    chosen: dict[str, Any] = {"rlwb": rlwb.__version__}
    tree = described(config)
    for name in leaves(tree):
        if name not in stage.indifferent and any(f"{name}.".startswith(f"{group}.") for group in stage.depends):
            value = value_at(tree, name)
            chosen[name] = hash_path(Path(value)) if name in SOURCES else value
    return chosen


def training_id(config: RunConfig) -> str:
    """Return the hash of all settings that the weights of a training depend on, its length aside."""
    chosen = {name: value for name, value in settings_of(TRAIN, config).items() if name not in TRAIN.extends}
    return hashlib.blake2b(as_json(chosen).encode(), digest_size=16).hexdigest()


def inputs_of(stage: Stage, run: RunDirectory) -> str:
    """Return the hash of the names and contents of the stage's input files."""
    return _hash_files(run.path, {path for pattern in stage.inputs for path in run.path.glob(pattern)})


def hash_path(path: Path) -> str:
    """Return the hash of a file's contents, or of the names and contents of a folder's files, hidden ones aside."""
    if path.is_file():
        return _hash_file(path, path.stat().st_size, path.stat().st_mtime_ns)
    shown = [one for one in path.rglob("*") if not any(name.startswith(".") for name in one.relative_to(path).parts)]
    return _hash_files(path, shown)


def _hash_files(base: Path, paths: Iterable[Path]) -> str:
    files = sorted(path for path in paths if path.is_file())
    lines = [f"{file.relative_to(base).as_posix()} {hash_path(file)}" for file in files]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def file_hashes(run: RunDirectory, names: Iterable[str]) -> dict[str, str]:
    """Return file to hash of the files and folders of a run, hidden ones aside."""
    found = [path for name in names for path in ((run.path / name), *(run.path / name).rglob("*"))]
    files = {path.relative_to(run.path).as_posix(): path for path in sorted(found) if path.is_file()}
    return {name: hash_path(path) for name, path in files.items() if "/." not in name}


@lru_cache(maxsize=4096)
def _hash_file(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def is_unchanged(stage: Stage, run: RunDirectory, config: RunConfig) -> bool:
    """Tell whether the stage is done and would give the same again."""
    known = run.stage(stage.name)
    return (
        known.get("state") == "finished"
        and all((run.path / output).exists() for output in stage.outputs)
        and known.get("settings") == settings_of(stage, config)
        and known.get("inputs") == inputs_of(stage, run)
    )


@contextmanager
def recorded(run: RunDirectory, stages: Sequence[Stage]) -> Iterator[None]:
    """Hold a run while its stages are done; say in status.json and in the manifest how that ends, and where."""
    with run.lock():
        begin_manifest(run, sys.argv)
        run.update_status(state="running", failure=None)
        try:
            yield
        except BaseException as error:
            state = _how_it_ended(error)
            stage = next((one.name for one in stages if run.stage(one.name).get("state") != "finished"), "report")
            where = {"stage": stage, "error": str(error) or type(error).__name__, **getattr(error, "place", {})}
            run.update_status(state=state, failure={**where, "resume": run.how_to_resume()})
            end_manifest(run, state)
            raise
        run.update_status(state="finished")
        end_manifest(run, "finished")


def _how_it_ended(error: BaseException) -> str:
    return "failed" if isinstance(error, Exception) else "interrupted"


def run_stage(
    stage: Stage, run: RunDirectory, config: RunConfig, work: Work, *, echo: Callable[[str], None] = print
) -> Literal["done", "unchanged"]:
    """Do the work of a stage unless it is done already.

    Results of other settings are moved to ``superseded/``, never mixed with new ones and never lost; a stage that
    was cut short is taken up where it stopped, if it can be.

    The settings become the run's. A stage before this one that is missing or was made with others is a `ConfigError`.
    """
    with run.lock():
        _require_earlier(stage, run, config)
        run.save_config(config)
        if is_unchanged(stage, run, config):
            echo(f"{stage.name}: unchanged, kept")
            return "unchanged"
        _set_aside(stage, run, config, echo)
        begun = {"state": "running", "started": now(), "ended": None, "seconds": None, "error": None}
        depends = {"settings": settings_of(stage, config), "inputs": inputs_of(stage, run)}
        run.update_stage(stage.name, {**begun, **depends})
        clock = time.monotonic()
        try:
            work(run, config)
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
            run.update_stage(stage.name, {"state": _how_it_ended(error), "error": told})
            raise
        missing = [output for output in stage.outputs if not (run.path / output).exists()]
        if missing:
            raise RuntimeError(f"stage {stage.name} ended without making {', '.join(missing)}")
        _note_hashes(stage, run)
        seconds = round(time.monotonic() - clock, 1)
        run.update_stage(stage.name, {"state": "finished", "ended": now(), "seconds": seconds})
        return "done"


def _note_hashes(stage: Stage, run: RunDirectory) -> None:
    """Write into the manifest the hash of every file that the stage left."""
    path = run.path / "manifest.json"
    known = read_json(path).get("files", {}) if path.is_file() else {}
    others = {name: one for name, one in known.items() if name.partition("/")[0] not in stage.outputs}
    update_manifest(run, files={**others, **file_hashes(run, stage.outputs)})


def _require_earlier(stage: Stage, run: RunDirectory, config: RunConfig) -> None:
    for earlier in stage.after:
        if is_unchanged(earlier, run, config):
            continue
        name, known = earlier.name, run.stage(earlier.name)
        changes = differences(known.get("settings", {}), settings_of(earlier, config))
        if known.get("state") != "finished":
            reason = f"stage {name} is {known.get('state', 'not done')}"
        elif changes:
            reason = f"stage {name} was done with other settings ({'; '.join(changes[:3])})"
        else:
            reason = f"the files of stage {name} are not those it left or read"
        raise ConfigError(f"{stage.name} cannot start: {reason}; run {name} first ({earlier.notebook}).")


def _set_aside(stage: Stage, run: RunDirectory, config: RunConfig, echo: Callable[[str], None]) -> None:
    """Move results that do not belong to these settings out of the way."""
    known = run.stage(stage.name)
    present = [output for output in stage.outputs if (run.path / output).exists()]
    if not known or not present:
        return
    wanted = settings_of(stage, config)
    settings = known.get("settings", {})
    changes = differences(settings, wanted, ignore=stage.extends)
    unfinished = known["state"] != "finished" or settings != wanted
    if not changes and unfinished and known.get("inputs") == inputs_of(stage, run):
        return
    place = run.path / "superseded" / dt.datetime.now().strftime(f"%Y%m%d-%H%M%S-{stage.name}")
    place.mkdir(parents=True)
    for output in present:
        (run.path / output).rename(place / output)
    why = "; ".join(changes[:3]) or "its files changed"
    echo(f"{stage.name}: {why}; what was there is now in {place.relative_to(run.path)}")


def differences(old: dict[str, Any], new: dict[str, Any], *, ignore: tuple[str, ...] = ()) -> list[str]:
    """Return one text for each parameter whose value differs."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name) and name not in ignore]
    return [f"{name} {json.dumps(old.get(name))} there, {json.dumps(new.get(name))} now" for name in names]
