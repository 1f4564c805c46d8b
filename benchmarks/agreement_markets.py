"""Awkward markets and orders in them, made up from explicit seeds, for the comparison with Qlib."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

#: Features a tick; the peer infers their names from the number.
CHANNELS = 5
_ONE = (("09:30", "10:18"),)
_LUNCH = (("09:30", "09:50"), ("13:00", "13:28"))


@dataclass(frozen=True)
class Market:
    """Bars of S sessions on one clock of T ticks, features of them, and N orders.

    Attributes
    ----------
    segments
        Opening and closing time of each part of the day.
    ticks_per_step, volume_limit
        How orders are executed; a limit of 0 is none.
    instruments, dates
        Of each session, sorted.
    close, volume : float64 of shape (S, T)
    present : bool of shape (S, T)
        Whether there is a bar at all.
    today, previous : float32 of shape (S, T, C)
        Features, 0 where there is no bar; those of the session before, 0 without one.
    session, side, amount, start, end
        The orders: row of the session, 1 buys and -1 sells, shares, window ``[start, end)`` in ticks; shape (N,).
    """

    name: str
    segments: tuple[tuple[str, str], ...]
    ticks_per_step: int
    volume_limit: float
    instruments: np.ndarray
    dates: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    present: np.ndarray
    today: np.ndarray
    previous: np.ndarray
    session: np.ndarray
    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Start of each tick in seconds after midnight, int64 of shape (T,)."""
        parts = [(_seconds(first), _seconds(last)) for first, last in self.segments]
        return np.concatenate([np.arange(first, last, 60) for first, last in parts])

    @property
    def max_step(self) -> int:
        """Most steps of an order, counted by the rows of the day."""
        return -(-self.close.shape[1] // self.ticks_per_step)

    def arrays(self) -> dict[str, Any]:
        """Return all that NumPy's format holds, which either side reads."""
        return {**vars(self), "segments": np.array(self.segments), "seconds": self.seconds, "max_step": self.max_step}

    @classmethod
    def of(cls, arrays: Any) -> Market:
        """Return the market of `arrays`."""
        plain = {"name": str, "ticks_per_step": int, "volume_limit": float}
        fields = {name: plain.get(name, np.asarray)(arrays[name]) for name in cls.__dataclass_fields__}
        return cls(**{**fields, "segments": tuple((str(a), str(b)) for a, b in arrays["segments"])})

    def write(self, folder: Path) -> None:
        """Write ``market.npz``."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "market.npz", **self.arrays())


def _seconds(time: str) -> int:
    hours, minutes = time.split(":")
    return 3600 * int(hours) + 60 * int(minutes)


def _sound(name: str, rng: np.random.Generator, orders: int, days: int, **settings: Any) -> Market:
    """Return a market without a fault: two instruments, whole-day orders of both sides without a cap."""
    segments, ticks = settings.pop("segments", _ONE), 48
    count = 2 * days
    moves = rng.normal(0.0, 2e-3, (count, ticks)).cumsum(axis=1)
    close = np.round(20.0 * np.exp(moves), 2)
    volume = np.round(rng.lognormal(7.0, 0.8, (count, ticks)))
    today = np.round(rng.normal(0.0, 16.0, (count, ticks, CHANNELS))).astype(np.float32) / np.float32(16)
    previous = np.zeros_like(today)
    previous[1:] = today[:-1]
    previous[[0, days]] = 0.0
    session = rng.integers(0, count, orders)
    return Market(
        name=name,
        segments=segments,
        ticks_per_step=settings.pop("ticks_per_step", 8),
        volume_limit=settings.pop("volume_limit", 0.0),
        instruments=np.repeat(["AAA", "BBB"], days),
        dates=np.tile(np.datetime64("2024-01-08", "D") + np.arange(days), 2).astype("datetime64[D]"),
        close=close,
        volume=volume,
        present=np.ones((count, ticks), dtype=bool),
        today=today,
        previous=previous,
        session=session,
        side=rng.choice([-1, 1], orders),
        amount=np.round(volume.mean(axis=1)[session] * rng.lognormal(0.0, 0.7, orders)) + 1.0,
        start=np.zeros(orders, dtype=np.int64),
        end=np.full(orders, ticks),
    )


def _where(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> np.ndarray:
    return rng.random(shape) < share


def _no_yesterday(market: Market) -> Market:
    return replace(market, previous=np.zeros_like(market.previous))


def _without(market: Market, absent: np.ndarray) -> Market:
    """Return the market without some of its bars."""
    nothing = {name: np.where(absent, np.nan, getattr(market, name)) for name in ("close", "volume")}
    today = np.where(absent[:, :, None], np.float32(0), market.today)
    return replace(_no_yesterday(market), **nothing, present=~absent, today=today)


def _missing_prices(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("missing prices", rng, orders, days)
    return replace(market, close=np.where(_where(rng, market.close.shape, 0.02), np.nan, market.close))


def _zero_prices(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("zero prices", rng, orders, days)
    return replace(market, close=np.where(_where(rng, market.close.shape, 0.01), 0.0, market.close))


def _zero_volume(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("zero volume", rng, orders, days, volume_limit=0.25)
    silent = _where(rng, market.close.shape, 0.3)
    silent[:, 16:24] |= _where(rng, (len(silent), 1), 0.2)
    return replace(market, volume=np.where(silent, 0.0, market.volume), amount=market.amount * 0.5)


def _lunch(rng: np.random.Generator, orders: int, days: int) -> Market:
    return _sound("lunch break", rng, orders, days, segments=_LUNCH, volume_limit=0.2)


def _half_days(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("half days", rng, orders, days, segments=_LUNCH)
    closed = np.zeros(market.close.shape, dtype=bool)
    closed[rng.random(len(closed)) < 0.5, 20:] = True
    end = np.where(closed[market.session, 20], 20, 48)
    return replace(_without(market, closed), end=end)


def _missing_bars(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("missing bars", rng, orders, days)
    absent = _where(rng, market.close.shape, 0.04)
    absent[rng.random(len(absent)) < 0.4] = False
    # Some windows hold no bar at all.
    some = np.flatnonzero(absent[market.session].any(axis=1))[: orders // 20]
    start, end = market.start.copy(), market.end.copy()
    start[some] = absent[market.session[some]].argmax(axis=1)
    end[some] = start[some] + 1
    return replace(_without(market, absent), start=start, end=end)


def _huge_orders(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("huge orders", rng, orders, days, volume_limit=0.1)
    return replace(market, amount=np.round(market.amount * rng.choice([1.0, 8.0, 60.0], orders)))


def _tiny_prices(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("tiny prices", rng, orders, days)
    amount = market.amount * rng.choice([1e-3, 1.0, 1e5], orders)
    some = orders // 20
    amount[:some] = rng.uniform(4e-7, 9e-7, some)
    amount[some : 2 * some] *= 1e9
    return replace(market, close=market.close * 1e-6, amount=amount)


def _short_windows(rng: np.random.Generator, orders: int, days: int) -> Market:
    market = _sound("short windows", rng, orders, days, volume_limit=0.2)
    start = rng.integers(0, 48, orders)
    length = np.where(rng.random(orders) < 0.3, 1, rng.integers(1, 49, orders))
    return replace(market, start=start, end=np.minimum(start + length, 48), amount=market.amount * 0.3)


def _no_day_before(rng: np.random.Generator, orders: int, days: int) -> Market:
    # Every session is an instrument's first.
    market = _no_yesterday(_sound("no day before", rng, orders, days))
    names = np.array([f"I{number:03d}" for number in range(len(market.instruments))])
    return replace(market, instruments=names, dates=np.full(len(names), np.datetime64("2024-01-08", "D")))


MARKETS: tuple[Callable[[np.random.Generator, int, int], Market], ...] = (
    lambda rng, orders, days: _sound("sound", rng, orders, days),
    _missing_prices,
    _zero_prices,
    _zero_volume,
    _lunch,
    _half_days,
    _missing_bars,
    _huge_orders,
    _tiny_prices,
    _short_windows,
    _no_day_before,
)
"""A sound market, and ten that are awkward, each in one way."""


def make_markets(orders: int, seed: int = 0, *, days: int = 12) -> list[Market]:
    """Return all markets with so many orders each; each has random numbers of its own."""
    return [make(np.random.default_rng([seed, number]), orders, days) for number, make in enumerate(MARKETS)]
