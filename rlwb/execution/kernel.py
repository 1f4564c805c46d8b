"""The compiled loops of the engine. The rules in words stand in `rlwb.execution.engine`."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

#: An order is complete when less than this share of its amount is left.
TOLERANCE = 1e-9

#: An array of something that is off, see `Market`.
NO_ROWS = np.empty((0, 0))

FREE, CAP, BLOCKED, NO_PRICE, LOT, LIMIT, MOST = 0, 1, 2, 3, 4, 5, 6
#: What cut a tick's fill, by code.
CONSTRAINTS = ("", "volume cap", "halt or price limit", "no price", "lot", "limit price", "max participation")


class Market(NamedTuple):
    """Prices, volumes, spreads, halts and limits of S sessions by tick; arrays of rules that are off have no rows.

    Attributes
    ----------
    price, volume, half_spread : float64 of shape (S, T)
        Price, shares traded, and half the distance from bid to ask in currency.
    halted : bool of shape (S, T)
    lower, upper : float64 of shape (S,)
        Price limits: a sell at or below the one and a buy at or above the other do not fill.
    """

    price: np.ndarray
    volume: np.ndarray
    half_spread: np.ndarray
    halted: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Terms(NamedTuple):
    """The rules in numbers: impacts as shares of the price, no cap as infinity, no lots as 0.

    Of a transient move, `kept` is left a tick later under an exponential decay, and ``decay[k]`` k ticks later under a
    power one, without rows under another.
    """

    volume_limit: float
    complete_at_end: bool
    catch_up: bool
    lot: float
    temporary: float
    temporary_root: bool
    permanent: float
    permanent_root: bool
    transient: float
    transient_root: bool
    kept: float
    decay: np.ndarray


class Windows(NamedTuple):
    """N orders: row of the session, side, amount, ticks ``[start, end)``, whether an odd lot is traded, and forms.

    The forms are limit price, would price, and the least and most share of a tick's volume: float64 of shape (4, N),
    NaN where an order states none, or no rows where no order does.
    """

    session: np.ndarray
    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray
    trades_odd: np.ndarray
    forms: np.ndarray


class Progress(NamedTuple):
    """The state of N orders, changed in place: amount left, sum of requests, and impact so far; see `EngineState`."""

    position: np.ndarray
    requested: np.ndarray
    permanent_impact: np.ndarray
    transient_impact: np.ndarray


class StepSums(NamedTuple):
    """What a step did to N orders, written in place; float64 of shape (N,) each."""

    fill: np.ndarray
    notional: np.ndarray
    sum_sq_fill: np.ndarray
    cost: np.ndarray
    untraded: np.ndarray


class TickArrays(NamedTuple):
    """What each tick did to N orders, written in place where the arrays of shape (N, T) have rows."""

    requested: np.ndarray
    fill: np.ndarray
    constraint: np.ndarray
    cost: np.ndarray


@numba.njit(cache=True)
def _round_lot(amount: float, lot: float) -> float:
    return np.floor(amount / lot + 0.5) * lot


@numba.njit(cache=True)
def has_price(price: float) -> bool:
    """Tell whether a number is a price: finite and above 0."""
    return price > 0.0 and price < np.inf


@numba.njit(cache=True)
def _limit_blocks(side: int, price: float, low: float, high: float) -> bool:
    return (side > 0 and price >= high) or (side < 0 and price <= low)


@numba.njit(cache=True)
def _is_worse(side: int, price: float, half_spread: float, stated: float) -> bool:
    """Tell whether what is paid or got is worse than a stated price, beyond rounding; never where that is NaN."""
    return side * (price + side * half_spread - stated) > TOLERANCE * stated


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
def mean_move(move: float, square_root: bool) -> float:
    """Return what a fill pays of its own move: the mean over its shares, each of which moves the price for the next."""
    return move * 2.0 / 3.0 if square_root else move / 2.0


@numba.njit(cache=True)
def window_room(market: Market, windows: Windows, volume_limit: float, lot: float) -> np.ndarray:
    """Return the most that each tick of each window can fill, float64 of shape (N, T); see `Engine.room`."""
    price = market.price
    room = np.zeros((windows.session.shape[0], price.shape[1]))
    limits, halts = market.lower.shape[0] > 0, market.halted.shape[0] > 0
    spread, formed = market.half_spread.shape[0] > 0, windows.forms.shape[0] > 0
    for i in range(windows.session.shape[0]):
        s = windows.session[i]
        limit, most = (windows.forms[0, i], windows.forms[3, i]) if formed else (np.nan, np.nan)
        share = most if most < volume_limit else volume_limit
        low, high = (market.lower[s], market.upper[s]) if limits else (-np.inf, np.inf)
        for t in range(windows.start[i], windows.end[i]):
            p = price[s, t]
            halted = halts and market.halted[s, t]
            half = market.half_spread[s, t] if spread else 0.0
            blocked = halted or _limit_blocks(windows.side[i], p, low, high)
            if has_price(p) and not blocked and not _is_worse(windows.side[i], p, half, limit):
                room[i, t] = _cap(market.volume[s, t], share, lot)
    return room


@numba.njit(cache=True)
def advance(
    market: Market,
    terms: Terms,
    windows: Windows,
    tick: np.ndarray,
    stop: np.ndarray,
    request: np.ndarray,
    progress: Progress,
    sums: StepSums,
    record: TickArrays,
) -> None:
    """Execute the ticks ``[tick, stop)`` of every order in place, trading `request` in them; see `Engine.step`."""
    price, volume, lot = market.price, market.volume, terms.lot
    position, asked, moved = progress.position, progress.requested, progress.permanent_impact
    recording = record.fill.shape[0] > 0
    transient, powers = terms.transient > 0.0, terms.decay.shape[0] > 0
    spread, impact = market.half_spread.shape[0] > 0, terms.temporary > 0.0 or terms.permanent > 0.0 or transient
    charged = spread or impact
    limits, halts = market.lower.shape[0] > 0, market.halted.shape[0] > 0
    formed = windows.forms.shape[0] > 0
    limit, would, least, share = np.nan, np.nan, np.nan, terms.volume_limit
    for i in range(windows.session.shape[0]):
        s, amount, ask = windows.session[i], windows.amount[i], request[i]
        if formed:
            limit, would, least, most = windows.forms[:, i]
            share = most if most < terms.volume_limit else terms.volume_limit
        low, high = (market.lower[s], market.upper[s]) if limits else (-np.inf, np.inf)
        last_step = stop[i] == windows.end[i]
        everything = ask >= position[i] - TOLERANCE * amount
        odd = amount - np.floor(amount / lot + TOLERANCE) * lot if lot > 0.0 else 0.0
        priced = 0
        for t in range(tick[i], stop[i]):
            if has_price(price[s, t]):
                priced += 1
        seen = 0
        filled = 0.0
        scheduled = 0.0
        value = 0.0
        square = 0.0
        paid = 0.0
        unmet = 0.0
        stays, at = progress.transient_impact[i, 0] if transient and not powers else 0.0, tick[i]
        for t in range(tick[i], stop[i]):
            p = price[s, t]
            if not has_price(p):
                if recording:
                    record.constraint[i, t] = NO_PRICE
                continue
            seen += 1
            closing = last_step and seen == priced and (terms.complete_at_end or everything)
            due = ask if seen == priced else ask * seen / priced
            if lot > 0.0:
                due = _round_lot(asked[i] + due, lot) - _round_lot(asked[i], lot)
            available = position[i] if (closing and windows.trades_odd[i]) else position[i] - odd
            if closing:
                want = available
            elif last_step and terms.catch_up:
                want = due - filled
            else:
                want = due - scheduled
            scheduled = due
            want = max(min(want, available), 0.0)
            half = 0.0
            if formed:
                half = market.half_spread[s, t] if spread else 0.0
                if would > 0.0 and not _is_worse(windows.side[i], p, half, would):
                    want = position[i] if windows.trades_odd[i] else position[i] - odd
                elif least > 0.0:
                    want = max(want, min(_cap(volume[s, t], least, lot), available))
            traded = want
            constraint = FREE
            if (halts and market.halted[s, t]) or _limit_blocks(windows.side[i], p, low, high):
                traded = 0.0
                constraint = BLOCKED
            elif formed and _is_worse(windows.side[i], p, half, limit):
                traded = 0.0
                constraint = LIMIT
            elif share < np.inf:
                room = _cap(volume[s, t], share, lot)
                if traded > room:
                    traded = room
                    constraint = CAP if share == terms.volume_limit else MOST
            if constraint == FREE and traded > 0.0 and position[i] - traded <= TOLERANCE * amount:
                traded = position[i]
            if constraint == FREE and lot > 0.0 and want == 0.0 and ask > 0.0:
                constraint = LOT
            position[i] -= traded
            filled += traded
            value += traded * p
            square += traded * traded
            if traded > 0.0 and not volume[s, t] > 0.0:
                unmet += traded
            if charged and traded > 0.0:
                extra = traded * market.half_spread[s, t] if spread else 0.0
                if impact:
                    taken = min(traded / volume[s, t], 1.0)
                    extra += traded * p * (moved[i] + terms.temporary * _impact(taken, terms.temporary_root))
                    if terms.permanent > 0.0:
                        moved[i] += terms.permanent * _impact(taken, terms.permanent_root)
                    if transient:
                        move = terms.transient * _impact(taken, terms.transient_root)
                        if powers:
                            stays = 0.0
                            for past in range(windows.start[i], t):
                                stays += progress.transient_impact[i, past] * terms.decay[t - past]
                            progress.transient_impact[i, t] = move
                        else:
                            for _ in range(at, t):
                                stays *= terms.kept
                            at = t
                        extra += traded * p * (stays + mean_move(move, terms.transient_root))
                        stays += move
                paid += extra
                if recording:
                    record.cost[i, t] = extra
            if recording:
                record.requested[i, t] = want
                record.fill[i, t] = traded
                record.constraint[i, t] = constraint
        if transient and not powers:
            for _ in range(at, stop[i]):
                stays *= terms.kept
            progress.transient_impact[i, 0] = stays
        asked[i] += ask
        sums.fill[i] = filled
        sums.notional[i] = value
        sums.sum_sq_fill[i] = square
        sums.cost[i] = paid
        sums.untraded[i] = unmet


@numba.njit(cache=True)
def window_prices(
    price: np.ndarray, volume: np.ndarray, session: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return TWAP, VWAP and volume of each window, float64 of shape (N,); NaN where there is none."""
    n = session.shape[0]
    twap = np.full(n, np.nan)
    vwap = np.full(n, np.nan)
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
            if not has_price(p):
                continue
            count += 1
            total += p
            if v > 0.0:
                value += v * p
        if count > 0:
            twap[i] = total / count
        priced_volume = 0.0
        for t in range(start[i], end[i]):
            if has_price(price[s, t]) and volume[s, t] > 0.0:
                priced_volume += volume[s, t]
        if priced_volume > 0.0:
            vwap[i] = value / priced_volume
    return twap, vwap, traded


@numba.njit(cache=True)
def arrival_prices(
    opening: np.ndarray,
    closing: np.ndarray,
    price: np.ndarray,
    quoted: bool,
    session: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> np.ndarray:
    """Return the price that stands as each window begins, float64 of shape (N,); see `Benchmarks`.

    Parameters
    ----------
    opening, closing : float64 of shape (S, T)
        Price at the beginning and at the end of a tick; no rows where the data have no opening prices.
    price : float64 of shape (S, T)
        Price that fills are valued at; its first one in the window counts where nothing is known earlier.
    quoted
        Whether prices are quotes: then the last closing price before the window goes before the opening price.
    session, start, end
        Row and ticks ``[start, end)`` of each window, of shape (N,).
    """
    arrival = np.full(session.shape[0], np.nan)
    for i in range(session.shape[0]):
        s = session[i]
        opened = opening[s, start[i]] if opening.shape[0] > 0 else np.nan
        known = np.nan
        for t in range(start[i] - 1, -1, -1):
            if has_price(closing[s, t]):
                known = closing[s, t]
                break
        if has_price(opened) and not (quoted and has_price(known)):
            arrival[i] = opened
        elif has_price(known):
            arrival[i] = known
        else:
            for t in range(start[i], end[i]):
                if has_price(price[s, t]):
                    arrival[i] = price[s, t]
                    break
    return arrival


@numba.njit(cache=True)
def _last_price(closing: np.ndarray, price: np.ndarray, s: int, stop: int) -> float:
    for t in range(stop - 1, -1, -1):
        if has_price(closing[s, t]):
            return closing[s, t]
        if has_price(price[s, t]):
            return price[s, t]
    return np.nan


@numba.njit(cache=True)
def outer_prices(
    opening: np.ndarray, closing: np.ndarray, price: np.ndarray, session: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the session's first and last price and the last before each window's end, float64 of shape (N,).

    The arrays are those of `arrival_prices`. The first is the opening price of the first tick that has one, the last
    ones are closing prices; a tick that lacks them counts with the price that fills are valued at.
    """
    n, ticks = session.shape[0], price.shape[1]
    first, last, stop = np.full(n, np.nan), np.empty(n), np.empty(n)
    for i in range(n):
        s = session[i]
        for t in range(ticks):
            opened = opening[s, t] if opening.shape[0] > 0 else np.nan
            if has_price(opened) or has_price(price[s, t]):
                first[i] = opened if has_price(opened) else price[s, t]
                break
        last[i] = _last_price(closing, price, s, ticks)
        stop[i] = _last_price(closing, price, s, end[i])
    return first, last, stop


@numba.njit(cache=True)
def count_priced(price: np.ndarray, session: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the number of ticks with a price in ``[start, end)``, int64 of shape (N,)."""
    count = np.zeros(session.shape[0], dtype=np.int64)
    for i in range(session.shape[0]):
        for t in range(start[i], end[i]):
            if has_price(price[session[i], t]):
                count[i] += 1
    return count
