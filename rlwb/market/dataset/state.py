"""What a data set says of itself: its calendar, its files of bars, and every source that was imported.

DIR/dataset.json            this state; files that it does not name are no part of the data set
DIR/bars/000001.parquet     bars sorted by instrument and stamp; each stamp is in one file alone
DIR/conflicts/000001.parquet   bars that differ from another bar of their stamp
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.bars import MUST
from rlwb.market.calendar import Calendar
from rlwb.market.findings import Report
from rlwb.market.schema import SCHEMA_VERSION

STATE = "dataset.json"
BARS = "bars"
CONFLICTS = "conflicts"
FORMAT = 2
#: Findings of each kind that a data set remembers.
LISTED = 100


@dataclass(frozen=True)
class Imported:
    """One source, as far as it was imported."""

    number: int  # 1, 2, …; the column ``source`` of the bars
    name: str
    path: str
    bytes: int
    sha256: str  # of several files, that of their names and hashes
    #: How it was read, and the instrument that its name stands for; under others, the same content is another source.
    settings: dict[str, Any]
    rows: int = 0  # that were read so far
    complete: bool = False  # whether those are all


@dataclass(frozen=True)
class State:
    """The content of ``dataset.json``."""

    calendar: Calendar  # which the bars are meant for: stamps are local to its zone and named by its label
    sources: tuple[Imported, ...] = ()  # in the order of their import
    #: Names of the files of bars and of conflicts, in the order in which they were written, and how many each holds.
    files: dict[str, int] = field(default_factory=dict)
    conflicts: dict[str, int] = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # of the schema, beside instrument and datetime, that any source has; sorted
    report: Report = field(default_factory=lambda: Report(limit=LISTED))  # of all imports

    @property
    def bars(self) -> int:
        """Bars that are stored."""
        return sum(self.files.values())

    @property
    def rows(self) -> int:
        """Rows that were read."""
        return sum(source.rows for source in self.sources)

    @property
    def incomplete(self) -> Imported | None:
        """The source whose import was not finished, if there is one."""
        return next((source for source in self.sources if not source.complete), None)

    def with_source(self, source: Imported) -> State:
        """Return the state with `source` in the place of its number, or at the end."""
        others = [old for old in self.sources if old.number != source.number]
        return replace(self, sources=tuple(sorted((*others, source), key=lambda one: one.number)))

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            "format": FORMAT,
            "schema": SCHEMA_VERSION,
            "bars": self.bars,
            "calendar": self.calendar.as_dict(),
            "sources": [asdict(source) for source in self.sources],
            "files": self.files,
            "conflicts": self.conflicts,
            "columns": list(self.columns),
            "report": self.report.as_dict(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> State:
        """Rebuild a state from `as_dict`."""
        return cls(
            Calendar(**values["calendar"]),
            tuple(Imported(**source) for source in values["sources"]),
            dict(values["files"]),
            dict(values["conflicts"]),
            tuple(values["columns"]),
            Report.from_dict(values["report"]),
        )


def is_dataset(source: str | os.PathLike[str]) -> bool:
    """Tell whether `source` is the folder of a data set."""
    return (Path(source) / STATE).is_file()


def read_state(directory: Path) -> State:
    """Return the state of the data set in `directory`; one that cannot be read is a `DataError`."""
    path = Path(directory) / STATE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (values["format"], values["schema"]) != (FORMAT, SCHEMA_VERSION):
            raise DataError(f"{path} was written in another format; import its sources into a new folder.")
        return State.from_dict(values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error).removesuffix(".")
        raise DataError(f"{path} cannot be read ({why}); import the sources again into another folder.") from None


def read_conflicts(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return all bars of a data set that contradict another one, in the order of their import.

    Returns
    -------
    pandas.DataFrame
        instrument, datetime, and for the bar that was kept and the other one its source (number), row, open, high,
        low, close and volume, as ``kept_close`` and ``other_close``.
    """
    files = sorted((Path(directory) / CONFLICTS).glob("*.parquet"))
    sides = [f"{side}_{name}" for side in ("kept", "other") for name in ("source", "row", *MUST)]
    empty = pd.DataFrame(columns=["instrument", "datetime", *sides])
    return pd.concat([pd.read_parquet(path) for path in files], ignore_index=True) if files else empty
