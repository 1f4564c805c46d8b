"""Checkpoint files: plain values and tensors, written atomically, read without unpickling code."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlwb.errors import CheckpointError, RlwbError
from rlwb.files import atomic_path, temporary_name

FORMAT = 2
#: What is saved as it is.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: Kinds of numpy's numbers.
_NUMBERS = "biufc"
_NAME = re.compile(r"(\d+)\.pt")


def checkpoint_name(iteration: int) -> str:
    """Return the file name of an iteration's checkpoint."""
    return f"{iteration:04d}.pt"


def save_checkpoint(path: str | os.PathLike[str], state: dict[str, Any], *, read_back: bool = False) -> None:
    """Write `state` to `path`, whole or not at all; numpy values become plain ones. Equal states are equal bytes.

    Parameters
    ----------
    read_back
        Whether to read what was written before it gets its name.

    Raises
    ------
    CheckpointError
        When `state` holds something that could not be loaded again, naming its key.
    """
    content = _packed(state)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
        if read_back:
            load_checkpoint(temporary)


def packed_size(state: dict[str, Any]) -> int:
    """Return how many bytes a checkpoint of `state` has; refuse, as `save_checkpoint`, what could not be loaded."""
    content = _packed(state)
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"the state cannot be read back once it is saved ({error}); look what it holds."
        ) from error
    return len(content)


def _packed(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()  # torch would write a file's own name into it
    torch.save({"format": FORMAT, **_plain(state, "")}, buffer)
    return buffer.getvalue()


@contextlib.contextmanager
def restoring(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever goes wrong while a checkpoint's content is taken over into a `CheckpointError` with its path."""
    try:
        yield
    except RlwbError as error:
        if isinstance(error, CheckpointError) and str(path) not in str(error):
            raise CheckpointError(f"the checkpoint {path}: {error}") from error
        raise
    except Exception as error:  # a damaged file may raise anything
        first = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        message = f"the checkpoint {path} is damaged or no checkpoint ({first}); use another one."
        raise CheckpointError(message) from error


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
    with restoring(path):
        # torch reads an archive without looking at its check sums.
        with zipfile.ZipFile(path) as archive:
            if (part := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the check sum of {part} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
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


def _plain(value: Any, where: str) -> Any:
    """Turn numpy scalars and arrays into what safe loading accepts; refuse what it does not, by its place."""
    if isinstance(value, dict):
        return {
            _key(key, where): _plain(part, f"{where}[{key!r}]" if where else str(key)) for key, part in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(_plain(part, f"{where}[{at}]") for at, part in enumerate(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        with contextlib.suppress(TypeError):  # of numbers that torch does not have
            return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C"))
    plain = value.item() if isinstance(value, np.generic) and value.dtype.kind != "M" else value
    if type(plain) in _PLAIN or isinstance(plain, torch.Tensor):
        return _one_object(plain)
    raise CheckpointError(_refusal(value, where))


def _key(key: Any, where: str) -> Any:
    if isinstance(key, tuple):
        return tuple(_key(part, where) for part in key)
    plain = key.item() if isinstance(key, np.generic) and key.dtype.kind != "M" else key
    if type(plain) not in _PLAIN:
        raise CheckpointError(_refusal(key, f"the key {key!r} of {where or 'the state'}"))
    return _one_object(plain)


def _one_object(value: Any) -> Any:
    """Return of equal texts one object: files tell an object that stands twice from two that are equal."""
    return sys.intern(value) if type(value) is str else value


def _refusal(value: Any, where: str) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    more = f" of {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else ""
    return (
        f"{where} is a {kind}{more}, which a checkpoint cannot give back; store numbers, text, lists, dicts, arrays of "
        "numbers or tensors, for example str(value)."
    )
