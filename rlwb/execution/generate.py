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
from rlwb.execution.order import Direction, order_ids
from rlwb.market import Sessions
from rlwb.market.clock import day_of
from rlwb.seeds import Stream, check_seed, normal

PARTS = ("train", "valid", "test")
_BLOCK_BARS = 1 << 20  # bars looked at together


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
    check_seed(seed)
    calendar = sessions.calendar
    first = calendar.first_tick(settings.start_time) if settings.start_time else 0
    last = calendar.end_tick(settings.end_time) if settings.end_time else calendar.num_ticks
    if first >= last:
        raise OrderError(
            f"the window {settings.start_time} to {settings.end_time} holds no tick of the session; widen it."
        )
    notes: list[str] = []
    names = sessions.index.names[: settings.instruments]
    if settings.instruments is not None and settings.instruments > len(names):
        notes.append(f"{settings.instruments} instruments were asked for, the data have {len(names)}")
    # Rows are sorted by instrument, so that the first instruments have the first rows.
    length = sessions.index.stop[: len(names)] - sessions.index.first[: len(names)]
    code = np.repeat(np.arange(len(names)), length)
    stop = np.minimum(last, sessions.num_ticks[: len(code)])
    mean = _mean_volume(sessions, first, stop)
    empty = int((~(mean > 0)).sum())
    if empty:
        notes.append(f"{empty} sessions have no volume in the window and got no order")
    rows = np.flatnonzero(mean > 0)
    if not len(rows):
        raise OrderError("no order could be made: no session has volume in the window; check the data and the window.")
    rows = rows[np.argsort(sessions.dates[rows], kind="stable")]  # by date, then instrument as the rows are
    sides = sorted(settings.directions)
    rows, side = np.repeat(rows, len(sides)), np.tile([int(Direction[name]) for name in sides], len(rows))
    instrument = np.array([zlib.crc32(name.encode()) for name in names.tolist()], dtype=np.int64)[code[rows]]
    draws = normal((seed, Stream.ORDER), instrument, sessions.dates[rows].astype(np.int64), side)
    amount = np.exp(settings.log_mean + settings.log_std * draws) * mean[rows]
    if lot_size:
        small = int((amount < lot_size / 2).sum())
        amount = np.maximum(np.floor(amount / lot_size + 0.5), 1.0) * lot_size
        if small:
            notes.append(f"{small} amounts below half a lot of {lot_size:g} were raised to one lot")
    date = sessions.dates[rows].astype("datetime64[ns]")
    edge = np.array([calendar.seconds_at(tick) for tick in range(calendar.num_ticks + 1)], dtype="timedelta64[s]")
    table = pd.DataFrame(
        {
            "instrument": names.astype(object)[code[rows]],
            "date": date,
            "direction": np.tile(np.array(sides, dtype=object), len(rows) // len(sides)),
            "amount": amount,
            "start": date + edge[first],
            "end": date + edge[stop[rows]],
        }
    )
    table.insert(0, "order_id", order_ids(None, table["instrument"], date, table["direction"]))
    table.attrs["notes"] = notes
    return table


def _mean_volume(sessions: Sessions, first: int, stop: np.ndarray) -> np.ndarray:
    """Return the mean volume of each session's ticks in ``[first, stop)`` that have one, or 0.

    `stop` and the result have the shape (n,), for the first n sessions of the panel.
    """
    mean = np.zeros(len(stop))
    size = max(1, _BLOCK_BARS // sessions.calendar.num_ticks)
    for low in range(0, len(stop), size):
        block = slice(low, min(low + size, len(stop)))
        traded = sessions.fields["volume"][block, first:]
        inside = np.isfinite(traded) & (np.arange(first, sessions.calendar.num_ticks) < stop[block, None])
        mean[block] = np.where(inside, traded, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return mean


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
    dates = np.sort(table["date"].unique())
    part = pd.Series("", index=table.index)
    for name, (low, high) in zip(PARTS, _ranges(settings or SplitSettings(), dates), strict=True):
        part[table["date"].between(low, high)] = name
    parts = {name: table[part == name].reset_index(drop=True) for name in PARTS}
    if any(frame.empty for frame in parts.values()):
        counts = ", ".join(f"{name} {len(frame)}" for name, frame in parts.items())
        span = f"{pd.Timestamp(dates[0]):%Y-%m-%d} to {pd.Timestamp(dates[-1]):%Y-%m-%d}"
        raise OrderError(
            f"a part holds no orders ({counts}); the data have orders on {len(dates)} dates from {span}. "
            "Change the splits or bring more dates."
        )
    union, left = table[part != ""].reset_index(drop=True), table["date"][part == ""]
    if len(left):
        note = f"{len(left)} orders lie outside train, valid and test, the first on {left.min():%Y-%m-%d}"
        union.attrs["notes"] = [note]
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
