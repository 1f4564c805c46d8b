"""Arrays on disk: one .npy each, with checksums, mapped into memory when opened; whole or not at all."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.files import put_in_place, temporary_folder, write_json

META = "sessions.json"
FORMAT = 2
_VERIFIED = ".verified.json"
_PAGE = mmap.PAGESIZE
#: The coarsest clock of the file systems in use on Linux ticks in 10 ms: a later write has other times than one before.
_CLOCK_SECONDS = 0.02
_Hash = partial(hashlib.blake2b, digest_size=16)

Arrays = Mapping[str, np.ndarray]


def is_panel(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a saved panel."""
    return (Path(source) / META).is_file()


@contextmanager
def new_arrays(directory: str | os.PathLike[str]) -> Iterator[ArrayWriter]:
    """Yield what writes arrays to `directory`; they are there, in place of older ones, when all went well."""
    target = Path(directory).absolute()
    if target.exists() and not is_panel(target) and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists and is not a saved panel; choose another folder.")
    with temporary_folder(target.parent, target.name) as temporary:
        writer = ArrayWriter(temporary)
        try:
            yield writer
        finally:
            writer.close()
        temporary.chmod(0o755)
        put_in_place(target, temporary)


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


def prefetch(array: np.ndarray, rows: np.ndarray) -> None:
    """Ask the system to read `rows` (n,) of a mapped array (S, …), all at once; an array in memory is left alone.

    Where a row is not in memory, touching it makes the system wait for it and for megabytes around it, which is right
    for a pass over all rows and ruins a draw of some. What is asked for is read alone, and side by side.
    """
    source: Any = array
    while isinstance(source, np.ndarray):
        source = source.base
    if not isinstance(source, mmap.mmap) or not len(rows) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    begin = array.ctypes.data - np.frombuffer(source, dtype=np.uint8).ctypes.data
    distinct = np.unique(rows)
    cuts = np.flatnonzero(np.diff(distinct) > 1)
    first, last = distinct[np.append(0, cuts + 1)], distinct[np.append(cuts, len(distinct) - 1)]
    low = (begin + first * array.strides[0]) // _PAGE * _PAGE
    length = begin + (last + 1) * array.strides[0] - low
    with suppress(OSError):  # it is advice; what the system will not take it does not need
        for start, size in zip(low.tolist(), length.tolist(), strict=True):
            source.madvise(mmap.MADV_WILLNEED, start, size)


class ArrayWriter:
    """Writes arrays that come in parts and need not fit into memory; see `new_arrays`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _Growing] = {}
        self._texts: dict[str, list[np.ndarray]] = {}  # whose width is known at the end

    def add(self, arrays: Arrays) -> None:
        """Put arrays behind those of their names, along the first axis; the names are the same each time."""
        known = self._files.keys() | self._texts.keys()
        if known and known != arrays.keys():
            raise DataError("the parts of a panel differ in calendar or fields; save them as panels of their own.")
        for name, values in arrays.items():
            if values.dtype.kind == "U":
                self._texts.setdefault(name, []).append(values)
            else:
                self._grow(name, values)

    def finish(self) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Return the arrays, mapped, and their checksums, when all is added."""
        if not self._files:
            raise DataError("a panel of no parts cannot be saved; give at least one.")
        texts = {name: np.concatenate(pieces) for name, pieces in self._texts.items()}
        for name, values in texts.items():
            self._grow(name, values)
        checksums = {name: file.finish() for name, file in self._files.items()}
        checksums |= {name: checksum_of(values) for name, values in texts.items()}
        self._verified = _marks(self._folder, checksums)
        time.sleep(_CLOCK_SECONDS)
        return _map(self._folder, checksums), checksums

    def conclude(self, meta: Mapping[str, Any]) -> None:
        """Write the JSON file with `meta` in it."""
        files = {name: {"bytes": marks[0], "checksum": marks[-1]} for name, marks in self._verified.items()}
        write_json(self._folder / META, {"format": FORMAT, **meta, "files": files})
        write_json(self._folder / _VERIFIED, self._verified)

    def close(self) -> None:
        """Close all files."""
        for growing in self._files.values():
            growing.file.close()

    def _grow(self, name: str, values: np.ndarray) -> None:
        if name not in self._files:
            self._files[name] = _Growing(self._folder / f"{name}.npy", values)
        self._files[name].add(values)


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
