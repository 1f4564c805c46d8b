"""The four stages of a run, and when one need not be done again."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import rlwb
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.control import obey
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described, require_trust
from rlwb.experiment.run import (
    LAST_STAGE,
    RunDirectory,
    begin_manifest,
    end_manifest,
    now,
    settings_told,
    update_manifest,
)
from rlwb.files import as_json, files_below
from rlwb.market.load import source_files

Work = Callable[[RunDirectory, RunConfig], None]

SOURCES = ("market.source", "orders.source", "algorithm.checkpoint")
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
        Files and folders of the run that it makes; a stage that can be taken up goes on from what is in the first.
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


_PROBLEM = ("market", "features", "execution", "simulator", "state_interpreter", "action_interpreter", "reward")
_POLICY = ("network", "head", "algorithm", "objective", "seed")

ORDERS = Stage(
    name="orders",
    notebook="01_orders.ipynb",
    depends=(
        *("market", "orders", "split", "seed"),
        *("execution.rules.lot_size", "execution.rules.price_field", "execution.rules.benchmark"),
    ),
    inputs=("origin/orders/*.parquet",),
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
    indifferent=("train.env", "train.concurrency", "train.actors", "train.device"),
)

BACKTEST = Stage(
    name="backtest",
    notebook="03_backtest.ipynb",
    depends=(*_PROBLEM, *_POLICY, "baselines", "backtest"),
    inputs=(
        *("orders/train.parquet", "orders/valid.parquet", "orders/test.parquet"),
        *("checkpoints/*.pt", "checkpoints/teacher/*.pt"),
        *("metrics/validation.csv", "metrics/teacher/validation.csv", "origin/backtest/*.json", "policies/**/*"),
    ),
    outputs=("backtest",),
    after=(ORDERS, TRAIN),
    indifferent=("backtest.actors",),
)

STABILITY = Stage(
    name=LAST_STAGE,
    notebook="04_stability.ipynb",
    depends=("backtest", "seed"),
    inputs=("backtest/**/*", "metrics/*.csv", "orders/test.parquet"),
    outputs=("figures", "stability"),
    after=(ORDERS, BACKTEST),
    indifferent=("backtest.actors",),
)

STAGES = (ORDERS, TRAIN, BACKTEST, STABILITY)
"""In the order of a run."""


def stages_of(run: RunDirectory) -> tuple[Stage, ...]:
    """Return the stages of a run; an evaluation does not train."""
    return tuple(stage for stage in STAGES if stage is not TRAIN or run.origin is None)


def settings_of(stage: Stage, config: RunConfig) -> dict[str, Any]:
    """Return dotted name to value of all that `stage` depends on; files and code count by their contents."""
    chosen: dict[str, Any] = {"rlwb": rlwb.__version__}
    tree = described(config)
    for name in leaves(tree):
        if name not in stage.indifferent and any(f"{name}.".startswith(f"{group}.") for group in stage.depends):
            value = value_at(tree, name)
            chosen[name] = _hash_source(name, Path(value), config) if name in SOURCES else value
    return chosen


def training_id(config: RunConfig) -> str:
    """Return the hash of all settings that the weights of a training depend on, its length aside."""
    chosen = {name: value for name, value in settings_of(TRAIN, config).items() if name not in TRAIN.extends}
    return hashlib.blake2b(as_json(chosen).encode(), digest_size=16).hexdigest()


def _hash_source(name: str, path: Path, config: RunConfig) -> str:
    """Return the hash of the files outside the run that a setting names, which are those that are read there."""
    market = config.market
    if name == "market.source" and market.name == "bars":
        reader = market.settings.get("reader") or {}
        options = {key: value for key, value in reader.items() if key != "name"}
        require_trust(config, of="market.reader")  # whose code tells what is read
        return _hash_files(path, source_files(path, kind=reader.get("name"), options=options))
    return hash_path(path)


def inputs_of(stage: Stage, run: RunDirectory) -> str:
    """Return the hash of the names and contents of the stage's input files."""
    return _hash_files(run.path, {path for pattern in stage.inputs for path in run.path.glob(pattern)})


def lost_of(stage: Stage, run: RunDirectory) -> list[str]:
    """Return the files of a finished stage that are missing or not as it left them; of another stage none."""
    if run.stage(stage.name).get("state") != "finished":
        return []
    found = file_hashes(run, stage.outputs)
    return [name for name, content in _made_by(stage, run).items() if found.get(name) != content]


def _made_by(stage: Stage, run: RunDirectory) -> dict[str, str]:
    """Return file to hash of what the stage left, as the manifest has it."""
    known = run.manifest.get("files", {})
    return {name: content for name, content in known.items() if name.partition("/")[0] in stage.outputs}


def hash_path(path: Path) -> str:
    """Return the hash of a file's contents, or of the names and contents of a folder's files, hidden ones aside."""
    if path.is_file():
        return _hash_file(path, path.stat().st_size, path.stat().st_mtime_ns)
    return _hash_files(path, files_below(path))


def _hash_files(base: Path, paths: Iterable[Path]) -> str:
    files = sorted(path for path in paths if path.is_file() and not path.name.startswith("."))
    lines = [f"{os.path.relpath(file, base)} {hash_path(file)}" for file in files]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def file_hashes(run: RunDirectory, names: Iterable[str]) -> dict[str, str]:
    """Return file to hash of the files and folders of a run, links and hidden ones aside."""
    files = [path for name in names for path in files_below(run.path / name) if not path.is_symlink()]
    return {path.relative_to(run.path).as_posix(): hash_path(path) for path in files}


@lru_cache(maxsize=4096)
def _hash_file(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def is_unchanged(stage: Stage, run: RunDirectory, config: RunConfig) -> bool:
    """Tell whether the stage is done, is as it was left, and would give the same again."""
    known = run.stage(stage.name)
    return (
        known.get("state") == "finished"
        and all((run.path / output).exists() for output in stage.outputs)
        and not differences(known.get("settings", {}), settings_of(stage, config))
        and known.get("inputs") == inputs_of(stage, run)
        and not lost_of(stage, run)
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
            known = {**{one.name: {} for one in stages}, **run.status["stages"]}  # a rolling run's are its windows
            stage = next((name for name, one in known.items() if one.get("state") != "finished"), "report")
            where = {"stage": stage, "error": str(error) or type(error).__name__, **getattr(error, "place", {})}
            with suppress(OSError):  # of a full disk: what ended the work is to be told, and is
                run.update_status(state=state, failure={**where, "resume": run.how_to_resume(state)})
                end_manifest(run, state)
            raise
        run.update_status(state="finished")
        end_manifest(run, "finished")


def _how_it_ended(error: BaseException) -> str:
    return "failed" if isinstance(error, Exception) else "interrupted"


def begin_stage(stage: Stage, run: RunDirectory, config: RunConfig) -> None:
    """Make settings those of a run, for another process to do a stage by; refuse what `run_stage` would refuse."""
    with run.lock():
        _require_earlier(stage, run, config)
        run.save_config(config)


def run_stage(
    stage: Stage, run: RunDirectory, config: RunConfig, work: Work, *, echo: Callable[[str], None] = print
) -> Literal["done", "unchanged"]:
    """Do the work of a stage unless it is done already.

    Results of other settings are moved to ``superseded/``, never mixed with new ones and never lost; a stage that
    was cut short is taken up where it stopped, if it can be, and one that lost files before the first of them.

    The settings become the run's. A stage before this one that is missing or was made with others is a `ConfigError`.
    """
    with run.lock():
        _require_earlier(stage, run, config)
        run.save_config(config)
        if is_unchanged(stage, run, config):
            echo(f"{stage.name}: unchanged, kept")
            return "unchanged"
        obey(run, echo=echo)
        lost = lost_of(stage, run)
        _set_aside(stage, run, config, lost, echo)
        begun = {"state": "running", "started": now(), "ended": None, "seconds": None, "error": None}
        depends = {"settings": settings_of(stage, config), "inputs": inputs_of(stage, run)}
        run.update_stage(stage.name, {**begun, **depends, "made_again": lost})
        clock = time.monotonic()
        try:
            work(run, config)
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
            with suppress(OSError):  # of a full disk: what ended the work is to be told, and is
                run.update_stage(stage.name, {"state": _how_it_ended(error), "error": told})
            raise
        missing = [output for output in stage.outputs if not (run.path / output).exists()]
        if missing:
            raise RuntimeError(f"stage {stage.name} ended without making {', '.join(missing)}")
        _note_made(stage, run, config)
        seconds = round(time.monotonic() - clock, 1)
        run.update_stage(stage.name, {"state": "finished", "ended": now(), "seconds": seconds})
        return "done"


def _note_made(stage: Stage, run: RunDirectory, config: RunConfig) -> None:
    """Write into the manifest the hash of every file that the stage left, and by which seeds and rules."""
    known = run.manifest.get("files", {})
    others = {name: one for name, one in known.items() if name.partition("/")[0] not in stage.outputs}
    update_manifest(run, files={**others, **file_hashes(run, stage.outputs)}, **settings_told(config))


def _require_earlier(stage: Stage, run: RunDirectory, config: RunConfig) -> None:
    for earlier in stage.after:
        if earlier is TRAIN and run.origin is not None:  # another run did it
            continue
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


def _set_aside(
    stage: Stage, run: RunDirectory, config: RunConfig, lost: Sequence[str], echo: Callable[[str], None]
) -> None:
    """Move results that do not belong to these settings out of the way, and those that do not belong to the others."""
    known = run.stage(stage.name)
    moving = [output for output in stage.outputs if (run.path / output).exists()]
    if not moving:
        return
    wanted = settings_of(stage, config)
    settings = known.get("settings", {})
    changes = differences(settings, wanted, ignore=stage.extends)
    unfinished = known.get("state") != "finished" or settings != wanted
    why = ("; ".join(changes[:3]) or "its files changed") if known else "what is there is not this stage's"
    goes_on = unfinished or (stage.extends and all(name.startswith(f"{stage.outputs[0]}/") for name in lost))
    if not changes and goes_on and known.get("inputs") == inputs_of(stage, run):
        if not lost:
            return
        moving = [name for name in _made_by(stage, run) if _follows(name, lost) and (run.path / name).exists()]
        why = f"{', '.join(lost[:3])} {'are' if lost[1:] else 'is'} not as the stage left it, and is made again"
    echo(f"{stage.name}: {why}{supersede(run, stage.name, moving)}")


def supersede(run: RunDirectory, stage: str, names: Iterable[str]) -> str:
    """Move files or folders of a run, by their names in it, to ``superseded/``; return in words where they are now."""
    names, stamp = list(names), dt.datetime.now().strftime(f"%Y%m%d-%H%M%S-{stage}")
    place, number = run.path / "superseded" / stamp, 1
    while any((place / name).exists() for name in names):  # from within the same second
        number += 1
        place = place.with_name(f"{stamp}-{number}")
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).rename(place / name)
    return f"; what was there is now in {place.relative_to(run.path)}" if place.exists() else ""


def _follows(name: str, lost: Iterable[str]) -> bool:
    """Tell whether a file is one of the lost or was made after one, by the numbers of their names."""

    def order(path: PurePosixPath) -> tuple[int, str]:
        return len(path.name), path.name

    one = PurePosixPath(name)
    return any(
        (one.parent, one.suffix) == (other.parent, other.suffix) and order(one) >= order(other)
        for other in map(PurePosixPath, lost)
    )


def differences(old: dict[str, Any], new: dict[str, Any], *, ignore: tuple[str, ...] = ()) -> list[str]:
    """Return one text for each parameter whose value differs; one that an older version had not is as if null."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name) and name not in ignore]
    return [f"{name} {json.dumps(old.get(name))} there, {json.dumps(new.get(name))} now" for name in names]
