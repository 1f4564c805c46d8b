"""Ends a process by SIGKILL right before one of the changes that it makes to files below a folder."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

#: Audit events that change files, and which of their arguments are paths.
_CHANGES = {
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.symlink": (1,),
    "os.link": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.utime": (0,),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

#: Called right before a change with its kind and path.
Seen = Callable[[str, str], None]


def watch(folder: str, seen: Seen) -> None:
    """Call `seen` before each file below `folder` is opened for writing, synced, renamed, removed or made.

    This lasts as long as the process. What libraries in C++ write goes into files that Python has made and renames.
    """

    def path_of(value: object, within: object = -1) -> str:
        """Return an absolute path, of a relative one from the folder whose open number is `within`."""
        if isinstance(value, int) or value is None:
            return ""
        base = Path(f"/proc/self/fd/{within}").readlink() if isinstance(within, int) and within >= 0 else Path.cwd()
        return str(base / os.fsdecode(value))  # type: ignore[arg-type]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else False
            if (writes or (isinstance(flags, int) and flags & _WRITES)) and path_of(path).startswith(f"{folder}/"):
                seen("open", path_of(path))
        elif event in _CHANGES:
            within = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
            paths = (path_of(arguments[at], within) for at in _CHANGES[event])
            path = next((one for one in paths if one.startswith(f"{folder}/")), "")
            # Making what is there and removing what is not change nothing.
            if path and os.path.lexists(path) != (event in ("os.mkdir", "os.symlink", "os.link")):
                seen(event.removeprefix("os."), path)

    sync = os.fsync

    def fsync(handle: int) -> None:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        if path.startswith(f"{folder}/"):
            seen("fsync", path)
        sync(handle)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)


def kill_at(folder: str, number: int, *, torn: bool = False) -> None:
    """End this process right before change `number` (from 0); `torn` cuts a file to half that was to be synced."""
    left = number

    def seen(kind: str, path: str) -> None:
        nonlocal left
        if left == 0:
            if torn and kind == "fsync":
                os.truncate(path, Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    watch(folder, seen)


def from_environment() -> None:
    """Do so if the environment says it, in this process's role: ``kernel`` where a pipeline has started it."""
    folder, role, number = (os.environ.get(f"RLWB_KILL_{name}", "") for name in ("BELOW", "ROLE", "AT"))
    if folder and role == ("kernel" if "RLWB_PIPELINE" in os.environ else "command"):
        kill_at(folder, int(number))
