"""A stage of a run, and when it need not be done again."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import rlwb
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described
from rlwb.experiment.run import RunDirectory

Work = Callable[[RunDirectory, RunConfig], None]

SOURCES = ("market.source", "orders.source")
"""Parameters that name files outside a run; the files' contents count, not their place."""


@dataclass(frozen=True)
class Stage:
    """One step of a run.

    Attributes
    ----------
    name
        Also the name of its function in `rlwb.experiment.stages`.
    notebook
        File name of the notebook that tells it.
    depends
        Dotted names of the parameters, or groups of them, that its result depends on.
    inputs
        Patterns of the files of the run that it reads.
    outputs
        Files and folders of the run that it makes.
    after
        Stages whose results it needs.
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


def settings_of(stage: Stage, config: RunConfig) -> dict[str, Any]:
    """Return dotted name to value of all that `stage` depends on; files and code count by their contents."""
    chosen: dict[str, Any] = {"rlwb": rlwb.__version__}
    tree = described(config)
    for name in leaves(tree):
        if name in stage.indifferent or not any(f"{name}.".startswith(f"{group}.") for group in stage.depends):
            continue
        value = value_at(tree, name)
        chosen[name] = hash_path(Path(value)) if name in SOURCES else value
    return chosen


def inputs_of(stage: Stage, run: RunDirectory) -> str:
    """Return the hash of the names and contents of the stage's input files."""
    files = sorted({path for pattern in stage.inputs for path in run.path.glob(pattern) if path.is_file()})
    return _combined(run.path, files)


def hash_path(path: Path) -> str:
    """Return the hash of a file's contents, or of the names and contents of a folder's files, hidden ones aside."""
    if path.is_file():
        return _hash_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _combined(path, [f for f in files if not any(part.startswith(".") for part in f.relative_to(path).parts)])


def _combined(base: Path, files: list[Path]) -> str:
    lines = [f"{file.relative_to(base).as_posix()} {_hash_file(file)}" for file in files]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _hash_file(path: Path) -> str:
    stat = path.stat()
    return _hash_contents(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hash_contents(path: Path, size: int, changed: int) -> str:
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


def run_stage(
    stage: Stage, run: RunDirectory, config: RunConfig, work: Work, *, echo: Callable[[str], None] = print
) -> Literal["done", "unchanged"]:
    """Do the work of a stage unless it is done already.

    Results of other settings are moved to ``superseded/``, never mixed with new ones and never lost; a stage that
    was cut short is taken up where it stopped, if it can be.

    Parameters
    ----------
    stage
        What to do.
    run
        Where.
    config
        With which settings; they become the run's.
    work
        Does it, from `run` and `config`.
    echo
        Receives lines on what happens.

    Raises
    ------
    ConfigError
        When a stage before this one is missing or was made with other settings.
    """
    with run.lock():
        _require_earlier(stage, run, config)
        run.save_config(config)
        if is_unchanged(stage, run, config):
            echo(f"{stage.name}: unchanged, kept")
            return "unchanged"
        _set_aside(stage, run, config, echo)
        begun = {"state": "running", "started": _now(), "ended": None, "seconds": None, "error": None}
        depends = {"settings": settings_of(stage, config), "inputs": inputs_of(stage, run)}
        run.update_stage(stage.name, {**begun, **depends})
        clock = time.monotonic()
        try:
            work(run, config)
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "interrupted"
            run.update_stage(stage.name, {"state": state, "error": f"{type(error).__name__}: {error}"})
            raise
        missing = [output for output in stage.outputs if not (run.path / output).exists()]
        if missing:
            raise RuntimeError(f"stage {stage.name} ended without making {', '.join(missing)}")
        seconds = round(time.monotonic() - clock, 1)
        run.update_stage(stage.name, {"state": "finished", "ended": _now(), "seconds": seconds})
        return "done"


def _require_earlier(stage: Stage, run: RunDirectory, config: RunConfig) -> None:
    for earlier in stage.after:
        if is_unchanged(earlier, run, config):
            continue
        name = earlier.name
        known = run.stage(name)
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
    changes = differences(known["settings"], wanted, ignore=stage.extends)
    unfinished = known["state"] != "finished" or known["settings"] != wanted
    if not changes and unfinished and known["inputs"] == inputs_of(stage, run):
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


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
