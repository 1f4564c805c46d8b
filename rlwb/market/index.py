"""Where the session of an instrument and a date lies in a panel."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.clock import day_of

_HALF = 1 << 31


class SessionIndex:
    """Finds rows by bisection, so that it takes 8 bytes a session.

    Parameters
    ----------
    instruments, dates
        Of shape ``(S,)``, text and datetime64[D], sorted by instrument and date without doubles.

    Attributes
    ----------
    names
        The distinct instruments, sorted, text of shape ``(I,)``.
    first, stop : int64 of shape (I,)
        Each instrument's rows are ``first`` up to, not including, ``stop``.
    """

    def __init__(self, instruments: np.ndarray, dates: np.ndarray) -> None:
        new = np.ones(len(instruments), dtype=bool)
        new[1:] = instruments[1:] != instruments[:-1]
        self.first = np.flatnonzero(new)
        self.stop = np.append(self.first[1:], len(instruments)) if len(instruments) else self.first
        self.names = instruments[self.first]
        self._dates = dates
        self._codes = {name: code for code, name in enumerate(self.names.tolist())}
        code = np.repeat(np.arange(len(self.first)), self.stop - self.first)
        self._keys = _key(code, dates.astype(np.int64))

    def rows(self, instruments: Iterable[str], dates: Iterable[Any]) -> np.ndarray:
        """Return the row of each (instrument, date), int64; -1 where there is no such session."""
        given = dates if isinstance(dates, np.ndarray) else list(dates)
        days = np.asarray(given, dtype="datetime64[D]").astype(np.int64)
        codes = np.array([self._codes.get(name, -1) for name in instruments], dtype=np.int64)
        if len(codes) != len(days):
            raise ValueError(f"{len(codes)} instruments and {len(days)} dates are given; give one date an instrument.")
        if not len(self._keys):
            return np.full(len(codes), -1)
        known = (codes >= 0) & (days >= -_HALF) & (days < _HALF)
        keys = _key(codes, np.where(known, days, 0))
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(known & (self._keys[found] == keys), found, -1)

    def row(self, instrument: str, date: Any) -> int:
        """Return the row of one session; what is not there is a `DataError` that names the nearest."""
        if not isinstance(instrument, str):
            raise DataError(f"instrument {instrument!r} is not text; quote it, so that 000001 keeps its zeros.")
        try:
            day = day_of(date)
        except ConfigError:
            raise DataError(f"the date {date!r} of {instrument} cannot be read; write it as YYYY-MM-DD.") from None
        code = self._codes.get(instrument)
        if code is None:
            near = difflib.get_close_matches(instrument, self.names.tolist(), n=1, cutoff=0.0)
            hint = f"the nearest name is {near[0]}" if near else "there are no sessions at all"
            raise DataError(f"instrument {instrument} has no session; {hint}.")
        found = int(self.rows([instrument], [day])[0])
        if found >= 0:
            return found
        own = self._dates[self.first[code] : self.stop[code]]
        nearest = own[np.argmin(np.abs(own - day))]
        raise DataError(
            f"{instrument} has no session on {day}; the nearest is {nearest} (it has {len(own)}, "
            f"{own[0]} to {own[-1]}). Its report says which were dropped."
        )


def _key(code: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return one number a session that sorts as (instrument, date) does."""
    return code.astype(np.int64) * (2 * _HALF) + (day + _HALF)
