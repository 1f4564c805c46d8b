"""Files that appear whole or not at all."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `target` to write to; rename it onto `target` on success, remove it on failure."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept: some writers choose the format by it, or append it.
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.tmp{target.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, which the system lets go of with the process; `BlockingIOError` where another holds it.

    With `wait`, wait until the other is done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


def as_json(value: Any) -> str:
    """Return a value as JSON: numpy's numbers and arrays as numbers and lists, dataclasses as objects, sets sorted.

    What JSON does not know becomes its `str`; NaN and infinities stay, as Python writes them. Keys must be text.
    """
    return json.dumps(value, default=_plain)


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically.

    As `as_json`, but NaN becomes null and an infinity the text ``"Infinity"`` or ``"-Infinity"``, which `float` reads.
    """
    plain = json.loads(as_json(value), parse_constant=lambda name: None if name == "NaN" else name)
    write_text(target, json.dumps(plain, indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        plain = value.tolist()
        return plain if isinstance(plain, (bool, int, float, str, list)) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
