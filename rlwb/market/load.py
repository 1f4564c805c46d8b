"""From a file or folder of bars to `Sessions` in one call, through a cache."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.build import Building, PanelParts, build_sessions
from rlwb.market.calendar import Calendar
from rlwb.market.clock import day_of
from rlwb.market.dataset.layout import is_dataset
from rlwb.market.dataset.reading import dataset_stamp
from rlwb.market.dataset.state import read_state
from rlwb.market.read import read_bars, select_bars
from rlwb.market.report import Report
from rlwb.market.sessions import Sessions
from rlwb.market.source import Source, check_found, open_source
from rlwb.market.store import is_panel, open_sessions, save_parts, save_sessions

_log = logging.getLogger(__name__)
_CHUNK = 1 << 22


def load_sessions(
    source: str | os.PathLike[str],
    calendar: Calendar | None = None,
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    strict: bool = False,
    min_coverage: float = 0.5,
    volume_multiplier: float = 1.0,
    prices: Literal["traded", "adjusted"] = "traded",
    source_timezone: str | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Sessions:
    """Read, validate and lay out bars; see `read_bars` and `build_sessions` for the parameters.

    A data set (`rlwb.market.dataset`) brings its own calendar; another one must have its zone and label. A saved panel
    is opened as it is, less what `instruments`, `start` and `end` leave out.

    With a `cache_dir` the panel is built once and mapped from disk afterwards. Its folder is named by a key of all
    that the result depends on: the names and contents of the files, the calendar, every option, and the code of this
    room. A damaged panel is noticed by its checksums, built again, and counted in the report.
    """
    if is_panel(source) and kind is None:
        fixed: dict[str, Any] = {"options": options, "columns": columns, "source_timezone": source_timezone}
        fixed |= {"instrument_pattern": instrument_pattern, "datetime_format": datetime_format}
        fixed |= {"volume_multiplier": volume_multiplier != 1, "min_coverage": min_coverage != 0.5}
        fixed |= {"prices": prices != "traded"}
        return _panel(Path(source), calendar, instruments, start, end, strict, fixed)
    stored = is_dataset(source) and kind is None
    if stored:
        calendar = _calendar_of(Path(source), calendar)
    if calendar is None:
        raise ConfigError(f"{source} needs a calendar: the session's segments, zone and label.")
    of_tables: dict[str, Any] = {"columns": columns}
    of_tables |= {"instrument_pattern": instrument_pattern, "datetime_format": datetime_format}
    opened = None if stored else open_source(source, kind, options, **of_tables)
    if opened is not None and opened.label not in (None, calendar.label):
        raise ConfigError(
            f"{source} is read as {opened.kind}, whose stamps name the {opened.label} of a bar, and the calendar's "
            f"label is {calendar.label!r}; set it to {opened.label!r}."
        )
    reading = {
        "reader": None if opened is None else [opened.kind, dict(opened.options)],
        "columns": dict(columns) if columns else None,
        "instruments": [instruments] if isinstance(instruments, str) else list(instruments) if instruments else None,
        "start": None if start is None else str(start),
        "end": None if end is None else str(end),
        "source_timezone": source_timezone,
        "instrument_pattern": instrument_pattern,
        "datetime_format": datetime_format,
    }
    building = Building(strict=strict, min_coverage=min_coverage, volume_multiplier=volume_multiplier, prices=prices)

    def build(report: Report) -> Sessions:
        frame = read_bars(
            source,
            kind=kind,
            options=options,
            columns=columns,
            instruments=instruments,
            start=start,
            end=end,
            timezone=calendar.timezone,
            source_timezone=source_timezone,
            instrument_pattern=instrument_pattern,
            datetime_format=datetime_format,
            report=report,
        )
        return build_sessions(frame, calendar, **vars(building), report=report)

    if cache_dir is None:
        return build(Report())
    settings = {"calendar": calendar.as_dict(), "reading": reading, "building": vars(building)}
    directory = Path(cache_dir) / cache_key(source, settings, opened)
    if directory.exists():
        with suppress(DataError):
            return open_sessions(directory)
    with _only_one(directory):
        report = Report()
        if directory.exists():
            try:
                return open_sessions(directory)  # another process was first
            except DataError as error:
                _log.warning("%s It is built again.", error)
                report.add("cache_rebuilt", 1, str(directory))
        rest: dict[str, Any] = {"replace_anything": True, "settings": settings, "source": str(source)}

        def check_unchanged() -> None:
            if cache_key(source, settings, opened) != directory.name:
                raise DataError(f"the bars of {source} changed while they were read; load them again.")

        if stored:
            selection = select_bars(
                source,
                instruments,
                start,
                end,
                options=options,
                columns=columns,
                instrument_pattern=instrument_pattern,
                source_timezone=source_timezone,
                datetime_format=datetime_format,
            )
            selection.tell(report)
            parts = PanelParts(lambda: selection.frames(calendar), calendar, building, report)

            def conclude(panel: Sessions) -> Report:
                check_unchanged()
                return parts.conclude(panel)

            save_parts(parts, directory, conclude=conclude, **rest)
        else:
            sessions = build(report)
            check_unchanged()
            save_sessions(sessions, directory, **rest)
        return open_sessions(directory, verify=False)


def _calendar_of(source: Path, calendar: Calendar | None) -> Calendar:
    """Return the calendar that a data set's bars are laid on."""
    own = read_state(source).calendar
    for name in ("timezone", "label"):
        if calendar is not None and getattr(calendar, name) != getattr(own, name):
            raise ConfigError(
                f"the stamps of {source} are stored with {name} {getattr(own, name)!r}, and the calendar's is "
                f"{getattr(calendar, name)!r}; set it to that, or leave the calendar out."
            )
    return calendar or own


def _panel(
    source: Path,
    calendar: Calendar | None,
    instruments: Sequence[str] | None,
    start: Any,
    end: Any,
    strict: bool,
    fixed: Mapping[str, Any],
) -> Sessions:
    """Open a saved panel, and leave out what is not asked for."""
    unused = next((name for name, value in fixed.items() if value), None)
    if unused is not None:
        raise ConfigError(f"{source} is a saved panel, where {unused} has no effect; drop it.")
    sessions = open_sessions(source)
    if calendar is not None and calendar != sessions.calendar:
        raise ConfigError(f"{source} is a saved panel, which has a calendar of its own; leave the calendar out.")
    if strict and sessions.report.problems():
        found = "; ".join(sessions.report.sentence(reason) for reason in sessions.report.problems())
        raise DataError(f"the bars of {source} were not clean: {found}. Mend them, or load with strict=False.")
    keep = np.ones(len(sessions), dtype=bool)
    if instruments is not None:
        names = [instruments] if isinstance(instruments, str) else list(instruments)
        check_found(names, sessions.index.names.tolist(), source)
        keep &= np.isin(sessions.instruments, names)
    keep &= True if start is None else sessions.dates >= day_of(start)
    keep &= True if end is None else sessions.dates <= day_of(end)
    if not keep.any():
        raise DataError(f"{source} has no session from {start} to {end}; its days are {_span(sessions)}.")
    return sessions if keep.all() else sessions.select(keep)


def _span(sessions: Sessions) -> str:
    return f"{sessions.dates.min()} to {sessions.dates.max()}" if len(sessions) else "none"


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Let one process at a time build this panel; the lock goes with the process that holds it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cache_key(source: str | os.PathLike[str], settings: Mapping[str, Any], opened: Source | None = None) -> str:
    """Return the name of the cached panel: a hash of the files, the settings and the code of this room."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(_code().encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    if opened is not None:  # whose reader may be another package's
        digest.update(Path(inspect.getfile(opened.reader.function)).read_bytes())
    if is_dataset(source) and opened is None:
        for line in dataset_stamp(Path(source)):
            digest.update(f"{line}\n".encode())
        return digest.hexdigest()
    opened = opened or open_source(source)
    for path in opened.files:
        name = path.name if opened.reader.by_file else path.absolute()  # the folders say what the files are
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


@cache
def _code() -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
