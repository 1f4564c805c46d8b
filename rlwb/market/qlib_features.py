"""The features of Qlib's order execution example, computed from bars; `rlwb.market.qlib_tables` reads made ones.

The definitions are those of ``qlib.contrib.data.highfreq_handler.HighFreqGeneralHandler`` and of the normalisation in
``highfreq_processor.HighFreqNorm``, pyqlib 0.9.7; docs/qlib.md states them. Ratios are float32, as there. A day is a
date of the panel.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from rlwb.market.references import References, blocks, last_valid

if TYPE_CHECKING:
    from rlwb.market.catalogue import Block

#: Days of the volume's mean.
_MEAN_DAYS = 30
#: Earlier sessions that they read.
LOOKBACK = _MEAN_DAYS + 1
#: The close that today's prices are divided by is that of so many days before.
_REFERENCE_DAYS = 2


class _Days:
    """Positions of a panel's sessions among its days, and the values of each that are referred to later."""

    def __init__(self, references: References) -> None:
        self.sessions = sessions = references.sessions
        day = np.searchsorted(references.days, sessions.dates)
        code = np.repeat(np.arange(len(sessions.index.names)), sessions.index.stop - sessions.index.first)
        # A gap between two instruments, so that no look back leaves the own one.
        self.key = code * (day.max(initial=0) + 2 + 2 * _MEAN_DAYS) + day
        self.factor = np.ones(len(sessions)) if sessions.factor is None else sessions.factor
        self._last: dict[tuple[str, int], np.ndarray] = {}

    def before(self, rows: np.ndarray, days: int) -> np.ndarray:
        """Return the row of the same instrument's last session at least `days` days before; -1 where there is none."""
        found = np.searchsorted(self.key, self.key[rows] - days, side="right") - 1
        return np.where(found >= self.sessions.first[rows], found, -1)

    @cached_property
    def close(self) -> np.ndarray:
        """The last valid close up to each session's end, times the factor, float64 of shape (S,)."""
        close = self.sessions.fields["close"]
        parts = [last_valid(close[rows]) for rows in blocks(np.arange(len(close)), close.shape[1])]
        return self.carried(np.concatenate([np.empty(0), *parts]) * self.factor)

    @cached_property
    def volume(self) -> tuple[np.ndarray, np.ndarray]:
        """The sum and the number of all volumes, over the factor, before each row; float64 of shape (S + 1,)."""
        volume = self.sessions.fields["volume"]
        pieces = list(blocks(np.arange(len(volume)), volume.shape[1]))
        total = [np.nansum(volume[rows], axis=1) / self.factor[rows] for rows in pieces]
        count = [np.isfinite(volume[rows]).sum(axis=1) for rows in pieces]
        return tuple(np.concatenate([[0.0], np.cumsum(np.concatenate([np.empty(0), *of]))]) for of in (total, count))  # type: ignore[return-value]

    def carried(self, values: np.ndarray) -> np.ndarray:
        """Return `values` (S,), each one that is missing being the instrument's last before it."""
        known = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        return np.where(known >= self.sessions.first, values[known], np.nan) if len(values) else values

    def ratio(self, name: str, rows: np.ndarray, days: int) -> np.ndarray:
        """Return prices over the close of so many days before, float32 of shape (n, T), NaN where there is none."""
        price, close = (self.sessions.fields[field][rows].astype(np.float32) for field in (name, "close"))
        at = self.before(rows, days)
        reference = np.where(at >= 0, self.close[at], np.nan) / self.factor[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.isnan(price), close, price) / reference.astype(np.float32)[:, None]

    def last(self, name: str, days: int) -> np.ndarray:
        """Return the last such ratio up to each session's end, float64 of shape (S,)."""
        if (name, days) not in self._last:
            every, ticks = np.arange(len(self.sessions)), self.sessions.calendar.num_ticks
            parts = [last_valid(self.ratio(name, rows, days)) for rows in blocks(every, ticks)]
            self._last[name, days] = self.carried(np.concatenate([np.empty(0), *parts]))
        return self._last[name, days]


_KNOWN: WeakKeyDictionary[References, _Days] = WeakKeyDictionary()


def _days(block: Block) -> _Days:
    references = block.references
    if references not in _KNOWN:
        _KNOWN[references] = _Days(references)
    return _KNOWN[references]


def price(name: str, ago: int, block: Block) -> np.ndarray:
    """Return today's prices over the last close of two days before, or the day before's over its own (`ago` 1).

    A missing bar has the close; where that is missing too, the last ratio stands, also that of an earlier day.
    """
    days = _days(block)
    reference = 0 if ago else _REFERENCE_DAYS
    source = days.before(block.rows, ago)
    there = (source >= 0) & (days.key[source] == days.key[block.rows] - ago)
    ratio = np.where(there[:, None], days.ratio(name, source, reference), np.float32(np.nan)).astype(np.float64)
    # What stood at the session's start: the ratio of the last session before it.
    earlier = np.where(there, np.where(source > days.sessions.first[block.rows], source - 1, -1), source)
    start = np.where(earlier >= 0, days.last(name, reference)[earlier], np.nan)
    with_start = np.concatenate([start[:, None], ratio], axis=1)
    valid = np.isfinite(with_start)
    at = np.maximum.accumulate(np.where(valid, np.arange(with_start.shape[1]), 0), axis=1)
    return np.where(block.in_session, np.take_along_axis(with_start, at, axis=1)[:, 1:], np.nan)


def volume(ago: int, block: Block) -> np.ndarray:
    """Return log1p of today's volume, or the day before's (`ago` 1), over the mean tick volume of 30 days before today.

    0 where the volume or the mean is missing.
    """
    days = _days(block)
    total, count = days.volume
    end, begin = days.before(block.rows, 1), days.before(block.rows, _MEAN_DAYS + 1)
    low = np.where(begin >= 0, begin, days.sessions.first[block.rows] - 1) + 1
    high = np.where(end >= 0, end + 1, low)
    source = days.before(block.rows, ago)
    there = (source >= 0) & (days.key[source] == days.key[block.rows] - ago)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (total[high] - total[low]) / (count[high] - count[low])
        traded = days.sessions.fields["volume"][source].astype(np.float32) / days.factor[source][:, None]
        ratio = (traded / mean[:, None]).astype(np.float32)
        ratio[~there[:, None] | np.isnan(ratio)] = 0.0
        return np.where(block.in_session, np.log1p(ratio), np.nan)
