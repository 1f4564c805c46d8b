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
from rlwb.market.dataset.chunks import Reading
from rlwb.market.dataset.state import Source
from rlwb.market.readers.table import only_instrument
from rlwb.market.source import TABLE

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
        if self.reading.kind == TABLE:
            only = only_instrument(self.path, self.reading.columns, self.reading.instrument_pattern)
            settings |= {} if only is None else {"instrument": only}
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
    for named in sources:
        path = Path(named)
        source = reading.open(path)
        if source.label not in (None, calendar.label):
            raise ConfigError(
                f"{path} is read as {source.kind}, whose stamps name the {source.label} of a bar, and the calendar's "
                f"label is {calendar.label!r}; set it to {source.label!r}."
            )
        settled = replace(reading, kind=source.kind)
        units += [Unit(unit.path, unit.files, settled) for unit in source.units]
    if not units:
        raise DataError("there is nothing to import; name files or folders of bars.")
    return units


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
