"""From bars to the dense panel, some sessions at a time, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.actions import session_factors
from rlwb.market.bars import Bars, bars_of, merge, table_of
from rlwb.market.calendar import Calendar
from rlwb.market.cleaning import CalendarCheck, Cleaning
from rlwb.market.findings import ROWS_DROPPED, Finding, Report
from rlwb.market.fitness import fitness_of_sessions
from rlwb.market.references import Levels, levels_of
from rlwb.market.sessions import Sessions, join_sessions
from rlwb.market.soundness import coverage, inspect_sessions, inspect_ticks
from rlwb.market.suspects import tell_suspects
from rlwb.market.traits import traits_of


@dataclass(frozen=True, kw_only=True)
class Building:
    """How bars become a panel.

    Parameters
    ----------
    strict
        Refuse with a `DataError` whatever would otherwise be dropped or repaired (`rlwb.market.findings.KINDS`).
    min_coverage : share of the bars
        Sessions in which fewer of the ticks than this share have a price, a close or a bid and an ask, are dropped,
        0..1.
    volume_multiplier : shares a unit
        Shares a unit of volume, 100 for volume in lots. Sizes of quotes are left alone.
    prices
        Whether prices are as traded or already adjusted by the factor column; adjusted ones are converted back.
    """

    strict: bool = False
    min_coverage: float = 0.5
    volume_multiplier: float = 1.0
    prices: Literal["traded", "adjusted"] = "traded"

    def __post_init__(self) -> None:
        if not 0 <= self.min_coverage <= 1:
            raise ConfigError(f"min_coverage is {self.min_coverage}; give a share from 0 to 1.")
        if not (np.isfinite(self.volume_multiplier) and self.volume_multiplier > 0):
            raise ConfigError(f"volume_multiplier is {self.volume_multiplier}; give a number above 0.")
        if self.prices not in ("traded", "adjusted"):
            raise ConfigError(f"prices is {self.prices!r}; write 'traded' or 'adjusted'.")


def build_sessions(frame: pd.DataFrame, calendar: Calendar, **options: Any) -> Sessions:
    """Validate bars and lay them on the clock.

    Parameters
    ----------
    frame
        Bars in the schema (`rlwb.market.schema`), in any order. Other columns are ignored and named in the report.
    calendar
        The clock. A date on which hardly any instrument trades in the last `calendar.infer_early_close_minutes` of the
        session is shortened to the tick in which the market fell silent, unless that takes more than half of the
        session or what is left is mostly empty.
    options
        Fields of `Building`.
    """
    building, report = Building(**options), Report()
    bars = merge(bars_of(table_of(frame, report), calendar.timezone, report), report, {}, zone=calendar.timezone).bars
    report.total("bars_read", len(frame) - len(bars))
    return PanelBuilder(lambda: [bars], calendar, building, report, {}).whole()


class PanelBuilder:
    """A panel, some sessions at a time: iterate over it, then call `conclude`.

    `parts` gives the bars, the same each time it is called, in parts that hold whole sessions and are sorted by
    instrument and stamp, from part to part too. It is called twice, unless there is one part: what all instruments
    together show, early closes above all, is known after a first pass. `report` begins with the findings from reading
    and is complete when `conclude` was called; `files` are the names of sources by number.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[Bars]],
        calendar: Calendar,
        building: Building,
        report: Report,
        files: Mapping[int, str],
    ) -> None:
        self.report, self._files = report, files
        self._parts, self._calendar, self._building = parts, calendar, building
        self._levels: list[Levels] = []
        self._traits: list[pd.DataFrame] = []
        self._shifted: set[tuple[str, int]] = set()
        self._tables: list[pd.DataFrame] = []
        self._dropped_before: dict[str, int] = {}
        self._read_before = 0

    def __iter__(self) -> Iterator[Sessions]:
        self._dropped_before = {kind: self.report.counts.get(kind, 0) for kind in ROWS_DROPPED}
        self._read_before = self.report.totals.get("bars_read", 0)
        check, first, count = CalendarCheck(self._calendar), None, 0
        for bars in self._parts():
            self.report.total("bars_read", len(bars))
            cleaning = self._clean(bars, self.report, check)
            first, count = (cleaning if count == 0 else None), count + 1
        ends = check.validate(self.report)
        self._shifted = check.clock.shifted
        again = CalendarCheck(self._calendar)  # what it counts is known
        for cleaning in [first] if first else (self._clean(bars, Report(), again) for bars in self._parts()):
            cleaning.report = self.report
            part = self._lay(cleaning, ends)
            if len(part):
                self._levels.append(levels_of(part))
                self._traits.append(traits_of(part))
                yield part
        self._refuse()

    def conclude(self, panel: Sessions) -> Report:
        """Count what the whole panel shows, and return its report."""
        table, totals = self._table(), self.report.totals
        dropped = {kind: self.report.counts.get(kind, 0) for kind in ROWS_DROPPED}
        rows, before = totals["bars_read"], sum(self._dropped_before.values())
        if before != self._read_before:  # of a selection: what the imports dropped is of the whole data set
            rows -= self._read_before
            dropped = {kind: count - self._dropped_before.get(kind, 0) for kind, count in dropped.items()}
        self.report.fitness = fitness_of_sessions(table, self._calendar, rows, dropped)
        levels = Levels(*map(np.concatenate, zip(*self._levels, strict=True)))
        traits = pd.concat(self._traits, ignore_index=True)
        inspect_sessions(panel, levels, table, self.report, self._files)
        shifted = [key in self._shifted for key in zip(table["instrument"], table["day"], strict=True)]
        tell_suspects(table.assign(shifted=shifted), levels, traits, panel.factor, self._calendar, self.report)
        return self.report

    def coverage(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Return `rlwb.market.soundness.coverage` of all sessions, when all parts were yielded."""
        return coverage(self._table())

    def _table(self) -> pd.DataFrame:
        columns = [
            *("instrument", "day", "length", "bars", "priced", "zeros", "first", "last", "total", "exchanged", "kept"),
            *("stamp", "source", "row"),
        ]
        return pd.concat(self._tables or [pd.DataFrame(columns=columns)], ignore_index=True)

    def whole(self) -> Sessions:
        """Return the panel in memory."""
        panel = join_sessions(list(self), self.report)
        self.conclude(panel)
        return panel

    def _clean(self, bars: Bars, report: Report, check: CalendarCheck) -> Cleaning:
        cleaning = Cleaning(bars, self._calendar, report, self._files)
        check.drop_misplaced(cleaning)
        cleaning.repair(self._building.volume_multiplier)
        if self._building.prices == "adjusted":
            cleaning.undo_adjustment()
        check.see_closes(cleaning)
        return cleaning

    def _lay(self, cleaning: Cleaning, ends: tuple[np.ndarray, np.ndarray]) -> Sessions:
        """Lay bars on the clock; drop those after early closes, and sparse sessions."""
        calendar, report = self._calendar, self.report
        if (ends[1] < calendar.num_ticks).any():
            cleaning.drop("after_early_close", cleaning.at.tick >= _ticks_on(cleaning.at.day, ends))
        bars, day, tick = cleaning.bars, cleaning.at.day, cleaning.at.tick
        first = np.flatnonzero(np.append(True, (np.diff(bars.code) != 0) | (np.diff(day) != 0))[: len(bars)])
        row = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(bars))))
        names, days = bars.names[bars.code[first]], day[first]
        dates, length = days.astype("datetime64[D]"), _ticks_on(days, ends).astype(np.int32)
        count = np.bincount(row, bars.priced, len(first)).astype(np.int64)
        idle = np.isfinite(bars.values["close"]) & (bars.values["volume"] == 0)
        zeros = np.bincount(row, idle, len(first)).astype(np.int64)
        sparse = (count < self._building.min_coverage * length) | (count == 0)

        def describe(at: int) -> Finding:
            what = f"{count[at]} of {length[at]} ticks have a price"
            return Finding("sparse_session", what, str(names[at]), str(dates[at]), value=float(count[at]))

        report.tell("sparse_session", np.flatnonzero(sparse), describe)
        columns = {"instrument": bars.names.astype(object)[bars.code[first]], "day": days, "length": length}
        begin = np.minimum.reduceat(np.where(bars.priced, tick, calendar.num_ticks), first)
        end = np.maximum.reduceat(np.where(bars.priced, tick, -1), first)
        columns |= {"bars": np.bincount(row, minlength=len(first)), "priced": count, "zeros": zeros, "kept": ~sparse}
        columns |= {"first": begin, "last": end}
        columns |= {"total": np.bincount(row, np.nan_to_num(bars.values["volume"]), len(first))}
        columns |= {
            "exchanged": [cleaning.exchanged.get(key, "") for key in zip(names.tolist(), days.tolist(), strict=True)]
        }
        columns |= {"stamp": bars.stamp[first], "source": bars.source[first], "row": bars.row[first]}
        self._tables.append(pd.DataFrame(columns))
        kept = np.flatnonzero(~sparse[row])
        target, tick = (np.cumsum(~sparse) - 1)[row[kept]], tick[kept]
        shape = int((~sparse).sum()), calendar.num_ticks

        def lay(column: np.ndarray, empty: Any) -> np.ndarray:
            laid = np.full(shape, empty)
            laid[target, tick] = column[kept]
            return laid

        fields = {name: lay(column, np.nan) for name, column in bars.values.items() if name != "factor"}
        halted = None if bars.halted is None else lay(bars.halted, False)
        report.total("bars_kept", len(kept))
        report.total("sessions", shape[0])
        names, dates, length = names[~sparse], dates[~sparse], length[~sparse]
        names = names.astype(f"U{np.char.str_len(names).max(initial=1)}")  # as wide as the longest that is left
        factor = bars.values.get("factor")
        factor = None if factor is None else session_factors(factor[kept], target, names, dates)
        panel = Sessions(calendar, names, dates, length, fields, halted=halted, factor=factor, report=report)
        at = lay(np.arange(len(bars)), -1)
        inspect_ticks(panel, bars, at, cleaning.widened, report, self._files)
        return panel

    def _refuse(self) -> None:
        """Refuse what strict building does, and a panel without sessions."""
        report = self.report
        if self._building.strict and (found := report.refusal()):
            raise DataError(
                f"the bars are not clean: {found}. Correct them, or load with strict=False to repair and count."
            )
        if not report.totals.get("sessions"):
            found = "; ".join(report.sentence(kind) for kind in report.ordered())
            if not report.totals.get("bars_read"):
                raise DataError(f"there are no bars to lay out{f' ({found})' if found else ''}; check their source.")
            raise DataError(f"no session is left: {found}. Check calendar, label and time zone.")


def _ticks_on(day: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the ticks of each day; one that was not seen before is a `DataError`."""
    days, ticks = ends
    if not np.isin(day, days).all():
        raise DataError("the bars changed while they were read; load them again.")
    return ticks[np.searchsorted(days, day)]
