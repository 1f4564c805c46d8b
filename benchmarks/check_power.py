"""Whether the data check finds faults that are planted, and is silent about sound bars: ``make check-power``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.errors import DataError
from rlwb.files import write_json
from rlwb.market import Calendar, SyntheticSettings, read_bars, synthetic_bars
from rlwb.market.bars import bars_of, merge, table_of
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.findings import KINDS, Report
from rlwb.market.schema import TRADE_PRICES
from rlwb.market.sessions import join_sessions

_OUT = RESULTS.with_name("check.json")
_DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
_PRICES = list(TRADE_PRICES)
#: Share of the planted sessions that findings of the right kind must name.
_NAMED = 0.8
#: Instruments and days that faults are planted into; false alarms are counted on whole sets.
_INSTRUMENTS, _DAYS = 10, 16
#: Checks of each fault and size.
_ROUNDS = 2

#: The instrument and date of a session.
_Session = tuple[str, str]


@dataclass(frozen=True)
class Market:
    """A set of bars, its clock, and what is known to be wrong with it: by kind of finding, why it is no false alarm."""

    calendar: Calendar
    zone_minutes: int  # by which stamps in UTC differ from the session's, in winter
    known: dict[str, str]
    held_out: bool = False  # whether no threshold was chosen by it


MARKETS = {
    "synthetic": Market(SyntheticSettings().calendar, 300, {}),
    "us_equity_1min_2018": Market(Calendar.preset("us"), 300, {}),
    "cn_equity_1min_2024": Market(
        Calendar.preset("cn", label="end"),
        -480,
        {
            "high_low": "three closing auctions whose open lies outside the range",
            "range_without_volume": "two bars that have a range and no volume",
        },
    ),
    "in_equity_1min_2021": Market(
        Calendar.preset("in"),
        -330,
        {
            "closed_day": "mock sessions on two Saturdays",
            "hours_missing": "the collector of the ticks started late or stopped early",
            "bars_missing": "the collector of the ticks lost hours",
        },
    ),
    "us_equity_5min_2025": Market(
        Calendar.preset("us", tick_minutes=5),
        300,
        {
            "volume_break": "the feed carries 3 % of the volume in the last three days",
            "hours_missing": "the last day stops at 10:35",
        },
        held_out=True,
    ),
    "us_equity_1min_2023": Market(Calendar.preset("us", label="end"), 300, {}, held_out=True),
}


class Bars:
    """Bars that faults are planted into, sorted, with each one's instrument, day and minute."""

    def __init__(self, frame: pd.DataFrame, market: Market, rng: np.random.Generator) -> None:
        self.frame = frame.reset_index(drop=True)
        self.calendar, self.market, self.rng = market.calendar, market, rng
        text = self.frame["instrument"].astype("category").cat.remove_unused_categories()
        self.names, self._code = text.cat.categories.to_numpy().astype(str), text.cat.codes.to_numpy().astype(np.int64)
        shift = int(self.calendar.tick_seconds if self.calendar.label == "end" else 0)
        seconds = self.frame["datetime"].to_numpy().astype("datetime64[s]").astype(np.int64) - shift
        self.day, inner = np.divmod(seconds, 86_400)
        self.minute = (inner - self.calendar.bounds[0][0]) / 60  # since the open
        self.dates = np.unique(self.day).astype("datetime64[D]").astype(str)
        keys, counts = np.unique(self.session, return_counts=True)
        self._sessions = [self._session(key) for key in keys.tolist()]
        self.full = [one for one, n in zip(self._sessions, counts, strict=True) if n >= 0.8 * self.calendar.num_ticks]

    @property
    def session(self) -> np.ndarray:
        """A number of each bar's session."""
        return self._code * 100_000 + self.day

    def _session(self, key: int) -> _Session:
        return str(self.names[key // 100_000]), str(np.datetime64(key % 100_000, "D"))

    @property
    def name(self) -> np.ndarray:
        """Each bar's instrument."""
        return self.names[self._code]

    def on(self, dates: Sequence[str]) -> np.ndarray:
        """Tell of each bar whether it is of one of the dates."""
        return np.isin(self.day, np.array(dates, dtype="datetime64[D]").astype(np.int64))

    def rows(self, sessions: Sequence[_Session]) -> np.ndarray:
        """Tell of each bar whether it is of one of the sessions."""
        code = {name: number for number, name in enumerate(self.names.tolist())}
        days = np.array([date for _, date in sessions], dtype="datetime64[D]").astype(np.int64)
        keys = np.array([code[name] for name, _ in sessions], dtype=np.int64) * 100_000 + days
        return np.isin(self.session, keys)

    def some(self, count: int, *, inner: bool = False) -> list[_Session]:
        """Draw whole sessions of different instruments; `inner` ones are not the instrument's first or last."""
        edges = {self.dates[0], self.dates[-1]} if inner else set()
        good = [one for one in self.full if one[1] not in edges]
        chosen: dict[str, _Session] = {}
        for at in self.rng.permutation(len(good)).tolist():
            chosen.setdefault(good[at][0], good[at])
        return list(chosen.values())[:count]

    def of(self, names: Sequence[str], dates: Sequence[str]) -> list[_Session]:
        """Return the sessions of instruments on dates, as far as there are some."""
        some, days = set(names), set(dates)
        return [one for one in self._sessions if one[0] in some and one[1] in days]

    def some_names(self, count: int) -> list[str]:
        """Draw instruments that have most of their sessions."""
        held = pd.Series([name for name, _ in self.full]).value_counts()
        good = held[held >= 0.8 * len(self.dates)].index.to_numpy()
        return self.rng.permutation(np.sort(good))[:count].tolist()

    def stretch(self, length: int) -> list[str]:
        """Draw dates in a row, not the first or last."""
        length = min(length, (len(self.dates) - 1) // 2)  # of more, nobody could say which side is the odd one
        begin = int(self.rng.integers(1, len(self.dates) - length))
        return self.dates[begin : begin + length].tolist()


@dataclass(frozen=True)
class Planted:
    """Spoilt bars, and what must be said of each group of sessions: one of the kinds, with these words."""

    frame: pd.DataFrame
    groups: list[list[_Session]]
    kinds: tuple[str, ...]
    words: tuple[str, ...] = ()


_Plant = Callable[[Bars], Planted | None]


def _scopes(bars: Bars) -> dict[str, list[list[_Session]]]:
    """Return groups of sessions of each scope of a fault."""
    every = bars.of(bars.names.tolist(), bars.dates.tolist())
    half, third = len(bars.dates) // 2, len(bars.dates) // 3
    return {
        "all instruments, all days": [every],
        "all instruments, one day": [bars.of(bars.names.tolist(), bars.stretch(1))],
        "all instruments, from a date on": [bars.of(bars.names.tolist(), bars.dates[half:].tolist())],
        "all instruments, a third of the days": [bars.of(bars.names.tolist(), bars.dates[third : 2 * third].tolist())],
        "one instrument, all days": [bars.of([name], bars.dates.tolist()) for name in bars.some_names(1)],
        "one instrument, one day": [[one] for one in bars.some(3)],
    }


def _shifted(minutes: int | None, scope: str, *, cut: bool = False) -> _Plant:
    def plant(bars: Bars) -> Planted:
        by = bars.market.zone_minutes if minutes is None else minutes
        groups = _scopes(bars)[scope]
        rows = bars.rows([one for group in groups for one in group])
        stamps = bars.frame["datetime"] + pd.to_timedelta(np.where(rows, by, 0), unit="min")
        frame = bars.frame.assign(datetime=stamps)
        if cut:
            inner = bars.minute + by
            last = (bars.calendar.bounds[-1][1] - bars.calendar.bounds[0][0]) / 60
            return Planted(frame[~rows | ((inner >= 0) & (inner < last))], groups, ("hours_missing", "clock_shifted"))
        return Planted(frame, groups, ("clock_shifted",), (f"{abs(by)} minutes", "late" if by > 0 else "early"))

    return plant


def _changed(
    change: Callable[[Bars, pd.DataFrame], pd.DataFrame],
    kinds: tuple[str, ...],
    groups: Callable[[Bars], list[list[_Session]]],
    words: tuple[str, ...] = (),
) -> _Plant:
    """Return a plant that changes the bars of each session by itself."""

    def plant(bars: Bars) -> Planted | None:
        chosen = groups(bars)
        rows = bars.rows([one for group in chosen for one in group])
        if not rows.any():
            return None
        spoilt, rest = bars.frame[rows], bars.frame[~rows]
        parts = spoilt.groupby(bars.session[rows], sort=False)
        changed = [change(bars, part) for _, part in parts]
        return Planted(pd.concat([rest, *changed]), chosen, kinds, words)

    return plant


def _sessions(count: int = 4, *, inner: bool = False) -> Callable[[Bars], list[list[_Session]]]:
    return lambda bars: [[one] for one in bars.some(count, inner=inner)]


def _names(count: int, days: int | None = None) -> Callable[[Bars], list[list[_Session]]]:
    def groups(bars: Bars) -> list[list[_Session]]:
        return [
            bars.of([name], bars.dates.tolist() if days is None else bars.stretch(days))
            for name in bars.some_names(count)
        ]

    return groups


def _all(bars: Bars) -> list[list[_Session]]:
    return [bars.of(bars.names.tolist(), bars.dates.tolist())]


def _one_day(bars: Bars) -> list[list[_Session]]:
    return [bars.of(bars.names.tolist(), bars.stretch(1))]


def _running(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
    return part.assign(volume=part["volume"].fillna(0).cumsum())


def _running_by_segment(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
    noon = part["datetime"].dt.hour >= 12
    return part.assign(volume=part["volume"].fillna(0).groupby(noon).cumsum())


def _exchange(*names: str) -> Callable[[Bars, pd.DataFrame], pd.DataFrame]:
    """Return a change by which each column holds the next one's values."""

    def change(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(**dict(zip(names, [part[name] for name in (*names[1:], names[0])], strict=True)))

    return change


def _scaled(column: str, times: float) -> Callable[[Bars, pd.DataFrame], pd.DataFrame]:
    def change(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
        if column == "volume":
            return part.assign(volume=np.rint(part["volume"] * times))
        return part.assign(**{name: np.round(part[name] * times, 4) for name in _PRICES})

    return change


def _reversed(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
    values = part.drop(columns=["instrument", "datetime"])
    return part.assign(**{name: values[name].to_numpy()[::-1] for name in values})


def _no_volume(share: float, value: float) -> Callable[[Bars, pd.DataFrame], pd.DataFrame]:
    def change(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
        gone = (bars.rng.random(len(part)) < share) & (part["high"] > part["low"]).to_numpy()
        gone[bars.rng.permutation(np.flatnonzero(part["high"] > part["low"]))[:2]] = True
        gone |= share == 1
        return part.assign(volume=part["volume"].mask(gone, value))

    return change


def _kept(keep: Callable[[Bars, pd.DataFrame], np.ndarray]) -> Callable[[Bars, pd.DataFrame], pd.DataFrame]:
    return lambda bars, part: part[keep(bars, part)]


def _first_half(bars: Bars, part: pd.DataFrame) -> np.ndarray:
    return np.asarray(bars.minute[part.index] < 0.55 * (bars.minute.max() + bars.calendar.tick_minutes))


def _later_half(bars: Bars, part: pd.DataFrame) -> np.ndarray:
    return np.asarray(bars.minute[part.index] > 0.4 * bars.minute.max())


def _any_half(bars: Bars, part: pd.DataFrame) -> np.ndarray:
    return bars.rng.permutation(len(part)) < len(part) / 2


def _bad_print(size: float) -> Callable[[Bars, pd.DataFrame], pd.DataFrame]:
    def change(bars: Bars, part: pd.DataFrame) -> pd.DataFrame:
        last = (bars.calendar.bounds[-1][1] - bars.calendar.bounds[0][0]) / 60
        inside = part.index[(bars.minute[part.index] >= 0) & (bars.minute[part.index] < last)]
        at = inside[int(bars.rng.integers(3, len(inside) - 3))]
        part = part.copy()
        part.loc[at, _PRICES] *= 1 + size * bars.rng.choice([-1, 1])
        return part

    return change


def _copied(source: str) -> _Plant:
    def plant(bars: Bars) -> Planted:
        frame, groups = bars.frame, []
        parts, gone = [], np.zeros(len(frame), dtype=bool)
        number = {date: at for at, date in enumerate(bars.dates.tolist())}
        for name, date in bars.some(4, inner=True):
            back = 1 if source == "the day before" else int(bars.rng.integers(2, 6))
            mine = frame[bars.rows([(name, bars.dates[max(0, number[date] - back)])])]
            if len(mine) < 0.8 * bars.calendar.num_ticks:
                continue
            other = str(bars.dates[max(0, number[date] - back)])
            if other == date:
                continue
            gone |= bars.rows([(name, date)])
            parts.append(mine.assign(datetime=mine["datetime"] + (pd.Timestamp(date) - pd.Timestamp(other))))
            groups.append([(name, date)])
        return Planted(pd.concat([frame[~gone], *parts]), groups, ("session_copied",))

    return plant


def _twin(days: int | None, price: float = 1.0, volume: float = 1.0) -> _Plant:
    def plant(bars: Bars) -> Planted | None:
        names = bars.some_names(2)
        if len(names) < 2:
            return None
        first, second = sorted(names)
        dates = bars.dates.tolist() if days is None else bars.stretch(days)
        mine, gone = bars.rows(bars.of([first], dates)), bars.rows(bars.of([second], dates))
        copy = bars.frame[mine].assign(instrument=second)
        copy = copy.assign(**{name: copy[name] * price for name in _PRICES}, volume=np.rint(copy["volume"] * volume))
        sessions = [(second, date) for _, date in bars.of([first], dates)]
        frame = pd.concat([bars.frame[~gone].astype({"instrument": str}), copy])
        return Planted(frame, [sessions], ("session_twin",), (first,))

    return plant


def _outside(stamps: Callable[[Bars], pd.DatetimeIndex], kind: str) -> _Plant:
    def plant(bars: Bars) -> Planted:
        times = stamps(bars)
        odd = bars.frame.head(len(times)).assign(instrument="ODD", datetime=times)
        frame = pd.concat([bars.frame.astype({"instrument": str}), odd])
        return Planted(frame, [[("ODD", str(times[0])[:10])]], (kind,))

    return plant


_PRICE_UNITS = ("price_units", "price_jump")
#: Either kind names both causes where bars do not tell; the text must name the one that is true.
_BACKWARDS = ("session_reversed", "columns_exchanged")
#: Fault, size, and how it is planted.
FAULTS: list[tuple[str, str, _Plant]] = [
    *(
        ("clock_shifted", f"{text}, {scope}", _shifted(minutes, scope))
        for minutes, text in (
            (15, "15 min late"),
            (-30, "30 min early"),
            (60, "60 min late"),
            (-60, "60 min early"),
            (None, "UTC"),
        )
        for scope in (
            "all instruments, all days",
            "all instruments, one day",
            "all instruments, from a date on",
            "all instruments, a third of the days",
            "one instrument, all days",
            "one instrument, one day",
        )
    ),
    ("clock_shifted", "60 min late and cut to the session, all", _shifted(60, "all instruments, all days", cut=True)),
    ("clock_shifted", "60 min early and cut, one day", _shifted(-60, "all instruments, one day", cut=True)),
    ("volume_running_total", "all", _changed(_running, ("volume_running_total",), _all)),
    ("volume_running_total", "one instrument", _changed(_running, ("volume_running_total",), _names(2))),
    ("volume_running_total", "one session", _changed(_running, ("volume_running_total",), _sessions())),
    (
        "volume_running_total",
        "anew after noon, one instrument",
        _changed(_running_by_segment, ("volume_running_total",), _names(2)),
    ),
    ("session_copied", "of the day before", _copied("the day before")),
    ("session_copied", "of some days before", _copied("any")),
    ("session_twin", "all days", _twin(None)),
    ("session_twin", "three days", _twin(3)),
    ("session_twin", "all days, prices times 1.37", _twin(None, price=1.37)),
    ("session_twin", "all days, prices times 1.37, volume times 2", _twin(None, price=1.37, volume=2.0)),
    (
        "range_without_volume",
        "2 % of one session",
        _changed(_no_volume(0.02, 0.0), ("range_without_volume",), _sessions()),
    ),
    (
        "range_without_volume",
        "a third of one session",
        _changed(_no_volume(0.3, 0.0), ("range_without_volume",), _sessions()),
    ),
    ("volume_lost", "0, one session", _changed(_no_volume(1, 0.0), ("volume_lost",), _sessions())),
    ("volume_lost", "0, one day", _changed(_no_volume(1, 0.0), ("volume_lost",), _one_day)),
    ("volume_lost", "0, one instrument", _changed(_no_volume(1, 0.0), ("volume_lost",), _names(2))),
    ("volume_lost", "missing, one instrument", _changed(_no_volume(1, np.nan), ("volume_lost",), _names(2))),
    *(
        (
            "columns_exchanged",
            f"{' and '.join(names)}, {text}",
            _changed(_exchange(*names), ("columns_exchanged",), where)
            if names != ("open", "close")
            else _changed(_exchange(*names), _BACKWARDS, where, ("open and close",)),
        )
        for names in (
            ("open", "close"),
            ("high", "low"),
            ("high", "open"),
            ("close", "volume"),
            ("high", "close", "low"),
        )
        for text, where in (("all", _all), ("one instrument", _names(2)), ("one session", _sessions()))
    ),
    *(
        (
            "volume_units",
            f"{text}, {days} sessions",
            _changed(_scaled("volume", times), ("volume_units",), _names(2, days)),
        )
        for text, times in (("in lots of 100", 0.01), ("times 100", 100.0))
        for days in (1, 3, 7)
    ),
    ("volume_units", "in lots of 100, one day of all", _changed(_scaled("volume", 0.01), ("volume_break",), _one_day)),
    *(
        (
            "price_units",
            f"times {times:g}, {days} sessions",
            _changed(_scaled("price", times), _PRICE_UNITS, _names(2, days)),
        )
        for times in (100.0, 0.01, 0.7)
        for days in (1, 5)
    ),
    ("session_reversed", "one session", _changed(_reversed, _BACKWARDS, _sessions(), ("backwards",))),
    ("session_reversed", "one instrument", _changed(_reversed, _BACKWARDS, _names(1), ("backwards",))),
    ("session_reversed", "all", _changed(_reversed, _BACKWARDS, _all, ("backwards",))),
    ("hours_missing", "after noon, one day", _changed(_kept(_first_half), ("hours_missing",), _one_day)),
    ("hours_missing", "after noon, all days", _changed(_kept(_first_half), ("hours_missing",), _all)),
    ("hours_missing", "the morning, one day", _changed(_kept(_later_half), ("hours_missing",), _one_day)),
    ("hours_missing", "the morning, one instrument", _changed(_kept(_later_half), ("hours_missing",), _names(2))),
    ("bars_missing", "any half, one session", _changed(_kept(_any_half), ("bars_missing",), _sessions())),
    ("bars_missing", "any half, one day", _changed(_kept(_any_half), ("bars_missing",), _one_day)),
    ("bars_missing", "any half, five sessions", _changed(_kept(_any_half), ("bars_missing",), _names(2, 5))),
    ("outlier", "5 %", _changed(_bad_print(0.05), ("outlier",), _sessions())),
    ("outlier", "15 %", _changed(_bad_print(0.15), ("outlier",), _sessions())),
    (
        "instrument_outside",
        "12 bars at night",
        _outside(lambda bars: pd.date_range(f"{bars.dates[0]} 20:00", periods=12, freq="min"), "instrument_outside"),
    ),
    ("daily_bars", "stamped at midnight", _outside(lambda bars: pd.DatetimeIndex(bars.dates), "daily_bars")),
]


def _early_close(bars: Bars) -> pd.DataFrame:
    """Return bars without one day, and without the last hour and a half of the day before."""
    at = int(bars.rng.integers(1, len(bars.dates) - 2))
    last = (bars.calendar.bounds[-1][1] - bars.calendar.bounds[0][0]) / 60 - 90
    gone = bars.on([bars.dates[at + 1]]) | (bars.on([bars.dates[at]]) & (bars.minute >= last))
    return bars.frame[~gone]


def _halt(bars: Bars) -> pd.DataFrame:
    """Return bars without an hour of four sessions, and without the last two hours of two."""
    frame, chosen = bars.frame, bars.some(6)
    length = float(bars.minute.max())
    for number, one in enumerate(chosen):
        begin = length - 120 if number > 3 else float(bars.rng.uniform(30, length - 90))
        rows = bars.rows([one]) & (bars.minute >= begin) & (bars.minute < begin + (60 if number <= 3 else 999))
        frame = frame.drop(index=frame.index.intersection(bars.frame.index[rows]))
    return frame


def _news(bars: Bars) -> pd.DataFrame:
    """Return bars in which four sessions move by 12 % within a bar, with 30 times the volume, and stay wild."""
    frame = bars.frame.copy()
    for one in bars.some(4):
        rows = np.flatnonzero(bars.rows([one]))
        at = int(bars.rng.integers(10, len(rows) - 10)) if len(rows) > 30 else len(rows) // 2
        size = 1 + 0.12 * float(bars.rng.choice([-1, 1]))
        old = float(frame["close"].iloc[rows[at - 1]])
        frame.loc[frame.index[rows[at:]], _PRICES] *= size
        frame.loc[frame.index[rows[at]], "open"] = old
        bar = frame.loc[frame.index[rows[at]], ["open", "close"]]
        frame.loc[frame.index[rows[at]], ["high", "low"]] = [max(bar), min(bar)]
        wild = frame.index[rows[at : at + 20]]
        frame.loc[wild, "volume"] = frame.loc[wild, "volume"].clip(lower=1) * np.linspace(30, 3, len(wild))
        mine = bars.name == one[0]
        later = bars.day > np.datetime64(one[1], "D").astype(int)
        frame.loc[frame.index[mine & later], _PRICES] *= size
    return frame


def _busy(bars: Bars) -> pd.DataFrame:
    """Return bars in which four sessions open 35 % away, with 15 times the volume and three times the range."""
    frame = bars.frame.copy()
    for one in bars.some(4, inner=True):
        rows = bars.rows([one])
        size = float(bars.rng.choice([1.35, 0.65]))
        later = bars.day >= np.datetime64(one[1], "D").astype(int)
        frame.loc[(bars.name == one[0]) & later, _PRICES] *= size
        middle = frame.loc[rows, ["open", "close"]].mean(axis=1)
        for name in _PRICES:
            frame.loc[rows, name] = middle + 3 * (frame.loc[rows, name] - middle)
        frame.loc[rows, "volume"] *= 15
    return frame


#: What is no fault, and how it is put into bars.
SOUND: dict[str, Callable[[Bars], pd.DataFrame]] = {
    "an early close before a holiday": _early_close,
    "halts of one instrument": _halt,
    "news within a session": _news,
    "news overnight": _busy,
}


def check(frame: pd.DataFrame, calendar: Calendar) -> Report:
    """Return all that a check finds in bars, without a way over files."""
    report = Report(limit=1 << 30)
    bars = merge(bars_of(table_of(frame, report), calendar.timezone, report), report, {}).bars
    builder = PanelBuilder(lambda: [bars], calendar, Building(), report, {})
    try:
        builder.conclude(join_sessions([part.without_fields() for part in builder], report))
    except DataError as error:
        report.add("refused", 1, str(error))
    return report


def alarms(report: Report, sessions: set[_Session], kinds: Sequence[str] | None = None) -> dict[_Session, set[str]]:
    """Return the sessions that faults of a report name, each with the kinds and the texts of them."""
    by_date: dict[str, list[str]] = {}
    for name, date in sessions:
        by_date.setdefault(date, []).append(name)
    dates = np.array(sorted(by_date))
    found: dict[_Session, set[str]] = {}
    for kind, listed in report.listed.items():
        if KINDS[kind].severity != "fault" or (kinds is not None and kind not in kinds):
            continue
        for one in listed:
            first, last = one.date or dates[0], one.last or one.date or dates[-1]
            for date in dates[(dates >= first) & (dates <= last)].tolist() or [first]:
                names = by_date.get(date, []) if one.instrument is None else [one.instrument]
                for name in names:
                    found.setdefault((name, date), set()).update((kind, one.what))
    return found


def _load(name: str) -> pd.DataFrame | None:
    if name == "synthetic":
        return synthetic_bars(SyntheticSettings(instruments=20, days=60))
    path = _DATA / name / "bars.parquet"
    if not path.is_file():
        return None
    return read_bars(path).drop_duplicates(["instrument", "datetime"], keep="last")


def _part(whole: Bars, rng: np.random.Generator) -> Bars:
    """Return some instruments and days in a row of a set."""
    names = rng.permutation(whole.names)[:_INSTRUMENTS].tolist()
    begin = int(rng.integers(0, max(1, len(whole.dates) - _DAYS + 1)))
    part = whole.frame[whole.rows(whole.of(names, whole.dates[begin : begin + _DAYS].tolist()))]
    return Bars(part.assign(instrument=part["instrument"].astype(str)), whole.market, rng)


def measure(name: str, *, rounds: int, seed: int = 0, only: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of one set; none where it is absent."""
    frame = _load(name)
    if frame is None:
        return
    market = MARKETS[name]
    whole = Bars(frame, market, np.random.default_rng(seed))
    every = set(whole.of(whole.names.tolist(), whole.dates.tolist()))
    raised = alarms(check(frame, market.calendar), every)
    per_kind: dict[str, int] = {}
    spoilt_before = {one for one, texts in raised.items() if texts & market.known.keys()}
    unknown = 0
    for texts in raised.values():
        kinds = {text for text in texts if text in KINDS}
        for kind in kinds - market.known.keys():
            per_kind[kind] = per_kind.get(kind, 0) + 1
        unknown += bool(kinds - market.known.keys())
    base = {"set": name, "held_out": market.held_out}
    yield {
        **base,
        "kind": "untouched",
        "size": f"{len(every):,} instrument-days",
        "planted": 0,
        "caught": 0,
        "false_alarms_per_1000": round(1000 * unknown / len(every), 3),
        "known": {kind: [sum(kind in texts for texts in raised.values()), why] for kind, why in market.known.items()},
        "false_alarms": per_kind,
    }
    for kind, size, plant in FAULTS:
        if only is not None and only not in kind:
            continue
        planted = caught = 0
        missed = []
        for number in range(rounds):
            bars = _part(whole, np.random.default_rng([seed, number, sum(map(ord, kind + size))]))
            spoilt = plant(bars)
            if spoilt is None:
                continue
            sessions = set(bars.of(bars.names.tolist(), bars.dates.tolist()))
            found = alarms(check(spoilt.frame, market.calendar), sessions, spoilt.kinds)
            for sessions_of in spoilt.groups:
                # two faults in one session hide each other, so sessions that had one before are not counted
                group = [one for one in sessions_of if one not in spoilt_before]
                if not group:
                    continue
                named = [
                    all(any(word in text for text in found.get(one, ())) for word in spoilt.words) and one in found
                    for one in group
                ]
                planted += 1
                caught += (good := sum(named) >= _NAMED * len(group))
                if not good:
                    missed.append(f"{group[0][0]} {group[0][1]}")
        if planted:
            yield {
                **base,
                "kind": kind,
                "size": size,
                "planted": planted,
                "caught": caught,
                "false_alarms_per_1000": round(1000 * per_kind.get(kind, 0) / len(every), 3),
                "missed": missed[:3],
            }
    for text, change in SOUND.items():
        if only is not None and only not in text:
            continue
        count = wrong = 0
        said: dict[str, int] = {}
        for number in range(rounds):
            bars = _part(whole, np.random.default_rng([seed, number, len(text)]))
            sessions = set(bars.of(bars.names.tolist(), bars.dates.tolist()))
            before = alarms(check(bars.frame, market.calendar), sessions)
            after = alarms(check(change(bars), market.calendar), sessions)
            count += len(sessions)
            for one, kinds in after.items():
                new = {kind for kind in kinds - before.get(one, set()) if kind in KINDS}
                wrong += bool(new)
                for kind in new:
                    said[kind] = said.get(kind, 0) + 1
        yield {
            **base,
            "kind": "no fault",
            "size": text,
            "planted": 0,
            "caught": 0,
            "false_alarms_per_1000": round(1000 * wrong / count, 3),
            "false_alarms": said,
        }


def _measured(name: str, *, rounds: int, only: str | None) -> list[dict[str, Any]]:
    return list(measure(name, rounds=rounds, only=only))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table: kinds by sets, caught of planted."""
    table = pd.DataFrame(rows)
    faults = table[table["planted"] > 0]
    lines = ["| kind | set | planted | caught | share |", "|---|---|--:|--:|--:|"]
    for (kind, name), of in faults.groupby(["kind", "set"], sort=False):
        planted, caught = of["planted"].sum(), of["caught"].sum()
        lines.append(f"| {kind} | {name} | {planted} | {caught} | {caught / planted:.1%} |")
    for name, of in faults.groupby("set", sort=False):
        planted, caught = of["planted"].sum(), of["caught"].sum()
        lines.append(f"| all | {name} | {planted} | {caught} | {caught / planted:.1%} |")
    lines.append("")
    for row in table[table["planted"] == 0].to_dict("records"):
        alarms = f"{row['false_alarms_per_1000']} false alarms a thousand {row['false_alarms'] or ''}"
        lines.append(f"{row['set']}: {row['kind']}, {row['size']}: {alarms}")
    return "\n".join(lines)


def main() -> None:
    """Plant faults, check, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(MARKETS), default=list(MARKETS))
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="checks of each fault and size")
    parser.add_argument("--jobs", type=int, default=2, help="sets at a time, each in a process of its own")
    parser.add_argument("--only", help="faults whose kind contains this; nothing is written then")
    options = parser.parse_args()
    begun = time.monotonic()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        work = partial(_measured, rounds=options.rounds, only=options.only)
        for name, found in zip(options.sets, pool.map(work, options.sets), strict=True):
            if not found:
                print(f"{name} is not at {_DATA}, so it is left out.")
            for row in found:
                if row["planted"] and row["caught"] < row["planted"]:
                    what = f"{row['caught']} of {row['planted']}, missed {', '.join(row['missed'])}"
                    print(f"{row['set']}, {row['kind']}, {row['size']}: {what}", flush=True)
            rows += found
    print(summary(rows))
    seconds = round(time.monotonic() - begun)
    print(f"{seconds} s")
    if options.only is None:
        write_json(_OUT, {**context(), "seconds": seconds, "rows": rows})


if __name__ == "__main__":
    main()
