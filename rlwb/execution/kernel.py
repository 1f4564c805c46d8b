"""The compiled loops of the engine. The rules in words stand in `rlwb.execution.engine`."""

from __future__ import annotations

import numba
import numpy as np

#: An order is complete when less than this share of its amount is left.
TOLERANCE = 1e-9

FREE, CAP, BLOCKED, NO_PRICE, LOT = 0, 1, 2, 3, 4
#: What bound a tick's fill, by code.
BOUND_NAMES = ("", "volume cap", "halt or price limit", "no price", "lot")


@numba.njit(cache=True)
def _round_lot(amount: float, lot: float) -> float:
    return np.floor(amount / lot + 0.5) * lot


@numba.njit(cache=True)
def _has_price(price: float) -> bool:
    return price > 0.0 and price < np.inf


@numba.njit(cache=True)
def _limit_blocks(side: int, price: float, low: float, high: float) -> bool:
    return (side > 0 and price >= high) or (side < 0 and price <= low)


@numba.njit(cache=True)
def _cap(volume: float, volume_limit: float, lot: float) -> float:
    """Return the most that the cap lets a tick fill, in whole lots; infinity without a cap."""
    if volume_limit == np.inf:
        return np.inf
    cap = volume_limit * volume if volume > 0.0 else 0.0
    return np.floor(cap / lot + TOLERANCE) * lot if lot > 0.0 else cap


@numba.njit(cache=True)
def _impact(participation: float, square_root: bool) -> float:
    return np.sqrt(participation) if square_root else participation


@numba.njit(cache=True)
def window_room(
    price: np.ndarray,
    volume: np.ndarray,
    halted: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    session: np.ndarray,
    side: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    volume_limit: float,
    lot: float,
) -> np.ndarray:
    """Return the most that each tick of each window can fill, float64 of shape (N, T); see `Engine.room`."""
    room = np.zeros((session.shape[0], price.shape[1]))
    limits, halts = lower.shape[0] > 0, halted.shape[0] > 0
    for i in range(session.shape[0]):
        s = session[i]
        low, high = (lower[s], upper[s]) if limits else (-np.inf, np.inf)
        for t in range(start[i], end[i]):
            p = price[s, t]
            if _has_price(p) and not (halts and halted[s, t]) and not _limit_blocks(side[i], p, low, high):
                room[i, t] = _cap(volume[s, t], volume_limit, lot)
    return room


@numba.njit(cache=True)
def advance(
    price: np.ndarray,
    volume: np.ndarray,
    halted: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    session: np.ndarray,
    side: np.ndarray,
    amount: np.ndarray,
    end: np.ndarray,
    stop: np.ndarray,
    tick: np.ndarray,
    ask: np.ndarray,
    position: np.ndarray,
    asked: np.ndarray,
    fill: np.ndarray,
    notional: np.ndarray,
    squares: np.ndarray,
    cost: np.ndarray,
    moved: np.ndarray,
    volume_limit: float,
    complete_at_end: bool,
    lot: float,
    trade_odd: np.ndarray,
    half_spread: np.ndarray,
    temporary: float,
    temporary_root: bool,
    permanent: float,
    permanent_root: bool,
    tick_ask: np.ndarray,
    tick_fill: np.ndarray,
    tick_bound: np.ndarray,
    tick_cost: np.ndarray,
) -> None:
    """Execute one step of every order in place; see `Engine.step` for the meaning of the arrays.

    `lower`, `upper`, `halted` and `half_spread` may have no rows (no such rule); so may the four ``tick_`` arrays
    of shape (N, T), which are filled only when they have rows. `temporary` and `permanent` are shares of the price;
    `trade_odd` tells of each
    order whether an odd remainder is traded; `moved` is how far it has moved the price for good, as such a share.
    """
    record = tick_fill.shape[0] > 0
    spread, impact = half_spread.shape[0] > 0, temporary > 0.0 or permanent > 0.0
    charged = spread or impact
    limits, halts = lower.shape[0] > 0, halted.shape[0] > 0
    for i in range(session.shape[0]):
        s = session[i]
        low, high = (lower[s], upper[s]) if limits else (-np.inf, np.inf)
        last_step = stop[i] == end[i]
        everything = ask[i] >= position[i] - TOLERANCE * amount[i]
        odd = amount[i] - np.floor(amount[i] / lot + TOLERANCE) * lot if lot > 0.0 else 0.0
        priced = 0
        for t in range(tick[i], stop[i]):
            if _has_price(price[s, t]):
                priced += 1
        seen = 0
        filled = 0.0
        scheduled = 0.0
        value = 0.0
        square = 0.0
        paid = 0.0
        for t in range(tick[i], stop[i]):
            p = price[s, t]
            if not _has_price(p):
                if record:
                    tick_bound[i, t] = NO_PRICE
                continue
            seen += 1
            closing = last_step and seen == priced and (complete_at_end or everything)
            due = ask[i] if seen == priced else ask[i] * seen / priced
            if lot > 0.0:
                due = _round_lot(asked[i] + due, lot) - _round_lot(asked[i], lot)
            available = position[i] if (closing and trade_odd[i]) else position[i] - odd
            if closing:
                want = available
            elif last_step:
                want = due - filled
            else:
                want = due - scheduled
            scheduled = due
            want = max(min(want, available), 0.0)
            traded = want
            bound = FREE
            if (halts and halted[s, t]) or _limit_blocks(side[i], p, low, high):
                traded = 0.0
                bound = BLOCKED
            elif volume_limit < np.inf:
                room = _cap(volume[s, t], volume_limit, lot)
                if traded > room:
                    traded = room
                    bound = CAP
            if bound == FREE and traded > 0.0 and position[i] - traded <= TOLERANCE * amount[i]:
                traded = position[i]
            if bound == FREE and lot > 0.0 and want == 0.0 and ask[i] > 0.0:
                bound = LOT
            position[i] -= traded
            filled += traded
            value += traded * p
            square += traded * traded
            if charged and traded > 0.0:
                extra = traded * half_spread[s, t] if spread else 0.0
                if impact:
                    taken = min(traded / volume[s, t], 1.0)
                    extra += traded * p * (moved[i] + temporary * _impact(taken, temporary_root))
                    if permanent > 0.0:
                        moved[i] += permanent * _impact(taken, permanent_root)
                paid += extra
                if record:
                    tick_cost[i, t] = extra
            if record:
                tick_ask[i, t] = want
                tick_fill[i, t] = traded
                tick_bound[i, t] = bound
        asked[i] += ask[i]
        fill[i] = filled
        notional[i] = value
        squares[i] = square
        cost[i] = paid


@numba.njit(cache=True)
def window_prices(
    price: np.ndarray, volume: np.ndarray, session: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return TWAP, VWAP, arrival price and volume of each window, float64 of shape (N,); NaN where there is none."""
    n = session.shape[0]
    twap = np.full(n, np.nan)
    vwap = np.full(n, np.nan)
    arrival = np.full(n, np.nan)
    traded = np.zeros(n)
    for i in range(n):
        s = session[i]
        count = 0
        total = 0.0
        value = 0.0
        for t in range(start[i], end[i]):
            p = price[s, t]
            v = volume[s, t]
            if v > 0.0:
                traded[i] += v
            if not _has_price(p):
                continue
            if count == 0:
                arrival[i] = p
            count += 1
            total += p
            if v > 0.0:
                value += v * p
        if count > 0:
            twap[i] = total / count
        priced_volume = 0.0
        for t in range(start[i], end[i]):
            if _has_price(price[s, t]) and volume[s, t] > 0.0:
                priced_volume += volume[s, t]
        if priced_volume > 0.0:
            vwap[i] = value / priced_volume
    return twap, vwap, arrival, traded


@numba.njit(cache=True)
def count_priced(price: np.ndarray, session: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the number of ticks with a price in ``[start, end)``, int64 of shape (N,)."""
    count = np.zeros(session.shape[0], dtype=np.int64)
    for i in range(session.shape[0]):
        for t in range(start[i], end[i]):
            if _has_price(price[session[i], t]):
                count[i] += 1
    return count
