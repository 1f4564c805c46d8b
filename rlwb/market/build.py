"""From bars to the dense panel: at once from a table, or part by part into one that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.closes import Closes
from rlwb.market.factors import bring_back, of_sessions
from rlwb.market.fit import Fit
from rlwb.market.notes import note_market, note_missing
from rlwb.market.references import Levels
from rlwb.market.report import Report
from rlwb.market.sessions import Sessions
from rlwb.market.validate import Bars, drop_duplicates, drop_misplaced, repair_values


@dataclass(frozen=True, kw_only=True)
class Building:
    """How bars become a panel; see `build_sessions`."""

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


def build_sessions(
    frame: pd.DataFrame,
    calendar: Calendar,
    *,
    strict: bool = False,
    min_coverage: float = 0.5,
    volume_multiplier: float = 1.0,
    prices: Literal["traded", "adjusted"] = "traded",
    report: Report | None = None,
) -> Sessions:
    """Validate bars and lay them on the clock.

    Parameters
    ----------
    frame
        Bars in the schema (`rlwb.market.schema`), in any order. Other columns are ignored and named in the report.
    calendar
        The clock. A date on which hardly any instrument trades in the last `calendar.infer_early_close_minutes` of the
        session is shortened to the tick in which the market fell silent, unless that takes more than half of the
        session or what is left is mostly empty.
    strict
        Refuse with a `DataError` whatever would otherwise be dropped or repaired (`rlwb.market.report.REASONS`).
    min_coverage
        Sessions in which fewer of the ticks than this share have a price are dropped, 0..1.
    volume_multiplier
        Shares a unit of volume, 100 for volume in lots. Sizes of quotes are left alone.
    prices
        What prices and sizes are in bars with a column factor: as ``"traded"``, or ``"adjusted"`` by it, in which case
        they are brought back to what was traded.
    report
        Findings from reading, which the panel's report starts with.
    """
    building = Building(strict=strict, min_coverage=min_coverage, volume_multiplier=volume_multiplier, prices=prices)
    report = (report or Report()).merge(Report())
    survey = _Survey(calendar)
    bars = _prepare(frame, calendar, building, report, survey)
    sessions = _panel(bars, calendar, survey.ends(report), building.min_coverage)
    _refuse(report, building)
    note_market(sessions, Levels.of(sessions), report)
    return sessions


class PanelParts:
    """The panel of `build_sessions`, some sessions at a time; for `rlwb.market.store.save_parts`.

    Parameters
    ----------
    frames
        Gives the bars, the same each time it is called, in tables that hold whole sessions and are sorted by
        instrument and stamp, from table to table too. It is called twice, unless there is one table: what all
        instruments together show, early closes above all, is known after a first pass.
    calendar, building
        As for `build_sessions`.
    report
        Findings from reading, which the panel's report starts with. It is complete when `conclude` was called.
    """

    def __init__(
        self, frames: Callable[[], Iterable[pd.DataFrame]], calendar: Calendar, building: Building, report: Report
    ) -> None:
        self.report = report
        self._frames = frames
        self._calendar = calendar
        self._building = building
        self._levels: list[Levels] = []

    def __iter__(self) -> Iterator[Sessions]:
        survey, only, count = _Survey(self._calendar), None, 0
        self.report.totals.setdefault("bars_read", 0)
        for frame in self._frames():
            bars = _prepare(frame, self._calendar, self._building, self.report, survey)
            only, count = (bars if count == 0 else None), count + 1
        ends = survey.ends(self.report)
        for bars in self._again() if only is None else [only]:
            bars.report = self.report
            part = _panel(bars, self._calendar, ends, self._building.min_coverage)
            if len(part):
                self._levels.append(Levels.of(part))
                yield part
        _refuse(self.report, self._building)

    def conclude(self, panel: Sessions) -> Report:
        """Note what the whole panel shows, and return its report."""
        note_market(panel, Levels.join(self._levels), self.report)
        return self.report

    def _again(self) -> Iterator[Bars]:
        return (_prepare(frame, self._calendar, self._building, Report(), None) for frame in self._frames())


class _Survey:
    """What only all bars together say."""

    def __init__(self, calendar: Calendar) -> None:
        self.fit = Fit(calendar)
        self.closes = Closes(calendar)

    def ends(self, report: Report) -> tuple[np.ndarray, np.ndarray]:
        """Refuse what does not fit the calendar; return days and the ticks of each, early closes applied."""
        auction = self.fit.judge(report)
        return self.closes.ends(report, closing_auction=auction)


def _prepare(
    frame: pd.DataFrame, calendar: Calendar, building: Building, report: Report, survey: _Survey | None
) -> Bars:
    """Return sorted bars, each tick once, repaired; what they say of the whole goes into `survey`."""
    survey = _Survey(calendar) if survey is None else survey
    report.totals["bars_read"] = report.totals.get("bars_read", 0) + len(frame)
    bars = Bars(frame, calendar, report)
    drop_misplaced(bars, calendar, survey.fit)
    drop_duplicates(bars)
    survey.fit.see_spacing(bars)
    repair_values(bars, building.volume_multiplier)
    if building.prices == "adjusted":
        bring_back(bars)
    survey.closes.see(bars)
    return bars


def _refuse(report: Report, building: Building) -> None:
    """Refuse what strict building does, and a panel without sessions."""
    if building.strict and report.problems():
        found = "; ".join(report.sentence(reason) for reason in report.problems())
        raise DataError(f"the bars are not clean: {found}. Mend them, or load with strict=False to repair and count.")
    if not report.totals.get("sessions"):
        found = "; ".join(report.sentence(reason) for reason in report.ordered()) or "there are no bars"
        raise DataError(f"no session is left: {found}. Check calendar, label and time zone.")


def _panel(bars: Bars, calendar: Calendar, ends: tuple[np.ndarray, np.ndarray], min_coverage: float) -> Sessions:
    """Lay sorted bars into the panel; drop what is after early closes, and sparse sessions; note what is missing."""

    def ticks_on(day: np.ndarray) -> np.ndarray:
        days, ticks = ends
        if not np.isin(day, days).all():  # of parts that are read twice
            raise DataError("the bars changed while they were read; load them again.")
        return ticks[np.searchsorted(days, day)]

    if (ends[1] < calendar.num_ticks).any():
        bars.drop("after_early_close", bars.placed.tick >= ticks_on(bars.placed.day))
    code, day, tick = bars.code, bars.placed.day, bars.placed.tick
    new = np.ones(len(bars), dtype=bool)
    new[1:] = (np.diff(code) != 0) | (np.diff(day) != 0)
    row = np.cumsum(new) - 1
    names, dates = bars.names[code[new]], day[new].astype("datetime64[D]")
    length = ticks_on(day[new]).astype(np.int32)
    count = np.bincount(row, np.isfinite(bars.values["close"]), len(names))
    sparse = (count < min_coverage * length) | (count == 0)
    if sparse.any():
        first = int(np.argmax(sparse))
        example = f"{names[first]} {dates[first]} with {int(count[first])} of {length[first]} ticks"
        bars.report.add("sparse_session", int(sparse.sum()), example)
    kept_bars = ~sparse[row] if len(row) else np.zeros(0, dtype=bool)
    target = np.cumsum(~sparse)[row[kept_bars]] - 1
    tick, shape = tick[kept_bars], (int((~sparse).sum()), calendar.num_ticks)

    def lay(column: np.ndarray, empty: Any) -> np.ndarray:
        panel = np.full(shape, empty)
        panel[target, tick] = column[kept_bars]
        return panel

    fields = {name: lay(column, np.nan) for name, column in bars.values.items()}
    halted = None if bars.halted is None else lay(bars.halted, False)
    totals = bars.report.totals
    totals["bars_kept"] = totals.get("bars_kept", 0) + int(kept_bars.sum())
    totals["sessions"] = totals.get("sessions", 0) + shape[0]
    used = np.char.str_len(bars.names[np.unique(code[new][~sparse])])
    names = names[~sparse].astype(f"U{used.max(initial=1)}")  # as wide as the longest that is left
    dates, length = dates[~sparse], length[~sparse]
    factor = None if bars.factor is None else of_sessions(bars.factor[kept_bars], target, names, dates)
    sessions = Sessions(calendar, names, dates, length, fields, halted=halted, factor=factor, report=bars.report)
    note_missing(sessions, bars.report)
    return sessions
