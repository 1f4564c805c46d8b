"""Where bars and orders come from: the markets and orders that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, OrderSettings, align_orders, generate_orders, read_orders
from rlwb.market import Calendar, Sessions, load_sessions
from rlwb.market.build import Building
from rlwb.market.dataset.state import is_dataset
from rlwb.market.noise import random_signs
from rlwb.market.store import is_panel
from rlwb.parts import Part


@dataclass(frozen=True)
class CalendarSettings:
    """The session's clock: a preset, and what differs from it.

    Parameters
    ----------
    preset
        ``cn``, ``us``, ``in`` or ``crypto``; ``us`` where neither `exchange` nor `segments` states the session.
    exchange
        Code of an exchange, such as XNYS, XSHG or XLON, whose hours, zone, holidays and early closes are taken from the
        package exchange_calendars (pip install 'rlwb[calendars]'); in place of `preset`.
    segments
        Opening and closing time of each part of the session, for example ``[["09:30", "11:30"], ["13:00", "15:00"]]``.
    tick_minutes : minutes
        Length of a bar in minutes; 1/60 is a second. It must be that of the bars.
    label
        Whether a bar's stamp names its ``start`` or its ``end``. A wrong label shifts every decision by one bar.
    timezone
        Zone of the exchange (IANA name); bars that carry a zone need it.
    weekdays : days of the week
        Days with trading, Monday is 0.
    early_closes
        Closing time by date of shortened days.
    closed
        Dates whose bars are rejected.
    infer_early_close_minutes : minutes
        A date on which nothing trades for the last this many minutes closed early; 0 turns that off.
    """

    preset: Literal["cn", "us", "in", "crypto"] | None = None
    exchange: str | None = None
    segments: tuple[tuple[str, str], ...] | None = None
    tick_minutes: float = 1.0
    label: Literal["start", "end"] = "start"
    timezone: str | None = None
    weekdays: tuple[int, ...] | None = None
    early_closes: dict[str, str] | None = None
    closed: tuple[str, ...] = ()
    infer_early_close_minutes: int | None = None

    def __post_init__(self) -> None:
        self.build()

    def build(self) -> Calendar:
        """Return the calendar."""
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        preset, exchange = given.pop("preset", None), given.pop("exchange", None)
        if exchange is not None:
            if preset is not None:
                raise ConfigError(f"the calendar is given as preset {preset} and as exchange {exchange}; keep one.")
            return Calendar.exchange(exchange, **given)
        if preset is None and "segments" in given:
            return Calendar(**given)
        return Calendar.preset(preset or "us", **given)


def bars(
    source: str,
    settings: Building,
    *,
    reader: Part | None = None,
    calendar: CalendarSettings | None = None,
    instruments: tuple[str, ...] = (),
    start: str | None = None,
    end: str | None = None,
    source_timezone: str | None = None,
    round_seconds: float | None = None,
    noise_seed: int | None = None,
    cache_dir: Path | None = None,
) -> Sessions:
    """Return the panel of bars of your own.

    Parameters
    ----------
    source
        Path of the bars: a data set (``rlwb data import``), a saved panel, a Parquet or CSV file, a folder with one
        file an instrument, or what another reader reads. In a configuration file, a relative path starts at that file.
    settings
        How bars become a panel.
    reader
        What reads the source, with its settings, for example ``{name: qlib, freq: 1min}``; none goes by the names of
        the files. Parquet and CSV with other column names are ``{name: table, columns: {symbol: instrument}}``, and a
        pickle is read only with ``{name: qlib_pickle, trust_pickle: true}``.
    calendar
        The session's clock. A data set and a saved panel bring theirs, which is used unless another is given here;
        other bars without one are taken as those of US stocks by the minute.
    instruments
        Names of the instruments to use, quoted where they look like numbers; empty means all.
    start, end
        First and last date to use.
    source_timezone
        Zone of stamps that carry none, for example ``UTC``; none means the calendar's.
    round_seconds : seconds
        Stamps at most this many seconds from the bars' grid are moved onto it, and counted; none moves none.
    noise_seed
        Seed of random signs by which the bars' returns are turned, so that nothing can be learnt while volatility,
        volumes and calendar stay as they are (`rlwb.market.noise`): the noise twin of a market. None leaves the bars.
    cache_dir
        Where prepared bars are kept.
    """
    brings = reader is None and (is_dataset(source) or is_panel(source))
    sessions = load_sessions(
        source,
        None if brings and calendar is None else (calendar or CalendarSettings()).build(),
        kind=reader.name if reader else None,
        options=reader.settings if reader and reader.settings else None,
        instruments=instruments or None,
        start=start,
        end=end,
        source_timezone=source_timezone,
        round_seconds=round_seconds,
        cache_dir=cache_dir,
        **vars(settings),
    )
    return sessions if noise_seed is None else random_signs(sessions, noise_seed)


def generated_orders(
    sessions: Sessions, rules: ExecutionRules, settings: OrderSettings, *, seed: int = 0
) -> pd.DataFrame:
    """Return orders sampled by a recipe; those that cannot be executed are left out and noted."""
    return _executable(generate_orders(sessions, settings, seed=seed, lot_size=rules.lot_size), sessions, rules)


def _executable(table: pd.DataFrame, sessions: Sessions, rules: ExecutionRules) -> pd.DataFrame:
    """Return the orders that can be executed; the others are noted."""
    batch = align_orders(table, sessions, rules, on_refused="drop")
    left_out = [f"{len(ids)} orders were left out: {reason}" for reason, ids in batch.refused.items()]
    kept = batch.table if batch.refused else table
    kept.attrs["notes"] = [*table.attrs["notes"], *left_out]
    return kept


def own_orders(
    sessions: Sessions,
    rules: ExecutionRules,
    source: str,
    *,
    trust_pickle: bool = False,
    on_refused: Literal["raise", "drop"] = "raise",
) -> pd.DataFrame:
    """Return an order table of your own.

    Parameters
    ----------
    source
        Path of the table, Parquet, CSV or a pickle of Qlib's orders, or a folder of such pickles. In a configuration
        file, a relative path starts at that file.
    trust_pickle
        Must be true for a pickle, which can be made to run anything when it is read.
    on_refused
        What happens to wrong rows and to orders that cannot be executed: ``raise`` refuses the table and names them,
        ``drop`` leaves them out and notes them.
    """
    table = read_orders(source, sessions.calendar, trust_pickle=trust_pickle, on_refused=on_refused)
    return table if on_refused == "raise" else _executable(table, sessions, rules)
