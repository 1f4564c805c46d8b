"""Making orders from the data, and cutting them into training, validation and test by date."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.execution.rolling import RollingSettings
from rlwb.execution.table import made_ids
from rlwb.market import Sessions
from rlwb.market.actions import price_ratio
from rlwb.market.calendar import day_of
from rlwb.seeds import Stream, check_seed, normal

PARTS = ("train", "valid", "test")
_BLOCK_BARS = 1 << 20  # bars looked at together
#: The note of orders that are sized by their own day.
OWN_VOLUME = (
    "amounts follow the volume of the order's own day, which nobody knows when it begins (volume_days 0), so that a "
    "volume cap binds less than it would"
)


@dataclass(frozen=True)
class OrderSettings:
    """The recipe of generated orders.

    Parameters
    ----------
    log_mean, log_std : log of the mean volume of a bar
        The amount is lognormal(log_mean, log_std) times the mean tick volume in the window, of the sessions that
        `volume_days` names; the defaults are those of the reference (qlib, examples/rl_order_execution,
        scripts/gen_training_orders.py).
    volume_days : sessions
        How many sessions of the instrument before the order's own, those in which something was traded in the window,
        the mean tick volume is taken of, in shares of the order's own session; where there are fewer, of those there
        are, and an instrument's first session gets no order. 0 takes the volume of the order's own session, as the
        reference does: its amount then knows how much will be traded that day, which flatters a volume cap.
    directions
        One order a session for each of these.
    start_time, end_time
        The window, session-local ("10:00"); None means the open and the close.
    instruments : instruments
        Largest number of instruments, the first by name; None means all.
    seed
        Seed of the amounts, so that runs of several seeds have the same orders; None means that of the run.
    """

    log_mean: float = -3.28
    log_std: float = 1.14
    volume_days: int = 20
    directions: tuple[Literal["BUY", "SELL"], ...] = ("BUY", "SELL")
    start_time: str | None = None
    end_time: str | None = None
    instruments: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)
        given: Any = self.directions
        sides = (given,) if isinstance(given, str) else tuple(given)
        if sorted(map(str, sides)) not in (["BUY"], ["SELL"], ["BUY", "SELL"]):
            raise ConfigError(f"directions is {self.directions!r}; name BUY, SELL or both, each once.")
        object.__setattr__(self, "directions", sides)
        # exp(700) is about the largest number there is, and exp(-700) the smallest.
        if not (abs(self.log_mean) + 9 * abs(self.log_std) < 700 and self.log_std >= 0):
            raise ConfigError(
                f"log_mean is {self.log_mean} and log_std {self.log_std}; give moderate numbers, log_std not negative."
            )
        if isinstance(self.volume_days, bool) or not isinstance(self.volume_days, int) or self.volume_days < 0:
            raise ConfigError(
                f"volume_days is {self.volume_days!r}; give a number of earlier sessions, or 0 for the order's own."
            )
        if self.instruments is not None and not (isinstance(self.instruments, int) and self.instruments >= 1):
            raise ConfigError(f"instruments is {self.instruments}; ask for at least 1, or none for all.")


@dataclass(frozen=True)
class SplitSettings:
    """How dates are cut into parts.

    Parameters
    ----------
    train, valid, test : share of the dates, or dates
        Either three shares of the dates, in time order, or three ``(first, last)`` pairs of ISO dates.
    rolling
        Windows that walk over the dates in place of those, each trained and tested by itself: ``{train: 120, valid: 20,
        test: 20}``; further settings are step, window (sliding, expanding) and gap.
    locked : share of the dates, or dates
        The last dates, whose bars nothing in a run reads until ``rlwb unlock`` judges the chosen checkpoints on them,
        once; none by default. Beside shares it is a share of all dates, and the others are shares of the dates before
        it; beside dates it is a pair of later dates.
    """

    train: float | tuple[str, str] = 0.6
    valid: float | tuple[str, str] = 0.2
    test: float | tuple[str, str] = 0.2
    rolling: RollingSettings | None = None
    locked: float | tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.rolling is not None and self.locked is not None:
            raise ConfigError("split.locked is for a split without rolling windows; keep one of the two.")
        if self.rolling is not None and (self.train, self.valid, self.test) != (0.6, 0.2, 0.2):
            raise ConfigError("split has dates or shares and rolling windows; keep one of the two.")


def generate_orders(
    sessions: Sessions, settings: OrderSettings | None = None, *, seed: int = 0, lot_size: float = 0.0
) -> pd.DataFrame:
    """Draw orders for every session.

    Apart from whether anything is traded in its window, nothing of an order's own session decides about it, unless
    `OrderSettings.volume_days` is 0.

    Parameters
    ----------
    sessions
        The panel; sessions whose window has no volume get no order, nor do those without an earlier one to size it by.
    settings
        The recipe.
    seed
        Seed of all draws, unless the settings have one.
    lot_size
        Amounts are rounded to the nearest multiple of this, at least one; 0 means any amount.

    Returns
    -------
    DataFrame
        A canonical order table (see `order_table`), sorted by date, instrument and direction. ``attrs["notes"]`` lists
        in words what was left out.

    Raises
    ------
    OrderError
        When no order can be made.
    """
    settings = settings or OrderSettings()
    seed = check_seed(seed) if settings.seed is None else settings.seed
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
    rows = np.flatnonzero(mean > 0)
    if len(rows) < len(mean):
        notes.append(f"{len(mean) - len(rows)} sessions have no volume in the window and got no order")
    if not len(rows):
        raise OrderError("no order could be made: no session has volume in the window; check the data and the window.")
    if settings.volume_days:
        mean[rows] = _earlier_mean(sessions, mean[rows], rows, settings.volume_days)
        unsized = int(np.isnan(mean[rows]).sum())
        if unsized == len(rows):
            raise OrderError(
                "no order could be made: no instrument has two sessions with volume in the window, and an order is "
                "sized by earlier ones; bring more days, or set volume_days to 0."
            )
        if unsized:
            notes.append(
                f"{unsized} sessions have none before them with volume in the window, which sizes an order: no order"
            )
        rows = rows[~np.isnan(mean[rows])]
    else:
        notes.append(OWN_VOLUME)
    rows = rows[np.argsort(sessions.dates[rows], kind="stable")]  # by date, then instrument as the rows are
    sides = sorted(settings.directions)
    rows, buy = np.repeat(rows, len(sides)), np.tile(np.array(sides) == "BUY", len(rows))
    text = np.array([zlib.crc32(name.encode()) for name in names.tolist()], dtype=np.int64)
    draws = normal((seed, Stream.ORDER), text[code[rows]], sessions.dates[rows].astype(np.int64), buy)
    amount = np.exp(settings.log_mean + settings.log_std * draws) * mean[rows]
    if lot_size:
        small = int((amount < lot_size / 2).sum())
        amount = np.maximum(np.floor(amount / lot_size + 0.5), 1.0) * lot_size
        if small:
            notes.append(f"{small} amounts below half a lot of {lot_size:g} were raised to one lot")
    date = sessions.dates[rows].astype("datetime64[ns]")
    opens = np.timedelta64(calendar.seconds_at(first), "s")
    # Not the start of the next tick, which after a lunch break lies later.
    closes = (calendar.tick_start[stop[rows] - 1] + calendar.tick_seconds).astype("timedelta64[s]")
    instrument = names.astype(object)[code[rows]]
    table = pd.DataFrame(
        {
            "order_id": made_ids(instrument, date, buy),
            "instrument": instrument,
            "date": date,
            "direction": np.where(buy, "BUY", "SELL").astype(object),
            "amount": amount,
            "start": date + opens,
            "end": date + closes,
        }
    )
    table.attrs["notes"] = notes
    return table


def _mean_volume(sessions: Sessions, first: int, stop: np.ndarray) -> np.ndarray:
    """Return the mean volume of the first n sessions' ticks in ``[first, stop)`` that have one, or 0, of shape (n,)."""
    mean = np.zeros(len(stop))
    size = max(1, _BLOCK_BARS // sessions.calendar.num_ticks)
    for low in range(0, len(stop), size):
        block = slice(low, min(low + size, len(stop)))
        traded = sessions.fields["volume"][block, first:]
        inside = np.isfinite(traded) & (np.arange(first, sessions.calendar.num_ticks) < stop[block, None])
        mean[block] = np.where(inside, traded, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    return mean


def _earlier_mean(sessions: Sessions, mean: np.ndarray, rows: np.ndarray, days: int) -> np.ndarray:
    """Return the mean of `mean` over up to `days` sessions of the instrument before each, of shape (n,); NaN if none.

    `mean` is of the sorted sessions `rows`, in shares, and counts in those of the later session. Sums go by instrument,
    so that what other instruments there are does not move a digit.
    """
    total, count = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for back in range(1, min(days, len(rows) - 1) + 1):
        later, before = rows[back:], rows[:-back]
        same = np.flatnonzero(before >= sessions.first[later])
        if not len(same):
            break
        total[back + same] += mean[same] / price_ratio(sessions, before[same], later[same])
        count[back + same] += 1
    return np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)


def split_orders(table: pd.DataFrame, settings: SplitSettings | None = None) -> dict[str, pd.DataFrame]:
    """Cut orders into parts by date; an order is in one part only.

    Returns
    -------
    dict
        ``train``, ``valid``, ``test`` and ``all`` (their union), each a canonical order table. Orders of dates
        outside the parts, locked ones among them, are counted in ``all``'s ``attrs["notes"]``.

    Raises
    ------
    ConfigError
        When shares or date ranges are impossible, overlap or are out of order.
    OrderError
        When a part is empty, with the orders of each part and the dates of the data.
    """
    dates = np.sort(table["date"].unique())
    if (locked := locked_dates(settings or SplitSettings(), dates)) is not None:
        dates = dates[(dates < locked[0]) | (dates > locked[1])]
    taken = _dates_of_parts(settings or SplitSettings(), dates)
    rows = {name: table["date"].isin(dates[mask]) for name, mask in zip(PARTS, taken, strict=True)}
    rows["all"] = rows["train"] | rows["valid"] | rows["test"]
    parts = {name: table[mask].reset_index(drop=True) for name, mask in rows.items()}
    if any(frame.empty for frame in parts.values()):
        counts = ", ".join(f"{name} {len(parts[name])}" for name in PARTS)
        raise OrderError(
            f"a part holds no orders ({counts}); the data have orders on {len(dates)} dates from "
            f"{np.datetime_as_string(dates[0], 'D')} to {np.datetime_as_string(dates[-1], 'D')}. "
            "Change the splits or bring more dates."
        )
    left = table["date"][~rows["all"]]
    if len(left):
        note = f"{len(left)} orders lie outside train, valid and test, the first on {left.min():%Y-%m-%d}"
        parts["all"].attrs["notes"] = [note]
    return parts


def locked_dates(settings: SplitSettings, dates: np.ndarray) -> tuple[np.datetime64, np.datetime64] | None:
    """Return the first and the last locked date, datetime64[D]; None where none is locked.

    Parameters
    ----------
    dates : datetime64 of shape (D,)
        All dates, in time order.

    Raises
    ------
    ConfigError
        When the locked part is impossible, or does not lie after the other parts.
    """
    given: Any = settings.locked
    if given is None:
        return None
    if isinstance(given, (int, float)):
        cut = round((1 - given) * len(dates))
        if not 0 < given < 1 or not 0 < cut < len(dates):
            raise ConfigError(
                f"split.locked is {given}, of {len(dates)} dates; give a share between 0 and 1 that leaves some of "
                "them, or a pair of dates."
            )
        return dates[cut].astype("datetime64[D]"), dates[-1].astype("datetime64[D]")
    try:
        first, last = (day_of(day) for day in given)
    except (TypeError, ValueError, ConfigError):
        raise ConfigError(f"split.locked is {given!r}; give a share of the dates, or a pair of dates.") from None
    parts: Sequence[Any] = (settings.train, settings.valid, settings.test)
    before = [day_of(one[1]) for one in parts if not isinstance(one, (int, float))]
    if not all(end < first for end in before) or last < first:
        raise ConfigError(f"split.locked {given} must come after all other parts, its first date first.")
    return first, last


def _dates_of_parts(settings: SplitSettings, dates: np.ndarray) -> list[np.ndarray]:
    """Return for each part which of the sorted `dates` it takes, bool of shape (D,)."""
    if settings.rolling is not None:
        raise ConfigError("split.rolling is for a whole run, each of whose windows has dates of its own; use rlwb run.")
    given: Sequence[Any] = (settings.train, settings.valid, settings.test)
    if all(isinstance(value, (int, float)) for value in given):
        if not all(share > 0 for share in given) or sum(given) > 1 + 1e-9:
            raise ConfigError(f"the split shares {given} must each be above 0 and sum to at most 1.")
        place = np.searchsorted(np.round(np.cumsum(given) * len(dates)), np.arange(len(dates)), side="right")
        return [place == part for part in range(len(PARTS))]
    taken: list[np.ndarray] = []
    last = np.datetime64("0001-01-01")
    for name, value in zip(PARTS, given, strict=True):
        try:
            first, end = (day_of(day) for day in value)
        except (TypeError, ValueError, ConfigError):
            raise ConfigError(
                f"the split {name}={value!r} is not a pair of dates; give three shares of the dates, or three "
                "pairs such as ('2024-01-02', '2024-06-28')."
            ) from None
        if not last < first <= end:
            raise ConfigError(f"the split {name} {value} must come after the part before it, its first date first.")
        taken.append((dates >= first) & (dates <= end))
        last = end
    return taken
