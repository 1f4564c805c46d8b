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
from rlwb.market.references import blocks

PARTS = ("train", "valid", "test")
_SIDES = ("BUY", "SELL")


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


def generate_orders(
    sessions: Sessions, settings: OrderSettings | None = None, *, seed: int = 0, lot_size: float = 0.0
) -> pd.DataFrame:
    """Draw orders for every session.

    Parameters
    ----------
    sessions
        The panel; sessions whose window has no volume get no order and are counted in ``attrs``.
    settings
        The recipe.
    seed
        Seed of all draws.
    lot_size
        Amounts are rounded to the nearest multiple of this, at least one; 0 means any amount.

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
    names = sessions.index.names
    if settings.instruments is not None:
        if settings.instruments > len(names):
            notes.append(f"{settings.instruments} instruments were asked for, the data have {len(names)}")
        names = names[: settings.instruments]
    # Rows are sorted by instrument, so that the first instruments have the first rows.
    rows = np.arange(sessions.index.stop[len(names) - 1] if len(names) else 0)
    stop = np.minimum(last, sessions.num_ticks[rows])
    mean = _mean_volume(sessions, rows, first, stop)
    empty = int((~(mean > 0)).sum())
    if empty:
        notes.append(f"{empty} sessions have no volume in the window and got no order")
    rows, stop, mean = (values[mean > 0] for values in (rows, stop, mean))
    if not len(rows):
        raise OrderError("no order could be made: no session has volume in the window; check the data and the window.")
    # Both sides are always drawn, so that asking for one side gives the same amounts.
    amounts = _draw(sessions, rows, settings, seed) * mean[:, None]
    sides = sorted(settings.directions)
    if lot_size:
        small = int((amounts[:, [_SIDES.index(side) for side in sides]] < lot_size / 2).sum())
        amounts = np.maximum(np.floor(amounts / lot_size + 0.5), 1.0) * lot_size
        if small:
            notes.append(f"{small} amounts below half a lot of {lot_size:g} were raised to one lot")
    order = np.argsort(sessions.dates[rows], kind="stable")  # by date, then instrument as the rows are
    rows, stop, amounts = rows[order], stop[order], amounts[order]
    date = np.repeat(sessions.dates[rows], len(sides)).astype("datetime64[ns]")
    text = np.repeat(sessions.instruments[rows].astype(object), len(sides))
    direction = np.tile(np.array(sides, dtype=object), len(rows))
    close = np.array([calendar.seconds_at(tick) for tick in range(calendar.num_ticks + 1)], dtype="timedelta64[s]")
    days, at = np.unique(date, return_inverse=True)
    day_text = pd.DatetimeIndex(days).strftime("%Y%m%d").to_numpy()[at]
    table = pd.DataFrame(
        {
            "order_id": [f"{name}-{day}-{side[0]}" for name, day, side in zip(text, day_text, direction, strict=True)],
            "instrument": text,
            "date": date,
            "direction": direction,
            "amount": amounts[:, [_SIDES.index(side) for side in sides]].ravel(),
            "start": date + np.timedelta64(calendar.seconds_at(first), "s"),
            "end": date + np.repeat(close[stop], len(sides)),
        }
    )
    table.attrs["notes"] = notes
    return table


def _mean_volume(sessions: Sessions, rows: np.ndarray, first: int, stop: np.ndarray) -> np.ndarray:
    """Return the mean volume of the ticks in ``[first, stop)`` that have one, float64 of shape (n,), or 0."""
    mean = np.zeros(len(rows))
    for end in np.unique(stop):
        for part in blocks(np.flatnonzero(stop == end), sessions.calendar.num_ticks):
            traded = sessions.fields["volume"][rows[part], first:end]
            count = np.isfinite(traded).sum(axis=1)
            mean[part] = np.nansum(traded, axis=1) / np.maximum(count, 1)
    return mean


def _draw(sessions: Sessions, rows: np.ndarray, settings: OrderSettings, seed: int) -> np.ndarray:
    """Return each session's amounts to buy and to sell in units of its mean volume, float64 of shape (n, 2)."""
    draws = np.empty((len(rows), 2))
    codes = {name: zlib.crc32(name.encode()) for name in sessions.index.names.tolist()}
    keys = zip(sessions.instruments[rows].tolist(), sessions.dates[rows].astype(np.int64).tolist(), strict=True)
    for row, (name, day) in enumerate(keys):
        # A stream of (seed, instrument, date), so that no other order moves when data are added or reordered.
        rng = np.random.default_rng([seed, codes[name], day + 2**20])
        draws[row] = rng.normal(settings.log_mean, settings.log_std, 2)
    return np.exp(draws)


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
