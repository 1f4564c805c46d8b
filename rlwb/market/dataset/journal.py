"""Many files change together: they are staged, a record says that all are there, and then they take their places."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market.dataset.layout import STATE, WORK

_RECORD = "commit.json"


class Journal:
    """The changes of a data set since its last commit; what is not committed leaves no trace.

    Parameters
    ----------
    directory
        The data set.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._work = directory / WORK
        self._moves: dict[str, str] = {}

    def stage(self, target: str) -> Path:
        """Return where to write the new content of `target`, a path inside the data set."""
        name = f"{len(self._moves)}{Path(target).suffix}"
        self._moves[name] = target
        return self._work / name

    def begin(self) -> None:
        """Make room for staged files."""
        self._work.mkdir(parents=True, exist_ok=True)

    def commit(self, state: dict[str, Any]) -> None:
        """Put all staged files in their places, and `state` in that of the data set's; all or nothing."""
        os.sync()  # the record must not outlive what it speaks of
        write_json(self._work / _RECORD, {"moves": self._moves, "state": state})
        self._moves = {}
        recover(self._directory)


def recover(directory: Path) -> None:
    """Finish a commit that was cut short, or forget what was not committed."""
    work = directory / WORK
    record = work / _RECORD
    if record.is_file():
        found = json.loads(record.read_text(encoding="utf-8"))
        for name, target in found["moves"].items():
            if (work / name).exists():  # else it took its place already
                (directory / target).parent.mkdir(parents=True, exist_ok=True)
                (work / name).replace(directory / target)
        # Written in the work folder, so that a kill leaves nothing of it elsewhere.
        write_json(work / STATE, found["state"])
        (work / STATE).replace(directory / STATE)
    shutil.rmtree(work, ignore_errors=True)


def is_pending(directory: Path) -> bool:
    """Tell whether a commit is under way or was cut short, so that files and state may not fit."""
    return (directory / WORK / _RECORD).exists()


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Let one import at a time write to the data set; the lock goes with the process that holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(f"another import writes to {directory}; wait until it is done.") from None
        yield
