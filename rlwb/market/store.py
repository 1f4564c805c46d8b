"""A panel on disk: one .npy a field, mapped into memory, with checksums; whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market.calendar import Calendar
from rlwb.market.report import Report
from rlwb.market.schema import SCHEMA_VERSION
from rlwb.market.sessions import Sessions

META = "sessions.json"
FORMAT = 1
_CHUNK = 1 << 22


def save_sessions(
    sessions: Sessions, directory: str | os.PathLike[str], *, replace_anything: bool = False, **extra: Any
) -> Path:
    """Write the panel to `directory`, replacing a panel that is there; `extra` goes into its JSON file.

    A folder that holds something else is refused unless `replace_anything` (a cache, whose folders are its own).
    """
    target = Path(directory).absolute()
    foreign = target.exists() and not (target / META).exists() and (not target.is_dir() or any(target.iterdir()))
    if foreign and not replace_anything:
        raise DataError(f"{target} exists and is not a saved panel; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        arrays = {"instruments": sessions.instruments, "dates": sessions.dates.astype(np.int64)}
        arrays |= {"num_ticks": sessions.num_ticks, **{f"field_{k}": v for k, v in sessions.fields.items()}}
        if sessions.halted is not None:
            arrays["halted"] = sessions.halted
        files = {}
        for name, array in arrays.items():
            path = temporary / f"{name}.npy"
            with path.open("wb") as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            files[path.name] = {"bytes": path.stat().st_size, "crc32": _checksum(path)}
        meta = {
            "format": FORMAT,
            "schema": SCHEMA_VERSION,
            "fingerprint": sessions.fingerprint,
            "calendar": sessions.calendar.as_dict(),
            "report": sessions.report.as_dict(),
            "files": files,
            **extra,
        }
        write_json(temporary / META, meta)
        temporary.chmod(0o755)
        _swap(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def open_sessions(directory: str | os.PathLike[str], *, verify: bool = True) -> Sessions:
    """Map a saved panel into memory.

    A panel that is missing, incomplete, of another format, or (when `verify`) whose checksums differ is a `DataError`.
    """
    path = Path(directory).absolute()
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        if meta["format"] != FORMAT or meta["schema"] != SCHEMA_VERSION:
            raise DataError(f"the panel in {path} was saved in another format; build it again from the bars.")
        for name, stated in meta["files"].items():
            size = (path / name).stat().st_size
            if size != stated["bytes"]:
                raise ValueError(f"{name} has {size} bytes, not {stated['bytes']}")
            if verify and _checksum(path / name) != stated["crc32"]:
                raise ValueError(f"the checksum of {name} differs")
        arrays = {name[:-4]: np.load(path / name, mmap_mode="r", allow_pickle=False) for name in meta["files"]}
        sessions = Sessions(
            Calendar(**meta["calendar"]),
            np.array(arrays["instruments"]),
            np.array(arrays["dates"]).astype("datetime64[D]"),
            np.array(arrays["num_ticks"]),
            {name[6:]: array for name, array in arrays.items() if name.startswith("field_")},
            halted=arrays.get("halted"),
            report=Report.from_dict(meta["report"]),
            directory=path,
        )
        sessions.__dict__["fingerprint"] = meta["fingerprint"]
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no complete panel ({Path(error.filename or META).name} is missing).") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"the panel in {path} is damaged ({error}); delete it and build it again.") from None
    return sessions


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def _swap(temporary: Path, target: Path) -> None:
    """Move `temporary` to `target`; an older panel there goes only when the new one is complete."""
    if not target.exists():
        temporary.replace(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    try:
        target.replace(old / "panel")
        try:
            temporary.replace(target)
        except OSError:
            (old / "panel").replace(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
