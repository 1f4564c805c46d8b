"""What a folder holds, by names alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from rlwb.errors import DataError


def visible(source: Path) -> list[Path]:
    """Return `source` if it is a file, else the files in the folder that are neither hidden nor temporary, sorted."""
    if source.is_file():
        return [source]
    return sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith((".", "_", "~")))


def matching(source: Path, pattern: re.Pattern[str]) -> dict[Path, re.Match[str]]:
    """Return the visible files of `source` whose whole name matches `pattern`, with the match."""
    matches = {path: pattern.fullmatch(path.name) for path in visible(source)}
    return {path: match for path, match in matches.items() if match is not None}


def others(source: Path, files: set[Path]) -> list[str]:
    """Return the names in the folder `source` that are not of `files`; none for a file."""
    return [] if source.is_file() else [entry.name for entry in sorted(source.iterdir()) if entry not in files]


def date_in(path: Path, year: str, month: str, day: str) -> np.datetime64:
    """Return midnight of the date that the name of `path` holds, datetime64[ns]."""
    text = f"{year}-{month}-{day}"
    try:
        date = np.datetime64(text, "ns")
        if 1700 <= int(year) < 2260:
            return date
    except ValueError:
        pass
    raise DataError(f"{path}: the date {text} in its name does not exist; rename the file.")
