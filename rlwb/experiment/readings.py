"""The record of what a training read: days, instruments and orders, noted where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.files import write_json
from rlwb.market import Sessions
from rlwb.reading import read_json

#: The record's name in the folder ``metrics`` of a run.
READINGS = "readings.json"


class Readings:
    """A record of the days that each part of a training has read so far, in a file that a continued training adds to.

    The file has for each reader, ``normaliser``, ``network`` (what is estimated without gradients), ``training`` and
    ``validation``, its ``dates`` and its ``instruments``.

    Parameters
    ----------
    path
        The JSON file; what an earlier part of the same training wrote there counts too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dates: dict[str, set[str]] = {}
        self._instruments: dict[str, set[str]] = {}
        self._before: dict[str, Any] = read_json(path) if path.is_file() else {}

    def sessions(self, reader: str, sessions: Sessions, rows: Iterable[int] | np.ndarray | None) -> None:
        """Note the sessions of a panel, by their rows, that a reader has read."""
        taken = np.array(sorted({int(row) for row in rows} if rows is not None else ()), dtype=np.int64)
        self._note(reader, sessions.dates[taken], sessions.instruments[taken])

    def orders(self, reader: str, states: Sequence[Any]) -> None:
        """Note the orders, an `OrderBatch`, that a reader has read."""
        source, row = states.source, states.row  # type: ignore[attr-defined]
        self._note(reader, source["date"][row], source["instrument"][row])

    def _note(self, reader: str, dates: np.ndarray, instruments: np.ndarray) -> None:
        days = np.unique(np.asarray(dates).astype("datetime64[D]")).astype(str)
        self._dates.setdefault(reader, set()).update(days.tolist())
        self._instruments.setdefault(reader, set()).update(map(str, np.unique(instruments.astype(str))))

    def write(self) -> None:
        """Write the file."""
        found = dict(self._before)
        for reader, dates in self._dates.items():
            old = self._before.get(reader, {})
            found[reader] = {
                "dates": sorted({*dates, *old.get("dates", ())}),
                "instruments": sorted({*self._instruments[reader], *old.get("instruments", ())}),
            }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, found)
