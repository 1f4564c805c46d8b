"""Files that appear whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
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


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(target) as path:
        path.write_text(text, encoding="utf-8")


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically.

    NaN becomes null and an infinity the text ``"Infinity"`` or ``"-Infinity"``, which `float` reads; NumPy's numbers
    and arrays become numbers and lists, dataclasses objects, and what JSON does not know its `str`.
    """
    write_text(target, json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return _plain(value.tolist())
    if isinstance(value, (str, int, float)):  # enumerations and other children of them
        return json.loads(json.dumps(value))
    return str(value)
