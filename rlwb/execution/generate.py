"""Making orders from the data, and cutting them into training, validation and test by date."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.market import Sessions
from rlwb.market.clock import day_of

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class OrderSettings:
    """The recipe of generated orders.

    Parameters
    ----------
    log_mean, log_std
        The amount is lognormal(log_mean, log_std) times the session's mean tick volume in the window; the
        defaults are those of the reference (qlib, examples/rl_order_execution, scripts/gen_training_orders.py).
    directions
        One order a session for each of these.
    start_time, end_time
        The window, session-local ("10:00"); None means the open and the close.
    instruments
        Largest number of instruments, the first by name; None means all.
    """

    log_mean: float = -3.28
    log_std: float = 1.14
    directions: tuple[Literal["BUY", "SELL"], ...] = ("BUY", "SELL")
    start_time: str | None = None
    end_time: str | None = None
    instruments: int | None = None

    def __post_init__(self) -> None:
        given: Any = self.directions
        sides = [given] if isinstance(given, str) else list(given)
        if not sides or len(set(sides)) != len(sides) or not set(sides) <= {"BUY", "SELL"}:
            raise ConfigError(f"directions is {self.directions!r}; name BUY, SELL or both, each once.")
        object.__setattr__(self, "directions", tuple(sides))
        # exp(700) is about the largest number there is, and exp(-700) the smallest.
        if not (abs(self.log_mean) + 9 * abs(self.log_std) < 700 and self.log_std >= 0):
            raise ConfigError(
                f"log_mean is {self.log_mean} and log_std {self.log_std}; both must be moderate numbers "
                "and log_std not negative."
            )
        if self.instruments is not None and not (isinstance(self.instruments, int) and self.instruments >= 1):
            raise ConfigError(f"instruments is {self.instruments}; ask for at least 1, or none for all.")


@dataclass(frozen=True)
class SplitSettings:
    """How dates are cut into parts.

    Parameters
    ----------
    train, valid, test
        Either three shares of the dates, in time order, or three ``(first, last)`` pairs of ISO dates.
    """

    train: float | tuple[str, str] = 0.6
    valid: float | tuple[str, str] = 0.2
    test: float | tuple[str, str] = 0.2


def _generator(seed: int, instrument: str, date: np.datetime64) -> np.random.Generator:
    """Return the stream of (seed, instrument, date), so that no other order moves when data are added or reordered."""
    day = int(date.astype("datetime64[D]").astype(np.int64))
    return np.random.default_rng([seed, zlib.crc32(instrument.encode()), day + 2**20])


def generate_orders(sessions: Sessions, settings: OrderSettings | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Draw orders for every session.

    Parameters
    ----------
    sessions
        The panel; sessions whose window has no volume get no order and are counted in ``attrs``.
    settings
        The recipe.
    seed
        Seed of all draws.

    Returns
    -------
    DataFrame
        A canonical order table (see `rlwb.execution.table.order_table`), sorted by date, instrument and
        direction. ``attrs["notes"]`` lists in words what was left out.

    Raises
    ------
    OrderError
        When no order can be made.
    """
    settings = settings or OrderSettings()
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"the seed is {seed!r}; give a whole number of 0 or more.")
    calendar = sessions.calendar
    first = calendar.first_tick(settings.start_time) if settings.start_time else 0
    last = calendar.end_tick(settings.end_time) if settings.end_time else calendar.num_ticks
    if first >= last:
        raise OrderError(
            f"the window {settings.start_time} to {settings.end_time} holds no tick of the session; widen it."
        )
    notes: list[str] = []
    names = sorted(set(sessions.instruments.tolist()))
    if settings.instruments is not None:
        if settings.instruments > len(names):
            notes.append(f"{settings.instruments} instruments were asked for, the data have {len(names)}")
        names = names[: settings.instruments]
    wanted = np.isin(sessions.instruments, names)
    volume = np.asarray(sessions.fields["volume"])
    rows, empty = [], 0
    for row in np.flatnonzero(wanted):
        stop = min(last, int(sessions.num_ticks[row]))
        traded = volume[row, first:stop]
        count = int(np.isfinite(traded).sum())
        mean = float(np.nansum(traded)) / count if count else 0.0
        if mean <= 0:
            empty += 1
            continue
        instrument, date = str(sessions.instruments[row]), sessions.dates[row]
        draw = _generator(seed, instrument, date)
        # Both sides are always drawn, so that asking for one side gives the same amounts.
        amounts = dict(zip(("BUY", "SELL"), np.exp(draw.normal(settings.log_mean, settings.log_std, 2)), strict=True))
        day = pd.Timestamp(date)
        start = pd.Timestamp.combine(day.date(), calendar.time_of(first))
        close = calendar.time_of(stop)
        end = pd.Timestamp.combine(day.date(), close)
        end = end + pd.Timedelta(days=1) if end <= start else end
        rows += [(instrument, day, side, amounts[side] * mean, start, end) for side in settings.directions]
    if empty:
        notes.append(f"{empty} sessions have no volume in the window and got no order")
    if not rows:
        raise OrderError("no order could be made: no session has volume in the window; check the data and the window.")
    table = pd.DataFrame(rows, columns=["instrument", "date", "direction", "amount", "start", "end"])
    table = table.sort_values(["date", "instrument", "direction"], ignore_index=True)
    ids = table["instrument"] + "-" + table["date"].dt.strftime("%Y%m%d") + "-" + table["direction"].str[0]
    table.insert(0, "order_id", ids)
    table.attrs["notes"] = notes
    return table


def split_orders(table: pd.DataFrame, settings: SplitSettings | None = None) -> dict[str, pd.DataFrame]:
    """Cut orders into parts by date; an order is in one part only.

    Returns
    -------
    dict
        ``train``, ``valid``, ``test`` and ``all`` (their union), each a canonical order table. Orders of dates
        outside the parts are counted in ``all``'s ``attrs["notes"]``.

    Raises
    ------
    ConfigError
        When shares or date ranges are impossible, overlap or are out of order.
    OrderError
        When a part is empty, with the orders of each part and the dates of the data.
    """
    settings = settings or SplitSettings()
    dates = np.sort(table["date"].unique())
    ranges = _ranges(settings, dates)
    part = pd.Series("", index=table.index)
    for name, (low, high) in zip(PARTS, ranges, strict=True):
        part[(table["date"] >= low) & (table["date"] <= high)] = name
    parts = {name: table[part == name].reset_index(drop=True) for name in PARTS}
    if any(frame.empty for frame in parts.values()):
        counts = ", ".join(f"{name} {len(frame)}" for name, frame in parts.items())
        span = f"{pd.Timestamp(dates[0]):%Y-%m-%d} to {pd.Timestamp(dates[-1]):%Y-%m-%d}"
        raise OrderError(
            f"a part holds no orders ({counts}); the data have orders on {len(dates)} dates from {span}. "
            "Change the splits or bring more dates."
        )
    union = table[part != ""].reset_index(drop=True)
    left = int((part == "").sum())
    if left:
        first = table["date"][part == ""].min()
        union.attrs["notes"] = [f"{left} orders lie outside train, valid and test, the first on {first:%Y-%m-%d}"]
    return {**parts, "all": union}


def _ranges(settings: SplitSettings, dates: np.ndarray) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    given: Sequence[float | tuple[str, str]] = (settings.train, settings.valid, settings.test)
    if all(isinstance(value, (int, float)) for value in given):
        shares = np.array(given, dtype=np.float64)
        if not (shares > 0).all() or shares.sum() > 1 + 1e-9:
            raise ConfigError(f"the split shares {tuple(given)} must each be above 0 and sum to at most 1.")
        cuts = np.round(np.concatenate([[0.0], np.cumsum(shares)]) * len(dates)).astype(int)
        empty = (pd.Timestamp.max, pd.Timestamp.min)
        return [
            (pd.Timestamp(dates[a]), pd.Timestamp(dates[b - 1])) if b > a else empty
            for a, b in itertools.pairwise(cuts)
        ]
    ranges: list[tuple[pd.Timestamp, pd.Timestamp]] = []
    for name, value in zip(PARTS, given, strict=True):
        if isinstance(value, (int, float)):
            raise ConfigError(
                f"the split mixes shares and dates at {name}={value!r}; give three shares or three date pairs."
            )
        try:
            low, high = (pd.Timestamp(day_of(day)) for day in value)
        except (TypeError, ValueError, ConfigError):
            raise ConfigError(
                f"the split {name}={value!r} is not a pair of dates; write for example ('2024-01-02', '2024-06-28')."
            ) from None
        if low > high or (ranges and low <= ranges[-1][1]):
            raise ConfigError(f"the split {name} {value} must come after the part before it, its first date first.")
        ranges.append((low, high))
    return ranges
