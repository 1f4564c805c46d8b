"""From a table of bars to the dense panel."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.actions import split_list, suspected_splits
from rlwb.market.calendar import Calendar
from rlwb.market.factors import bring_back, of_sessions, price_ratio
from rlwb.market.references import first_price, last_close
from rlwb.market.report import Report
from rlwb.market.sessions import Sessions
from rlwb.market.validate import Bars, drop_duplicates, drop_misplaced, repair_values

_SHORTEST = 0.5
_BREADTH = 1 / 3
_JUMP = 0.3
_BREAK = np.log(8.0)
_STATED = np.log(1.2)


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
    if not 0 <= min_coverage <= 1:
        raise ConfigError(f"min_coverage is {min_coverage}; give a share from 0 to 1.")
    if not (np.isfinite(volume_multiplier) and volume_multiplier > 0):
        raise ConfigError(f"volume_multiplier is {volume_multiplier}; give a number above 0.")
    if prices not in ("traded", "adjusted"):
        raise ConfigError(f"prices is {prices!r}; write 'traded' or 'adjusted'.")
    report = (report or Report()).merge(Report(totals={"bars_read": len(frame)}))
    bars = Bars(frame, calendar, report)
    drop_misplaced(bars, calendar)
    drop_duplicates(bars)
    check_spacing(bars, calendar)
    repair_values(bars, volume_multiplier)
    if prices == "adjusted":
        bring_back(bars)
    ticks_on = _session_ends(bars, calendar)
    sessions = _panel(bars, calendar, ticks_on, min_coverage)
    if strict and report.problems():
        found = "; ".join(report.sentence(reason) for reason in report.problems())
        raise DataError(f"the bars are not clean: {found}. Mend them, or load with strict=False to repair and count.")
    if not len(sessions):
        found = "; ".join(report.sentence(reason) for reason in report.counts) or "there are no bars"
        raise DataError(f"no session is left: {found}. Check calendar, label and time zone.")
    _note_market(sessions)
    return sessions


def check_spacing(bars: Bars, calendar: Calendar) -> None:
    """Refuse bars that are longer than the calendar's ticks."""
    gaps = np.diff(bars.placed.tick)
    together = (np.diff(bars.code) == 0) & (np.diff(bars.placed.day) == 0) & (np.diff(bars.placed.segment) == 0)
    gaps = gaps[together]
    if len(gaps) < 10 or (gaps == 1).mean() > 0.02:
        return
    usual = int(np.bincount(gaps).argmax())
    if (gaps % usual == 0).mean() > 0.98:
        raise DataError(
            f"the bars are {usual * calendar.tick_minutes:g} min apart, the calendar's ticks last "
            f"{calendar.tick_minutes:g} min; set tick_minutes={usual * calendar.tick_minutes:g}."
        )


def _session_ends(bars: Bars, calendar: Calendar) -> dict[int, int]:
    """Return the ticks of each day (days since 1970), and drop bars after early closes."""
    days, index = np.unique(bars.placed.day, return_inverse=True)
    dates = days.astype("datetime64[D]")
    ends = calendar.ticks_on(dates)
    stated = np.isin(dates, np.array(list(calendar.early_closes), dtype="datetime64[D]"))
    if stated.any():
        bars.report.add("early_close_stated", int(stated.sum()), str(dates[stated][0]))
        bars.drop("after_early_close", bars.placed.tick >= ends[index])
        index = np.searchsorted(days, bars.placed.day)
    if calendar.infer_early_close_minutes and len(bars):
        length, trusted = _inferred_lengths(bars, calendar, index, len(days))
        early = trusted & ~stated
        if early.any():
            first = int(np.argmax(early))
            example = f"{dates[first]} at {calendar.end_time_of(int(length[first]) - 1)}"
            bars.report.add("early_close_inferred", int(early.sum()), example)
            ends = np.where(early, length, ends)
            bars.drop("after_early_close", bars.placed.tick >= ends[index])
    return dict(zip(days.tolist(), ends.tolist(), strict=True))


def _inferred_lengths(bars: Bars, calendar: Calendar, index: np.ndarray, days: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each day the ticks until the market fell silent, and whether that is an early close.

    `index` is each bar's day, ``0..days-1``.
    """
    ticks = calendar.num_ticks
    priced = np.isfinite(bars.values["close"])
    traded = priced & (bars.values["volume"] != 0)
    silent = np.bincount(index, traded, days) == 0  # an index never has volume
    traded |= priced & silent[index]
    breadth = np.bincount(index[traded] * ticks + bars.placed.tick[traded], minlength=days * ticks).reshape(days, ticks)
    return early_lengths(breadth, calendar, closing_auction=bars.closing_auction)


def early_lengths(
    breadth: np.ndarray, calendar: Calendar, *, closing_auction: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each day the ticks until the market fell silent, and whether that is an early close; both ``(days,)``.

    A tick counts when at least a third of the number of instruments that usually trade in a tick of that day trade in
    it, so that a few late prints do not keep a closed market open.

    Parameters
    ----------
    breadth
        How many instruments trade in each tick, of shape ``(days, T)``.
    closing_auction
        Whether nearly every session has a bar stamped at the close, outside its ticks.
    """
    ticks = calendar.num_ticks
    usual = np.median(breadth[:, : max(1, ticks // 2)], axis=1)
    printed = breadth >= np.maximum(1, _BREADTH * usual)[:, None]
    length = np.where(printed.any(axis=1), ticks - np.argmax(printed[:, ::-1], axis=1), ticks)
    lost = (ticks - length) * calendar.tick_minutes
    trusted = (lost > 0) & (lost >= calendar.infer_early_close_minutes)
    if closing_auction:  # the last bar of a short day is its auction, which regular days keep outside the session
        length = np.where(trusted, length - 1, length)
    trusted &= (length >= _SHORTEST * ticks) & (printed.sum(axis=1) >= _SHORTEST * length)
    return length, trusted


def _panel(bars: Bars, calendar: Calendar, ticks_on: dict[int, int], min_coverage: float) -> Sessions:
    """Lay sorted bars into the panel and drop sparse sessions; notes what is missing in the rest."""
    code, day, tick = bars.code, bars.placed.day, bars.placed.tick
    new = np.ones(len(bars), dtype=bool)
    new[1:] = (np.diff(code) != 0) | (np.diff(day) != 0)
    row = np.cumsum(new) - 1
    names, dates = bars.names[code[new]], day[new].astype("datetime64[D]")
    length = np.array([ticks_on[value] for value in day[new].tolist()], dtype=np.int32)
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
    bars.report.totals.update(bars_kept=int(kept_bars.sum()), sessions=shape[0])
    names, dates, length = names[~sparse], dates[~sparse], length[~sparse]
    factor = None if bars.factor is None else of_sessions(bars.factor[kept_bars], target, names, dates)
    bars.report.totals.update(instruments=len(np.unique(names)), days=len(np.unique(dates)))
    return Sessions(calendar, names, dates, length, fields, halted=halted, factor=factor, report=bars.report)


def _note_market(sessions: Sessions) -> None:
    """Note missing ticks, sessions without volume, price jumps overnight and breaks in the level of volume."""
    fields, report = sessions.fields, sessions.report

    def name(row: int) -> str:
        return f"{sessions.instruments[row]} {sessions.dates[row]}"

    missing = sessions.in_session & ~np.isfinite(fields["close"])
    if missing.any():
        row, tick = np.unravel_index(int(np.argmax(missing)), missing.shape)
        report.add("missing_tick", int(missing.sum()), f"{name(int(row))} {sessions.calendar.time_of(int(tick))}")
    total = np.nansum(fields["volume"], axis=1)
    if (total == 0).any():
        report.add("no_volume", int((total == 0).sum()), name(int(np.argmax(total == 0))))

    later = np.flatnonzero(sessions.previous >= 0)
    before = sessions.previous[later]
    worth = price_ratio(sessions, before, later)
    close, opening = last_close(sessions)[before] * worth, first_price(sessions, later)
    stated, moved = np.log(worth), np.log(opening / (close / worth))
    denied = (np.abs(stated) > _STATED) & (np.abs(moved) < np.abs(moved - stated))
    if denied.any():
        at = int(np.argmax(denied))
        report.add("factor_contradicted", int(denied.sum()), f"{name(int(later[at]))}, times {1 / worth[at]:g}")
    jump = np.abs(opening / close - 1) > _JUMP
    if jump.any():
        at = int(np.argmax(jump))
        report.add("price_jump", int(jump.sum()), f"{name(int(later[at]))}, {close[at]:g} to {opening[at]:g}")
    splits = suspected_splits(sessions)
    report.add("split_suspected", len(splits), split_list(splits))
    traded = (total[later] > 0) & (total[before] > 0)
    ratio = np.log((total / sessions.num_ticks)[later[traded]] / (total / sessions.num_ticks)[before[traded]])
    change = pd.Series(ratio).groupby(sessions.dates[later[traded]]).median()
    broken = change[change.abs() > _BREAK]
    if len(broken):
        report.add("volume_break", len(broken), f"{broken.index[0]:%Y-%m-%d}, times {np.exp(broken.iloc[0]):.3g}")
