"""The built-in features, and the class that describes a feature.

Their definitions are in docs/features.md. Each value is known when tick t is over; `MarketFeatures` shows a decision at
tick t the values before t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market import qlib_features as qlib
from rlwb.market.calendar import Calendar
from rlwb.market.references import References, first_valid, last_valid
from rlwb.market.schema import PRICES, SIZES
from rlwb.market.store import prefetch
from rlwb.values import nearest

#: What functions make of each date of a panel, by its number (`Block.across`).
_KEPT: WeakKeyDictionary[References, WeakKeyDictionary[Callable[[Block], np.ndarray], dict[int, np.ndarray]]] = (
    WeakKeyDictionary()
)
#: Sessions that make the usual day: a week smooths the noise of one day and still follows the instrument.
PROFILE_DAYS = 5


class Block:
    """Some sessions, whole, and what earlier ones say of them: all that a feature reads.

    ``block["close"]`` is the field of these sessions, float64 of shape ``(n, T)``, NaN where it is missing. A feature
    may use, for its value at tick t, columns up to and including t, and whatever is said of earlier sessions. `rows`
    are the sessions' row numbers in the panel, of shape ``(n,)``. Where `ticks` are given, T is their number: it holds
    these ticks alone, for features that need no others (`Feature.scope`).
    """

    def __init__(self, references: References, rows: np.ndarray, ticks: slice = slice(None)) -> None:
        self.rows = np.asarray(rows)
        self.references = references
        self.ticks = np.arange(references.sessions.calendar.num_ticks)[ticks]
        self._columns = ticks
        self._sessions = references.sessions
        self._kept: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, field: str) -> np.ndarray:
        if field not in self._kept:
            self._kept[field] = self._take(field, self.rows)
            self._kept[field].setflags(write=False)
        return self._kept[field]

    @property
    def calendar(self) -> Calendar:
        """The clock."""
        return self._sessions.calendar

    @cached_property
    def in_session(self) -> np.ndarray:
        """Bool of shape ``(n, T)``: True before the session's end."""
        return self.ticks[None, :] < self._sessions.num_ticks[self.rows][:, None]

    @cached_property
    def price_reference(self) -> np.ndarray:
        """`References.price`, float64 of shape ``(n, 1)``; in a first session known from the first price on."""
        return self.references.price[self.rows][:, None]

    @cached_property
    def previous_close(self) -> np.ndarray:
        """The last valid close of the instrument's earlier sessions, float64 of shape ``(n, 1)``; NaN where none is."""
        return self.references.previous_close[self.rows][:, None]

    @cached_property
    def volume_reference(self) -> np.ndarray:
        """`References.volume`, float64 of shape ``(n, 1)``."""
        return self.references.volume[self.rows][:, None]

    def earlier(self, field: str, days: int) -> np.ndarray:
        """Return a field of the instrument's session `days` (1 = the last) before, ``(n, T)``; NaN where none is.

        Prices and shares are those of today's session, where the sessions have factors.
        """
        if days < 1:
            raise ConfigError(f"earlier sessions are 1, 2, … before, not {days}; today is block[{field!r}].")
        before = self.rows - days
        known = before >= self._sessions.first[self.rows]
        values = self._take(field, np.where(known, before, self.rows))
        values[~known] = np.nan
        if self._sessions.factor is not None:
            ratio = self._sessions.factor[np.where(known, before, self.rows)] / self._sessions.factor[self.rows]
            values = values * ratio[:, None] if field in PRICES else values / ratio[:, None]
        return values

    @cached_property
    def instruments(self) -> np.ndarray:
        """The instrument of each session, text of shape ``(n,)``."""
        return self._sessions.instruments[self.rows]

    def across(self, function: Callable[[Block], np.ndarray]) -> np.ndarray:
        """Return for each session what `function` makes of all sessions of its date, float64 of shape ``(n, T)``.

        For features that are declared to be across instruments (`Feature.across`).

        Parameters
        ----------
        function
            Takes the block of all sessions of one date, in the panel's order, and returns one number a tick, of shape
            ``(T,)``, for all of them, or one a session and tick, of shape ``(n, T)``. Numbers a tick are kept, and so
            found once a date, of a function that lives as long as the panel, such as one of a module.

        Raises
        ------
        ConfigError
            When it returns another shape.
        """
        kept = _KEPT.setdefault(self.references, WeakKeyDictionary()).setdefault(function, {})
        ticks = self.calendar.num_ticks
        values, day = np.empty((len(self), ticks)), self.references.day[self.rows]
        for number in np.unique(day).tolist():
            rows, mine = self.references.of_day(number), day == number
            found = kept.get(number)
            if found is None:
                found = np.asarray(function(Block(self.references, rows)), dtype=np.float64)
                if found.shape == (ticks,):
                    kept[number] = found
                elif found.shape != (len(rows), ticks):
                    raise ConfigError(
                        f"a function of {len(rows)} sessions of {ticks} ticks, given to block.across, returns shape "
                        f"{found.shape}; return one number a tick, or one for each session and tick."
                    )
            values[mine] = found if found.ndim == 1 else found[np.searchsorted(rows, self.rows[mine])]
        return values[:, self._columns]

    def _take(self, name: str, rows: np.ndarray) -> np.ndarray:
        fields = self._sessions.fields
        if name not in fields:
            raise DataError(f"a feature reads {name}, which these bars lack; they have {', '.join(fields)}.")
        prefetch(fields[name], rows)
        values: np.ndarray = fields[name][rows, self._columns]
        return values


@dataclass(frozen=True)
class Feature:
    """One feature.

    Parameters
    ----------
    name
        In `FeatureSettings.columns` and in the observation.
    needs
        Names of the fields that it reads.
    function
        To values of shape (n, T); what is not finite counts as missing.
    of_yesterday
        The same of yesterday's block, where that is not the block of its day.
    scope
        How much it needs for a value, so that live bars cost no more than they must: the fields of that very ``tick``
        and `Block`'s references, where these are known before the day; the whole ``day`` and what `Block` says of
        earlier ones; or the ``panel``, rows of ``references.sessions`` itself.
    lookback
        How many of the instrument's earlier sessions it reads beyond `Block`'s references.
    across
        Whether it reads sessions of other instruments, of the same date up to the same tick and earlier ones.
    """

    name: str
    needs: tuple[str, ...]
    function: Callable[[Block], np.ndarray]
    of_yesterday: Callable[[Block], np.ndarray] | None = None
    scope: Literal["tick", "day", "panel"] = "panel"
    lookback: int = PROFILE_DAYS
    across: bool = False

    def __call__(self, block: Block) -> np.ndarray:
        """Return the raw values, float64 of shape ``(n, T)``, NaN where there is none."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            values = np.asarray(self.function(block), dtype=np.float64)
        if values.shape != (len(block), len(block.ticks)):
            raise ConfigError(
                f"feature {self.name} returns shape {values.shape} for {len(block)} sessions of "
                f"{len(block.ticks)} ticks; return one number for each of them."
            )
        finite = np.isfinite(values)
        return values if finite.all() else np.where(finite, values, np.nan)

    def yesterday(self) -> Feature:
        """Return what stands in yesterday's block as a feature of today's sessions; raise `ConfigError` without."""
        if self.of_yesterday is None:
            raise ConfigError(f"feature {self.name} has yesterday's block from the session before; leave it out here.")
        return replace(self, function=self.of_yesterday, of_yesterday=None)

    def check_fields(self, fields: tuple[str, ...]) -> None:
        """Raise `DataError` unless all that it needs is among `fields`."""
        missing = sorted(set(self.needs) - set(fields))
        if missing:
            raise DataError(
                f"feature {self.name} needs {', '.join(missing)}, which these bars lack; they have {', '.join(fields)}."
            )


def _price(name: str, block: Block) -> np.ndarray:
    return np.log(block[name]) - np.log(block.price_reference)


def _size(name: str, block: Block) -> np.ndarray:
    volume, reference = block["volume"], block.volume_reference
    lacking = ~np.isfinite(reference[:, 0])
    if lacking.any():
        own = np.nancumsum(volume[lacking], axis=1) / np.cumsum(np.isfinite(volume[lacking]), axis=1)
        reference = np.repeat(reference, volume.shape[1], axis=1)
        reference[lacking] = np.where(own > 0, own, np.nan)
    return np.where(block[name] == 0, 0.0, np.log1p(block[name] / reference))


def _spread(block: Block) -> np.ndarray:
    return np.log(block["ask"]) - np.log(block["bid"])


def _imbalance(block: Block) -> np.ndarray:
    bid, ask = block["bid_size"], block["ask_size"]
    return (bid - ask) / (bid + ask)


def changes(price: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log return of each tick from the last valid price before it, and whether there is one; ``(n, T)``."""
    price = np.log(price)
    valid = np.isfinite(price)
    last = np.maximum.accumulate(np.where(valid, np.arange(price.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(price), 1), -1), last[:, :-1]], axis=1)
    moved = valid & (before >= 0)
    return np.where(moved, price - np.take_along_axis(price, np.maximum(before, 0), axis=1), 0.0), moved


def _volatility(block: Block, days: int = 0) -> np.ndarray:
    change, moved = changes(block.earlier("close", days) if days else block["close"])
    return np.sqrt(np.cumsum(change**2, axis=1) / np.cumsum(moved, axis=1))


def _returns(block: Block) -> np.ndarray:
    change, moved = changes(block["close"])
    overnight = np.log(block["close"]) - np.log(block.previous_close)  # of the first close, which has none before it
    return np.where(moved, change, np.where(np.isfinite(block["close"]), overnight, np.nan))


def _gap(block: Block) -> np.ndarray:
    known = np.logical_or.accumulate(np.isfinite(block["open"]) | np.isfinite(block["close"]), axis=1)
    first = first_valid(block["open"], block["close"])[:, None]
    return np.where(known, np.log(first) - np.log(block.previous_close), np.nan)


def _yesterday_return(block: Block) -> np.ndarray:
    close = block.earlier("close", 1)
    move = np.log(last_valid(close)) - np.log(first_valid(block.earlier("open", 1), close))
    return np.broadcast_to(move[:, None], close.shape)


def _yesterday_volatility(block: Block) -> np.ndarray:
    volatility = _volatility(block, days=1)
    return np.broadcast_to(volatility[:, -1:], volatility.shape)


def _volume_share(block: Block) -> np.ndarray:
    usual, days = np.zeros((len(block), block.calendar.num_ticks)), np.zeros((len(block), 1))
    for day in range(1, PROFILE_DAYS + 1):
        so_far = np.nancumsum(block.earlier("volume", day), axis=1)
        usual += so_far
        days += so_far[:, -1:] > 0
    return (np.nancumsum(block["volume"], axis=1) * days - usual) / usual[:, -1:]


def _time(block: Block) -> np.ndarray:
    return np.broadcast_to((block.ticks + 1) / block.calendar.num_ticks, (len(block), len(block.ticks)))


def _so_far(block: Block) -> np.ndarray:
    """Return the log of the last close so far over the day's first price, ``(n, T)``; NaN before the first close."""
    close = block["close"]
    last = np.maximum.accumulate(np.where(np.isfinite(close), np.arange(close.shape[1]), -1), axis=1)
    price = np.where(last >= 0, np.take_along_axis(close, np.maximum(last, 0), axis=1), np.nan)
    return np.log(price) - np.log(first_valid(block["open"], close))[:, None]


def _above(block: Block) -> np.ndarray:
    return (np.sign(_so_far(block)) + 1) / 2


def _total(values: Callable[[Block], np.ndarray], day: Block) -> np.ndarray:
    return np.nansum(values(day), axis=0)


def _number(values: Callable[[Block], np.ndarray], day: Block) -> np.ndarray:
    return np.isfinite(values(day)).sum(axis=0)


_AVERAGED: tuple[Callable[[Block], np.ndarray], ...] = (_so_far, _returns, _above)
_SUMS = {values: (partial(_total, values), partial(_number, values)) for values in _AVERAGED}


def _others(values: Callable[[Block], np.ndarray], block: Block) -> np.ndarray:
    """Return the mean of `values` over the other instruments of the date that have one; NaN where none has."""
    total, number = map(block.across, _SUMS[values])
    own = values(block)
    there = np.isfinite(own)
    number = number - there
    return np.where(number > 0, (total - np.where(there, own, 0.0)) / number, np.nan)


def _relative_return(block: Block) -> np.ndarray:
    return _so_far(block) - _others(_so_far, block)


def of_instrument(base: Feature, instrument: str) -> Feature:
    """Return a feature of one instrument as a feature of all: its value on the same date at the same tick."""
    return Feature(
        f"{base.name}@{instrument}",
        base.needs,
        partial(_elsewhere, base, instrument),
        lookback=base.lookback,
        across=True,
    )


def _elsewhere(base: Feature, instrument: str, block: Block) -> np.ndarray:
    sessions = block.references.sessions
    code = sessions.index.codes.get(instrument)
    if code is None:
        near = nearest(instrument, sessions.index.codes)
        hint = f"did you mean {near}?" if near else "add its bars to the market's, or leave the feature out."
        raise DataError(f"feature {base.name}@{instrument} reads {instrument}, of which there are no bars; {hint}")
    first, stop = sessions.index.first[code], sessions.index.stop[code]
    dates = sessions.dates[block.rows]
    rows = np.minimum(first + np.searchsorted(sessions.dates[first:stop], dates), stop - 1)
    distinct, back = np.unique(rows, return_inverse=True)
    values = base(Block(block.references, distinct))[back]
    values[sessions.dates[rows] != dates] = np.nan
    return values


SETS: dict[str, tuple[str, ...]] = {
    "qlib": tuple(f"qlib_{name}" for name in ("open", "high", "low", "close", "volume"))
}
"""Names that stand for several features."""

BUILT_IN: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        *(Feature(name, (name,), partial(_price, name), scope="tick", lookback=0) for name in PRICES),
        *(Feature(name, (name,), partial(_size, name), scope="tick", lookback=0) for name in SIZES),
        Feature("spread", ("bid", "ask"), _spread, scope="tick", lookback=0),
        Feature("imbalance", ("bid_size", "ask_size"), _imbalance, scope="tick", lookback=0),
        Feature("volatility", ("close",), _volatility, scope="day", lookback=0),
        Feature("volume_share", ("volume",), _volume_share, scope="day", lookback=PROFILE_DAYS),
        Feature("time", (), _time, scope="tick", lookback=0),
        Feature("returns", ("close",), _returns, scope="day", lookback=0),
        Feature("gap", ("open", "close"), _gap, scope="day", lookback=0),
        Feature("yesterday_return", ("open", "close"), _yesterday_return, scope="day", lookback=1),
        Feature("yesterday_volatility", ("close",), _yesterday_volatility, scope="day", lookback=1),
        Feature("market_return", ("open", "close"), partial(_others, _so_far), lookback=0, across=True),
        Feature("market_returns", ("close",), partial(_others, _returns), lookback=0, across=True),
        Feature("relative_return", ("open", "close"), _relative_return, lookback=0, across=True),
        Feature("breadth", ("open", "close"), partial(_others, _above), lookback=0, across=True),
        *(
            Feature(
                f"qlib_{name}",
                (name, "close"),
                partial(qlib.price, name, 0),
                partial(qlib.price, name, 1),
                lookback=qlib.LOOKBACK,
            )
            for name in ("open", "high", "low", "close", "vwap")
        ),
        Feature("qlib_volume", ("volume",), partial(qlib.volume, 0), partial(qlib.volume, 1), lookback=qlib.LOOKBACK),
    )
}
