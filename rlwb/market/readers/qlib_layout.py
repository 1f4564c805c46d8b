"""The three parts of a Qlib directory: the calendar, the list of instruments, the binary columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlwb.errors import DataError
from rlwb.market.readers.content import read_file

_STAMP = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?")
_FIRST, _LAST = np.datetime64("1700-01-01", "s"), np.datetime64("2260-01-01", "s")
#: float32 counts no further without gaps, so a later start could be another one.
_LARGEST_START = 2**24


#: First and last listed stamp of each span, by instrument.
Spans = dict[str, list[tuple[np.datetime64, np.datetime64]]]


class Column(NamedTuple):
    """One binary file: its values, float32, and the calendar step of the first."""

    start: int
    values: np.ndarray


def read_calendar(path: Path, max_megabytes: int) -> np.ndarray:
    """Return the steps of ``calendars/<freq>.txt``, datetime64[ns] and strictly increasing."""
    lines = [line.strip() for line in _text(path, max_megabytes).splitlines()]
    rows = [row for row, line in enumerate(lines, 1) if line]
    steps = _stamps([line for line in lines if line], rows, path)
    if not len(steps):
        raise DataError(f"{path} holds no date; write it again.")
    for bad, what in (((steps < _FIRST) | (steps > _LAST), "lies outside the years 1700 to 2259"), (_back(steps), "")):
        if bad.any():
            first = int(np.argmax(bad))
            what = what or "does not follow the line before it, which shifts every bar behind it"
            raise DataError(f"{path}, row {rows[first]}: {steps[first]} {what}; correct the calendar.")
    return steps.astype("datetime64[ns]")


def read_instruments(path: Path, max_megabytes: int) -> tuple[Spans, list[str]]:
    """Return the listed dates of each instrument of ``instruments/<market>.txt``, and ids that had blanks around them.

    A last date without a time of day includes that day.
    """
    spans: Spans = {}
    padded: list[str] = []
    for row, line in enumerate(_text(path, max_megabytes).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        name = cells[0].strip()
        if len(cells) < 3 or not name:
            raise DataError(f"{path}, row {row}: {line[:60]!r} is not an id and two dates between tabs; correct it.")
        if name != cells[0]:
            padded.append(name)
        first, last = _stamps([cell.strip() for cell in cells[1:3]], [row, row], path)
        if len(cells[2].strip()) == len("YYYY-MM-DD"):
            last = last + np.timedelta64(86_399, "s")
        # An open end is often written as a year that nanoseconds do not reach.
        spans.setdefault(name, []).append((_reached(first), _reached(last)))
    if not spans:
        raise DataError(f"{path} lists no instrument; write it again.")
    return spans, padded


def read_column(path: Path, steps: int) -> Column:
    """Return one ``.bin`` file of little-endian float32: the index of the first step, then a value a step.

    Parameters
    ----------
    steps
        Length of the calendar. A file that reaches beyond its end is refused: it was written for another calendar, on
        which its values had other dates.
    """
    try:
        size = path.stat().st_size
        content = np.fromfile(path, "<f4", count=min(size // 4, steps + 1))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights.") from None
    if not size or size % 4:
        raise DataError(f"{path} has {size:,} bytes, not a whole number of float32 values; it was cut, copy it again.")
    start = float(content[0])
    if not (0 <= start < _LARGEST_START and start.is_integer()):
        raise DataError(f"{path}: the start index is {start:g}, not a whole number from 0; write the file again.")
    count = size // 4 - 1
    if start + count > steps:
        raise DataError(
            f"{path} holds {count:,} values from step {start:.0f} of a calendar of {steps:,} steps; it was written for "
            "another calendar, so its dates are unknown: write it again."
        )
    return Column(int(start), content[1:])


def _text(path: Path, max_megabytes: int) -> str:
    try:
        return read_file(path, max_megabytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; it is not of a Qlib directory, or damaged.") from None


def _stamps(texts: list[str], rows: list[int], path: Path) -> np.ndarray:
    bad = next((place for place, text in enumerate(texts) if not _STAMP.fullmatch(text)), None)
    try:
        if bad is None:
            return np.array(texts, dtype="datetime64[s]")
    except ValueError:
        bad = next(place for place, text in enumerate(texts) if not _exists(text))
    raise DataError(f"{path}, row {rows[bad]}: {texts[bad][:40]!r} is not YYYY-MM-DD HH:MM:SS; correct it.")


def _reached(stamp: np.datetime64) -> np.datetime64:
    return min(max(stamp, _FIRST), _LAST)


def _exists(text: str) -> bool:
    try:
        np.datetime64(text, "s")
    except ValueError:
        return False
    return True


def _back(steps: np.ndarray) -> np.ndarray:
    return np.append(False, np.diff(steps) <= np.timedelta64(0))
