"""What is imported one by one: files, or sources that a reader reads whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.columns import match_columns
from rlwb.market.dataset.chunks import Reading
from rlwb.market.dataset.state import Source
from rlwb.market.read import bar_files, id_of
from rlwb.market.readers.registry import TABLE, find_reader
from rlwb.market.tables import read_header

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Unit:
    """One thing to import.

    Parameters
    ----------
    path
        The file, or the folder that is read whole.
    files
        All files that its bars depend on.
    reading
        How it is read; its `kind` is settled.
    """

    path: Path
    files: tuple[Path, ...]
    reading: Reading

    def source(self, number: int) -> Source:
        """Return its entry in the data set, before anything was read; takes a pass over the content."""
        settings: dict[str, Any] = self.reading.as_dict()
        if self.reading.kind == TABLE and "instrument" not in match_columns(
            read_header(self.path), self.reading.columns, self.path.name
        ):
            settings["instrument"] = id_of(self.path, self.reading.instrument_pattern)
        size = sum(path.stat().st_size for path in self.files)
        return Source(number, self.path.name, str(self.path.absolute()), size, self._hash(), settings)

    def stamp(self) -> list[tuple[int, int]]:
        """Return what changes when a file is written: sizes and times."""
        return [((stat := path.stat()).st_size, stat.st_mtime_ns) for path in self.files]

    def _hash(self) -> str:
        if self.files == (self.path,):
            return _sha256(self.path)
        digest = hashlib.sha256()
        for path in self.files:
            digest.update(f"{os.path.relpath(path, self.path)}\0{_sha256(path)}\n".encode())
        return digest.hexdigest()


def find_units(sources: Sequence[str | os.PathLike[str]], reading: Reading, calendar: Calendar) -> list[Unit]:
    """Return what there is to import in `sources`, in their order, files of a folder by name.

    Raises
    ------
    ConfigError
        Where a reader's stamps do not name what the calendar's label says.
    """
    units = []
    for source in sources:
        path = Path(source)
        reader = find_reader(path, reading.kind, reading.options)
        if reader is None:
            settled = replace(reading, kind=TABLE)
            units += [Unit(file, (file,), settled) for file in bar_files(path)[0]]
            continue
        if reader.label not in (None, calendar.label):
            raise ConfigError(
                f"{path} is read as {reader.kind}, whose stamps name the {reader.label} of a bar, and the calendar's "
                f"label is {calendar.label!r}; set it to {reader.label!r}."
            )
        settled = replace(reading, kind=reader.kind)
        files = reader.files(path)[0]
        if reader.separable:
            units += [Unit(file, (file,), settled) for file in files if reader.recognises(file)]
        else:
            units.append(Unit(path, tuple(files), settled))
    if not units:
        raise DataError("there is nothing to import; name files or folders of bars.")
    return units


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
