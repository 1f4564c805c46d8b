"""Where things lie in a data set's folder.

DIR/dataset.json                                        what was imported and how
DIR/bars/instrument=600000.SH/month=2024-01/part.parquet
DIR/conflicts/0002-000001.parquet                       bars that differ from another bar of their stamp
DIR/.import/                                            an import under way
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from rlwb.errors import DataError

STATE = "dataset.json"
BARS = "bars"
CONFLICTS = "conflicts"
WORK = ".import"
PART = "part.parquet"
_LONGEST = 255


def is_dataset(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a data set."""
    return (Path(source) / STATE).is_file()


def folder_of(instrument: str) -> str:
    """Return the name of an instrument's folder: ``instrument=`` and the id, percent-encoded as in an address.

    So no id leaves the folder or meets another's, and readers of partitioned Parquet decode it.
    """
    name = f"instrument={urllib.parse.quote(instrument, safe='')}"
    if len(name) > _LONGEST:
        raise DataError(f"the instrument {instrument[:40]!r}… is too long for the name of a folder; shorten the id.")
    return name


def instrument_of(folder: str) -> str:
    """Return the id that `folder_of` made the name from."""
    return urllib.parse.unquote(folder.removeprefix("instrument="))


def part_path(instrument: str, month: str) -> str:
    """Return the path of one partition inside the data set; `month` is ``YYYY-MM``."""
    return f"{BARS}/{folder_of(instrument)}/month={month}/{PART}"


def list_instruments(directory: Path) -> dict[str, Path]:
    """Return the folder of each instrument, sorted by id."""
    found = {
        instrument_of(entry.name): Path(entry.path)
        for entry in _folders(directory / BARS)
        if entry.name.startswith("instrument=")
    }
    return dict(sorted(found.items()))


def list_months(folder: Path) -> dict[str, Path]:
    """Return the partition of each month of an instrument's folder, sorted by month."""
    return {name.removeprefix("month="): folder / name / PART for name in month_names(folder)}


def month_names(folder: Path) -> list[str]:
    """Return the names of the folders in an instrument's folder, ``month=2024-01``, sorted."""
    return sorted(entry.name for entry in _folders(folder) if entry.name.startswith("month="))


def _folders(parent: Path) -> Iterator[os.DirEntry[str]]:
    if parent.is_dir():
        with os.scandir(parent) as entries:
            yield from (entry for entry in entries if entry.is_dir())
