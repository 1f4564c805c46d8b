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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.files import write_json

META = "sessions.json"
FORMAT = 2
_VERIFIED = ".verified.json"
#: The coarsest clock of the file systems in use on Linux ticks in 10 ms: a later write has other times than one before.
_CLOCK_SECONDS = 0.02
_Hash = partial(hashlib.blake2b, digest_size=16)

Arrays = Mapping[str, np.ndarray]


def is_panel(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a saved panel."""
    return (Path(source) / META).is_file()


def write_arrays(
    parts: Iterable[Arrays],
    directory: str | os.PathLike[str],
    conclude: Callable[[Arrays, dict[str, str]], Mapping[str, Any]],
) -> Path:
    """Write arrays, which come in parts and need not fit into memory, to `directory`, replacing those that are there.

    Parameters
    ----------
    parts
        One or more, with the same names; arrays of one name are put together along their first axis.
    conclude
        Called when all is written with the arrays, mapped, and their checksums; returns what goes into the JSON file.
    """
    target = Path(directory).absolute()
    if target.exists() and not is_panel(target) and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists and is not a saved panel; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        checksums = _write(temporary, parts)
        verified = _marks(temporary, checksums)
        time.sleep(_CLOCK_SECONDS)
        meta = conclude(_map(temporary, checksums), checksums)
        files = {name: {"bytes": verified[name][0], "checksum": checksum} for name, checksum in checksums.items()}
        write_json(temporary / META, {"format": FORMAT, **meta, "files": files})
        write_json(temporary / _VERIFIED, verified)
        temporary.chmod(0o755)
        old = temporary.with_suffix(".old")
        if target.exists():  # it goes only when the new one is complete
            target.replace(old)
        temporary.replace(target)
        shutil.rmtree(old, ignore_errors=True)
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
        checksums = {name: file["checksum"] for name, file in meta["files"].items()}
        found = _marks(path, checksums)
        for name, file in meta["files"].items():
            if found[name][0] != file["bytes"]:
                raise ValueError(f"{name}.npy has {found[name][0]} bytes, not {file['bytes']}")
        if verify and found != _verified(path):
            time.sleep(_CLOCK_SECONDS)
            for name, checksum in checksums.items():
                if _checksum(path / f"{name}.npy") != checksum:
                    raise ValueError(f"the checksum of {name}.npy differs")
            with suppress(OSError):  # a panel that can only be read is verified each time
                write_json(path / _VERIFIED, found)
        return meta, _map(path, checksums)
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no complete panel ({Path(error.filename or META).name} is missing).") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"the panel in {path} is damaged ({error}); delete it and build it again.") from None


def checksum_of(array: np.ndarray) -> str:
    """Return the hash of an array's values; of text, whatever its width."""
    is_text = array.dtype.kind == "U"
    return _Hash("\0".join(array.tolist()).encode() if is_text else np.ascontiguousarray(array).data).hexdigest()


class _Growing:
    """A .npy file whose number of rows is known when it is closed.

    NumPy pads the header, so that the first axis can grow in place (`numpy.lib.format`).
    """

    def __init__(self, path: Path, like: np.ndarray) -> None:
        self._dtype, self._shape = like.dtype, [0, *like.shape[1:]]
        self._digest = _Hash()
        self.file = path.open("wb")
        self._write_header()

    def add(self, rows: np.ndarray) -> None:
        content = np.ascontiguousarray(rows, dtype=self._dtype).data
        self.file.write(content)
        self._digest.update(content)
        self._shape[0] += len(rows)

    def finish(self) -> str:
        """Write the final length, and all to the disk; return the checksum of the bytes."""
        self.file.seek(0)
        self._write_header()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return self._digest.hexdigest()

    def _write_header(self) -> None:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": tuple(self._shape)}
        np.lib.format.write_array_header_1_0(self.file, header)


def _write(folder: Path, parts: Iterable[Arrays]) -> dict[str, str]:
    """Write all parts; return the checksum of each array."""
    with ExitStack() as stack:
        files: dict[str, _Growing] = {}
        texts: dict[str, list[np.ndarray]] = {}  # whose width is known at the end

        def grow(name: str, values: np.ndarray) -> None:
            if name not in files:
                files[name] = _Growing(folder / f"{name}.npy", values)
                stack.callback(files[name].file.close)
            files[name].add(values)

        known: set[str] = set()
        for arrays in parts:
            if known and known != set(arrays):
                raise DataError("the parts of a panel differ in calendar or fields; save them as panels of their own.")
            known = set(arrays)
            for name, values in arrays.items():
                if values.dtype.kind == "U":
                    texts.setdefault(name, []).append(values)
                else:
                    grow(name, values)
        if not known:
            raise DataError("a panel of no parts cannot be saved; give at least one.")
        whole = {name: np.concatenate(pieces) for name, pieces in texts.items()}
        for name, values in whole.items():
            grow(name, values)
        checksums = {name: file.finish() for name, file in files.items()}
        return checksums | {name: checksum_of(values) for name, values in whole.items()}


def _map(folder: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in names}


def _checksum(path: Path) -> str:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind == "U":
        return checksum_of(np.array(array))
    with path.open("rb") as file:
        file.seek(-array.nbytes, os.SEEK_END)
        return hashlib.file_digest(file, _Hash).hexdigest()


def _marks(folder: Path, checksums: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return of each file what changes when it is written, its size, times and inode, and its stated checksum."""
    marks = {}
    for name, checksum in checksums.items():
        stat = (folder / f"{name}.npy").stat()
        marks[name] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, checksum]
    return marks


def _verified(folder: Path) -> Any:
    """Return the marks of the files when their checksums last fitted."""
    try:
        return json.loads((folder / _VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
