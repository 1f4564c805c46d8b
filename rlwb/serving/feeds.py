"""Feeds of bars: what a policy in service is told of the market, and when.

A feed of one's own, of a broker or a data vendor, is one class with one method; see docs/serving/paper.md.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from rlwb.code import Code
from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Sessions, load_sessions
from rlwb.market.dataset.state import is_dataset
from rlwb.market.schema import COLUMNS
from rlwb.market.store import is_panel

#: Earlier sessions with a close that are told of each instrument, enough for yesterday's features and their reference.
HISTORY = 3
_KEYS = ("instrument", "datetime")
_NUMBERS = tuple(name for name in COLUMNS if name not in (*_KEYS, "halted"))
_ATTEMPT_SECONDS = 10.0
_LONGEST_PAUSE = 60.0


class Arrival(NamedTuple):
    """What a feed tells at one moment.

    Attributes
    ----------
    time
        Session-local, without a zone: all ticks that end by then are over, whether they had a bar or not.
    bars
        The bars that arrive then, in the schema's columns (`rlwb.market.schema`), one row a bar; it may have no rows.
        Stamps are named as the calendar's label says.
    """

    time: pd.Timestamp
    bars: pd.DataFrame


class Feed(ABC):
    """Bars in the order in which the market makes them; subclass it for a source of your own."""

    @property
    def sessions(self) -> Sessions | None:
        """The whole panel, where it is known beforehand because the past is played; None for a live source."""
        return None

    @abstractmethod
    def __iter__(self) -> Iterator[Arrival]:
        """Yield arrivals, their times not falling. It may wait for the market; it ends when there is no more."""

    def history(self, date: np.datetime64) -> pd.DataFrame:
        """Return bars of whole earlier sessions, for what features say of yesterday; none by default."""
        return no_bars()


def no_bars() -> pd.DataFrame:
    """Return a table of no bars."""
    return pd.DataFrame({"instrument": pd.Series(dtype=object), "datetime": pd.Series(dtype="datetime64[ns]")})


class SessionsFeed(Feed):
    """A panel, played tick by tick: at a tick's end come the bars of that tick.

    Parameters
    ----------
    sessions
        The panel.
    dates, instruments
        Which days and instruments are played; all by default. A day that the panel lacks is a `DataError`.
    """

    def __init__(
        self, sessions: Sessions, dates: Iterable[Any] | None = None, instruments: Iterable[str] | None = None
    ) -> None:
        held = np.unique(sessions.dates)
        self.dates = held if dates is None else np.unique(np.array(list(dates), dtype="datetime64[D]"))
        missing = self.dates[~np.isin(self.dates, held)]
        if len(missing):
            span = f"{held[0]} to {held[-1]}" if len(held) else "no day"
            raise DataError(f"the bars have no session on {missing[0]}; they hold {span}.")
        self.instruments = sorted(sessions.index.names if instruments is None else set(instruments))
        self._sessions = sessions
        self._is_played = np.isin(sessions.instruments, self.instruments)

    @classmethod
    def read(
        cls,
        source: str | Path,
        calendar: Calendar | None = None,
        *,
        dates: Iterable[Any] | None = None,
        instruments: Sequence[str] | None = None,
        **how: Any,
    ) -> Self:
        """Read a file, a folder, a data set or a saved panel, as `rlwb.market.load_sessions` does."""
        return cls(load_sessions(source, calendar, instruments=instruments, **how), dates)

    @property
    def sessions(self) -> Sessions:
        """The panel that is played."""
        return self._sessions

    def __iter__(self) -> Iterator[Arrival]:
        calendar = self._sessions.calendar
        for date in self.dates:
            rows = np.flatnonzero(self._is_played & (self._sessions.dates == date))
            bars, tick = bars_of(self._sessions, rows)
            order = np.argsort(tick, kind="stable")
            bars, stops = bars.iloc[order], np.searchsorted(tick[order], np.arange(calendar.num_ticks + 1))
            last = int(self._sessions.num_ticks[rows].max(initial=0))
            day = pd.Timestamp(date)
            yield Arrival(day + pd.Timedelta(seconds=calendar.seconds_at(0)), bars.iloc[:0])
            for over in range(last):
                end = day + pd.Timedelta(seconds=int(calendar.tick_start[over]) + calendar.tick_seconds)
                yield Arrival(end, bars.iloc[stops[over] : stops[over + 1]])

    def __len__(self) -> int:
        """Return the number of arrivals."""
        longest = [self._sessions.num_ticks[self._is_played & (self._sessions.dates == date)] for date in self.dates]
        return sum(1 + int(ticks.max(initial=0)) for ticks in longest)

    def history(self, date: np.datetime64) -> pd.DataFrame:
        """Return the bars of each instrument's last sessions before `date`, `HISTORY` of which have a close."""
        sessions = self._sessions
        early = np.flatnonzero(self._is_played & (sessions.dates < date))
        has_close = np.any(sessions.fields["close"][early] > 0, axis=1)
        _, code = np.unique(sessions.instruments[early], return_inverse=True)
        later = pd.Series(has_close[::-1]).groupby(code[::-1]).cumsum().to_numpy()[::-1]  # with this one
        kept = early[later - has_close < HISTORY]
        bars, _ = bars_of(sessions, kept)
        return bars.sort_values(["datetime", "instrument"], kind="stable", ignore_index=True)


def bars_of(sessions: Sessions, rows: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the bars of sessions in the schema's columns, and the tick of each, int64 of shape (bars,)."""
    calendar = sessions.calendar
    stated = np.zeros((len(rows), calendar.num_ticks), dtype=bool)
    for values in sessions.fields.values():
        stated |= np.isfinite(values[rows])
    if sessions.halted is not None:
        stated |= sessions.halted[rows]
    i, tick = np.nonzero(stated)
    row = rows[i]
    seconds = calendar.tick_start[tick] + (calendar.tick_seconds if calendar.label == "end" else 0)
    stamps = sessions.dates[row].astype("datetime64[s]") + seconds.astype("timedelta64[s]")
    bars = {"instrument": sessions.instruments[row].astype(object), "datetime": stamps.astype("datetime64[ns]")}
    bars |= {name: values[row, tick] for name, values in sessions.fields.items()}
    if sessions.halted is not None:
        bars["halted"] = sessions.halted[row, tick]
    if sessions.factor is not None:
        bars["factor"] = sessions.factor[row]
    return pd.DataFrame(bars), tick


def read_past(source: str | Path, calendar: Calendar) -> Sessions:
    """Return earlier sessions of a file, folder, data set or saved panel, on a clock.

    Raises
    ------
    ConfigError
        When a data set or panel has another clock.
    """
    return on_clock(load_sessions(source, None if brings_clock(source) else calendar), calendar)


def brings_clock(source: str | Path) -> bool:
    """Tell whether bars have a calendar of their own."""
    return is_dataset(source) or is_panel(Path(source))


def on_clock(sessions: Sessions, calendar: Calendar) -> Sessions:
    """Return sessions with the calendar of a bundle, whose clock theirs must be."""
    clock_of = operator.attrgetter("segments", "tick_minutes")
    if clock_of(sessions.calendar) != clock_of(calendar):
        here, there = (f"{one.tick_minutes:g} min in {one.segments}" for one in (sessions.calendar, calendar))
        raise ConfigError(
            f"the bars are of {here}, those that the policy was trained on of {there}; play bars of the same clock."
        )
    return dataclasses.replace(sessions, calendar=calendar)


class SocketFeed(Feed):
    """Bars that a program sends over a socket, a line of JSON an arrival.

    A line is ``{"time": "2024-03-01T09:31:00", "bars": [{"instrument": "ABC", "datetime": …, "open": …}, …]}``: what
    an `Arrival` holds; without bars it only tells the time. ``{"end": true}`` ends the feed. A connection that is lost,
    or closed without that word, is made again, and what the other side then repeats does no harm: bars that are known
    have no effect, and the time does not go back.

    Parameters
    ----------
    address
        ``tcp://host:port`` or ``unix:/path``.
    attempts
        How often in a row a connection is tried, waiting a second, two, four … a minute at most.
    longest_line
        Most bytes of a line.
    past
        Earlier sessions, of which `history` is made.
    sleep
        Waits so many seconds.

    Raises
    ------
    ConfigError
        For another address.
    DataError
        While it is read: for a line that is too long or is not as above, naming the line and the field, and when the
        connection cannot be made.
    """

    def __init__(
        self,
        address: str,
        *,
        attempts: int = 8,
        longest_line: int = 1 << 20,
        past: Sessions | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(address)
        try:
            fits = bool(parts.hostname and parts.port) if parts.scheme == "tcp" else parts.scheme == "unix"
        except ValueError:
            fits = False
        if not fits or (parts.scheme == "unix" and not parts.path):
            raise ConfigError(f"the address {address!r} of a feed is none; write tcp://host:port or unix:/path.")
        if attempts < 1 or longest_line < 2:
            raise ConfigError(f"attempts {attempts} and longest_line {longest_line} of a feed must be above 0.")
        self.address, self.attempts, self.longest_line, self._sleep = address, attempts, longest_line, sleep
        self._past = None if past is None else SessionsFeed(past)
        #: How often the connection was lost or could not be made.
        self.lost = 0

    def __iter__(self) -> Iterator[Arrival]:
        latest, failures = pd.Timestamp.min, 0
        while True:
            try:
                with closing(self._connect()) as connection, connection.makefile("rb") as lines:
                    for number, line in enumerate(iter(lambda: lines.readline(self.longest_line + 1), b""), 1):
                        if len(line) > self.longest_line:
                            raise DataError(
                                f"{self.address}, line {number}: it is longer than {self.longest_line:,} bytes; send "
                                "fewer bars at a time."
                            )
                        if not line.endswith(b"\n"):  # cut off with the connection
                            break
                        arrival = _parsed(line, f"{self.address}, line {number}")
                        if arrival is None:
                            return
                        failures, latest = 0, max(latest, arrival.time)
                        yield arrival._replace(time=latest)
                raise ConnectionError("it closes the connection")
            except OSError as error:
                failures += 1
                if failures >= self.attempts:
                    raise DataError(
                        f"{self.address} cannot be read after {failures} attempts ({error}); start what sends the "
                        "bars, or correct the address."
                    ) from None
                self.lost += 1
                self._sleep(min(2.0 ** (failures - 1), _LONGEST_PAUSE))

    def history(self, date: np.datetime64) -> pd.DataFrame:
        """Return the bars of the last sessions before `date`; see `SessionsFeed.history`."""
        return no_bars() if self._past is None else self._past.history(date)

    def _connect(self) -> socket.socket:
        parts = urlsplit(self.address)
        if parts.scheme == "tcp":
            assert parts.hostname is not None
            assert parts.port is not None
            connection = socket.create_connection((parts.hostname, parts.port), timeout=_ATTEMPT_SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        else:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(parts.path)
            except OSError:
                connection.close()
                raise
        connection.settimeout(None)  # a market may be silent for hours
        return connection


def _parsed(line: bytes, where: str) -> Arrival | None:
    """Return what a line of JSON says, None for the end; what is not as it must be is a `DataError`."""

    def wrong(what: str) -> DataError:
        return DataError(f"{where}: {what}; write it as docs/serving/paper.md shows.")

    try:
        message = json.loads(line, parse_int=float)  # an int may have any number of digits
    except (ValueError, RecursionError):
        raise wrong("it is no JSON") from None
    if message == {"end": True}:
        return None
    if not isinstance(message, dict) or set(message) - {"time", "bars"} or "time" not in message:
        raise wrong("it must be an object with time and bars alone")
    bars = message.get("bars", [])
    if not isinstance(bars, list) or not all(isinstance(bar, dict) for bar in bars):
        raise wrong("its bars must be a list of objects")
    for bar in bars:
        if not isinstance(bar.get("instrument"), str):
            raise wrong(f"a bar's instrument is {bar.get('instrument')!r}, not text")
        if unknown := sorted(set(bar) - set(COLUMNS)):
            raise wrong(f"a bar has a field {unknown[0]!r}, which bars have not")
        for name in _NUMBERS:
            value = bar.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise wrong(f"a bar's {name} is {value!r}, not a number")
        if not isinstance(bar.get("halted", False), bool):
            raise wrong(f"a bar's halted is {bar['halted']!r}, not true or false")
    moment = _stamp(message["time"])
    stamps = [_stamp(bar.get("datetime")) for bar in bars]
    if moment is None or None in stamps:
        odd = message["time"] if moment is None else bars[stamps.index(None)].get("datetime")
        raise wrong(f"{odd!r} is no session-local stamp without a zone")
    if not bars:
        return Arrival(moment, no_bars())
    frame = pd.DataFrame(bars)
    frame["datetime"] = np.array(stamps, dtype="datetime64[ns]")
    for name in frame.columns.intersection(_NUMBERS):
        frame[name] = frame[name].astype(np.float64)
    if "halted" in frame:
        frame["halted"] = np.array([bar.get("halted", False) for bar in bars])
    return Arrival(moment, frame)


def line_of(arrival: Arrival) -> bytes:
    """Return an arrival as the line of JSON that `SocketFeed` reads."""
    table = arrival.bars.assign(datetime=[stamp.isoformat() for stamp in arrival.bars["datetime"]])
    bars = [{name: value for name, value in bar.items() if value == value} for bar in table.to_dict("records")]
    return json.dumps({"time": arrival.time.isoformat(), "bars": bars}, allow_nan=False).encode() + b"\n"


def _stamp(value: Any) -> pd.Timestamp | None:
    if not isinstance(value, str):
        return None
    try:
        stamp = pd.Timestamp(value).as_unit("ns")
    except (ValueError, OverflowError):
        return None
    return None if pd.isna(stamp) or stamp.tzinfo is not None else stamp


def open_feed(source: str | Path, calendar: Calendar | None = None, *, past: Sessions | None = None) -> Feed:
    """Return the feed that a text names.

    Parameters
    ----------
    source
        ``tcp://…`` or ``unix:…``; ``file.py:Name`` or ``package.module:Name`` of a `Feed` of your own, which is called
        without arguments and whose code runs; or bars in a file, folder, data set or saved panel.
    calendar
        The clock of bars that bring none.
    past
        Earlier sessions, for a socket.
    """
    text = str(source)
    if text.startswith(("tcp:", "unix:")):
        return SocketFeed(text, past=past)
    place, _, name = text.rpartition(":")
    if place and name.isidentifier() and not Path(text).exists():
        kind = Code(place, name, is_foreign=True).load()
        if not isinstance(kind, type) or not issubclass(kind, Feed):
            raise ConfigError(f"{text} is no class of feeds; derive it from {Feed.__module__}.Feed.")
        try:
            return kind()
        except TypeError as error:
            raise ConfigError(f"{text} cannot be made ({error}); let it be called without arguments.") from None
    return SessionsFeed.read(source, calendar)


def paced(
    arrivals: Iterable[Arrival],
    speed: float,
    longest: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Arrival]:
    """Yield the arrivals of the past at the times at which they would come.

    Parameters
    ----------
    speed
        Seconds of the market in one of the clock: 60 plays a minute a second, 0 or infinity does not wait.
    longest
        Most seconds of the market between two arrivals that are waited for, so that nights and breaks pass at once.
    now, sleep
        The clock, in seconds, and what waits so many.
    """
    if not speed >= 0:
        raise ConfigError(f"speed is {speed}; give 60 for a minute a second, or 0 not to wait.")
    if speed == 0 or math.isinf(speed):
        yield from arrivals
        return
    before, due = None, now()
    for arrival in arrivals:
        if before is not None:
            due += min((arrival.time - before).total_seconds(), longest) / speed
            if (ahead := due - now()) > 0:
                sleep(ahead)
            else:  # what came late does not hurry what follows
                due = now()
        before = arrival.time
        yield arrival
