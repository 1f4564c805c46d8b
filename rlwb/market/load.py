"""From a file or folder of bars to one table, or to `Sessions` through a data set and a cache of panels."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from rlwb.errors import ConfigError, DataError
from rlwb.files import locked
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.calendar import Calendar, span_of
from rlwb.market.dataset.importing import imported
from rlwb.market.dataset.state import BARS, STATE, is_dataset, read_state
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import Report
from rlwb.market.readers.base import canonical
from rlwb.market.readers.content import digest_of
from rlwb.market.schema import COLUMNS
from rlwb.market.sessions import Sessions, save_parts
from rlwb.market.source import Reading, Source, check_between, check_found, names_of, open_source, refuse_unused
from rlwb.market.store import META, is_panel

_log = logging.getLogger(__name__)
#: A table of bars is held some three times while it is joined and sorted.
_COPIES = 3


def read_bars(
    source: str | os.PathLike[str],
    *,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    timezone: str | None = None,
    report: Report | None = None,
    **reading: Unpack[Reading],
) -> pd.DataFrame:
    """Return all bars of a source in the schema's columns, sorted by instrument and stamp; nothing is repaired here.

    Parameters
    ----------
    source
        What one of the readers reads, or a data set (`rlwb.market.dataset`).
    instruments
        Ids to keep, as text; one that the source lacks is a `DataError`.
    start, end
        First and last date to keep, both included.
    timezone
        Zone whose dates `start` and `end` are, for stamps that carry an offset.
    report
        Where what is ignored, dropped or changed is counted, ``unsorted`` bars among them.
    reading
        How it is read: kind, options, … (`rlwb.market.source.Reading`).

    Returns
    -------
    pandas.DataFrame
        instrument (category of text), datetime (datetime64[ns], with a zone where the source's stamps have one), the
        required columns and whichever optional ones are there: float64, NaN is missing; halted bool. Bars without an
        instrument or a stamp come last.
    """
    report = report if report is not None else Report()
    if _is_stored(source, reading):
        stored = Stored(Path(source), instruments=instruments, start=start, end=end)
        report.absorb(stored.told())
        return stored.frame()
    refuse_unused({"round_seconds": reading.get("round_seconds")}, "read_bars lays bars on no calendar")
    opened = open_source(source, instruments=instruments, report=report, **reading)
    bars = _sorted(_frame(opened.batches(), Path(source)), report)
    return _between(bars, start, end, timezone, opened).reset_index(drop=True)


def load_sessions(
    source: str | os.PathLike[str],
    calendar: Calendar | None = None,
    *,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    cache_dir: str | os.PathLike[str] | None = None,
    **how: Any,
) -> Sessions:
    """Read, validate and lay out bars.

    A data set (`rlwb.market.dataset`) brings its own calendar; another one must have its zone and label. A saved panel
    is opened as it is, less what `instruments`, `start` and `end` leave out. Anything else is imported into a temporary
    data set first.

    Parameters
    ----------
    source
        A data set, a saved panel, or what one of the readers reads.
    calendar
        The clock.
    instruments, start, end
        As for `read_bars`; dates are those of sessions.
    cache_dir
        Where the panel is built once and mapped from disk afterwards. Its folder is named by a key of all that the
        result depends on: the names and contents of the files, the calendar, every option, and the code of this
        package. A damaged panel is noticed by its checksums, built again, and counted in the report.
    how
        How it is read: kind, options, … (`rlwb.market.source.Reading`), and how it is laid out: strict, min_coverage,
        volume_multiplier, prices (`rlwb.market.build.Building`).
    """
    reading: Any = {name: value for name in Reading.__annotations__ if (value := how.pop(name, None))}
    building = Building(**how)
    path = Path(source)
    if is_panel(path) and reading.get("kind") is None:
        laid = {name: value for name, value in vars(building).items() if value != getattr(Building, name)}
        laid.pop("strict", None)
        refuse_unused({**reading, **laid}, f"{path} is a saved panel")
        return _panel(path, calendar, instruments, start, end, building.strict)
    stored = _is_stored(path, reading)
    if stored:
        calendar = _calendar_of(path, calendar)
    if calendar is None:
        raise ConfigError(f"{path} needs a calendar: the session's segments, zone and label.")
    span_of(start, end)
    selection = {"instruments": instruments, "start": start, "end": end}

    def build(report: Report, place: Path | None, **rest: Any) -> Sessions:
        new = nullcontext() if stored else imported(path, calendar=calendar, instruments=instruments, **reading)
        with new as done:
            if done is not None:
                report.add("file_repeated", len(done.known), file=next(iter(done.known), None))
            bars = Stored(path if done is None else done.directory, source=path, **selection)
            report.absorb(bars.told())
            files = {one.number: one.name for one in bars.state.sources}
            builder = PanelBuilder(lambda: bars.parts(calendar), calendar, building, report, files)
            if place is None:
                return builder.whole()
            save_parts(builder, place, conclude=builder.conclude, **rest)
            return Sessions.open(place, verify=False)

    if cache_dir is None:
        return build(Report(), None)
    settings = {"calendar": calendar.as_dict(), "reading": {**reading, **selection}, "building": vars(building)}
    directory = Path(cache_dir) / _cache_key(path, stored, reading, settings)
    with suppress(DataError):
        return Sessions.open(directory)
    with locked(directory.parent / f".{directory.name}.lock", wait=True):  # one process at a time builds it
        report = Report()
        if directory.exists():
            try:
                return Sessions.open(directory)  # another process was first
            except DataError as error:
                _log.warning("%s It is built again.", error)
                report.add("cache_rebuilt", 1, str(directory))
                shutil.rmtree(directory)
        return build(report, directory, settings=settings, source=str(source))


def _is_stored(source: str | os.PathLike[str], reading: Reading) -> bool:
    """Tell whether the bars of a data set are asked for; what says how files are read is refused then."""
    if not is_dataset(source) or reading.get("kind") is not None:
        return False
    refuse_unused(reading, f"{source} is a data set")
    return True


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
    if strict and (found := sessions.report.refusal()):
        raise DataError(f"the bars of {source} were not clean: {found}. Correct them, or load with strict=False.")
    first, last = span_of(start, end)
    keep = (sessions.dates >= first) & (sessions.dates <= last)
    names = names_of(instruments)
    if names is not None:
        check_found(names, sessions.index.codes, source)
        keep &= np.isin(sessions.instruments, list(names))
    if not keep.any():
        span = f"{sessions.dates.min()} to {sessions.dates.max()}" if len(sessions) else "none"
        raise DataError(f"{source} has no session from {start} to {end}; its days are {span}.")
    return sessions if keep.all() else sessions.select(keep)


def source_files(path: Path, **reading: Unpack[Reading]) -> list[Path]:
    """Return the files that the bars of a source depend on: those that are read, wherever links lead.

    `reading` is as for `read_bars`; a source that is not there is a `DataError`.
    """
    if is_panel(path) and reading.get("kind") is None:
        return [path / META, *sorted(path.glob("*.npy"))]
    if _is_stored(path, reading):
        return [path / STATE, *(path / BARS / name for name in read_state(path).files)]
    return open_source(path, **reading).files


def _cache_key(path: Path, stored: bool, reading: Reading, settings: Mapping[str, Any]) -> str:
    """Return the name of the cached panel: a hash of the files, the settings and the code of this package."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(_code().encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    if not stored:
        reader = open_source(path, **reading).reader
        digest.update(Path(inspect.getfile(reader.function)).read_bytes())  # which may be another package's
    for file in source_files(path, **reading):
        name = os.path.relpath(file, path.parent)  # the folders say what the files are
        # The files of a data set are never changed but by hand, which changes their times.
        content = _times(file) if stored and file.name != STATE else digest_of(file)
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _times(file: Path) -> str:
    with suppress(FileNotFoundError):  # which reading it will tell
        stat = file.stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return ""


@cache
def _code() -> str:
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _frame(batches: Iterable[pa.Table], source: Path) -> pd.DataFrame:
    """Return all tables as one, refused before they fill the memory."""
    memory, held, tables = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 0, []
    none = canonical(pa.table({"instrument": pa.nulls(0), "datetime": pa.nulls(0)}), str(source))
    for table in chain([none], batches):
        tables.append(table.set_column(0, "instrument", table["instrument"].dictionary_encode()))
        held += tables[-1].nbytes
        if held * _COPIES > memory:
            raise DataError(
                f"{source} holds over {held / 1e9:,.1f} GB of bars, of which some {_COPIES} times is needed, and this "
                f"machine has {memory / 1e9:,.1f} GB of memory; read some instruments at a time, or import them "
                "(rlwb data import)."
            )
    kind = tables[-1]["datetime"].type  # stamps that are all missing may have none
    tables = [table.set_column(1, "datetime", table["datetime"].cast(kind)) for table in tables]
    whole = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
    del tables
    columns = {name: whole[name] for name in COLUMNS if name in whole.column_names}
    if "halted" in columns:
        columns["halted"] = columns["halted"].fill_null(False)
    whole = pa.table(columns)
    del columns  # pandas takes the columns over one by one, and each goes with its last reference
    return whole.to_pandas(split_blocks=True, self_destruct=True)


def _sorted(bars: pd.DataFrame, report: Report) -> pd.DataFrame:
    """Return the bars by instrument and stamp, those of one stamp in the order of the source."""
    names = bars["instrument"].cat.categories
    bars["instrument"] = bars["instrument"].cat.reorder_categories(sorted(names))
    code = bars["instrument"].cat.codes.to_numpy().astype(np.int64)
    stamps = bars["datetime"].astype("int64").to_numpy()
    code = np.where((code < 0) | bars["datetime"].isna(), len(names), code)
    order = np.argsort(code, kind="stable")
    back = (np.diff(stamps[order]) < 0) & (np.diff(code[order]) == 0) & (code[order][1:] < len(names))
    if back.any():
        first = bars.iloc[order[1:][back][0]]
        report.add("unsorted", int(back.sum()), f"{first['instrument']} {first['datetime']}")
        order = np.lexsort((stamps, code))
    return bars if (order == np.arange(len(order))).all() else bars.iloc[order]


def _between(bars: pd.DataFrame, start: Any, end: Any, timezone: str | None, source: Source) -> pd.DataFrame:
    if start is None and end is None:
        return bars
    stamps = bars["datetime"]
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        stamps = stamps.dt.tz_convert(timezone or stamps.dtype.tz).dt.tz_localize(None)
    bars, days = bars[stamps.notna()], stamps.dropna().to_numpy().astype("datetime64[D]")
    return bars[check_between(days, start, end, source.path, source.instruments)]
