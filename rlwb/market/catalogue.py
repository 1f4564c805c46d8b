"""The features that are built in.

With ``p`` a price and ``v`` a volume or size at tick t of a session:

========================== ============================================================================================
open, high, low, close,    ``log(p[t] / reference)``, the reference being the last valid close of the instrument's
bid, ask, vwap             earlier sessions, or, in a first session, the session's own first valid price
volume, bid_size, ask_size ``log1p(v[t] / reference)``, the reference being the mean tick volume of the instrument's
                           last earlier session that traded, or, where there is none, today's mean so far
spread                     ``log(ask[t] / bid[t])``
imbalance                  ``(bid_size[t] - ask_size[t]) / (bid_size[t] + ask_size[t])``, from -1 (all is offered) to 1
volatility                 root mean square of today's log returns so far, from close to close, a tick without a close
                           being skipped
volume_share               today's volume so far as a share of a usual day's, less the usual share by then; the usual
                           day is the mean of the instrument's last 5 sessions, as far as they traded
time                       share of the clock's ticks that are over, ``(t + 1) / T``
========================== ============================================================================================

Each value is known when tick t is over; `MarketFeatures` shows a decision at tick t the values before t.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from rlwb.market.block import Block, Piece
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


def _volatility(block: Block) -> np.ndarray:
    price = np.log(block["close"])
    valid = np.isfinite(price)
    last = np.maximum.accumulate(np.where(valid, np.arange(price.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(price), 1), -1), last[:, :-1]], axis=1)
    moved = valid & (before >= 0)
    change = np.where(moved, price - np.take_along_axis(price, np.maximum(before, 0), axis=1), 0.0)
    return np.sqrt(np.cumsum(change**2, axis=1) / np.cumsum(moved, axis=1))


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


BUILT_IN: dict[str, Piece] = {
    piece.name: piece
    for piece in (
        *(Piece(name, (name,), partial(_price, name)) for name in PRICES),
        *(Piece(name, (name,), partial(_size, name)) for name in SIZES),
        Piece("spread", ("bid", "ask"), _spread),
        Piece("imbalance", ("bid_size", "ask_size"), _imbalance),
        Piece("volatility", ("close",), _volatility),
        Piece("volume_share", ("volume",), _volume_share),
        Piece("time", (), _time),
    )
}
