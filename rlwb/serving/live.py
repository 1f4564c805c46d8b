"""The live market: bars of a day that still goes on, as the panel, the features and the states that a policy reads.

Bars are written into a panel whose rows are sessions, and everything else is made of it by the code that made it in
training: features by `rlwb.market`, states by the encoder. A new bar costs the same at the close as at the open, and
sessions that get one together are worked on together. docs/serving/live.md has the rules of arrival.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from rlwb.errors import ConfigError, DataError, ServingError
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Normaliser, Report, Sessions, build_sessions
from rlwb.market.calendar import day_of, span_of
from rlwb.market.catalogue import Block, Feature
from rlwb.market.cleaning import place, usable
from rlwb.market.features import ComputedFeatures, carry, check_normaliser, features_of
from rlwb.market.references import References, first_price
from rlwb.market.schema import FIELDS, KEYS, REQUIRED, lacking
from rlwb.policy.encoder import MarketEncoder

#: Longest name of an instrument; the names of all rows lie side by side in one array.
NAME_LENGTH = 64
#: Instruments whose earlier sessions are kept, for each session that may be open.
_PASTS = 4
#: Dates of the market that are kept, of which features count back.
_DAYS = 400
#: Dates that stamps in nanoseconds reach.
_FIRST_DAY, _LAST_DAY = np.datetime64("1678-01-01"), np.datetime64("2261-12-31")
#: How far factors of one session may lie apart, as a share (`rlwb.market.actions`).
_ROUNDING = 1e-5
#: Instruments that are opened at once, which bounds the memory that this takes.
_TOGETHER = 64
_EPOCH, _MICROSECOND = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
#: Faults of bars that are refused; what else reading repairs is repaired here as well (`rlwb.market.cleaning.usable`).
_IMPOSSIBLE = ("price_negative", "price_infinite", "high_below_low", "volume_negative")


@dataclass(frozen=True)
class Arrivals:
    """What became of bars that arrived.

    Parameters
    ----------
    accepted
        New bars, and those of `late` among them.
    repeated
        Bars that were there already; they have no effect.
    corrected
        Bars that took the place of another of their tick.
    refused
        The others: place in the batch, counted from 0, and the reason in a word, in the order of the batch.
    late
        New bars of ticks that later bars or the clock had passed.
    """

    accepted: int
    repeated: int
    corrected: int
    refused: tuple[tuple[int, str], ...]
    late: int = 0


def refuse_across(features: Iterable[Feature]) -> None:
    """Raise `ConfigError` for features that read other instruments, whose bars a service may not have at a decision."""
    names = [one.name for one in features if one.across]
    if names:
        raise ConfigError(
            f"features.columns has {', '.join(names)}, which read other instruments, and a service decides on bars of "
            "the order's own; train a policy without them to serve it."
        )


class LivePanel(Sessions):
    """A panel whose rows are filled while the day goes on.

    Rows are in the order in which sessions were opened, not sorted: several in a row belong to a slot, of which the
    last is the session of today and those before it are earlier ones of its instrument. Fields are views of arrays that
    `LiveMarket` writes.
    """

    def __init__(
        self,
        calendar: Calendar,
        arrays: Mapping[str, np.ndarray],
        fields: Mapping[str, np.ndarray],
        find: Callable[[str, Any], int],
    ) -> None:
        views = {name: _read_only(values) for name, values in (*arrays.items(), *fields.items())}
        plain = {name: views[name] for name in arrays}
        self.__dict__.update(
            calendar=calendar,
            fields={name: views[name] for name in fields},
            halted=None,
            report=Report(),
            directory=None,
            fingerprint="",
            _find=find,
            **plain,
        )

    _find: Callable[[str, Any], int]

    def __repr__(self) -> str:
        return f"LivePanel({len(self)} rows of {self.calendar.num_ticks} ticks)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a live panel belongs to its market; take its fields instead.")

    def rows(self, instruments: Any, dates: Any) -> np.ndarray:
        """Return the row of each open session, int64; -1 for one that is not open."""
        return np.array([self._find(*key) for key in zip(instruments, dates, strict=True)], dtype=np.int64)

    def row(self, instrument: str, date: Any) -> int:
        """Return the row of an open session; one that is not open is a `DataError`."""
        row = self._find(instrument, date)
        if row < 0:
            raise DataError(f"{instrument} has no open session on {date}; send its bars, or open it.")
        return row


class _LiveBlock(Block):
    """A block that refuses to look further back than sessions are kept."""

    def __init__(self, references: References, rows: np.ndarray, depth: int, ticks: slice = slice(None)) -> None:
        super().__init__(references, rows, ticks)
        self._depth = depth

    def earlier(self, field: str, days: int) -> np.ndarray:
        if days > self._depth:
            raise ConfigError(
                f"a feature reads {field} of {days} sessions before, and {self._depth} are kept; say so by "
                f"@feature(…, lookback={days})."
            )
        return super().earlier(field, days)


class LiveFeatures(MarketFeatures):
    """The features of a live panel, made of what is over when they are read; 0 from there on."""

    def __init__(
        self, market: LiveMarket, values: np.ndarray, previous: np.ndarray, yesterday: np.ndarray | None
    ) -> None:
        columns, settings = tuple(one.name for one in market.feature_list), market.settings
        super().__init__(
            columns,
            values.view(),
            previous,
            market.normaliser,
            previous_day=settings.previous_day,
            yesterday=None if yesterday is None else _read_only(yesterday),
        )
        self._market = market

    def rows(self, sessions: np.ndarray) -> np.ndarray:
        self._market.catch_up(np.asarray(sessions))
        return super().rows(sessions)


@dataclass
class _Past:
    """Earlier sessions of an instrument, by date."""

    dates: np.ndarray  # datetime64[D] of shape (n,)
    num_ticks: np.ndarray  # int32 of shape (n,)
    factor: np.ndarray  # float64 of shape (n,); NaN where none is stated
    fields: np.ndarray  # float64 of shape (n, F, T)

    def take(self, rows: np.ndarray) -> _Past:
        return _Past(self.dates[rows], self.num_ticks[rows], self.factor[rows], self.fields[rows])

    def joined(self, other: _Past) -> _Past:
        """Return both, sorted; of one date the other's."""
        mine = self.take(~np.isin(self.dates, other.dates))
        both = _Past(*(np.concatenate(pair) for pair in zip(vars(mine).values(), vars(other).values(), strict=True)))
        return both.take(np.argsort(both.dates))


@dataclass
class _Batch:
    """Bars on the clock."""

    names: list[Any]
    stamp: np.ndarray  # local, microseconds since 1970
    day: np.ndarray  # since 1970
    tick: np.ndarray
    values: dict[str, np.ndarray]
    fine: np.ndarray  # bool: not refused
    reasons: dict[int, str]

    def refuse(self, mask: np.ndarray, reason: str) -> None:
        if mask.any():
            for place_ in np.flatnonzero(mask & self.fine).tolist():
                self.reasons[place_] = reason
            self.fine &= ~mask


class LiveMarket:
    """Sessions of today as bars arrive, shared by all orders of them.

    Parameters
    ----------
    calendar
        The clock of the bars.
    features, normaliser
        What the policy was trained on.
    encoder
        What makes states of bars; None for a policy whose network has none.
    fields
        Names of the fields that bars have (`rlwb.market.schema`); those of trades are always among them.
    capacity
        Sessions that may be open at once. Beyond, the least recently used one that no order holds is given up.
    on_correction
        Whether another value for a known tick is taken or refused.
    min_coverage
        Share of its ticks that a session must have a price in to count as history (`rlwb.market.build.Building`).

    Attributes
    ----------
    panel
        The bars, as interpreters read them (`LivePanel`).
    features
        `MarketFeatures` on the rows of `panel`.
    """

    def __init__(
        self,
        calendar: Calendar,
        features: FeatureSettings,
        normaliser: Normaliser,
        encoder: MarketEncoder | None = None,
        *,
        fields: Sequence[str],
        capacity: int = 4096,
        on_correction: Literal["take", "refuse"] = "take",
        min_coverage: float = 0.5,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity}; at least 1 session must fit.")
        if on_correction not in ("take", "refuse"):
            raise ConfigError(f"on_correction is {on_correction!r}; write 'take' or 'refuse'.")
        if encoder is not None and encoder.sees_future:
            raise ConfigError(f"{type(encoder).__name__} reads bars of the future, which are not there; serve another.")
        self.calendar, self.settings, self.normaliser, self.encoder = calendar, features, normaliser, encoder
        self.capacity, self._takes_corrections, self._min_coverage = capacity, on_correction == "take", min_coverage
        self._fields = tuple(name for name in FIELDS if name in {*fields, *REQUIRED})
        self.feature_list = features_of(features, self._fields)
        refuse_across(self.feature_list)
        check_normaliser(normaliser, tuple(one.name for one in self.feature_list))
        # Yesterday, for those who read its bars, and where its features are read, what these look back to.
        self._past_days = max(1, *(one.lookback for one in self.feature_list)) + features.previous_day
        self._depth = self._past_days + 1
        ticks, rows = calendar.num_ticks, capacity * self._depth
        # Room for all that may come; pages that nothing was written to take no memory.
        self._bars = {name: np.empty((rows, ticks)) for name in self._fields}
        self._arrays: dict[str, np.ndarray] = {
            "instruments": np.zeros(rows, dtype=f"U{NAME_LENGTH}"),
            "dates": np.full(rows, "NaT", dtype="datetime64[D]"),
            "num_ticks": np.zeros(rows, dtype=np.int32),
            "factor": np.ones(rows),
            "first": np.zeros(rows, dtype=np.int64),
            "previous": np.full(rows, -1, dtype=np.int32),
        }
        self.panel = LivePanel(calendar, self._arrays, self._bars, self.row)
        self._references = References(self.panel)
        self._known = {name: np.full(rows, np.nan) for name in ("previous_close", "price", "volume")}
        self._references.__dict__.update(self._known)
        self._computed = ComputedFeatures(self._references, self.feature_list, normaliser, features.clip)
        apart = features.previous_day and self.feature_list[0].of_yesterday is not None
        self._values = np.zeros((rows, ticks, len(self.feature_list)), dtype=np.float32)
        self._yesterday = np.zeros_like(self._values) if apart else None
        previous = self._arrays["previous"] if features.previous_day else np.full(rows, -1, dtype=np.int32)
        self.features: MarketFeatures = LiveFeatures(self, self._values, previous, self._yesterday)
        self._present = np.zeros((capacity, ticks), dtype=bool)  # whether a bar was there, of today
        self._reached = np.zeros(capacity, dtype=np.int32)  # ticks that are over
        self._done = np.zeros(capacity, dtype=np.int32)  # ticks whose features are made
        self._encoded = np.full(capacity, -1, dtype=np.int32)  # ticks that states know of; -1 before the first state
        self._owed = np.zeros(capacity, dtype=np.int32)  # bars that were there when the session was given up
        self._followed = np.zeros(capacity, dtype=bool)  # whether a later session of the instrument was opened
        self._stated = np.full(capacity, np.nan)  # factor of today, as bars say
        self._used = np.zeros(capacity, dtype=np.int64)
        self._holds = np.zeros(capacity, dtype=np.int32)
        self._own: dict[int, References] = {}  # of single slots, for features that read their rows
        self._slots: dict[tuple[str, int], int] = {}
        self._current: dict[str, int] = {}
        self._free = list(range(capacity))[::-1]
        self._past: OrderedDict[str, _Past] = OrderedDict()
        self._lost: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._days = np.empty(0, dtype="datetime64[D]")
        self._known_days: set[dt.date] = set()
        self._ticks_on: dict[int, tuple[str, int]] = {}
        self._turn = 0
        self._memory: tuple[torch.Tensor, ...] = ()
        if encoder is not None:
            self._states = torch.empty(capacity, ticks + 1, encoder.hidden)
            self._state_rows = self._states.numpy()  # the same memory
            self._memory = encoder.memory(capacity, ticks)

    def __len__(self) -> int:
        """Return how many sessions are open."""
        return len(self._slots)

    @property
    def depth(self) -> int:
        """Sessions of an instrument that features and states refer to, today's among them."""
        return self._depth

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a live market cannot be copied or sent; open one of the same bundle and send it the bars.")

    def load_history(self, bars: pd.DataFrame | Mapping[str, Sequence[Any]] | Sessions) -> Arrivals:
        """Take whole sessions that are over, for references and for yesterday.

        They are built as in training (`rlwb.market.build_sessions`), so that one without enough bars is left out, as
        ``sparse_session``. Sessions of a date that is there already take its place. States and features of sessions
        that are open are made anew.

        Parameters
        ----------
        bars
            As in `add`, or a panel of this calendar.

        Raises
        ------
        DataError
            When the bars lack columns, or no session is left of them.
        ServingError
            ``full``, when these would be more instruments than are kept.
        """
        counts, reasons, total = {"duplicate_identical": 0, "duplicate_conflicting": 0}, dict[int, str](), 0
        if isinstance(bars, Sessions):
            sessions = bars
            total = sum(int(np.isfinite(row).sum()) for row in sessions.fields["close"])
        else:
            batch = self._read(bars)
            total = len(batch.names)
            frame = pd.DataFrame(
                {"instrument": batch.names, "datetime": batch.stamp.view("datetime64[us]")} | batch.values
            )
            frame = frame[batch.fine]
            sessions = build_sessions(frame, self.calendar, min_coverage=self._min_coverage)
            counts |= {kind: sessions.report.counts.get(kind, 0) for kind in counts}
            at = sessions.rows(batch.names, batch.day.astype("datetime64[D]"))
            batch.refuse(at < 0, "sparse_session")
            reasons = batch.reasons
        if sessions.calendar.num_ticks != self.calendar.num_ticks:
            raise DataError(
                f"the history has {sessions.calendar.num_ticks} ticks a day, the calendar {self.calendar.num_ticks}; "
                "load it on the calendar of the bundle."
            )
        names = sessions.index.names.tolist()
        if len({*self._past, *names}) > _PASTS * self.capacity:
            raise ServingError(
                f"the history of more than {_PASTS * self.capacity} instruments is not kept; raise the capacity.",
                "full",
            )
        self._add_days(np.unique(sessions.dates))
        for name, first, stop in zip(names, sessions.index.first, sessions.index.stop, strict=True):
            self._remember(name, self._past_of(sessions, slice(int(first), int(stop))))
        again = [slot for (name, _), slot in self._slots.items() if name in set(names)]
        self._fill(np.array(again, dtype=np.int64))
        repeated, corrected = counts["duplicate_identical"], counts["duplicate_conflicting"]
        accepted = total - len(reasons) - repeated - corrected
        return Arrivals(accepted, repeated, corrected, tuple(sorted(reasons.items())))

    def past(self, before: np.datetime64) -> Sessions | None:
        """Return the earlier sessions that are kept, of dates before one; None where there are none."""
        newest = max((day for _, day in self._slots), default=0)
        for name, slot in self._current.items():
            if (name, newest) not in self._slots:
                self._fold(slot)  # it is an earlier one, though none has followed it yet
        parts = [(name, part.take(part.dates < before)) for name, part in sorted(self._past.items())]
        parts = [(name, part) for name, part in parts if len(part.dates)]
        if not parts:
            return None
        values = zip(*(vars(part).values() for _, part in parts), strict=True)
        whole = _Past(*(np.concatenate(one) for one in values))
        return Sessions(
            self.calendar,
            np.repeat([name for name, _ in parts], [len(part.dates) for _, part in parts]),
            whole.dates,
            whole.num_ticks,
            {name: whole.fields[:, at] for at, name in enumerate(self._fields)},
            factor=whole.factor if np.isfinite(whole.factor).any() else None,
        )

    def open(self, instrument: str, date: Any) -> int:
        """Open a session before its first bar, or find it; return its row in `panel`.

        Raises
        ------
        DataError
            When the calendar has no session on that date, or the name or date cannot be read.
        ServingError
            ``full``, when orders hold all sessions; ``earlier_date``, when a later session of it is open.
        """
        try:
            day = int(day_of(date).astype(np.int64))
        except ConfigError as error:
            raise DataError(str(error)) from None
        if not _is_name(instrument):
            raise DataError(f"instrument {instrument!r} is not text of 1 to {NAME_LENGTH} printable characters.")
        slot = self._slots.get((instrument, day), -1)
        if slot < 0:
            reason, _ = self._clock(day)
            if reason:
                raise DataError(f"the calendar has no session on {np.datetime64(day, 'D')} ({reason}).")
            if self._is_earlier(instrument, day):
                raise ServingError(f"a later session of {instrument} is open; the order is too late.", "earlier_date")
            self._turn += 1
            slot = int(self._open([instrument], day)[0])
            if slot < 0:
                raise ServingError(
                    f"orders hold all {self.capacity} sessions; raise the capacity or finish orders.", "full"
                )
        self._touch(slot)
        return self._row(slot)

    def row(self, instrument: str, date: Any) -> int:
        """Return the row of an open session; -1 where it is not open."""
        slot = self._slots.get((instrument, int(day_of(date).astype(np.int64))), -1)
        return slot if slot < 0 else self._row(slot)

    def hold(self, row: int) -> None:
        """Keep a session until `release` was called as often."""
        self._holds[self._slot(row)] += 1

    def release(self, row: int) -> None:
        """Give up one `hold` of a session."""
        slot = self._slot(row)
        self._holds[slot] = max(0, self._holds[slot] - 1)

    def add(self, bars: pd.DataFrame | Mapping[str, Sequence[Any]]) -> Arrivals:
        """Take bars, in any order; a session opens with its first one.

        Parameters
        ----------
        bars
            Columns instrument (text), datetime (text in ISO 8601, stamps or datetime64; with a zone they are brought to
            the calendar's, else they are local), open, high, low, close, volume in shares, and what else the features
            need; None or NaN is missing. ``factor`` is taken where it is there; other columns are ignored.

        Raises
        ------
        DataError
            When a column is missing, of another length than the others, or not of numbers.
        """
        batch = self._read(bars)
        counts, late, self._turn = {"accepted": 0, "repeated": 0, "corrected": 0}, 0, self._turn + 1
        for day in np.unique(batch.day[batch.fine]).tolist():
            rows = np.flatnonzero(batch.fine & (batch.day == day))
            slots = self._slots_for([batch.names[row] for row in rows.tolist()], day)
            for reason, code in (("full", -1), ("earlier_date", -2)):
                batch.refuse(np.isin(np.arange(len(batch.fine)), rows[slots == code]), reason)
            rows, slots = rows[slots >= 0], slots[slots >= 0]
            rows, slots = self._take_factors(batch, rows, slots)
            # Bars of one tick one after the other, as they came.
            while len(rows):
                _, turn = np.unique(slots * self.calendar.num_ticks + batch.tick[rows], return_index=True)
                late += self._write(batch, rows[turn], slots[turn], counts)
                rows, slots = np.delete(rows, turn), np.delete(slots, turn)
        touched = np.flatnonzero(self._used == self._turn)
        if len(touched):
            self._follow(touched[self._followed[touched]])
            self._advance(touched)
        return Arrivals(**counts, refused=tuple(sorted(batch.reasons.items())), late=late)

    def reach(self, row: int, tick: int) -> None:
        """Say that all ticks before `tick` are over: those without a bar are missing then."""
        slot = self._slot(row)
        length = int(self._arrays["num_ticks"][self._row(slot)])
        self._reached[slot] = max(self._reached[slot], min(int(tick), length))

    def reached(self, rows: np.ndarray) -> np.ndarray:
        """Return how many ticks of sessions are over, int32 of the shape of `rows`.

        It is 0 for a session that was given up and opened again until all bars that it had are there.
        """
        slots = np.asarray(rows) // self._depth
        reached, owing = self._reached[slots], self._owed[slots] > 0
        if owing.any():
            owing &= self._present[slots].sum(axis=-1) < self._owed[slots]
            reached = np.where(owing, 0, reached)
        return np.asarray(reached, dtype=np.int32)

    def market_states(self, rows: np.ndarray, ticks: np.ndarray) -> torch.Tensor | None:
        """Return the encoder's states of sessions after `ticks` ticks, float32 of shape (N, H); None without encoder.

        Raises
        ------
        ServingError
            ``late_bars``, when a session has not come so far.
        """
        states = self.state_rows(rows, ticks)
        return None if states is None else torch.from_numpy(states)

    def state_rows(self, rows: np.ndarray, ticks: np.ndarray) -> np.ndarray | None:
        """Return what `market_states` does as an array: a call of torch takes as long as all of this one."""
        if self.encoder is None:
            return None
        slots, ticks = np.asarray(rows) // self._depth, np.asarray(ticks)
        if not (self._encoded[slots] >= ticks).all():
            behind = self._reached[slots] < ticks
            if behind.any():
                slot = int(slots[np.argmax(behind)])
                raise ServingError(
                    f"{self._name(slot)} has come to tick {self._reached[slot]}, before {ticks[np.argmax(behind)]}; "
                    "send its bars.",
                    "late_bars",
                )
            self._advance(slots)
        self._touch(slots)
        found: np.ndarray = self._state_rows[slots, ticks]
        return found

    def catch_up(self, rows: np.ndarray) -> None:
        """Make the features of these rows' sessions up to where they have come."""
        slots = np.asarray(rows) // self._depth
        if not (self._done[slots] == self._reached[slots]).all():
            self._make_features(np.unique(slots))

    # Slots and rows

    def _row(self, slot: int) -> int:
        return slot * self._depth + self._past_days

    def _slot(self, row: int) -> int:
        slot, place_ = divmod(int(row), self._depth)
        if place_ != self._past_days or self._slots.get(self._key(slot)) != slot:
            raise ServingError(f"row {row} is no open session.", "unknown_session")
        return slot

    def _key(self, slot: int) -> tuple[str, int]:
        row = self._row(slot)
        return str(self._arrays["instruments"][row]), int(self._arrays["dates"][row].astype(np.int64))

    def _name(self, slot: int) -> str:
        return f"{self._key(slot)[0]} on {self._arrays['dates'][self._row(slot)]}"

    def _touch(self, slots: Any) -> None:
        self._turn += 1
        self._used[slots] = self._turn

    def _clock(self, day: int) -> tuple[str, int]:
        """Return why there is no session on a day, empty where there is one, and its ticks."""
        if day not in self._ticks_on:
            date, covers = np.array([day], dtype="datetime64[D]"), self.calendar.covers
            first, last = span_of(*(covers or (None, None)))
            if not max(first, _FIRST_DAY) <= date[0] <= min(last, _LAST_DAY):
                return "outside_calendar", 0
            reason = "" if self.calendar.is_open(date)[0] else "closed_day"
            if len(self._ticks_on) > _DAYS:
                self._ticks_on.clear()
            self._ticks_on[day] = reason, int(self.calendar.ticks_on(date)[0])
        return self._ticks_on[day]

    def _is_earlier(self, name: str, day: int) -> bool:
        current = self._current.get(name)
        return current is not None and self._key(current)[1] > day

    def _slots_for(self, names: Sequence[str], day: int) -> np.ndarray:
        """Return the slots of instruments on a day, opened where they are not; -1 without room, -2 for a day before."""
        distinct = dict.fromkeys(names)
        known = [self._slots[name, day] for name in distinct if (name, day) in self._slots]
        self._used[known] = self._turn  # none of these is given up for the others
        new = [name for name in distinct if (name, day) not in self._slots]
        earlier = {name for name in new if self._is_earlier(name, day)}
        new = [name for name in new if name not in earlier]
        for low in range(0, len(new), _TOGETHER):
            self._open(new[low : low + _TOGETHER], day)
        return np.array([-2 if name in earlier else self._slots.get((name, day), -1) for name in names], np.int64)

    def _open(self, names: Sequence[str], day: int) -> np.ndarray:
        """Open sessions that are not open; return their slots, -1 where there is no room."""
        slots = np.array([self._allocate() for _ in names], dtype=np.int64)
        self._add_days(np.array([day], dtype="datetime64[D]"))
        for name, slot in zip(names, slots.tolist(), strict=True):
            if slot < 0:
                continue
            if name in self._current:
                self._fold(self._current[name])
                self._followed[self._current[name]] = True
            rows = slice(slot * self._depth, (slot + 1) * self._depth)
            today = rows.stop - 1
            for values in self._bars.values():
                values[today] = np.nan
            self._values[today - 1 : today + 1] = 0.0
            self._arrays["instruments"][rows] = name
            self._arrays["dates"][rows] = "NaT"
            self._arrays["dates"][today] = np.datetime64(day, "D")
            self._arrays["num_ticks"][rows] = self._clock(day)[1]
            self._present[slot] = self._followed[slot] = False
            self._reached[slot] = self._holds[slot] = 0
            self._stated[slot] = np.nan
            self._owed[slot] = self._lost.pop((name, day), 0)
            self._used[slot] = self._turn
            self._slots[name, day] = self._current[name] = slot
        self._fill(slots[slots >= 0])
        return slots

    def _allocate(self) -> int:
        """Return a free slot, given up by another session if need be; -1 where there is none."""
        if not self._free:
            # Sessions that later ones of their instrument followed go first.
            age = np.where(self._followed, self._used - self._turn, self._used)
            age[(self._holds > 0) | (self._used == self._turn)] = self._turn
            slot = int(np.argmin(age))
            if age[slot] == self._turn:
                return -1
            self._give_up(slot)
        slot = self._free.pop()
        self._used[slot] = self._turn
        return slot

    def _give_up(self, slot: int) -> None:
        """Close a session; its bars stay as history where they are complete."""
        key = self._key(slot)
        name, _ = key
        count = int(self._present[slot].sum())
        if self._current.get(name) == slot:
            del self._current[name]
            if self._reached[slot] >= self._arrays["num_ticks"][self._row(slot)]:
                self._fold(slot)
        if count:
            self._lost[key] = count
            if len(self._lost) > _PASTS * self.capacity:
                self._lost.popitem(last=False)
        del self._slots[key]
        self._own.pop(slot, None)
        self._free.append(slot)

    # Earlier sessions

    def _past_of(self, sessions: Sessions, rows: slice) -> _Past:
        lacking_ = np.full(sessions.fields["close"][rows].shape, np.nan)
        fields = [sessions.fields[name][rows] if name in sessions.fields else lacking_ for name in self._fields]
        count = len(sessions.dates[rows])
        factor = np.full(count, np.nan) if sessions.factor is None else sessions.factor[rows].copy()
        return _Past(sessions.dates[rows].copy(), sessions.num_ticks[rows].copy(), factor, np.stack(fields, axis=1))

    def _remember(self, name: str, more: _Past) -> None:
        """Add sessions to an instrument's earlier ones, and drop what nothing looks back to."""
        past = self._past[name].joined(more) if name in self._past else more
        keep = np.arange(len(past.dates)) >= len(past.dates) - self._past_days
        # References go back to the last session that has a close, and to the last that has a volume; yesterday's own
        # to those before it.
        close, volume = (past.fields[:, self._fields.index(field)] for field in ("close", "volume"))
        for values in (close, volume):
            there = np.flatnonzero((values > 0).any(axis=1))
            keep[there[-2:]] = True
        self._past[name] = past.take(keep)
        self._past.move_to_end(name)
        while len(self._past) > _PASTS * self.capacity:
            self._past.popitem(last=False)

    def _fold(self, slot: int) -> bool:
        """Make a session of today an earlier one; return whether it became one.

        It does not when it is too sparse to be one in training, or was loaded with more bars.
        """
        row = self._row(slot)
        fields = {name: values[row] for name, values in self._bars.items()}
        priced = np.isfinite(fields["close"])
        if "bid" in fields and "ask" in fields:
            priced = priced | (np.isfinite(fields["bid"]) & np.isfinite(fields["ask"]))
        count, length = int(priced.sum()), int(self._arrays["num_ticks"][row])
        if not count or count < self._min_coverage * length:
            return False
        name, _ = self._key(slot)
        day = self._arrays["dates"][row : row + 1].copy()
        session = np.stack(list(fields.values()))[None]
        past = _Past(day, np.array([length], np.int32), self._stated[slot : slot + 1].copy(), session)
        if name in self._past:
            known = self._past[name].take(self._past[name].dates == day).fields
            if np.isfinite(known).sum() > np.isfinite(session).sum() or np.array_equal(known, session, equal_nan=True):
                return False
        self._remember(name, past)
        return True

    def _follow(self, slots: np.ndarray) -> None:
        """Tell later sessions of the same instruments that bars of these came."""
        for slot in slots.tolist():
            name, day = self._key(slot)
            if self._fold(slot):
                later = [other for (of, date), other in self._slots.items() if of == name and date > day]
                self._fill(np.array(later, dtype=np.int64))

    def _add_days(self, dates: np.ndarray) -> None:
        if not set(dates.tolist()) <= self._known_days:
            self._days = np.union1d(self._days, dates)[-_DAYS:]
            self._known_days = set(self._days.tolist())
            self._own.clear()

    def _fill(self, slots: np.ndarray) -> None:
        """Write the earlier sessions of slots and what they say of today; features and states begin anew."""
        slots = slots[np.argsort(self._arrays["instruments"][slots * self._depth], kind="stable")]
        for low in range(0, len(slots), _TOGETHER):
            for part in _distinct(slots[low : low + _TOGETHER], self._arrays["instruments"][:: self._depth]):
                self._fill_part(part)

    def _fill_part(self, slots: np.ndarray) -> None:
        names, dates, lengths, factors, fields, counts = [], [], [], [], [], []
        for slot in slots.tolist():
            row = self._row(slot)
            name, date = str(self._arrays["instruments"][row]), self._arrays["dates"][row]
            past = self._past.get(name)
            if past is not None:
                self._past.move_to_end(name)
                past = past.take(past.dates < date)
                dates.append(past.dates)
                lengths.append(past.num_ticks)
                fields.append(past.fields)
            earlier = 0 if past is None else len(past.dates)
            stated = np.append(np.empty(0) if past is None else past.factor, self._stated[slot])
            factors.append(_whole(stated))
            names += [name] * (earlier + 1)
            dates.append(np.array([date]))
            lengths.append(self._arrays["num_ticks"][row : row + 1])
            fields.append(np.stack([values[row] for values in self._bars.values()])[None])
            counts.append(earlier)
        bars = np.concatenate(fields)
        sessions = Sessions(
            self.calendar,
            np.array(names),
            np.concatenate(dates),
            np.concatenate(lengths),
            {name: bars[:, place_] for place_, name in enumerate(self._fields)},
            factor=np.concatenate(factors),
        )
        references = References(sessions)
        references.__dict__["days"] = self._days
        last = np.cumsum(np.array(counts) + 1) - 1
        for slot, stop, count in zip(slots.tolist(), last.tolist(), counts, strict=True):
            row, count = self._row(slot), min(count, self._past_days)
            here, there = slice(row - count, row + 1), slice(stop - count, stop + 1)
            for name, values in self._bars.items():
                values[row - count : row] = sessions.fields[name][stop - count : stop]
            for name in ("dates", "num_ticks", "factor"):
                self._arrays[name][here] = getattr(sessions, name)[there]
            for name, known in self._known.items():
                known[here] = getattr(references, name)[there]
            self._arrays["first"][here] = row - count
            self._arrays["previous"][here] = np.arange(row - count - 1, row)
            self._arrays["previous"][row - count] = -1
            self._own.pop(slot, None)
        if self.settings.previous_day:
            self._fill_yesterday(references, slots, last, np.array(counts) > 0)
        self._done[slots] = 0
        self._encoded[slots] = -1

    def _fill_yesterday(self, references: References, slots: np.ndarray, last: np.ndarray, has: np.ndarray) -> None:
        """Make yesterday's features of slots, of which `last` are today's rows in the references' panel."""
        rows = slots * self._depth + self._past_days
        features = self.feature_list
        if self._yesterday is not None:
            features = tuple(feature.yesterday() for feature in features)
        computed = ComputedFeatures(references, features, self.normaliser, self.settings.clip)
        if self._yesterday is not None:
            self._yesterday[rows] = computed[last]
        elif has.any():
            self._values[rows[has] - 1] = computed[last[has] - 1]

    # Bars

    def _read(self, bars: pd.DataFrame | Mapping[str, Sequence[Any]]) -> _Batch:
        """Lay bars on the clock, and refuse those that cannot be."""
        needed = {name for feature in self.feature_list for name in feature.needs}
        missing = [*lacking(list(bars)), *sorted(needed - set(bars))]
        if missing:
            raise DataError(f"the bars lack the columns {', '.join(dict.fromkeys(missing))}; send them too.")
        names, stamps = (_listed(bars[name], name) for name in KEYS)
        count = len(names)
        values = {name: np.full(count, np.nan) for name in self._fields}
        for name in (*self._fields, "factor"):
            if name in bars:
                values[name] = _numbers(bars[name], name, count)
        if len(stamps) != count:
            raise DataError(f"the column datetime has {len(stamps)} values, the column instrument {count}.")
        stamp = _local(stamps, self.calendar.timezone)
        at = place(stamp, self.calendar)
        batch = _Batch(names, stamp, at.day, at.tick, values, np.ones(count, dtype=bool), {})
        batch.refuse(np.fromiter((not _is_name(name) for name in names), dtype=bool, count=count), "instrument")
        batch.refuse(stamp == _NEVER, "datetime")
        ends = np.zeros(count, dtype=np.int64)
        for day in np.unique(at.day[batch.fine]).tolist():
            reason, ticks = self._clock(day)
            ends[at.day == day] = ticks
            if reason:
                batch.refuse(at.day == day, reason)
        batch.refuse(~at.inside, "off_session")
        batch.refuse(~at.on_grid, "off_grid")
        batch.refuse(at.tick >= ends, "after_early_close")
        prices = [values[name] for name in self._fields if name not in ("volume", "bid_size", "ask_size")]
        with np.errstate(invalid="ignore"):
            mended, faults = usable({name: values[name] for name in self._fields})
            impossible = {
                "price_negative": faults["price_negative"],
                "price_infinite": np.logical_or.reduce([np.isinf(price) for price in prices]),
                "high_below_low": values["high"] < values["low"],
                "volume_negative": faults["volume_negative"],
            }
        for reason in _IMPOSSIBLE:
            batch.refuse(impossible[reason], reason)
        batch.values |= mended
        return batch

    def _take_factors(self, batch: _Batch, rows: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Learn the factors of sessions from their first bars that state one, and refuse bars that state another."""
        if "factor" not in batch.values:
            return rows, slots
        factor = batch.values["factor"][rows]
        states = np.isfinite(factor) & (factor > 0)
        new = states & np.isnan(self._stated[slots])
        if new.any():
            fresh, first = np.unique(slots[new], return_index=True)
            self._stated[fresh] = factor[new][first]
            self._fill(fresh)
        differs = states & ~np.isclose(factor, self._stated[slots], rtol=_ROUNDING, atol=0.0)
        batch.refuse(np.isin(np.arange(len(batch.fine)), rows[differs]), "factor")
        return rows[~differs], slots[~differs]

    def _write(self, batch: _Batch, rows: np.ndarray, slots: np.ndarray, counts: dict[str, int]) -> int:
        """Write bars of different ticks into the panel; return how many of them are new and late."""
        ticks = batch.tick[rows]
        today = slots * self._depth + self._past_days
        there = self._present[slots, ticks]
        same = there.copy()
        for name, field in self._bars.items():
            old, new = field[today, ticks], batch.values[name][rows]
            same &= (old == new) | (np.isnan(old) & np.isnan(new))
        counts["repeated"] += int(same.sum())
        other = there & ~same
        write = ~same
        if not self._takes_corrections:
            batch.refuse(np.isin(np.arange(len(batch.fine)), rows[other]), "correction")
            write = ~there
        counts["corrected"] += int((other & write).sum())
        counts["accepted"] += int((~there).sum())
        late = ~there & (ticks < self._reached[slots])
        rows, slots, ticks, today = rows[write], slots[write], ticks[write], today[write]
        for name, field in self._bars.items():
            field[today, ticks] = batch.values[name][rows]
        self._present[slots, ticks] = True
        np.minimum.at(self._done, slots, ticks.astype(np.int32))
        np.maximum.at(self._reached, slots, ticks.astype(np.int32) + 1)
        self._rewind(np.unique(slots))
        return int(late.sum())

    def _rewind(self, slots: np.ndarray) -> None:
        """Forget states that know bars which have changed."""
        if self.encoder is not None:
            back = slots[self._encoded[slots] > self._done[slots]]
            self._encoded[back] = self._done[back] if self.encoder.rewinds else -1

    # Features and states

    def _advance(self, slots: np.ndarray) -> None:
        """Bring features and states of sessions to where these have come."""
        if (self._encoded[slots] == self._reached[slots]).all():
            return
        slots = np.unique(slots)
        self._make_features(slots)
        if self.encoder is None:
            return
        with torch.no_grad():
            new = slots[self._encoded[slots] < 0]
            if len(new):
                rows = new * self._depth + self._past_days
                yesterday = None
                if self.encoder.previous_day:
                    yesterday = torch.from_numpy(self.features.block_previous(rows))
                at = torch.from_numpy(new)
                self._states[at, 0] = self.encoder.begin(self._memory, at, yesterday)
                self._encoded[new] = 0
            for since, stop, part in _groups(slots, self._encoded, self._done):
                at = torch.from_numpy(part)
                ticks = torch.from_numpy(self._values[part * self._depth + self._past_days, since:stop])
                found = self.encoder.advance(
                    self._memory, at, self._states[at, since], ticks, since, self.calendar.num_ticks
                )
                self._states[at, since + 1 : stop + 1] = found
                self._encoded[part] = stop

    def _make_features(self, slots: np.ndarray) -> None:
        """Make the features of ticks that are over and have none yet."""
        for since, stop, part in _groups(slots, self._done, self._reached):
            rows = part * self._depth + self._past_days
            unknown = rows[~np.isfinite(self._known["previous_close"][rows])]
            if len(unknown):  # a first session is referred to by its first price
                self._known["price"][unknown] = first_price(self.panel, unknown)
            # Without history sizes refer to today's so far, and no tick speaks for itself.
            alone = np.isfinite(self._known["volume"][rows])
            for some, whole in ((part[alone], False), (part[~alone], True)):
                if len(some):
                    self._make_block(some, slice(since, stop), whole)
            self._done[part] = stop

    def _make_block(self, slots: np.ndarray, ticks: slice, whole: bool) -> None:
        rows = slots * self._depth + self._past_days
        day = _LiveBlock(self._references, rows, self._past_days)
        tick = day if whole else _LiveBlock(self._references, rows, self._past_days, ticks)
        before = self._values[rows, ticks.start - 1 : ticks.start] if ticks.start else None
        for index, feature in enumerate(self.feature_list):
            if feature.scope == "tick" and not whole:
                value = self._computed.normalised(index, tick)
            elif feature.scope == "panel":
                value = np.concatenate([self._normalised_alone(index, slot) for slot in slots.tolist()])[:, ticks]
            else:
                value = self._computed.normalised(index, day)[:, ticks]
            if before is not None:
                value = np.concatenate([before[:, :, index], value], axis=1)
            self._values[rows, ticks, index] = carry(value)[:, -(ticks.stop - ticks.start) :]

    def _normalised_alone(self, index: int, slot: int) -> np.ndarray:
        """Return a feature that reads rows of the panel, of a panel that is this slot's alone; of shape (1, T)."""
        if slot not in self._own:
            row = self._row(slot)
            rows = slice(int(self._arrays["first"][row]), row + 1)
            names, dates, lengths, factor = (
                self._arrays[name][rows] for name in ("instruments", "dates", "num_ticks", "factor")
            )
            fields = {name: values[rows] for name, values in self._bars.items()}
            own = References(Sessions(self.calendar, names, dates, lengths, fields, factor=factor))
            own.__dict__.update(days=self._days, **{name: known[rows] for name, known in self._known.items()})
            self._own[slot] = own
        references = self._own[slot]
        computed = ComputedFeatures(references, self.feature_list, self.normaliser, self.settings.clip)
        last = np.array([len(references.sessions) - 1])
        return computed.normalised(index, _LiveBlock(references, last, self._past_days))


#: A stamp that could not be read.
_NEVER = np.iinfo(np.int64).min // 2


def _groups(slots: np.ndarray, since: np.ndarray, stop: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the slots that have something to do, those with the same beginning and end together."""
    begin, end = since[slots], stop[slots]
    behind = begin < end
    if not behind.any():
        return
    slots, begin, end = slots[behind], begin[behind], end[behind]
    for low, high in sorted(set(zip(begin.tolist(), end.tolist(), strict=True))):
        yield low, high, slots[(begin == low) & (end == high)]


def _distinct(slots: np.ndarray, names: np.ndarray) -> Iterator[np.ndarray]:
    """Cut slots, sorted by their `names`, into groups of which none holds two sessions of one instrument."""
    while len(slots):
        _, first = np.unique(names[slots], return_index=True)
        yield slots[first]
        slots = np.delete(slots, first)


def _whole(factors: np.ndarray) -> np.ndarray:
    """Return factors of sessions in which one that is not stated is the next that is, else the last, else 1."""
    known = np.flatnonzero(np.isfinite(factors))
    if not len(known):
        return np.ones(len(factors))
    return factors[known[np.minimum(np.searchsorted(known, np.arange(len(factors))), len(known) - 1)]]


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and name.isprintable()


def _listed(column: Any, name: str) -> Any:
    """Return a column whose values can be gone through: text as a list, arrays of stamps as they are."""
    if isinstance(column, np.ndarray | pd.Series | pd.DatetimeIndex):
        return column.tolist() if column.dtype == object or name != "datetime" else column
    if isinstance(column, str) or not isinstance(column, Iterable):
        raise DataError(f"the column {name} is {column!r}, no list of values; send one value a bar.")
    return list(column)


def _numbers(column: Any, name: str, count: int) -> np.ndarray:
    try:
        values = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"the column {name} holds values that are no numbers; send numbers, or null.") from None
    if values.shape != (count,):
        raise DataError(f"the column {name} has the shape {values.shape}, the column instrument {count} values.")
    return values


def _local(column: Any, zone: str | None) -> np.ndarray:
    """Return local stamps in microseconds since 1970, int64; `_NEVER` for what is none."""
    if isinstance(column, pd.Series | pd.DatetimeIndex):
        aware = isinstance(column.dtype, pd.DatetimeTZDtype)
        if aware and zone is not None:
            column = pd.DatetimeIndex(column).tz_convert(zone).tz_localize(None)
        column = column.to_numpy() if not aware or zone is not None else column.tolist()
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        stamps = column.astype("datetime64[us]")
        return np.where(np.isnat(stamps), _NEVER, stamps.astype(np.int64))
    seen: dict[Any, int] = {}
    info = None if zone is None else zoneinfo.ZoneInfo(zone)
    found = np.empty(len(column), dtype=np.int64)
    for place_, value in enumerate(column):
        try:
            if value not in seen:
                seen[value] = _microseconds(value, info)
            found[place_] = seen[value]
        except (TypeError, ValueError, OverflowError):
            found[place_] = _NEVER
    return found


def _microseconds(value: Any, zone: dt.tzinfo | None) -> int:
    """Return a stamp as local microseconds since 1970; raise `ValueError` or `TypeError` for what is none."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise ValueError
        return int(value.astype("datetime64[us]").astype(np.int64))
    stamp = dt.datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    if not isinstance(stamp, dt.datetime) or stamp is pd.NaT:
        raise TypeError
    if stamp.tzinfo is not None:
        if zone is None:
            raise ValueError
        stamp = stamp.astimezone(zone).replace(tzinfo=None)
    return (stamp.replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _read_only(values: np.ndarray) -> np.ndarray:
    view = values.view()
    view.setflags(write=False)
    return view
