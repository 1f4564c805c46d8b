"""The conditions of the stress matrix: what each changes of a run's market, feed, rules, orders or estimates."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlwb.execution import Engine, ExecutionRules, OrderBatch
from rlwb.market import Sessions
from rlwb.market.actions import price_ratio
from rlwb.market.references import last_valid
from rlwb.market.schema import PRICES, SIZES
from rlwb.seeds import Stream, generator

#: Fields of some sessions by name, float64 of shape (n, T) each.
Bars = dict[str, np.ndarray]
#: Changes bars with a generator of random numbers.
Edit = Callable[[Bars, np.random.Generator], Bars]


@dataclass(frozen=True)
class Condition:
    """A condition that all policies of a run are judged under.

    Attributes
    ----------
    name
        Its name in tables, unique.
    family
        What it changes, in a word; conditions of one family that have a level are points of a curve.
    meaning
        Its definition in words.
    level
        Place on the curve of its family; None where it is on none.
    rules
        Returns the rules that fills obey.
    bars
        Changes the bars of the test days, of the market and of the feed alike.
    feed
        Changes the bars of the test days as policies see them, while the market stays as it is. Where a bar is missing,
        the feed repeats the last price with a volume of 0.
    resized
        Factor of the amounts.
    window
        Returns the orders with other windows, without those that have too few steps for it.
    keep
        Returns which orders belong to the condition, bool of shape (N,); their results are those of the base.
    told
        Returns the estimates of baselines, as ``baselines.json`` has them, in error.
    input_scale
        Factor of the scale that the inputs of trained policies are normalised by.
    hindsight
        Whether the condition picks days by what they turned out to be, which nobody knew when they began.
    """

    name: str
    family: str
    meaning: str
    level: float | None = None
    rules: Callable[[ExecutionRules], ExecutionRules] | None = None
    bars: Edit | None = None
    feed: Edit | None = None
    resized: float | None = None
    window: Callable[[Engine, OrderBatch], OrderBatch] | None = None
    keep: Callable[[Engine, OrderBatch], np.ndarray] | None = None
    told: Callable[[Any], Any] | None = None
    input_scale: float | None = None
    hindsight: bool = False

    @property
    def plays(self) -> bool:
        """True where policies trade anew; a choice among the base's orders needs no trade."""
        return self.keep is None and self.name != BASE


#: Name of the condition that changes nothing.
BASE = "base"


def _raised(rules: ExecutionRules, **more: float) -> ExecutionRules:
    """Return rules with costs added to their own; impact, which needs a cap, gets one of the whole volume."""
    own: dict[str, Any] = {name: (getattr(rules, name) or 0.0) + value for name, value in more.items()}
    if any(name.endswith("impact_bps") for name in more) and rules.volume_limit is None:
        own["volume_limit"] = 1.0
    return dataclasses.replace(rules, **own)


def _capped(rules: ExecutionRules, limit: float) -> ExecutionRules:
    return dataclasses.replace(rules, volume_limit=min(rules.volume_limit or 1.0, limit))


def _real_size(rules: ExecutionRules) -> ExecutionRules:
    """Return the rules under which the size of orders counts: a cap of 20 %, and temporary impact of 100 bp more."""
    return _raised(_capped(rules, 0.2), temporary_impact_bps=100.0)


def _prices(bars: Bars, change: Callable[[np.ndarray], np.ndarray]) -> Bars:
    return {name: change(values) if name in PRICES else values for name, values in bars.items()}


def _anchor(bars: Bars) -> np.ndarray:
    """Return the first price of each session, float64 of shape (n, 1); NaN where there is none."""
    shown = bars["close"] if "close" in bars else bars["bid"]
    first = np.where(np.isfinite(bars["open"]), bars["open"], shown) if "open" in bars else shown
    return np.take_along_axis(first, np.argmax(np.isfinite(first), axis=1)[:, None], axis=1)


def _scaled(bars: Bars, rng: np.random.Generator, factor: float) -> Bars:
    base = _anchor(bars)
    return _prices(bars, lambda values: base * (values / base) ** factor)


def _thinned(bars: Bars, rng: np.random.Generator, factor: float) -> Bars:
    return {name: values * factor if name in SIZES else values for name, values in bars.items()}


def _without(bars: Bars, gone: np.ndarray) -> Bars:
    return {name: np.where(gone, np.nan, values) for name, values in bars.items()}


def _gaps(bars: Bars, rng: np.random.Generator, share: float) -> Bars:
    return _without(bars, rng.random(_shape(bars)) < share)


def _halted(bars: Bars, rng: np.random.Generator, share: float) -> Bars:
    count, ticks = _shape(bars)
    length = max(1, round(share * ticks))
    first = rng.integers(0, ticks - length + 1, (count, 1))
    return _without(bars, (np.arange(ticks) >= first) & (np.arange(ticks) < first + length))


def _moved(bars: Bars, rng: np.random.Generator, bp: float) -> Bars:
    """Return prices after a jump of `bp` up or down at a tick in the middle half of each session."""
    count, ticks = _shape(bars)
    at = rng.integers(ticks // 4, max(ticks // 4 + 1, 3 * ticks // 4), (count, 1))
    sign = rng.choice([-1.0, 1.0], (count, 1))
    return _prices(bars, lambda values: values * np.where(np.arange(ticks) >= at, 1.0 + sign * bp * 1e-4, 1.0))


def _drifting(bars: Bars, rng: np.random.Generator, bp: float) -> Bars:
    ticks = _shape(bars)[1]
    return _prices(bars, lambda values: values * (1.0 + bp * 1e-4 * np.arange(1, ticks + 1) / ticks))


def _noisy(bars: Bars, rng: np.random.Generator, bp: float) -> Bars:
    noise = np.exp(bp * 1e-4 * rng.standard_normal(_shape(bars)))
    return _prices(bars, lambda values: values * noise)


def _late(bars: Bars, rng: np.random.Generator, ticks: int, share: float = 1.0) -> Bars:
    """Return bars that come `ticks` late in a share of the sessions; what has not come by the close never does."""
    count = _shape(bars)[0]
    is_late = rng.random((count, 1)) < share

    def shift(values: np.ndarray) -> np.ndarray:
        later = np.full_like(values, np.nan)
        later[:, ticks:] = values[:, : values.shape[1] - ticks]
        return np.where(is_late, later, values)

    return {name: shift(values) for name, values in bars.items()}


def _cut(bars: Bars, rng: np.random.Generator, part: float) -> Bars:
    ticks = _shape(bars)[1]
    return _without(bars, np.broadcast_to(np.arange(ticks) >= round(part * ticks), _shape(bars)))


def _flat_volume(bars: Bars, rng: np.random.Generator) -> Bars:
    return {name: np.zeros_like(values) if name in SIZES else values for name, values in bars.items()}


def _shape(bars: Bars) -> tuple[int, int]:
    count, ticks = next(iter(bars.values())).shape
    return count, ticks


def changed_sessions(sessions: Sessions, rows: np.ndarray, edit: Edit, name: str, seed: int) -> Sessions:
    """Return a panel whose bars in `rows` were changed; what is drawn depends on the condition's name and the seed."""
    rng = generator(seed, Stream.STRESS, zlib.crc32(name.encode()))
    own = {field: np.array(values) for field, values in sessions.fields.items()}
    for field, values in edit({field: values[rows] for field, values in own.items()}, rng).items():
        own[field][rows] = np.where(sessions.in_session[rows], values, np.nan)
    return dataclasses.replace(sessions, fields=own, directory=None)


def carried_feed(feed: Sessions, market: Sessions, rows: np.ndarray) -> Sessions:
    """Return a feed that, where it lacks a bar of the market, repeats the last price that it had, with a volume of 0.

    Before the first bar of a day that is the last close of the instrument's previous session.
    """
    own = {field: np.array(values) for field, values in feed.fields.items()}
    before = feed.previous[rows]
    known = before >= 0
    close = "close" if "close" in feed.fields else "bid"
    last = np.full(len(rows), np.nan)
    last[known] = last_valid(feed.fields[close][before[known]]) * price_ratio(feed, before[known], rows[known])
    shown = np.concatenate([last[:, None], own[close][rows]], axis=1)
    place = np.maximum.accumulate(np.where(np.isfinite(shown), np.arange(shown.shape[1]), 0), axis=1)
    carried = np.take_along_axis(shown, place, axis=1)[:, 1:]
    for field, values in own.items():
        lacks = np.isfinite(market.fields[field][rows]) & ~np.isfinite(values[rows])
        values[rows] = np.where(lacks, carried if field in PRICES else 0.0, values[rows])
    return dataclasses.replace(feed, fields=own, directory=None)


def _replaced(orders: OrderBatch, rows: np.ndarray, **arrays: np.ndarray) -> OrderBatch:
    some: OrderBatch = orders[np.flatnonzero(rows)]
    return dataclasses.replace(some, **{name: values[rows].astype(np.int32) for name, values in arrays.items()})


def _shifted_start(engine: Engine, orders: OrderBatch, steps: float) -> OrderBatch:
    """Return orders that begin some steps later, or with `steps` below 1 after that part of their steps."""
    first, last = engine.cell[orders.start], engine.cell[orders.end - 1]
    skip = np.floor((last - first + 1) * steps).astype(int) if steps < 1 else np.full(len(orders), int(steps))
    start = np.maximum(np.searchsorted(engine.cell, first + skip), orders.start)
    return _replaced(orders, (first + skip <= last) & _priced(engine, orders, start, orders.end), start=start)


def _shifted_end(engine: Engine, orders: OrderBatch, steps: float) -> OrderBatch:
    """Return orders that end some steps sooner, or with `steps` below 1 by that part of their steps."""
    first, last = engine.cell[orders.start], engine.cell[orders.end - 1]
    skip = np.floor((last - first + 1) * steps).astype(int) if steps < 1 else np.full(len(orders), int(steps))
    end = np.minimum(np.searchsorted(engine.cell, last - skip, side="right"), orders.end)
    keeps = (last - skip >= first) & _priced(engine, orders, orders.start, end)
    return _replaced(
        orders, keeps, end=end, latest_end=np.where(orders.latest_end == orders.end, end, orders.latest_end)
    )


def _priced(engine: Engine, orders: OrderBatch, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return which windows hold a price, bool of shape (N,)."""
    price = engine.price[orders.session]
    ticks = np.arange(price.shape[1])
    return np.asarray(((price > 0) & (ticks >= start[:, None]) & (ticks < end[:, None])).any(axis=1))


def _is_side(engine: Engine, orders: OrderBatch, side: int) -> np.ndarray:
    return np.asarray(orders.side == side)


def day_traits(engine: Engine, orders: OrderBatch) -> dict[str, np.ndarray]:
    """Return what the orders' sessions turned out to be, float64 of shape (N,) by name; NaN where it is not known.

    ``trend`` is the distance between the session's first and last price over the way in between, both in logarithms
    (Kaufman's efficiency ratio): 1 for a straight line; ``volatility`` the square root of the summed squared
    logarithmic returns; ``volume`` the session's over the mean of the instrument's sessions on the days of the orders.
    """
    rows, place = np.unique(orders.session, return_inverse=True)
    price = np.where(engine.price[rows] > 0, engine.price[rows], np.nan)
    moves = np.diff(np.log(price), axis=1)
    way, square = np.nansum(np.abs(moves), axis=1), np.nansum(moves**2, axis=1)
    far = np.abs(np.nansum(moves, axis=1))
    volume = np.nansum(engine.volume[rows], axis=1)
    names, code = np.unique(engine.sessions.instruments[rows], return_inverse=True)
    usual = (np.bincount(code, volume, len(names)) / np.bincount(code, minlength=len(names)))[code]
    found = {
        "trend": np.divide(far, way, out=np.full(len(rows), np.nan), where=way > 0),
        "volatility": np.where(way > 0, np.sqrt(square), np.nan),
        "volume": np.divide(volume, usual, out=np.full(len(rows), np.nan), where=usual > 0),
    }
    return {name: values[place] for name, values in found.items()}


def _third(engine: Engine, orders: OrderBatch, trait: str, upper: bool) -> np.ndarray:
    values = day_traits(engine, orders)[trait]
    known = values[np.isfinite(values)]
    if not len(known) or known.min() == known.max():
        return np.zeros(len(values), dtype=bool)
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    return np.asarray(values > high if upper else values <= low)


def _times(tree: Any, names: tuple[str, ...], factor: float, inside: bool = False) -> Any:
    """Return plain values in which all numbers below one of the names are multiplied."""
    if isinstance(tree, Mapping):
        return {key: _times(one, names, factor, inside or key in names) for key, one in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_times(one, names, factor, inside) for one in tree]
    is_number = isinstance(tree, (int, float)) and not isinstance(tree, bool)
    return tree * factor if inside and is_number else tree


def conditions() -> tuple[Condition, ...]:
    """Return all conditions of the stress matrix, the base first."""
    return tuple(_conditions())


def _conditions() -> Iterator[Condition]:
    yield Condition(BASE, "base", "nothing is changed: the run's test orders under its own rules", level=0.0)
    for bp in (1, 3, 10):
        meaning = f"commission of {bp} bp of the traded value more"
        yield Condition(f"commission-{bp}bp", "commission", meaning, bp, rules=partial(_raised, commission_bps=bp))
    yield Condition(
        "tax-5bp", "tax", "tax of 5 bp of the traded value more on sells", 5, rules=partial(_raised, sell_tax_bps=5.0)
    )
    for bp in (1, 2, 5, 10):
        meaning = f"a spread of {bp} bp more, of which each fill pays half"
        change = partial(_raised, half_spread_bps=bp / 2)
        yield Condition(f"spread-{bp}bp", "spread", meaning, bp, rules=change)
    for percent in (20, 10, 5, 1):
        meaning = f"at most {percent} % of each bar's volume can be filled"
        yield Condition(f"cap-{percent}", "cap", meaning, percent, rules=partial(_capped, limit=percent / 100))
    for bp in (30, 100, 300):
        meaning = (
            f"temporary impact of {bp} bp more for a fill as large as its bar's volume, smaller ones in proportion"
        )
        yield Condition(f"impact-{bp}bp", "impact", meaning, bp, rules=partial(_raised, temporary_impact_bps=bp))
    meaning = "permanent impact of 100 bp more for a fill as large as its bar's volume"
    yield Condition("impact-stays", "impact stays", meaning, 100, rules=partial(_raised, permanent_impact_bps=100.0))
    for ticks in (1, 2, 5):
        bars = f"{ticks} bar{'s' if ticks > 1 else ''}"
        meaning = f"decisions go by what was known {bars} before: the feed comes {bars} late all day, and fills do not"
        yield Condition(f"latency-{ticks}", "latency", meaning, ticks, feed=partial(_late, ticks=ticks))
    for percent in (20, 50):
        meaning = f"the feed comes 3 bars late in {percent} % of the sessions, drawn at random"
        late = partial(_late, ticks=3, share=percent / 100)
        yield Condition(f"late-bars-{percent}", "late bars", meaning, percent, feed=late)
    for factor in (0.5, 1.5, 2.0):
        meaning = (
            f"returns since the session's first price are {factor:g} times as large, in market and feed; volumes stay"
        )
        yield Condition(f"volatility-x{factor:g}", "volatility", meaning, factor, bars=partial(_scaled, factor=factor))
    for factor in (0.1, 0.5, 1.0, 2.0, 10.0, 100.0):
        meaning = f"orders {factor:g} times as large, under a cap of 20 % and temporary impact of 100 bp more"
        yield Condition(f"size-x{factor:g}", "size", meaning, factor, rules=_real_size, resized=factor)
    for percent in (5, 20, 50):
        meaning = f"{percent} % of the bars, drawn at random, are missing: nothing is seen and nothing fills there"
        yield Condition(
            f"missing-{percent}", "missing bars", meaning, percent, bars=partial(_gaps, share=percent / 100)
        )
    meaning = "trading halts for an eighth of each session, at a random time: nothing is seen and nothing fills there"
    yield Condition("halt", "halt", meaning, bars=partial(_halted, share=1 / 8))
    for percent in (20, 50):
        meaning = (
            f"{percent} % of the bars, drawn at random, are missing in the feed alone, which repeats the last price"
        )
        gaps = partial(_gaps, share=percent / 100)
        yield Condition(f"feed-gaps-{percent}", "feed gaps", meaning, percent, feed=gaps)
    for bp in (1, 5, 20):
        meaning = f"prices of the feed are off by noise of {bp} bp, drawn for each bar; fills are not"
        yield Condition(f"noise-{bp}bp", "noise", meaning, bp, feed=partial(_noisy, bp=bp))
    meaning = "the feed stops after half of the session and repeats its last price"
    yield Condition("feed-stops", "feed", meaning, feed=partial(_cut, part=0.5))
    meaning = "the feed has no bar of the day and repeats the last close"
    yield Condition("feed-silent", "feed", meaning, feed=partial(_cut, part=0.0))
    yield Condition("feed-no-volume", "feed", "the feed states a volume of 0 in every bar", feed=_flat_volume)
    meaning = "prices jump by 1 % up or down at a random bar in the middle half of each session, in market and feed"
    yield Condition("jump-100bp", "jump", meaning, bars=partial(_moved, bp=100.0))
    for bp in (-50, 50):
        meaning = f"prices drift by {bp} bp more over each session, in market and feed"
        yield Condition(f"drift{bp:+d}bp", "drift", meaning, bars=partial(_drifting, bp=bp))
    meaning = "a fifth of the volume, in market and feed, under a cap of 10 %"
    change = partial(_capped, limit=0.1)
    yield Condition("thin", "volume", meaning, rules=change, bars=partial(_thinned, factor=0.2))
    for what, names in {
        "impact": ("temporary", "permanent"),
        "volatility": ("volatility",),
        "volume": ("volume",),
    }.items():
        for factor in (0.5, 2.0):
            meaning = f"the baselines' estimates of {what} from the training days are {factor:g} times as large"
            change_told = partial(_times, names=names, factor=factor)
            yield Condition(f"{what}-misjudged-x{factor:g}", "calibration", meaning, told=change_told)
    for factor in (0.5, 2.0):
        meaning = f"inputs of trained policies are normalised by {factor:g} times the scale of their training"
        yield Condition(f"inputs-misscaled-x{factor:g}", "calibration", meaning, input_scale=factor)
    yield Condition("buys", "side", "the buys alone", keep=partial(_is_side, side=1))
    yield Condition("sells", "side", "the sells alone", keep=partial(_is_side, side=-1))
    yield Condition("start-later", "window", "orders begin one step later", window=partial(_shifted_start, steps=1))
    yield Condition("end-sooner", "window", "orders end one step sooner", window=partial(_shifted_end, steps=1))
    meaning = "the second half of each order's steps alone, so that there are fewer decisions"
    yield Condition("second-half", "window", meaning, window=partial(_shifted_start, steps=0.5))
    meaning = "the first half of each order's steps alone, so that there are fewer decisions"
    yield Condition("first-half", "window", meaning, window=partial(_shifted_end, steps=0.5))
    for trait, (low, high) in {
        "trend": ("reverting", "trending"),
        "volatility": ("quiet", "volatile"),
        "volume": ("slack", "busy"),
    }.items():
        for name, upper in ((low, False), (high, True)):
            which = "most" if upper else "least"
            meaning = f"the third of the orders whose sessions turned out to have the {which} {trait}"
            own = partial(_third, trait=trait, upper=upper)
            yield Condition(name, "regime", meaning, keep=own, hindsight=True)
