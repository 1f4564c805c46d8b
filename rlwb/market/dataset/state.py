"""What a data set says of itself: its calendar, and every file that was imported."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.layout import STATE
from rlwb.market.report import Report
from rlwb.market.schema import SCHEMA_VERSION

FORMAT = 1
OnConflict = Literal["keep", "replace"]


@dataclass(frozen=True)
class Source:
    """One file, or one source of a reader that reads it whole, as far as it was imported.

    Parameters
    ----------
    number
        1, 2, …; the column ``source`` of the bars.
    name, path, bytes, sha256
        What was read. Of several files, the hash is that of their names and hashes.
    settings
        How it was read, and the instrument that its name stands for; the same content under other settings is another
        source.
    columns
        Columns of the schema that it has.
    rows
        Rows read so far.
    bars
        Bars of it that are stored; less than `rows` by what was dropped.
    complete
        Whether it was read to the end.
    last
        While it is incomplete, the stamp of each instrument's last row, to tell what is unsorted.
    report
        What was dropped and repaired, by reason.
    """

    number: int
    name: str
    path: str
    bytes: int
    sha256: str
    settings: dict[str, Any]
    columns: tuple[str, ...] = ()
    rows: int = 0
    bars: int = 0
    complete: bool = False
    last: dict[str, int] = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    def is_same(self, other: Source) -> bool:
        """Tell whether both are the same content, read the same way."""
        return (self.sha256, self.settings) == (other.sha256, other.settings)

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {**asdict(self), "columns": list(self.columns), "report": self.report.as_dict()}


@dataclass(frozen=True)
class State:
    """The content of ``dataset.json``.

    Parameters
    ----------
    calendar
        The clock that the bars are meant for. Their stamps are local to its zone and named by its label.
    sources
        In the order of their import.
    bars
        Bars that are stored.
    """

    calendar: Calendar
    sources: tuple[Source, ...] = ()
    bars: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the schema, beside instrument and datetime, that any source has."""
        found = {name for source in self.sources for name in source.columns}
        return tuple(sorted(found))

    @property
    def incomplete(self) -> Source | None:
        """The source whose import was not finished, if there is one."""
        return next((source for source in self.sources if not source.complete), None)

    def report(self) -> Report:
        """Return what was dropped and repaired in all imports."""
        found = Report()
        for source in self.sources:
            found = found.merge(source.report)
        return found

    def with_source(self, source: Source) -> State:
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
            "sources": [source.as_dict() for source in self.sources],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> State:
        """Rebuild a state from `as_dict`."""
        sources = [
            Source(
                **{**source, "columns": tuple(source["columns"]), "report": Report.from_dict(source["report"])},
            )
            for source in values["sources"]
        ]
        return cls(Calendar(**values["calendar"]), tuple(sources), values["bars"])


def read_state(directory: Path) -> State:
    """Return the state of the data set in `directory`; one that cannot be read is a `DataError`."""
    path = directory / STATE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (values["format"], values["schema"]) != (FORMAT, SCHEMA_VERSION):
            raise DataError(f"{path} was written in another format; import its sources again.")
        return State.from_dict(values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error).removesuffix(".")
        raise DataError(f"{path} cannot be read ({why}); import the sources again into another folder.") from None
