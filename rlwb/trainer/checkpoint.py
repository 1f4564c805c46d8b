"""Checkpoint files: plain values and tensors, written atomically, read without unpickling code."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlwb.errors import CheckpointError
from rlwb.files import atomic_path, temporary_name

FORMAT = 2
_NAME = re.compile(r"(\d+)\.pt")


def checkpoint_name(iteration: int) -> str:
    """Return the file name of an iteration's checkpoint."""
    return f"{iteration:04d}.pt"


def save_checkpoint(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write `state` to `path`, whole or not at all; numpy values become plain ones."""
    with atomic_path(path) as temporary:
        torch.save({"format": FORMAT, **_plain(state)}, temporary)


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises
    ------
    CheckpointError
        When the file is missing, damaged, or not a checkpoint of rlwb.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"the checkpoint {path} does not exist; give the path of a .pt file.")
    try:
        # torch reads an archive without looking at its check sums.
        with zipfile.ZipFile(path) as archive:
            if (part := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the check sum of {part} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"the checkpoint {path} is damaged or no checkpoint ({first}); use another one."
        raise CheckpointError(message) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this version of rlwb; train again or use another one.")
    return state


def list_checkpoints(folder: str | os.PathLike[str]) -> dict[int, Path]:
    """Return iteration to path of the checkpoints in `folder`, in order; other files are ignored."""
    found = {}
    for path in Path(folder).glob("*.pt"):
        match = _NAME.fullmatch(path.name)
        if match:
            found[int(match.group(1))] = path
    return dict(sorted(found.items()))


def find_resumable(folder: str | os.PathLike[str]) -> tuple[Path | None, dict[str, str]]:
    """Return the newest readable checkpoint of `folder`, and each newer unreadable one with its fault."""
    faults: dict[str, str] = {}
    for path in reversed(list_checkpoints(folder).values()):
        try:
            load_checkpoint(path)
        except CheckpointError as error:
            faults[path.name] = str(error)
            continue
        return path, faults
    return None, faults


def point_latest(path: Path) -> None:
    """Make ``latest`` beside `path` a relative link to it; a copy where links cannot be made."""
    latest = path.with_name("latest")
    temporary = temporary_name(latest)
    try:
        temporary.symlink_to(path.name)
    except OSError:
        shutil.copyfile(path, temporary)
    temporary.replace(latest)


def _plain(value: Any) -> Any:
    """Turn numpy scalars and arrays into what safe loading accepts."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, np.generic):
        return value.item()
    return value
