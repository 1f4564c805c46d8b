"""Where QuantConnect Lean keeps its minute files, and what the place says of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rlwb.errors import DataError

_NAME = re.compile(r"(\d{8})_(trade|quote)\.zip")
#: data / security / market / minute / symbol / file
_DEPTH = 5


class LeanFile(NamedTuple):
    """One file of trades or quotes of one symbol and day."""

    path: Path
    security: str | None  # equity, crypto, forex …; None where the folders do not say
    market: str | None
    symbol: str  # the folder's name in capitals
    date: str  # YYYYMMDD
    kind: str  # trade or quote


def lean_files(source: Path) -> tuple[list[LeanFile], list[str]]:
    """Return the minute files of a file, or of a folder at any level of Lean's layout, and what beside them is ignored.

    Files of another resolution (``second``, ``tick``) are ignored.
    """
    if source.is_file():
        match = _NAME.fullmatch(source.name)
        return [_lean_file(source, match)] if match else [], []
    found, ignored = [], []
    for path in _entries(source):
        match = _NAME.fullmatch(path.name)
        if match and path.parent.parent.name not in ("second", "tick"):
            found.append(_lean_file(path, match))
        else:
            ignored.append(str(path.relative_to(source)))
    return sorted(found, key=lambda file: (file.symbol, file.date, file.path)), ignored


def holds_lean(source: Path) -> bool:
    """Tell by names whether there is a Lean file at or below `source`, without going through all of them."""
    if source.is_file():
        return _NAME.fullmatch(source.name) is not None
    return any(
        _NAME.fullmatch(path.name)
        for level in range(_DEPTH)
        for kind in ("trade", "quote")
        for path in source.glob("*/" * level + f"[0-9]*_{kind}.zip")
    )


def check_one_market(files: list[LeanFile], source: Path) -> None:
    """Raise `DataError` where files of two kinds of security, markets or days of one symbol would be mixed."""
    places = sorted({(file.security or "?", file.market or "?") for file in files})
    if len(places) > 1:
        shown = ", ".join("/".join(place) for place in places)
        raise DataError(f"{source} holds files of {shown}; read one of these folders at a time.")
    for one, two in pairwise(files):
        if one[3:] == two[3:]:
            raise DataError(f"{one.path} and {two.path} are both {one.symbol} {one.date} {one.kind}; keep one of them.")


def _lean_file(path: Path, match: re.Match[str]) -> LeanFile:
    above = path.absolute().parts[:-1]
    known = len(above) > 3 and above[-2] == "minute"
    return LeanFile(
        path,
        above[-4].lower() if known else None,
        above[-3].lower() if known else None,
        above[-1].upper(),
        match[1],
        match[2],
    )


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the files at any depth, hidden ones and those in hidden folders left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))
