"""A panel on disk: one .npy a field, mapped into memory, with checksums; whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market.calendar import Calendar
from rlwb.market.growing import GrowingArray
from rlwb.market.report import Report
from rlwb.market.schema import SCHEMA_VERSION
from rlwb.market.sessions import Sessions, fingerprint_of

META = "sessions.json"
FORMAT = 1
_VERIFIED = ".verified.json"
_CHUNK = 1 << 22
#: The coarsest clock of the file systems in use on Linux ticks in 10 ms.
_CLOCK_NS = 20_000_000


def is_panel(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a saved panel."""
    return (Path(source) / META).is_file()


def save_sessions(
    sessions: Sessions, directory: str | os.PathLike[str], *, replace_anything: bool = False, **extra: Any
) -> Path:
    """Write the panel to `directory`, replacing a panel that is there; `extra` goes into its JSON file.

    A folder that holds something else is refused unless `replace_anything` (a cache, whose folders are its own).
    """
    return save_parts([sessions], directory, replace_anything=replace_anything, **extra)


def save_parts(
    parts: Iterable[Sessions],
    directory: str | os.PathLike[str],
    *,
    conclude: Callable[[Sessions], Report] | None = None,
    replace_anything: bool = False,
    **extra: Any,
) -> Path:
    """Write one panel that comes in parts and need not fit into memory; else as `save_sessions`.

    Parameters
    ----------
    parts
        One or more, of one calendar and with the same fields, all in all sorted by instrument and date. The numbers in
        their reports are added.
    conclude
        Called with the whole panel, mapped, when all parts are written; returns its report, in place of that sum.
    """
    target = Path(directory).absolute()
    foreign = target.exists() and not (target / META).exists() and (not target.is_dir() or any(target.iterdir()))
    if foreign and not replace_anything:
        raise DataError(f"{target} exists and is not a saved panel; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        calendar, report = _write_arrays(temporary, parts)
        names = sorted(path.name for path in temporary.iterdir())
        panel = _map(temporary, names, calendar, report)
        report = report if conclude is None else conclude(panel)
        stats = _settle(temporary, names)
        checksums, fingerprint = _read_back(temporary, panel)
        meta = {
            "format": FORMAT,
            "schema": SCHEMA_VERSION,
            "fingerprint": fingerprint,
            "calendar": calendar.as_dict(),
            "report": report.as_dict(),
            "files": {name: {"bytes": stats[name][0], "crc32": checksums[name]} for name in names},
            **extra,
        }
        write_json(temporary / META, meta)
        _mark_verified(temporary, stats, checksums)
        temporary.chmod(0o755)
        _swap(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def open_sessions(directory: str | os.PathLike[str], *, verify: bool = True) -> Sessions:
    """Map a saved panel into memory.

    A panel that is missing, incomplete, of another format, or (when `verify`) whose checksums differ is a `DataError`.
    Checksums that fitted, when the panel was written or opened, are computed again only when a file was touched since,
    by size, times or inode; so a large panel opens at once, and a copy of it does not.
    """
    path = Path(directory).absolute()
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        if meta["format"] != FORMAT or meta["schema"] != SCHEMA_VERSION:
            raise DataError(f"the panel in {path} was saved in another format; build it again from the bars.")
        stated = {name: file["crc32"] for name, file in meta["files"].items()}
        for name, file in meta["files"].items():
            size = (path / name).stat().st_size
            if size != file["bytes"]:
                raise ValueError(f"{name} has {size} bytes, not {file['bytes']}")
        if verify and not _is_verified(path, stated):
            stats = _settle(path, stated)
            for name, checksum in stated.items():
                if _checksum(path / name) != checksum:
                    raise ValueError(f"the checksum of {name} differs")
            with suppress(OSError):  # a panel that can only be read is verified each time
                _mark_verified(path, stats, stated)
        report = Report.from_dict(meta["report"])
        sessions = _map(path, meta["files"], Calendar(**meta["calendar"]), report, directory=path)
        sessions.__dict__["fingerprint"] = meta["fingerprint"]
    except FileNotFoundError as error:
        raise DataError(f"{path} holds no complete panel ({Path(error.filename or META).name} is missing).") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"the panel in {path} is damaged ({error}); delete it and build it again.") from None
    return sessions


def _stats(path: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Return what changes when a file is written: its size, times and inode."""
    stats = {name: (path / name).stat() for name in names}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for name, stat in stats.items()}


def _settle(path: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """Return `_stats` of files that are about to be read, after a moment if they were written just now.

    File systems' clocks are coarse: a write in the same tick as the last one would leave the times as they are.
    """
    stats = _stats(path, names)
    age = time.time_ns() - max((max(stat[1:3]) for stat in stats.values()), default=0)
    if age < _CLOCK_NS:
        time.sleep(_CLOCK_NS / 1e9)
    return stats


def _mark_verified(path: Path, stats: Mapping[str, list[int]], checksums: Mapping[str, int]) -> None:
    """Remember that files with `stats`, taken before they were read, have `checksums`; not if touched since."""
    if _stats(path, stats) == stats:
        write_json(path / _VERIFIED, {name: [*stats[name], checksums[name]] for name in stats})


def _is_verified(path: Path, checksums: Mapping[str, int]) -> bool:
    """Tell whether the files are those that had `checksums` when they were last read."""
    try:
        verified = json.loads((path / _VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    stats = _stats(path, checksums)
    return bool(verified == {name: [*stats[name], checksums[name]] for name in stats})


def _write_arrays(folder: Path, parts: Iterable[Sessions]) -> tuple[Calendar, Report]:
    """Write the arrays of all parts to `folder`; return their calendar and joint report."""
    first: Sessions | None = None
    report, instruments = Report(), []
    with ExitStack() as stack:
        files: dict[str, GrowingArray] = {}
        for part in parts:
            arrays = {"dates": part.dates.astype(np.int64), "num_ticks": part.num_ticks}
            arrays |= {f"field_{name}": values for name, values in part.fields.items()}
            optional = {"halted": part.halted, "factor": part.factor}
            arrays |= {name: values for name, values in optional.items() if values is not None}
            if first is None:
                first = part
                for name, values in arrays.items():
                    files[name] = GrowingArray(folder / f"{name}.npy", values.dtype, values.shape[1:])
                    stack.callback(files[name].close)
            if part.calendar != first.calendar or arrays.keys() != files.keys():
                raise DataError("the parts of a panel differ in calendar or fields; save them as panels of their own.")
            for name, values in arrays.items():
                files[name].add(values)
            instruments.append(part.instruments)
            report = report.merge(part.report)
    if first is None:
        raise DataError("a panel of no parts cannot be saved; give at least one.")
    names = GrowingArray(folder / "instruments.npy", np.result_type(*instruments), ())
    for part_names in instruments:
        names.add(part_names)
    names.close()
    return first.calendar, report


def _map(
    folder: Path, files: Iterable[str], calendar: Calendar, report: Report, directory: Path | None = None
) -> Sessions:
    """Return the panel whose arrays lie in `folder`, its fields mapped."""
    arrays = {name[:-4]: np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in files}
    return Sessions(
        calendar,
        np.array(arrays["instruments"]),
        np.array(arrays["dates"]).astype("datetime64[D]"),
        np.array(arrays["num_ticks"]),
        {name[6:]: array for name, array in arrays.items() if name.startswith("field_")},
        halted=arrays.get("halted"),
        factor=np.array(arrays["factor"]) if "factor" in arrays else None,
        report=report,
        directory=directory,
    )


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def _read_back(folder: Path, panel: Sessions) -> tuple[dict[str, int], str]:
    """Return each file's checksum and the panel's fingerprint; both of its large files in one pass."""
    checksums: dict[str, int] = {}

    def content(path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            begins = file.tell()
            file.seek(0)
            value = zlib.crc32(file.read(begins))
            while chunk := file.read(_CHUNK):
                value = zlib.crc32(chunk, value)
                yield chunk
        checksums[path.name] = value

    names = [*(f"field_{name}" for name in panel.fields), "halted", "factor"]
    paths = {name.removeprefix("field_"): folder / f"{name}.npy" for name in names}
    chunks = {name: content(path) for name, path in paths.items() if path.exists()}
    fingerprint = fingerprint_of(panel.calendar, panel.instruments, panel.dates, panel.num_ticks, chunks)
    for path in sorted(folder.glob("*.npy")):
        if path.name not in checksums:
            checksums[path.name] = _checksum(path)
    return checksums, fingerprint


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
