"""Files that appear whole or not at all, and no scraps of them after a kill."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlwb.errors import RlwbError

try:
    import fcntl
except ImportError:
    raise RlwbError("rlwb runs on Linux and macOS; on Windows use it under WSL (wsl --install).") from None

#: The name of a temporary file or folder, ``.<stem>.<8 digits>.rlwb-new<suffix>``, or of a folder on its way out.
_TEMPORARY = re.compile(r"\.(?P<stem>.*)\.[0-9a-f]{8}\.rlwb-(new(\..*)?|old)")
#: What a file system says that has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NEW, _OLD = ".rlwb-new", ".rlwb-old"
#: Folders that this process has swept.
_swept: set[Path] = set()


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `target` to write to; rename it onto `target` on success, remove it on failure.

    What a killed process left in the folder goes, at this process's first write there.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.absolute() not in _swept:
        _swept.add(target.parent.absolute())
        sweep(target.parent)
    # The suffix is kept: some writers choose the format by it, or append it.
    temporary = temporary_name(target)
    handle = _held(temporary, os.O_CREAT | os.O_WRONLY)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def temporary_name(target: Path) -> Path:
    """Return a new name beside `target` for what is to take its place; what is left under it is swept."""
    return target.with_name(f".{target.stem}.{secrets.token_hex(4)}{_NEW}{target.suffix}")


@contextmanager
def temporary_folder(parent: str | os.PathLike[str], stem: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, which goes afterwards if it is still there; only its owner may read it.

    It may be renamed. What killed processes left in `parent` goes.
    """
    sweep(parent)
    folder = Path(parent) / f".{stem}.{secrets.token_hex(4)}{_NEW}"
    handle = None
    while handle is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another has swept it before it was held
            handle = _held(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _held(path: Path, flags: int, lock: int = fcntl.LOCK_EX) -> int:
    """Open and lock what lies at `path`, by which others know that its owner lives."""
    while True:
        handle = os.open(path, flags, 0o666)
        try:
            _lock(handle, lock, path)
            if os.fstat(handle).st_nlink:  # else another has removed it just now
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, lock: int, path: Path) -> None:
    try:
        fcntl.flock(handle, lock)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise RlwbError(
            f"the disk of {path.parent} has no locks, which rlwb holds its files by; choose a folder on another."
        ) from None


def is_temporary(name: str) -> bool:
    """Tell whether a file or folder of this name is one that `atomic_path` or `temporary_folder` makes."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(folder: str | os.PathLike[str], *, below: bool = False) -> None:
    """Remove what killed processes left in a folder, and with `below` in the folders in it.

    What a living process holds stays. A folder that was taken out of the way of a new one that never came is put back.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        match = _TEMPORARY.fullmatch(entry.name)
        if match is not None and entry.is_symlink():  # which is held for no time
            Path(entry.path).unlink(missing_ok=True)
        elif match is not None:
            _sweep_one(Path(entry.path), match["stem"])
        elif below and entry.is_dir(follow_symlinks=False):
            sweep(entry.path, below=True)


def _sweep_one(path: Path, stem: str) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # gone, or another user's
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.suffix == _OLD and is_locked(path.with_suffix(_NEW)):
            return
        if path.suffix == _OLD and not path.with_name(stem).exists():
            path.rename(path.with_name(stem))
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except OSError:  # another's, who lives
        return
    finally:
        os.close(handle)


def put_in_place(path: Path, new: Path) -> None:
    """Put the temporary folder `new` in the place of the folder `path`, which goes when that has gone well."""
    old = new.with_suffix(_OLD)
    if path.exists():
        path.replace(old)
    try:
        new.replace(path)
    except OSError:
        if old.exists() and not path.exists():
            old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, which the system lets go of with the process; `BlockingIOError` where another holds it.

    With `wait`, wait until the other is done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _held(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    try:
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Tell whether a process holds a lock file; nothing is made or changed."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def files_below(folder: Path) -> list[Path]:
    """Return the files in a folder and in those below it, also behind links; hidden ones aside, sorted.

    A file is returned as such a folder of its own; where there is none, nothing is.
    """
    if folder.is_file():
        return [folder]
    found, seen = [], set[Path]()
    for place, folders, names in os.walk(folder, followlinks=True):
        here = Path(place)
        if here.resolve() in seen:  # a link to a folder above it
            folders.clear()
            continue
        seen.add(here.resolve())
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [here / name for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


@contextmanager
def new_folders(path: Path) -> Iterator[None]:
    """Make a folder and those above it; on failure the new ones go again, as far as nothing is in them."""
    new = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for folder in new:  # the innermost first
                folder.rmdir()
        raise


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


def as_json(value: Any) -> str:
    """Return a value as JSON: numpy's numbers and arrays as numbers and lists, dataclasses as objects, sets sorted.

    What JSON does not know becomes its `str`; NaN and infinities stay, as Python writes them. Keys must be text.
    """
    return json.dumps(value, default=_plain)


def strict_json(value: Any) -> str:
    """Return a value as indented JSON that every reader takes.

    As `as_json`, but NaN becomes null and an infinity the text ``"Infinity"`` or ``"-Infinity"``, which `float` reads.
    """
    plain = json.loads(as_json(value), parse_constant=lambda name: None if name == "NaN" else name)
    return json.dumps(plain, indent=2, allow_nan=False)


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically.

    As `strict_json`.
    """
    write_text(target, strict_json(value) + "\n")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        plain = value.tolist()
        return plain if isinstance(plain, (bool, int, float, str, list)) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
