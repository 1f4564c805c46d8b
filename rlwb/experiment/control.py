"""Requests to a run that works, to pause, to go on or to stop, which it reads in its directory between two steps.

Whoever can write to the directory can ask, from another process or machine that shares it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from rlwb.errors import ConfigError, StopRequested
from rlwb.experiment.run import REQUEST, WINDOWS, RunDirectory, command
from rlwb.files import is_locked, locked, write_text

Request = Literal["pause", "resume", "stop"]

_PAUSED = ".paused"
_LOOK_SECONDS = 0.2
_ANSWERS = {
    "pause": "it pauses after the iteration that it trains, or else before its next stage",
    "resume": "it goes on",
    "stop": "it stops after the iteration that it trains, or else before its next stage",
}


def ask(run: RunDirectory, request: Request) -> str:
    """Ask a run that works to pause, to go on after that, or to stop; return in a sentence what will happen.

    A run that stopped is taken up by ``rlwb run --resume``, to the same figures as if it had not been.

    Raises
    ------
    ConfigError
        Where the run does not work, or is asked to go on and nothing holds it.
    """
    if run.state != "running":
        raise ConfigError(f"{run.path} is {run.state}, so that there is nothing to {request}.")
    if request == "resume" and _read(run) != "pause":
        raise ConfigError(f"{run.path} is not paused, so that there is nothing to resume.")
    with run.telling_limits():
        if request == "resume":
            (run.path / REQUEST).unlink(missing_ok=True)
        else:
            write_text(run.path / REQUEST, request)
    after = f", and goes on with: {command('resume', run.short)}" if request == "pause" else ""
    after = f". {run.how_to_resume('interrupted')}" if request == "stop" else after
    return f"{run.path.name}: {_ANSWERS[request]}{after}"


def standing(run: RunDirectory) -> str:
    """Return the run's state, or of one that works ``pausing``, ``paused`` or ``stopping``, as it was asked to."""
    state, asked = run.state, _read(run)
    if state != "running" or asked is None:
        return state
    if asked == "pause":
        return "paused" if is_locked(run.path / _PAUSED) else "pausing"
    return "stopping"


def obey(run: RunDirectory, *, echo: Callable[[str], None] = print) -> None:
    """Do what the run, or that of which it is a window, was asked for: wait while it is to pause, end when to stop.

    Raises
    ------
    StopRequested
        Where it is to stop.
    """
    for one in (run, *_around(run)):
        if _read(one) == "pause":
            echo(f"paused; go on with: {command('resume', one.short)}")
            with locked(one.path / _PAUSED, wait=True):
                while _read(one) == "pause":
                    time.sleep(_LOOK_SECONDS)
            if _read(one) is None:
                echo("resumed")
        if _read(one) == "stop":
            (one.path / REQUEST).unlink(missing_ok=True)
            raise StopRequested("stopped on request")


def _around(run: RunDirectory) -> tuple[RunDirectory, ...]:
    return (RunDirectory(run.path.parents[1]),) if run.path.parent.name == WINDOWS else ()


def _read(run: RunDirectory) -> Literal["pause", "stop"] | None:
    """Return what a run is asked for; None for nothing, or what nobody understands."""
    said = ""
    with suppress(OSError, UnicodeDecodeError):
        said = Path(run.path / REQUEST).read_text(encoding="utf-8").strip()
    return "pause" if said == "pause" else "stop" if said == "stop" else None
