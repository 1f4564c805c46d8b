"""Bars from Parquet and CSV (one long file, or a folder with one file an instrument), or by a reader of its kind."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.clock import day_of
from rlwb.market.columns import match_columns
from rlwb.market.dataset.arrow import UnfitError, read_plain_csv
from rlwb.market.dataset.layout import is_dataset
from rlwb.market.dataset.reading import Selection
from rlwb.market.readers.base import Reader
from rlwb.market.readers.frames import canonical_fault, check_found
from rlwb.market.readers.registry import find_reader
from rlwb.market.report import Report
from rlwb.market.stamps import parse_stamps
from rlwb.market.tables import SUFFIXES, read_header, read_table, suffix_of


def bar_files(source: str | os.PathLike[str]) -> tuple[list[Path], list[str]]:
    """Return the files of bars that `source` names, sorted, and the names in the folder that are ignored.

    In a folder, files that end in .parquet, .csv or .csv.gz count; hidden ones, temporary ones and folders do not.
    """
    path = Path(source)
    if path.is_file():
        if suffix_of(path) is None:
            raise DataError(f"{path} is not a file of bars; its name must end in {', '.join(SUFFIXES)}.")
        return [path], []
    if not path.is_dir():
        raise DataError(f"there is no file or folder {path}; check the path of the bars.")
    entries = sorted(path.iterdir())
    files = [e for e in entries if e.is_file() and suffix_of(e) and not e.name.startswith((".", "_", "~"))]
    ignored = [entry.name for entry in entries if entry not in files]
    if not files:
        raise DataError(f"the folder {path} holds no file that ends in {', '.join(SUFFIXES)}{_below(path)}.")
    return files, ignored


def _below(path: Path) -> str:
    """Say what may have been meant by a folder without bars."""
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        if any(suffix_of(entry) for entry in folder.iterdir() if entry.is_file()):
            return f", but its folder {folder.name} does: name that one"
    return "; name a folder that does, or what reads it by the kind"


def read_bars(
    source: str | os.PathLike[str],
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    timezone: str | None = None,
    source_timezone: str | None = None,
    instrument_pattern: str | None = None,
    datetime_format: str | None = None,
    report: Report | None = None,
) -> pd.DataFrame:
    r"""Read bars into the schema's columns; nothing is repaired here.

    Parameters
    ----------
    source
        A .parquet, .csv or .csv.gz file, or a folder of them. A file without an instrument column is one instrument,
        named as the file without its ending: ``BRK.B.csv`` holds ``BRK.B``. Or what one of `rlwb.market.readers` reads,
        or a data set (`rlwb.market.dataset`).
    kind
        ``"table"`` for Parquet and CSV, or the reader: ``"qlib"``, ``"binance"`` (`rlwb.market.readers`). Without it,
        the names of the files and folders say, or it is a `DataError` that they could be two kinds.
    options
        Options of that reader, by name.
    columns
        ``{name in the file: schema name}`` for columns that do not match by themselves (`rlwb.market.columns`).
    instruments
        Ids to keep, as text; one that the source lacks is a `DataError`.
    start, end
        First and last date to keep, both included.
    timezone
        Zone whose dates `start` and `end` are, for stamps that carry an offset.
    source_timezone
        Zone of stamps that carry no offset, where it is not the session's: ``"UTC"`` for many vendors. A local time
        that the zone skips or repeats becomes missing.
    instrument_pattern
        Regular expression whose group 1 is the id in a file's name, for folders of several files an instrument:
        ``r"(.+)-\d{8}"``.
    datetime_format
        strptime format of text stamps other than ISO 8601.
    report
        Where ignored files and columns are counted.

    Returns
    -------
    pandas.DataFrame
        Columns instrument (category of text), datetime, the required and whichever optional ones are there.
    """
    wanted = _wanted(instruments)
    report = report if report is not None else Report()
    if is_dataset(source) and kind is None:
        asked = {"options": options, "columns": columns, "instrument_pattern": instrument_pattern}
        asked |= {"source_timezone": source_timezone, "datetime_format": datetime_format}
        selection = select_bars(source, instruments, start, end, **asked)
        bars = selection.whole()
        selection.tell(report)
        return bars
    reader = find_reader(source, kind, options)
    if reader is not None:
        of_tables = {"columns": columns, "instrument_pattern": instrument_pattern, "datetime_format": datetime_format}
        bars = _read_by(reader, Path(source), wanted, source_timezone, of_tables, report)
        return _between(bars, start, end, timezone).reset_index(drop=True)
    files, ignored = bar_files(source)
    report.add("file_ignored", len(ignored), ", ".join(ignored[:5]))
    frames: list[pd.DataFrame] = []
    origin: dict[str, Path] = {}
    for path in files:
        header = read_header(path)
        found = match_columns(header, columns, path.name)
        used = set(found.values())
        report.add("column_ignored", len(header) - len(used), ", ".join(n for n in header if n not in used))
        if "instrument" not in found:
            name = id_of(path, instrument_pattern)
            if name in origin and instrument_pattern is None:
                raise DataError(f"{path.name} and {origin[name].name} are both instrument {name}; keep one of them.")
            origin.setdefault(name, path)
            if wanted is not None and name not in wanted:
                continue
        frame = _in_schema(_columns_of(path, found, header, datetime_format), path.name, datetime_format)
        if source_timezone is not None and "datetime" in frame and frame["datetime"].dtype.kind == "M":
            frame["datetime"] = _in_zone(frame["datetime"], source_timezone, path.name)
        if "instrument" not in found:
            frame.insert(0, "instrument", pd.Series([name] * len(frame), dtype=pd.CategoricalDtype([name])))
        frames.append(frame)
    bars = _joined(frames, files)
    if wanted is not None:
        check_found(wanted, {*origin, *(bars["instrument"].unique() if len(bars) else ())}, source)
        bars = bars[bars["instrument"].isin(wanted)]
    return _between(bars, start, end, timezone).reset_index(drop=True)


def select_bars(
    source: str | os.PathLike[str], instruments: Sequence[str] | None, start: Any, end: Any, **asked: Any
) -> Selection:
    """Return the bars of a data set to be read in parts; parameters as for `read_bars`.

    Parameters
    ----------
    asked
        Those that say how files are read, of which none may be set.
    """
    _refuse(asked, f"{source} is a data set")
    return Selection(Path(source), _wanted(instruments), start, end)


def _read_by(
    reader: Reader,
    source: Path,
    wanted: set[str] | None,
    source_timezone: str | None,
    of_tables: Mapping[str, Any],
    report: Report,
) -> pd.DataFrame:
    """Return the bars of a source that is neither Parquet nor CSV."""
    _refuse(of_tables, f"{source} is read as {reader.kind}")
    try:
        bars = reader.read(source, None if wanted is None else frozenset(wanted), report)
    except OSError as error:
        raise DataError(
            f"{source} cannot be read ({error.strerror or error}); check its files and their rights."
        ) from None
    fault = canonical_fault(bars)
    if fault is not None:
        raise DataError(f"{source}: the reader {reader.kind} is at fault, {fault}; tell its author.")
    if wanted is not None:
        check_found(wanted, bars["instrument"].unique(), source)
    if source_timezone is not None:
        bars["datetime"] = _in_zone(bars["datetime"], source_timezone, str(source))
    return bars


def _refuse(options: Mapping[str, Any], where: str) -> None:
    unused = next((name for name, value in options.items() if value), None)
    if unused is not None:
        raise ConfigError(f"{where}, where {unused} has no effect; drop it, or set kind.")


def _wanted(instruments: Sequence[str] | None) -> set[str] | None:
    if instruments is None:
        return None
    names = [instruments] if isinstance(instruments, str) else list(instruments)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"instrument {name!r} is not text; quote it, so that '000001' keeps its zeros.")
    if not names:
        raise ConfigError("instruments is an empty list; leave it out to keep all.")
    return set(names)


def id_of(path: Path, pattern: str | None) -> str:
    """Return the instrument that a file's name stands for: all of it without the ending, or group 1 of `pattern`."""
    stem = path.name[: -len(suffix_of(path) or "")]
    if pattern is None:
        return stem
    try:
        match = re.fullmatch(pattern, stem)
    except re.error as error:
        raise ConfigError(f"instrument_pattern {pattern!r} is no regular expression ({error}); mend it.") from None
    if match is None or not match.groups():
        raise DataError(f"instrument_pattern {pattern!r} finds no id (group 1) in the file name {path.name}; mend it.")
    return match.group(1)


def _columns_of(path: Path, found: Mapping[str, str], header: list[str], datetime_format: str | None) -> pd.DataFrame:
    if suffix_of(path) != ".parquet":
        try:
            return read_plain_csv(path, found, datetime_format)
        except UnfitError:
            pass
    return read_table(path, found, header)


def _in_schema(frame: pd.DataFrame, where: str, datetime_format: str | None) -> pd.DataFrame:
    if "datetime" not in frame.columns and {"date", "time"} <= set(frame.columns):
        dates, times = (frame.pop(name).map(_as_text).astype(object) for name in ("date", "time"))
        moments = dates + " " + times
        frame.insert(0, "datetime", moments)
    if "datetime" in frame.columns and frame["datetime"].dtype.kind not in "Mmiuf":
        frame["datetime"] = parse_stamps(frame["datetime"], where, datetime_format)
    if "instrument" in frame.columns and frame["instrument"].dtype == object:
        odd = next((value for value in frame["instrument"] if not isinstance(value, str | None)), None)
        if odd is None:
            frame["instrument"] = frame["instrument"].astype("category")
        elif isinstance(odd, np.ndarray | list | dict):
            raise DataError(f"{where}: an instrument is a {type(odd).__name__}, not text; write ids as text.")
    return frame


def _in_zone(stamps: pd.Series, zone: str, where: str) -> pd.Series:
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        raise DataError(f"{where}: the stamps carry a zone ({stamps.dtype.tz}) already; leave source_timezone out.")
    try:
        return stamps.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"source_timezone {zone!r} is unknown; give an IANA name such as UTC.") from None


def _as_text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return str(value.date())
    return str(value).strip()


def _joined(frames: list[pd.DataFrame], files: list[Path]) -> pd.DataFrame:
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    if not frames:
        return pd.DataFrame({"instrument": pd.Categorical([])})
    if len(frames) == 1:
        return frames[0]
    kinds = {getattr(frame["datetime"].dtype, "tz", None) is not None for frame in frames if "datetime" in frame}
    if len(kinds) > 1:
        raise DataError(
            f"some files under {files[0].parent} have stamps with a zone and some without; write all of them one way."
        )
    if all(isinstance(frame["instrument"].dtype, pd.CategoricalDtype) for frame in frames):
        names = pd.api.types.union_categoricals([frame["instrument"] for frame in frames])
        bars = _stacked([frame.drop(columns="instrument") for frame in frames])
        bars.insert(0, "instrument", pd.Series(names))
        return bars
    return _stacked(frames)


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all frames; a column that is all missing in some has the type that it has in others."""
    order = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    for name in order:
        there = [place for place, frame in enumerate(frames) if name in frame.columns]
        if len({frames[place][name].dtype for place in there}) > 1:
            missing = [place for place in there if frames[place][name].isna().all()]
            if len(missing) == len(there):
                missing = missing[1:]
            for place in missing:
                frames[place] = frames[place].drop(columns=name)
    return pd.concat(frames, ignore_index=True)[order]


def _between(bars: pd.DataFrame, start: Any, end: Any, timezone: str | None) -> pd.DataFrame:
    if start is None and end is None:
        return bars
    first = None if start is None else pd.Timestamp(day_of(start))
    last = None if end is None else pd.Timestamp(day_of(end)) + pd.Timedelta(days=1)
    if first is not None and last is not None and first >= last:
        raise ConfigError(f"start {start} is after end {end}; give the first date first.")
    if "datetime" not in bars or bars["datetime"].dtype.kind != "M":
        return bars  # validation says what is wrong with the column
    stamps = bars["datetime"]
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        stamps = stamps.dt.tz_convert(timezone or stamps.dtype.tz).dt.tz_localize(None)
    keep = pd.Series(True, index=bars.index)
    if first is not None:
        keep &= stamps >= first
    if last is not None:
        keep &= stamps < last
    return bars[keep]
