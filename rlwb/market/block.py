"""What a feature is made of: some sessions whole, and a function that makes one column of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.references import References
from rlwb.market.schema import PRICES
from rlwb.market.store import prefetch


class Block:
    """Some sessions, whole, and what earlier ones say of them: all that a feature reads.

    ``block["close"]`` is the field of these sessions, float64 of shape ``(n, T)``, NaN where it is missing. A feature
    may use, for its value at tick t, columns up to and including t, and whatever is said of earlier sessions.

    Parameters
    ----------
    references
        The panel, with its numbers a session.
    rows
        The sessions, row numbers of shape ``(n,)``.
    """

    def __init__(self, references: References, rows: np.ndarray) -> None:
        self.rows = np.asarray(rows)
        self._references = references
        self._sessions = references.sessions
        self._kept: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, field: str) -> np.ndarray:
        if field not in self._kept:
            self._kept[field] = self._take(field, self.rows)
            self._kept[field].setflags(write=False)
        return self._kept[field]

    @property
    def calendar(self) -> Calendar:
        """The clock."""
        return self._sessions.calendar

    @cached_property
    def in_session(self) -> np.ndarray:
        """Bool of shape ``(n, T)``: True before the session's end."""
        return np.arange(self.calendar.num_ticks)[None, :] < self._sessions.num_ticks[self.rows][:, None]

    @cached_property
    def price_reference(self) -> np.ndarray:
        """`References.price`, float64 of shape ``(n, 1)``; in a first session known from the first price on."""
        return self._references.price[self.rows][:, None]

    @cached_property
    def previous_close(self) -> np.ndarray:
        """The last valid close of the instrument's earlier sessions, float64 of shape ``(n, 1)``; NaN where none is."""
        return self._references.previous_close[self.rows][:, None]

    @cached_property
    def volume_reference(self) -> np.ndarray:
        """`References.volume`, float64 of shape ``(n, 1)``."""
        return self._references.volume[self.rows][:, None]

    def earlier(self, field: str, days: int) -> np.ndarray:
        """Return a field of the instrument's session `days` (1 = the last) before, ``(n, T)``; NaN where none is.

        Prices and shares are those of today's session, where the sessions have factors.
        """
        if days < 1:
            raise ConfigError(f"earlier sessions are 1, 2, … before, not {days}; today is block[{field!r}].")
        before = self.rows - days
        known = before >= self._sessions.first[self.rows]
        values = self._take(field, np.where(known, before, self.rows))
        values[~known] = np.nan
        if self._sessions.factor is not None:
            ratio = self._sessions.factor[np.where(known, before, self.rows)] / self._sessions.factor[self.rows]
            values = values * ratio[:, None] if field in PRICES else values / ratio[:, None]
        return values

    def _take(self, name: str, rows: np.ndarray) -> np.ndarray:
        fields = self._sessions.fields
        if name not in fields:
            raise DataError(f"a feature reads {name}, which these bars lack; they have {', '.join(fields)}.")
        prefetch(fields[name], rows)
        values: np.ndarray = fields[name][rows]
        return values


@dataclass(frozen=True)
class Feature:
    """One feature.

    Parameters
    ----------
    name
        Its name in `FeatureSettings.columns` and in the observation.
    needs
        Names of the fields that it reads.
    function
        Block to values of shape ``(n, T)``; what is not finite counts as missing.
    """

    name: str
    needs: tuple[str, ...]
    function: Callable[[Block], np.ndarray]

    def __call__(self, block: Block) -> np.ndarray:
        """Return the raw values, float64 of shape ``(n, T)``, NaN where there is none."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            values = np.asarray(self.function(block), dtype=np.float64)
        if values.shape != (len(block), block.calendar.num_ticks):
            raise ConfigError(
                f"feature {self.name} returns shape {values.shape} for {len(block)} sessions of "
                f"{block.calendar.num_ticks} ticks; return one number for each of them."
            )
        finite = np.isfinite(values)
        return values if finite.all() else np.where(finite, values, np.nan)

    def check_fields(self, fields: tuple[str, ...]) -> None:
        """Raise `DataError` unless all that it needs is among `fields`."""
        missing = sorted(set(self.needs) - set(fields))
        if missing:
            raise DataError(
                f"feature {self.name} needs {', '.join(missing)}, which these bars lack; they have {', '.join(fields)}."
            )
