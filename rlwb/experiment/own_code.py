"""Code of one's own in a run: known by its content, copied into the run, and run only where it is trusted."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from rlwb.code import Code
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import with_code
from rlwb.files import atomic_path, write_json
from rlwb.market.feature_registry import find_feature
from rlwb.parts import check, find, load

TRUST_ENV = "RLWB_TRUST_CODE"
"""Environment variable that is set where the code of runs is trusted."""


def own_code(config: RunConfig) -> dict[str, Code]:
    """Return place in the configuration to code, of parts that are neither built in nor entry points."""
    found = {f"{place} {part.name}": find(kind, part.name) for place, kind, part in config.parts()}
    return {place: code for place, code in found.items() if code.is_foreign}


def described(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as plain values in which code is known by its content, wherever it lies."""

    def name_and_hash(match: re.Match[str]) -> str:
        code = Code(match["file"], match["attribute"], is_foreign=True).describe()
        return f"{code['name']} {code['hash']}"

    return with_code(config.as_dict(), name_and_hash)


def keep_code(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Copy files of code into a run's folder; return the configuration as plain values that name the copies.

    The copies go to ``code/<hash of the content>/``, and names start at the folder.
    """

    def copied(match: re.Match[str]) -> str:
        source = Path(match["file"])
        code = Code(match["file"], match["attribute"], is_foreign=True)
        target = Path("code") / code.fingerprint() / source.name
        if not (folder / target).exists():
            with atomic_path(folder / target) as path:
                shutil.copyfile(source, path)
        return f"{target.as_posix()}:{match['attribute']}"

    return with_code(config.as_dict(), copied)


def check_parts(config: RunConfig) -> None:
    """Load every part and let it refuse its settings, before any work; this runs their code."""
    for _, kind, part in config.parts():
        if kind == "feature":
            find_feature(part.name)
        else:
            check(kind, part)
    check_objective(config)


def check_objective(config: RunConfig) -> None:
    """Refuse an objective that the algorithm does not take."""
    objective, name = config.objective.name, config.algorithm.name
    if objective != "mean" and "objective" not in inspect.signature(load("algorithm", name)).parameters:
        raise ConfigError(
            f"the objective is {objective}, but {name} maximises the mean alone; set algorithm to one that takes an "
            "objective, such as ppo, or objective to mean."
        )


def trust(config: RunConfig, *, beside: RunConfig | None = None) -> None:
    """Remember that the user named this code, so that a run that has a copy of it is not asked about.

    What `beside` names, a configuration that came from elsewhere, is not the user's word.
    """
    foreign = {_key(code) for code in own_code(beside).values()} if beside else set()
    _remember({_key(code) for code in own_code(config).values()} - foreign)


def require_trust(config: RunConfig, *, given: bool = False, of: str = "") -> None:
    """Ask before the code of a run's directory is run that this user has never named, unless trust is `given`.

    `of` is the place of the part whose code is about to run; without it, all.

    Raises
    ------
    ConfigError
        When the code is not trusted, or nobody can be asked.
    """
    own = {place: code for place, code in own_code(config).items() if place.startswith(of)}
    ask_trust({f"{place} (hash {code.fingerprint()})": _key(code) for place, code in own.items()}, given=given)


def ask_trust(found: Mapping[str, str], *, given: bool = False) -> None:
    """Ask before code is run that this user has never named, unless trust is `given`; remember the answer.

    Parameters
    ----------
    found
        What the code is, in words with its hash, to the key that it is remembered by.

    Raises
    ------
    ConfigError
        When the code is not trusted, or nobody can be asked.
    """
    known = _known()
    foreign = {place: key for place, key in found.items() if key not in known}
    if not foreign or os.environ.get(TRUST_ENV):
        return
    listed = "; ".join(foreign)
    if not given:
        if sys.stdin is None or not sys.stdin.isatty():
            raise ConfigError(
                f"this run names code that you have not used before: {listed}. Read it, then --trust-code."
            )
        if input(f"This run names code: {listed}. Run it? [y/N] ").strip().lower() not in ("y", "yes"):
            raise ConfigError("the run's code was not trusted, so nothing was run.")
    _remember({*foreign.values()})


def _remember(keys: set[str]) -> None:
    known = _known()
    if keys - known:
        try:
            write_json(_file(), sorted(known | keys))
        except OSError:  # asked again the next time
            return


def _key(code: Code) -> str:
    return f"{code.fingerprint()}:{code.attribute}" if code.is_file else f"{code.place}:{code.attribute}"


def _file() -> Path:
    return Path(user_state_path("rlwb")) / "trusted_code.json"


def _known() -> set[str]:
    try:
        return set(json.loads(_file().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return set()
