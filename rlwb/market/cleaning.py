"""Bars against the calendar and the schema: what is wrong is repaired or dropped, and counted either way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from rlwb.errors import DataError
from rlwb.market.bars import DAY, Bars
from rlwb.market.calendar import Calendar, text_of
from rlwb.market.clocks import ClockCheck
from rlwb.market.findings import Finding, Report
from rlwb.market.schema import PRICES, QUOTES, SIZES, TRADE_PRICES

_SECOND = 1_000_000
#: Bars without a range, and their share of a session, from which on columns may be exchanged; share that must fit then.
_FEWEST, _MANY, _MOSTLY = 3, 0.2, 0.98
#: Share of bars between ticks from which on the bars are of another length than the ticks.
_MAX_OFF_GRID = 0.2
#: Share of sessions with a bar at an edge that is taken for all of them.
_NEARLY_ALL = 0.9
#: Shares of a session: what an early close leaves at least, and how much of that has bars.
_SHORTEST = 0.5
#: Share of the instruments that usually trade in a tick, from which on the market is open.
_BREADTH = 1 / 3


class Place(NamedTuple):
    """Where bars lie on the clock: arrays of shape ``(bars,)``."""

    day: np.ndarray  # days since 1970
    tick: np.ndarray  # tick of the session, valid where inside and on_grid
    segment: np.ndarray  # the segment that the stamp lies in, or whose edge it names
    inside: np.ndarray  # within a segment
    on_grid: np.ndarray  # at the start of a tick
    edge: np.ndarray  # outside, but exactly at the edge that the other label would use


@cache
def _layout(calendar: Calendar) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the first tick of each segment, where segments open and close, and a tick's length, in microseconds."""
    first = np.searchsorted(calendar.segment, np.arange(len(calendar.segments)))
    opens, closes = np.array(calendar.bounds).T * _SECOND
    return first, opens, closes, calendar.tick_seconds * _SECOND


def place(stamp: np.ndarray, calendar: Calendar) -> Place:
    """Return day and tick of local stamps (microseconds), read as the calendar's label says."""
    first, opens, closes, length = _layout(calendar)
    day, inner = np.divmod(stamp - length if calendar.label == "end" else stamp, DAY)
    segment = np.maximum(np.searchsorted(opens, inner, side="right") - 1, 0)
    inside = (inner >= opens[segment]) & (inner < closes[segment])
    if calendar.label == "start":
        edge = ~inside & (inner == closes[segment])
    else:
        following = np.searchsorted(opens, inner, side="left").clip(max=len(opens) - 1)
        edge = ~inside & (inner == opens[following] - length)
        segment = np.where(edge, following, segment)
    offset, rest = np.divmod(inner - opens[segment], length)
    return Place(day, first[segment] + offset, segment, inside, rest == 0, edge)


def nearest_on_grid(stamp: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Return the edges of ticks, inside the session or outside, that are nearest to local stamps (microseconds)."""
    length = calendar.tick_seconds * _SECOND
    inner, opens = stamp % DAY, np.array(calendar.bounds)[:, 0] * _SECOND
    offset = inner - opens[np.maximum(np.searchsorted(opens, inner + length // 2, side="right") - 1, 0)]
    rest = (offset + length // 2) % length - length // 2
    return stamp - rest


def rounded(bars: Bars, calendar: Calendar, seconds: float, report: Report, files: Mapping[int, str]) -> Bars:
    """Return the bars with stamps that lie at most `seconds` from an edge of a tick moved onto it, and count those."""
    moved = nearest_on_grid(bars.stamp, calendar) - bars.stamp
    near = (moved != 0) & (np.abs(moved) <= seconds * _SECOND)

    def describe(row: int) -> Finding:
        by = float(moved[row]) / _SECOND
        return bars.finding("stamp_rounded", row, files, f"moved by {by:+g} s", by)

    report.tell("stamp_rounded", np.flatnonzero(near), describe)
    return replace(bars, stamp=np.where(near, bars.stamp + moved, bars.stamp))


def _prices(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def usable(given: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what bars hold that can be: impossible prices, quotes and sizes missing, ranges widened to their prices.

    Parameters
    ----------
    given
        Fields of the bars, float64 of shape ``(bars,)`` by name, among them those of trades.

    Returns
    -------
    values
        The fields as they are then.
    faults
        Which bars were wrong, bool of shape ``(bars,)`` by kind (`rlwb.market.findings`).
    """
    values, any_of = dict(given), np.logical_or.reduce
    prices, sizes = ([name for name in names if name in values] for names in (PRICES, SIZES))
    quoted = any_of([np.isfinite(values[name]) & (values[name] > 0) for name in QUOTES if name in values])
    quote_only = quoted & np.logical_and.reduce([~np.isfinite(values[name]) for name in TRADE_PRICES])
    wild = [np.isinf(values[name]) for name in prices] + [np.isnan(values[name]) for name in TRADE_PRICES]
    faults = {
        "quote_only": quote_only,
        "price_not_finite": any_of(wild) & ~quote_only,
        "price_zero": any_of([values[name] == 0 for name in prices]),
        "price_negative": any_of([values[name] < 0 for name in prices]),
    }
    values |= {name: _prices(values[name]) for name in prices}
    trade = [values[name] for name in TRADE_PRICES]
    top, bottom = np.fmax.reduce(trade), np.fmin.reduce(trade)
    widened = faults["high_low"] = (values["high"] < top * (1 - 1e-9)) | (values["low"] > bottom * (1 + 1e-9))
    values["high"] = np.where(widened, top, values["high"])
    values["low"] = np.where(widened, bottom, values["low"])
    if "bid" in values and "ask" in values:
        crossed = faults["quote_crossed"] = values["bid"] > values["ask"]
        values |= {name: np.where(crossed, np.nan, values[name]) for name in QUOTES}
    faults["volume_negative"] = any_of([(values[name] < 0) | np.isinf(values[name]) for name in sizes])
    values |= {name: np.where(np.isfinite(values[name]) & (values[name] >= 0), values[name], np.nan) for name in sizes}
    faults["volume_missing"] = np.isnan(values["volume"]) & np.isfinite(values["close"])
    return values, faults


class Cleaning:
    """Bars while they are laid on the clock; each method drops or changes some and counts them in `report`.

    They come sorted by instrument and stamp, each stamp once; `bars` is what is left of them, `at` where that lies.
    """

    def __init__(self, bars: Bars, calendar: Calendar, report: Report, files: Mapping[int, str]) -> None:
        self.bars, self.at = bars, place(bars.stamp, calendar)
        self.report, self.files = report, files
        #: Bars whose high or low is not the source's own, bool of shape ``(bars,)``.
        self.widened = np.zeros(len(bars), dtype=bool)
        #: By how many minutes each bar's session is late (`rlwb.market.clocks`), int of shape ``(bars,)``.
        self.late = np.zeros(len(bars), dtype=np.int64)
        #: What columns stand for each other, by instrument and day (since 1970) of the sessions where some do.
        self.exchanged: dict[tuple[str, int], str] = {}

    def find(self, kind: str, mask: np.ndarray) -> None:
        """Count the bars of `mask`, and list them while there is room."""

        def describe(row: int) -> Finding:
            what, value = _wrong(kind, {name: float(column[row]) for name, column in self.bars.values.items()})
            return self.bars.finding(kind, row, self.files, what, value)

        self.report.tell(kind, np.flatnonzero(mask), describe)

    def drop(self, kind: str, mask: np.ndarray) -> None:
        """Count the bars of `mask` and take them out."""
        if mask.any():
            self.find(kind, mask)
            keep = np.flatnonzero(~mask)
            self.bars, self.at = self.bars.take(keep), Place(*(part[keep] for part in self.at))
            self.widened, self.late = self.widened[keep], self.late[keep]

    def repair(self, volume_multiplier: float) -> None:
        """Make impossible prices, quotes and volumes missing, widen ranges, and bring volume to shares."""
        values, faults = usable(self.bars.values)
        self.widened = faults["high_low"]
        for kind, mask in faults.items():
            self.find(kind, mask)
        if self.widened.any():
            self._see_columns({**values, **{name: _prices(self.bars.values[name]) for name in ("high", "low")}})
        values["volume"] = values["volume"] * volume_multiplier
        self.bars = replace(self.bars, values=values)

    def _see_columns(self, values: Mapping[str, np.ndarray]) -> None:
        """Note sessions in many of whose bars the range is none, and would be with two columns exchanged.

        `values` are those of the bars, before ranges are widened.
        """
        day, code = self.at.day, self.bars.code
        begins = np.append(True, (np.diff(code) != 0) | (np.diff(day) != 0))
        session, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
        wrong = np.bincount(session, self.widened, len(first))
        sessions = np.flatnonzero(wrong >= np.maximum(_FEWEST, _MANY * np.bincount(session, minlength=len(first))))
        for number in sessions.tolist():
            bars = {name: values[name][session == number] for name in (*TRADE_PRICES, "volume")}
            if text := _exchanged(bars):
                at = first[number]
                self.exchanged[str(self.bars.names[code[at]]), int(day[at])] = text

    def undo_adjustment(self) -> None:
        """Turn adjusted prices and sizes into those that were traded; bars without a factor lose both."""
        values = dict(self.bars.values)
        if "factor" not in values:
            raise DataError(
                "prices='adjusted' needs a column factor, and the bars have none; add it or drop the option."
            )
        factor = values["factor"]
        known = np.isfinite(factor) & (factor > 0)
        self.find("factor_missing", ~known)
        self.find("factor_applied", known & (factor != 1))
        scale = np.where(known, factor, np.nan)
        values |= {name: column / scale for name, column in values.items() if name in PRICES}
        values |= {name: column * scale for name, column in values.items() if name in SIZES}
        self.bars = replace(self.bars, values=values)


def _exchanged(bars: Mapping[str, np.ndarray]) -> str:
    """Return which columns of a session stand for others, in words; empty where no order fits nearly all bars."""
    columns = {name: bars[name] for name in TRADE_PRICES}
    for other in (None, *TRADE_PRICES):
        tried = {name: bars["volume"] if name == other else values for name, values in columns.items()}
        top, bottom = np.fmax.reduce([*tried.values()]), np.fmin.reduce([*tried.values()])
        moved = (top > bottom) & (top < bottom * 2)
        if moved.sum() < _FEWEST or moved.sum() < _MOSTLY * (top > bottom).sum():
            continue
        rank = {
            name: (np.mean(tried[name][moved] >= top[moved]), np.mean(tried[name][moved] <= bottom[moved]))
            for name in tried
        }
        high, low = max(rank, key=lambda name: rank[name][0]), max(rank, key=lambda name: rank[name][1])
        if min(rank[high][0], rank[low][1]) < _MOSTLY:
            continue
        if other is not None:
            return f"{other} and volume are exchanged"
        rest = [name for name in TRADE_PRICES if name not in (high, low)]
        joins = [np.nansum(np.abs(tried[a][1:] - tried[b][:-1])) for a, b in (rest, rest[::-1])]
        opening, close = rest if joins[0] <= joins[1] else rest[::-1]
        true = {high: "high", low: "low", opening: "open", close: "close"}
        moved_names = [name for name in TRADE_PRICES if true[name] != name]
        if len(moved_names) == 2:
            return f"{moved_names[0]} and {moved_names[1]} are exchanged"
        return ", ".join(f"{name} holds {true[name]}" for name in moved_names)
    return ""


def _wrong(kind: str, bar: Mapping[str, float]) -> tuple[str, float]:
    """Return in words and as a number what is wrong with a bar of these values."""
    prices = {name: bar[name] for name in TRADE_PRICES}
    match kind:
        case "price_zero":
            return ", ".join(name for name, price in prices.items() if price == 0), 0.0
        case "price_negative":
            low = min(prices, key=prices.__getitem__)
            return f"{low} {prices[low]:g}", prices[low]
        case "price_not_finite":
            return ", ".join(name for name, price in prices.items() if not np.isfinite(price)), np.nan
        case "high_low":
            return ", ".join(f"{name} {price:g}" for name, price in prices.items()), bar["high"]
        case "quote_crossed":
            return f"bid {bar['bid']:g}, ask {bar['ask']:g}", bar["bid"]
        case "volume_negative":
            return f"volume {bar['volume']:g}", bar["volume"]
        case "volume_missing":
            return f"close {bar['close']:g}", bar["close"]
    return "", bar["close"]


class CalendarCheck:
    """The fit of all bars to a calendar's hours, label, ticks, dates and closes: counted in parts, decided at last."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.clock = ClockCheck(calendar)
        self._count: Counter[Hashable] = Counter()
        self._first: dict[Hashable, str] = {}
        #: By instrument, how often its bars are so many ticks apart, int64 ``(T,)``.
        self._gaps: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(calendar.num_ticks, dtype=np.int64))
        self._farthest = 0.0  # seconds from a bar's stamp to the next edge of a tick
        #: By day since 1970, the instruments with a price in each tick, and those that trade, int32 ``(2, T)``.
        self._breadth: dict[int, np.ndarray] = {}

    def _see(self, what: Hashable, cleaning: Cleaning, mask: np.ndarray, count: int | None = None) -> None:
        """Count bars of a kind, or what `count` says of them, and keep the place of the first."""
        if mask.any():
            first = cleaning.bars.finding("label_suspect", int(np.argmax(mask)), cleaning.files)
            self._first.setdefault(what, first.place())
            self._count[what] += int(mask.sum()) if count is None else count

    def drop_misplaced(self, cleaning: Cleaning) -> None:
        """Drop bars of closed days, outside the session, or between ticks, and count what whole sessions say."""
        calendar = self._calendar
        dates = cleaning.at.day.astype("datetime64[D]")
        if calendar.covers is not None:
            first, last = np.array(calendar.covers, dtype="datetime64[D]")
            self._see("outside", cleaning, (dates < first) | (dates > last))
        cleaning.drop("closed_day", ~calendar.is_open(dates))
        cleaning.late = self.clock.see(cleaning)
        self._see_edges(cleaning)
        cleaning.drop("auction", cleaning.at.edge)
        cleaning.drop("off_session", ~cleaning.at.inside)
        self._count["bars"] += len(cleaning.bars)
        self._see("off_grid", cleaning, ~cleaning.at.on_grid)
        away = np.abs(nearest_on_grid(cleaning.bars.stamp, calendar) - cleaning.bars.stamp).max(initial=0)
        self._farthest = max(self._farthest, float(away) / _SECOND)
        cleaning.drop("off_grid", ~cleaning.at.on_grid)
        at, code = cleaning.at, cleaning.bars.code
        together = (np.diff(code) == 0) & (np.diff(at.day) == 0) & (np.diff(at.segment) == 0)
        gaps, of = np.diff(at.tick)[together], code[1:][together]
        first = np.flatnonzero(np.append(True, np.diff(of) != 0)) if len(of) else of
        for number, some in zip(of[first].tolist(), np.split(gaps, first[1:]), strict=False):
            self._gaps[str(cleaning.bars.names[number])] += np.bincount(some, minlength=calendar.num_ticks)

    def _see_edges(self, cleaning: Cleaning) -> None:
        """Count sessions, and by segment those with a bar at the edge of the other label, and at that of their own."""
        calendar, at = self._calendar, cleaning.at
        session = cleaning.bars.code.astype(np.int64) * 2**32 + at.day
        on_time = np.abs(cleaning.late) * 60 <= calendar.tick_seconds  # the other label is a shift by one tick
        self._count["sessions"] += len(np.unique(session[on_time]))
        for index in range(len(calendar.segments)):
            ticks = np.flatnonzero(calendar.segment == index)
            foreign = at.edge & (at.segment == index) & on_time
            self._see(("foreign", index), cleaning, foreign, len(np.unique(session[foreign])))
            own = at.inside & at.on_grid & (at.tick == (ticks[0] if calendar.label == "start" else ticks[-1])) & on_time
            self._count["own", index] += len(np.unique(session[own]))

    def see_closes(self, cleaning: Cleaning) -> None:
        """Count in which ticks instruments trade, and drop bars after a close that the calendar states."""
        calendar = self._calendar
        days = np.unique(cleaning.at.day)
        stated, ends = self._stated(days)
        index = np.searchsorted(days, cleaning.at.day)
        cleaning.drop("after_early_close", stated[index] & (cleaning.at.tick >= ends[index]))
        ticks = calendar.num_ticks if calendar.infer_early_close_minutes else 0
        breadth = np.zeros((len(days), 2, ticks), dtype=np.int32)
        if ticks:
            values, on_time = cleaning.bars.values, cleaning.late == 0
            # a price that moves was traded at, also where the volume was lost
            told = (values["volume"] != 0) | (values["high"] > values["low"])
            priced, traded = cleaning.bars.priced & on_time, np.isfinite(values["close"]) & told & on_time
            key = np.searchsorted(days, cleaning.at.day) * ticks + cleaning.at.tick
            for layer, mask in enumerate((priced, traded)):
                breadth[:, layer] = np.bincount(key[mask], minlength=len(days) * ticks).reshape(len(days), ticks)
        for day, count in zip(days.tolist(), breadth, strict=True):
            self._breadth[day] = self._breadth.get(day, 0) + count

    def _stated(self, days: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return of which days (since 1970) the calendar states an early close, and their ticks by it."""
        dates = days.astype("datetime64[D]")
        early = np.isin(dates, np.array(list(self._calendar.early_closes), dtype="datetime64[D]"))
        return early, self._calendar.ticks_on(dates).astype(np.int64)

    def validate(self, report: Report) -> tuple[np.ndarray, np.ndarray]:
        """Refuse bars of dates that the calendar does not cover, or of another length than its ticks; report the rest.

        The label is suspect when nearly every session has a bar at the edge that the other label would use, and hardly
        any at its own edge of the same segment. Returns the days that were seen, since 1970, sorted, and the ticks of
        each, early closes applied; int64 of shape ``(days,)``.
        """
        calendar, count, first = self._calendar, self._count, self._first
        if count["outside"]:
            raise DataError(
                f"{count['outside']:,} bars (first: {first['outside']}) lie outside "
                f"{' to '.join(calendar.covers or ())}, for which the calendar knows holidays and early closes; leave "
                "them out, or state closed and early_closes yourself."
            )
        if count["off_grid"] > _MAX_OFF_GRID * count["bars"]:
            raise DataError(
                f"{count['off_grid']:,} of {count['bars']:,} bars lie between ticks of {calendar.tick_minutes} min "
                f"(first: {first['off_grid']}); set tick_minutes to the bars' own length, or give "
                f"round_seconds, to move stamps onto ticks so near (the farthest lies {self._farthest:g} s away)."
            )
        apart = {name: _apart(gaps, 20) for name, gaps in self._gaps.items()}
        if self._gaps and (usual := _apart(np.sum(list(self._gaps.values()), axis=0), 10)):
            minutes = usual * calendar.tick_minutes
            raise DataError(
                f"the bars are {minutes:g} min apart, the calendar's ticks last {calendar.tick_minutes:g} min; "
                f"set tick_minutes={minutes:g}."
            )
        for name, usual in sorted(apart.items()):
            if usual:
                minutes = usual * calendar.tick_minutes
                report.add("bars_apart", 1, f"{minutes:g} min apart", instrument=name, value=minutes)
        closing_auction = False
        for index in range(len(calendar.segments)):
            foreign, own = count["foreign", index], count["own", index]
            if not count["sessions"] or foreign < _NEARLY_ALL * count["sessions"]:
                continue
            closing_auction |= calendar.label == "start" and index == len(calendar.segments) - 1
            if own <= (1 - _NEARLY_ALL) * count["sessions"]:
                other = "end" if calendar.label == "start" else "start"
                report.add("label_suspect", foreign, f"{first['foreign', index]}, try label={other!r}", value=foreign)
        days = np.array(sorted(self._breadth), dtype=np.int64)
        return days, self._closes(days, report, closing_auction, self.clock.conclude(report))

    def _closes(self, days: np.ndarray, report: Report, closing_auction: bool, shifted: np.ndarray) -> np.ndarray:
        """Return each day's ticks, and report early closes; none is inferred on days whose bars are `shifted`."""
        calendar, dates = self._calendar, days.astype("datetime64[D]")
        stated, ends = self._stated(days)
        for row in np.flatnonzero(stated).tolist():
            report.add("early_close_stated", date=str(dates[row]))
        if calendar.infer_early_close_minutes and len(days):
            priced, traded = np.stack([self._breadth[day] for day in days.tolist()], axis=1)
            silent = traded.sum(axis=1) == 0  # an index never has volume
            length, trusted = _early_lengths(np.where(silent[:, None], priced, traded), calendar, closing_auction)
            trusted &= ~np.isin(days, shifted)
            ends = np.where(trusted & ~stated, length, ends)
            for row in np.flatnonzero(trusted & ~stated).tolist():
                close = text_of(int(calendar.tick_start[ends[row] - 1]) + calendar.tick_seconds)
                report.add("early_close_inferred", 1, f"at {close}", date=str(dates[row]))
        return ends


def _apart(gaps: np.ndarray, least: int) -> int:
    """Return how many ticks nearly all of `least` or more bars are apart, or a multiple of; 0 where it is one tick.

    `gaps` counts by their length, int ``(T,)``.
    """
    total = int(gaps.sum())
    if total < least:
        return 0
    usual = int(np.flatnonzero(gaps > 0.02 * total)[0])
    return usual if usual > 1 and gaps[::usual].sum() > 0.98 * total else 0


def _early_lengths(breadth: np.ndarray, calendar: Calendar, closing_auction: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return for each day the ticks until the market fell silent, and whether that is an early close; both ``(days,)``.

    A tick counts when at least a third of the number of instruments that usually trade in a tick of that day trade in
    it (`breadth`, of shape ``(days, T)``), so that a few late prints do not keep a closed market open.
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
