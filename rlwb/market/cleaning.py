"""Bars against the calendar and the schema: what is wrong is repaired or dropped, and counted either way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rlwb.errors import DataError
from rlwb.market.bars import DAY, Bars
from rlwb.market.calendar import Calendar
from rlwb.market.findings import Report
from rlwb.market.schema import PRICES, QUOTES, SIZES, TRADE_PRICES

_SECOND = 1_000_000


class Place(NamedTuple):
    """Where bars lie on the clock: arrays of shape ``(bars,)``."""

    day: np.ndarray  # days since 1970
    tick: np.ndarray  # tick of the session, valid where inside and on_grid
    segment: np.ndarray  # the segment that the stamp lies in, or whose edge it names
    inside: np.ndarray  # within a segment
    on_grid: np.ndarray  # at the start of a tick
    edge: np.ndarray  # outside, but exactly at the edge that the other label would use


def place(stamp: np.ndarray, calendar: Calendar) -> Place:
    """Return day and tick of local stamps (microseconds), read as the calendar's label says."""
    length = calendar.tick_seconds * _SECOND
    day, inner = np.divmod(stamp - length if calendar.label == "end" else stamp, DAY)
    first = np.searchsorted(calendar.segment, np.arange(len(calendar.segments)))
    last = np.append(first[1:], calendar.num_ticks) - 1
    opens = calendar.tick_start[first] * _SECOND
    closes = calendar.tick_start[last] * _SECOND + length
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


class Cleaning:
    """Sorted bars while they are laid on the clock; each method drops or changes some and counts them.

    Parameters
    ----------
    bars
        Sorted by instrument and stamp, each stamp once.
    calendar
        The clock.
    report
        Where findings are counted.
    files
        Names of sources by number.

    Attributes
    ----------
    bars, at : Bars, Place
        What is left, and where it lies.
    widened : ndarray of bool, of shape (bars,)
        Bars whose high or low is not the source's own.
    """

    def __init__(self, bars: Bars, calendar: Calendar, report: Report, files: Mapping[int, str]) -> None:
        self.bars = bars
        self.calendar = calendar
        self.report = report
        self.files = files
        self.at = place(bars.stamp, calendar)
        self.widened = np.zeros(len(bars), dtype=bool)

    def find(self, kind: str, mask: np.ndarray) -> None:
        """Count the bars of `mask`, and list them while there is room."""
        count = int(mask.sum())
        self.report.count(kind, count)
        if count and self.report.room(kind) > 0:
            values = self.bars.values
            for row in np.flatnonzero(mask)[: self.report.room(kind)].tolist():
                what, value = _wrong(kind, {name: float(column[row]) for name, column in values.items()})
                self.report.show([self.bars.finding(kind, row, self.files, what, value)])

    def drop(self, kind: str, mask: np.ndarray) -> None:
        """Count the bars of `mask` and take them out."""
        if mask.any():
            self.find(kind, mask)
            keep = np.flatnonzero(~mask)
            self.bars, self.at = self.bars.take(keep), Place(*(part[keep] for part in self.at))
            self.widened = self.widened[keep]

    def set(self, columns: Mapping[str, np.ndarray]) -> None:
        """Put columns of values in the place of the bars' own."""
        bars = self.bars
        self.bars = Bars(
            bars.names, bars.code, bars.stamp, {**bars.values, **columns}, bars.halted, bars.source, bars.row
        )

    def repair(self, volume_multiplier: float) -> None:
        """Make impossible prices, quotes and volumes missing, widen ranges, and bring volume to shares."""
        values = dict(self.bars.values)
        any_of = self._any
        quoted = any_of([np.isfinite(values[name]) & (values[name] > 0) for name in QUOTES if name in values])
        untraded = ~any_of([np.isfinite(values[name]) for name in TRADE_PRICES])
        self.find("quote_only", untraded & quoted)
        prices = [name for name in PRICES if name in values]
        wild = [np.isinf(values[name]) for name in prices] + [np.isnan(values[name]) for name in TRADE_PRICES]
        self.find("price_not_finite", any_of(wild) & ~(untraded & quoted))
        self.find("price_zero", any_of([values[name] == 0 for name in prices]))
        self.find("price_negative", any_of([values[name] < 0 for name in prices]))
        for name in prices:
            values[name] = _where(values[name], np.isfinite(values[name]) & (values[name] > 0))
        trade = [values[name] for name in TRADE_PRICES]
        top, bottom = np.fmax.reduce(trade), np.fmin.reduce(trade)
        broken = (values["high"] < top * (1 - 1e-9)) | (values["low"] > bottom * (1 + 1e-9))
        self.find("high_low", broken)
        self.widened = broken
        values["high"] = np.where(broken, top, values["high"])
        values["low"] = np.where(broken, bottom, values["low"])
        if "bid" in values and "ask" in values:
            crossed = values["bid"] > values["ask"]
            self.find("quote_crossed", crossed)
            values |= {name: _where(values[name], ~crossed) for name in QUOTES}
        sizes = [name for name in SIZES if name in values]
        self.find("volume_negative", any_of([(values[name] < 0) | np.isinf(values[name]) for name in sizes]))
        for name in sizes:
            values[name] = _where(values[name], np.isfinite(values[name]) & (values[name] >= 0))
        self.find("volume_missing", np.isnan(values["volume"]) & np.isfinite(values["close"]))
        if volume_multiplier != 1:
            values["volume"] = values["volume"] * volume_multiplier
        self.set(values)

    def undo_adjustment(self) -> None:
        """Turn adjusted prices and sizes into those that were traded; bars without a factor lose both."""
        factor = self.bars.values.get("factor")
        if factor is None:
            raise DataError(
                "prices='adjusted' needs a column factor, and the bars have none; add it or drop the option."
            )
        known = np.isfinite(factor) & (factor > 0)
        self.find("factor_missing", ~known)
        self.find("factor_applied", known & (factor != 1))
        scale = np.where(known, factor, np.nan)
        self.set(
            {
                name: values / scale if name in PRICES else values * scale
                for name, values in self.bars.values.items()
                if name in PRICES or name in SIZES
            }
        )

    def _any(self, masks: list[np.ndarray]) -> np.ndarray:
        return np.logical_or.reduce(masks) if masks else np.zeros(len(self.bars), dtype=bool)


def _where(values: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Return the values that are good, NaN for the others."""
    return values if good.all() else np.where(good, values, np.nan)


def _wrong(kind: str, values: Mapping[str, float]) -> tuple[str, float]:
    """Return in words and as a number what is wrong with a bar of these values."""
    prices = {name: values[name] for name in TRADE_PRICES}
    low = min(prices, key=lambda name: prices[name])
    words: dict[str, Callable[[], tuple[str, float]]] = {
        "price_zero": lambda: (", ".join(name for name in prices if prices[name] == 0), 0.0),
        "price_negative": lambda: (f"{low} {prices[low]:g}", prices[low]),
        "price_not_finite": lambda: (", ".join(n for n in prices if not np.isfinite(prices[n])), np.nan),
        "high_low": lambda: (", ".join(f"{name} {value:g}" for name, value in prices.items()), values["high"]),
        "quote_crossed": lambda: (f"bid {values['bid']:g}, ask {values['ask']:g}", values["bid"]),
        "volume_negative": lambda: (f"volume {values['volume']:g}", values["volume"]),
        "volume_missing": lambda: (f"close {values['close']:g}", values["close"]),
    }
    return words[kind]() if kind in words else ("", values["close"])
