"""From a file or folder of bars to `Sessions` in one call, through a data set and a cache of panels."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.calendar import Calendar
from rlwb.market.clock import day_of
from rlwb.market.dataset.importing import import_bars
from rlwb.market.dataset.state import STATE, is_dataset, read_state
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import Report
from rlwb.market.sessions import Sessions, save_parts
from rlwb.market.source import check_found, open_source
from rlwb.market.store import is_panel

_log = logging.getLogger(__name__)


def load_sessions(
    source: str | os.PathLike[str],
    calendar: Calendar | None = None,
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    source_timezone: str | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    cache_dir: str | os.PathLike[str] | None = None,
    **building: Any,
) -> Sessions:
    """Read, validate and lay out bars.

    A data set (`rlwb.market.dataset`) brings its own calendar; another one must have its zone and label. A saved panel
    is opened as it is, less what `instruments`, `start` and `end` leave out. Anything else is imported into a temporary
    data set first.

    Parameters
    ----------
    source
        A data set, a saved panel, or what one of the readers reads (`rlwb.market.source.open_source`, whose parameters
        `kind` to `datetime_format` are).
    calendar
        The clock.
    instruments
        Ids to keep, as text; one that the source lacks is a `DataError`.
    start, end
        First and last date of sessions to keep, both included.
    cache_dir
        Where the panel is built once and mapped from disk afterwards. Its folder is named by a key of all that the
        result depends on: the names and contents of the files, the calendar, every option, and the code of this
        package. A damaged panel is noticed by its checksums, built again, and counted in the report.
    building
        Fields of `rlwb.market.build.Building`: strict, min_coverage, volume_multiplier, prices.
    """
    reading: dict[str, Any] = {
        "options": options,
        "columns": columns,
        "source_timezone": source_timezone,
        "instrument_pattern": instrument_pattern,
        "datetime_format": datetime_format,
    }
    how = Building(**building)
    path = Path(source)
    if is_panel(path) and kind is None:
        given = {
            name: value for name, value in building.items() if name != "strict" and value != getattr(Building, name)
        }
        _refuse_options({**reading, **given}, f"{path} is a saved panel")
        return _panel(path, calendar, instruments, start, end, how.strict)
    stored = is_dataset(path) and kind is None
    if stored:
        _refuse_options(reading, f"{path} is a data set")
        calendar = _calendar_of(path, calendar)
    if calendar is None:
        raise ConfigError(f"{path} needs a calendar: the session's segments, zone and label.")
    if start is not None and end is not None and day_of(start) > day_of(end):
        raise ConfigError(f"start {start} is after end {end}; give the first date first.")
    selection = {"instruments": instruments, "start": start, "end": end}
    reading["kind"] = kind

    def build(report: Report, place: Path | None, **rest: Any) -> Sessions:
        with tempfile.TemporaryDirectory(prefix="rlwb-load-") as folder:
            directory = path if stored else Path(folder) / "set"
            if not stored:
                done = import_bars([path], directory, calendar=calendar, instruments=instruments, **reading)
                report.add("file_repeated", len(done.known), file=next(iter(done.known), None))
            bars = Stored(directory, **selection)
            report.absorb(bars.told())
            files = {one.number: one.name for one in bars.state.sources}
            builder = PanelBuilder(lambda: bars.parts(calendar), calendar, how, report, files)
            if place is None:
                return builder.whole()
            save_parts(builder, place, conclude=builder.conclude, **rest)
            return Sessions.open(place, verify=False)

    if cache_dir is None:
        return build(Report(), None)
    settings = {"calendar": calendar.as_dict(), "reading": {**reading, **selection}, "building": vars(how)}
    directory = Path(cache_dir) / _cache_key(path, stored, reading, settings)
    with suppress(DataError):
        return Sessions.open(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time builds it; the lock goes with the process
        report = Report()
        if directory.exists():
            try:
                return Sessions.open(directory)  # another process was first
            except DataError as error:
                _log.warning("%s It is built again.", error)
                report.add("cache_rebuilt", 1, str(directory))
                shutil.rmtree(directory)
        return build(report, directory, settings=settings, source=str(source))


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
    source: Path, calendar: Calendar | None, instruments: Sequence[str] | None, start: Any, end: Any, strict: bool
) -> Sessions:
    """Open a saved panel, and leave out what is not asked for."""
    sessions = Sessions.open(source)
    if calendar is not None and calendar != sessions.calendar:
        raise ConfigError(f"{source} is a saved panel, which has a calendar of its own; leave the calendar out.")
    if strict and sessions.report.problems():
        found = "; ".join(sessions.report.sentence(kind) for kind in sessions.report.problems())
        raise DataError(f"the bars of {source} were not clean: {found}. Correct them, or load with strict=False.")
    keep = np.ones(len(sessions), dtype=bool)
    if instruments is not None:
        names = [instruments] if isinstance(instruments, str) else list(instruments)
        check_found(names, sessions.index.names.tolist(), source)
        keep &= np.isin(sessions.instruments, names)
    keep &= True if start is None else sessions.dates >= day_of(start)
    keep &= True if end is None else sessions.dates <= day_of(end)
    if not keep.any():
        span = f"{sessions.dates.min()} to {sessions.dates.max()}" if len(sessions) else "none"
        raise DataError(f"{source} has no session from {start} to {end}; its days are {span}.")
    return sessions if keep.all() else sessions.select(keep)


def _refuse_options(options: Mapping[str, Any], where: str) -> None:
    unused = next((name for name, value in options.items() if value), None)
    if unused is not None:
        raise ConfigError(f"{where}, where {unused} has no effect; drop it, or set kind.")


def _cache_key(path: Path, stored: bool, reading: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the name of the cached panel: a hash of the files, the settings and the code of this package."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(_code().encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    if stored:  # whose state names each file, and files are never changed
        digest.update((path / STATE).read_bytes())
        return digest.hexdigest()
    source = open_source(path, **reading)
    digest.update(Path(inspect.getfile(source.reader.function)).read_bytes())  # which may be another package's
    for file in source.files:
        name = os.path.relpath(file, path.parent)  # the folders say what the files are
        with file.open("rb") as content:
            digest.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


@cache
def _code() -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
