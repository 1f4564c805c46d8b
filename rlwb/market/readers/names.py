"""What a folder holds, by names alone."""

from __future__ import annotations

import re
from pathlib import Path


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
