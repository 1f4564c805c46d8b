"""The features that are built in.

With ``p`` a price and ``v`` a volume or size at tick t of a session:

========================== ============================================================================================
open, high, low, close,    ``log(p[t] / reference)``, the reference being the last valid close of the instrument's
bid, ask, vwap             earlier sessions, or, in a first session, the session's own first valid price
returns                    ``log(close[t])`` less the log of the last valid close before it, of today or else of earlier
                           sessions
gap                        log of today's first valid price over the last valid close of earlier sessions, once known
volume, bid_size, ask_size ``log1p(v[t] / reference)``, the reference being the mean tick volume of the instrument's
                           last earlier session that traded, or, where there is none, today's mean so far
spread                     ``log(ask[t] / bid[t])``
imbalance                  ``(bid_size[t] - ask_size[t]) / (bid_size[t] + ask_size[t])``, from -1 (all is offered) to 1
volatility                 root mean square of today's log returns so far, from close to close, a tick without a close
                           being skipped
volume_share               today's volume so far as a share of a usual day's, less the usual share by then; the usual
                           day is the mean of the instrument's last 5 sessions, as far as they traded
time                       share of the clock's ticks that are over, ``(t + 1) / T``
yesterday_return           log of the last valid close over the first valid price of the instrument's session before
yesterday_volatility       ``volatility`` at the end of the session before
========================== ============================================================================================

Each value is known when tick t is over; `MarketFeatures` shows a decision at tick t the values before t.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from rlwb.market.block import Block, Feature
from rlwb.market.references import first_valid, last_valid
from rlwb.market.schema import PRICES, SIZES

#: Sessions that make the usual day: a week smooths the noise of one day and still follows the instrument.
PROFILE_DAYS = 5


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


def _changes(price: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log return of each tick from the last valid price before it, and whether there is one; ``(n, T)``."""
    price = np.log(price)
    valid = np.isfinite(price)
    last = np.maximum.accumulate(np.where(valid, np.arange(price.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(price), 1), -1), last[:, :-1]], axis=1)
    moved = valid & (before >= 0)
    return np.where(moved, price - np.take_along_axis(price, np.maximum(before, 0), axis=1), 0.0), moved


def _volatility(block: Block, days: int = 0) -> np.ndarray:
    change, moved = _changes(block.earlier("close", days) if days else block["close"])
    return np.sqrt(np.cumsum(change**2, axis=1) / np.cumsum(moved, axis=1))


def _returns(block: Block) -> np.ndarray:
    change, moved = _changes(block["close"])
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
    ticks = block.calendar.num_ticks
    return np.broadcast_to(np.arange(1, ticks + 1) / ticks, (len(block), ticks))


BUILT_IN: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        *(Feature(name, (name,), partial(_price, name)) for name in PRICES),
        *(Feature(name, (name,), partial(_size, name)) for name in SIZES),
        Feature("spread", ("bid", "ask"), _spread),
        Feature("imbalance", ("bid_size", "ask_size"), _imbalance),
        Feature("volatility", ("close",), _volatility),
        Feature("volume_share", ("volume",), _volume_share),
        Feature("time", (), _time),
        Feature("returns", ("close",), _returns),
        Feature("gap", ("open", "close"), _gap),
        Feature("yesterday_return", ("open", "close"), _yesterday_return),
        Feature("yesterday_volatility", ("close",), _yesterday_volatility),
    )
}
