"""Arrays on disk: one .npy each, with checksums, mapped into memory when opened; whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.files import write_json

META = "sessions.json"
FORMAT = 2
_VERIFIED = ".verified.json"
_CHUNK = 1 << 22
#: The coarsest clock of the file systems in use on Linux ticks in 10 ms: a later write has other times than one before.
_CLOCK_SECONDS = 0.02

Arrays = Mapping[str, np.ndarray]


def is_panel(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a saved panel."""
    return (Path(source) / META).is_file()


def write_arrays(
    parts: Iterable[Arrays],
    directory: str | os.PathLike[str],
    conclude: Callable[[Arrays, dict[str, str]], Mapping[str, Any]],
    *,
    replace_anything: bool = False,
) -> Path:
    """Write arrays, which come in parts and need not fit into memory, to `directory`, replacing those that are there.

    Parameters
    ----------
    parts
        One or more, with the same names; arrays of one name are put together along their first axis.
    conclude
        Called when all is written with the arrays, mapped, and their checksums; returns what goes into the JSON file.
    replace_anything
        Whether a folder that holds something else may be replaced (a cache, whose folders are its own).
    """
    target = Path(directory).absolute()
    foreign = target.exists() and not (target / META).exists() and (not target.is_dir() or any(target.iterdir()))
    if foreign and not replace_anything:
        raise DataError(f"{target} exists and is not a saved panel; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        checksums = _write(temporary, parts)
        stats = _stats(temporary, checksums)
        time.sleep(_CLOCK_SECONDS)
        meta = conclude(_map(temporary, checksums), checksums)
        files = {name: {"bytes": stats[name][0], "checksum": checksum} for name, checksum in checksums.items()}
        write_json(temporary / META, {"format": FORMAT, **meta, "files": files})
        write_json(temporary / _VERIFIED, {name: [*stats[name], checksums[name]] for name in checksums})
        temporary.chmod(0o755)
        _swap(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def open_arrays(
    directory: str | os.PathLike[str], *, verify: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON file's content and the arrays, mapped.

    A panel that is missing, incomplete, of another format, or (when `verify`) whose checksums differ is a `DataError`.
    Checksums that fitted, when the arrays were written or opened, are computed again only when a file was touched
    since, by size, times or inode; so a large panel opens at once, and a copy of it does not.
    """
    path = Path(directory).absolute()
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            raise DataError(f"the panel in {path} was saved in another format; build it again from the bars.")
        stated = {name: file["checksum"] for name, file in meta["files"].items()}
        for name, file in meta["files"].items():
            size = (path / f"{name}.npy").stat().st_size
            if size != file["bytes"]:
                raise ValueError(f"{name}.npy has {size} bytes, not {file['bytes']}")
        if verify and not _is_verified(path, stated):
            stats = _stats(path, stated)
            time.sleep(_CLOCK_SECONDS)
            for name, checksum in stated.items():
                if _checksum(path / f"{name}.npy") != checksum:
                    raise ValueError(f"the checksum of {name}.npy differs")
            with suppress(OSError):  # a panel that can only be read is verified each time
                write_json(path / _VERIFIED, {name: [*stats[name], stated[name]] for name in stated})
        return meta, _map(path, stated)
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no complete panel ({Path(error.filename or META).name} is missing).") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"the panel in {path} is damaged ({error}); delete it and build it again.") from None


def checksum_of(array: np.ndarray) -> str:
    """Return the hash of an array's values; of text, whatever its width."""
    return hashlib.blake2b(_bytes(array), digest_size=16).hexdigest()


class _Growing:
    """A .npy file whose number of rows is known when it is closed.

    NumPy pads the header, so that the first axis can grow in place (`numpy.lib.format`).
    """

    def __init__(self, path: Path, dtype: np.dtype, row: tuple[int, ...]) -> None:
        self._dtype, self._row, self._length = dtype, row, 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._file = path.open("wb")
        self._begins = self._write_header()

    def add(self, rows: np.ndarray) -> None:
        content = np.ascontiguousarray(rows, dtype=self._dtype).data
        self._file.write(content)
        self._digest.update(content)
        self._length += len(rows)

    def close(self) -> str:
        """Write the final length, and all to the disk; return the checksum."""
        if not self._file.closed:
            self._file.seek(0)
            assert self._write_header() == self._begins
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._digest.hexdigest()

    def _write_header(self) -> int:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length, *self._row)}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


def _write(folder: Path, parts: Iterable[Arrays]) -> dict[str, str]:
    """Write all parts; return the checksum of each array."""
    with ExitStack() as stack:
        files: dict[str, _Growing] = {}
        texts: dict[str, list[np.ndarray]] = {}  # whose width is known at the end
        known: set[str] | None = None
        for arrays in parts:
            if known is not None and known != set(arrays):
                raise DataError("the parts of a panel differ in calendar or fields; save them as panels of their own.")
            for name, values in arrays.items():
                if values.dtype.kind == "U":
                    texts.setdefault(name, []).append(values)
                    continue
                if known is None:
                    files[name] = _Growing(folder / f"{name}.npy", values.dtype, values.shape[1:])
                    stack.callback(files[name].close)
                files[name].add(values)
            known = set(arrays)
        if known is None:
            raise DataError("a panel of no parts cannot be saved; give at least one.")
        checksums = {name: file.close() for name, file in files.items()}
        for name, pieces in texts.items():
            whole = np.concatenate(pieces)
            with (folder / f"{name}.npy").open("wb") as file:
                np.save(file, whole)
                file.flush()
                os.fsync(file.fileno())
            checksums[name] = checksum_of(whole)
    return checksums


def _map(folder: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in names}


def _checksum(path: Path) -> str:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind == "U":
        return checksum_of(np.array(array))
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        file.seek(path.stat().st_size - array.nbytes)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> bytes | memoryview:
    return "\0".join(array.tolist()).encode() if array.dtype.kind == "U" else np.ascontiguousarray(array).data


def _stats(path: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Return what changes when a file is written: its size, times and inode."""
    stats = {name: (path / f"{name}.npy").stat() for name in names}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for name, stat in stats.items()}


def _is_verified(path: Path, checksums: Mapping[str, str]) -> bool:
    """Tell whether the files are those that had `checksums` when they were last read."""
    try:
        verified = json.loads((path / _VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    stats = _stats(path, checksums)
    return bool(verified == {name: [*stats[name], checksums[name]] for name in stats})


def _swap(temporary: Path, target: Path) -> None:
    """Move `temporary` to `target`; an older panel there goes only when the new one is complete."""
    if not target.exists():
        temporary.replace(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    try:
        target.replace(old / "panel")
        try:
            temporary.replace(target)
        except OSError:
            (old / "panel").replace(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
