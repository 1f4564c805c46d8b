"""Limits of the machine and of the shell that a run may meet: memory, disk, sizes and numbers of files."""

from __future__ import annotations

import re
import sys
from typing import Any

_MB = 2**20
#: What an error's text has, and what that means; of Python, torch, Arrow, numba and the linker.
_MEANINGS = {
    r"errno (28|122)\b|no space left|quota exceeded": "the disk is full",
    r"errno 27\b|file too large": "a file would be larger than is allowed here (ulimit -f{size})",
    r"errno 2[34]\b|too many open files": "more files would be open than is allowed here (ulimit -n{files})",
    r"streamwriter failed|file write failed|unexpected pos": "a file could not be written whole: the disk is full, or "
    "files may not be that large here (ulimit -f{size})",
    r"memoryerror|errno 12\b|(cannot|can't|unable to) allocate|not enough memory|bad_alloc|out of memory"
    r"|failed to map segment|can't start new thread": "there is too little memory (ulimit -v{memory}; the most that "
    "was used is {peak})",
}


def limit_hit(error: BaseException | str) -> str | None:
    """Return in a sentence which limit an error comes from, with its figure and the error's own words; else None."""
    words = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    for pattern, meaning in _MEANINGS.items():
        if re.search(pattern, words, re.IGNORECASE):
            said = " ".join(words.split())[:200].rstrip(".")
            return f"{meaning.format(**_figures())}; make room or raise the limit, and go on ({said})."
    return None


def peak_memory(*, children: bool = False) -> str:
    """Return the most memory that this process, or any that it has started, has used; in words where it is not told."""
    try:
        import resource
    except ImportError:
        return "unknown"
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    unit = _MB if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return f"{resource.getrusage(who).ru_maxrss / unit:,.0f} MB"


def _figures() -> dict[str, Any]:
    try:
        import resource
    except ImportError:
        return {"size": "", "files": "", "memory": "", "peak": "unknown"}

    def shown(kind: int, unit: int, name: str) -> str:
        limit = resource.getrlimit(kind)[0]
        return "" if limit == resource.RLIM_INFINITY else f", {limit / unit:,.0f}{name}"

    return {
        "size": shown(resource.RLIMIT_FSIZE, _MB, " MB"),
        "files": shown(resource.RLIMIT_NOFILE, 1, ""),
        "memory": shown(resource.RLIMIT_AS, _MB, " MB"),
        "peak": peak_memory(),
    }
