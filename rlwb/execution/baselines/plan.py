"""The plan of least expected cost plus weighted variance: convex impact, a forecast of prices, and caps."""

from __future__ import annotations

import numba
import numpy as np

from rlwb.execution.kernel import has_price

#: Least impact that the solver tells from none, as a share of the order's value: a millionth of a basis point.
LEAST = 1e-10
#: Bisections of the first tick's marginal cost; the floating-point numbers of the bracket run out before.
_HALVINGS = 200


@numba.njit(cache=True)
def _trade(marginal: float, temporary: float, permanent: float, root: bool) -> float:
    """Return the share traded in a tick at which the marginal cost of its impact is `marginal`."""
    if marginal <= 0.0:
        return 0.0
    if not root:
        return marginal / (2.0 * max(temporary - permanent / 2.0, LEAST))
    slope = 1.5 * max(temporary, LEAST)
    if permanent <= 0.0:
        return (marginal / slope) ** 2
    inside = slope * slope - 4.0 * permanent * marginal
    # Of the two roots the one on the convex branch; beyond it one tick for all is cheapest.
    return (2.0 * marginal / (slope + np.sqrt(inside))) ** 2 if inside >= 0.0 else np.inf


@numba.njit(cache=True)
def _walk(
    marginal: float,
    held: float,
    price: np.ndarray,
    tick: int,
    stop: int,
    end: int,
    risk: float,
    temporary: float,
    permanent: float,
    root: bool,
    drift: np.ndarray,
    room: np.ndarray,
) -> tuple[float, float]:
    """Return what is held at `stop` and at `end` by the optimality conditions, given the first tick's marginal cost."""
    at_stop = held
    for t in range(tick, end):
        if t == stop:
            at_stop = held
        if not has_price(price[t]):
            continue
        traded = _trade(marginal - (drift[t] if drift.shape[0] else 0.0), temporary, permanent, root)
        if room.shape[0]:
            traded = min(traded, room[t])
        if traded >= held:
            return (0.0 if t < stop else at_stop), 0.0
        held -= traded
        marginal -= 2.0 * risk * held
    return (at_stop if stop < end else held), held


@numba.njit(cache=True)
def held_after(
    price: np.ndarray,
    session: np.ndarray,
    tick: np.ndarray,
    stop: np.ndarray,
    end: np.ndarray,
    held: np.ndarray,
    risk: np.ndarray,
    temporary: np.ndarray,
    permanent: np.ndarray,
    root: bool,
    drift: np.ndarray,
    room: np.ndarray,
) -> np.ndarray:
    """Return what N orders hold at tick `stop` of their best plan from `tick` to `end`, float64 of shape (N,).

    NaN where an argument is no number.

    With w_t the share of the order traded in tick t and x_t the share held after it, the plan minimises

        sum_t [ f(w_t) + drift_t w_t + risk x_t**2 ]   subject to   0 <= w_t <= room_t,  sum_t w_t = held,

    over the ticks that have a price, with ``f(w) = temporary w**2 - permanent w**2 / 2``, or ``temporary w**1.5 -
    permanent w**2 / 2`` under `root`: temporary impact, and the part of linear permanent impact that depends on the
    plan (Almgren and Chriss, J. Risk 3, 2000, section 2; the power law: Almgren, Appl. Math. Finance 10, 2003).

    By the conditions of Karush, Kuhn and Tucker the marginal cost m falls from tick to tick by ``2 risk x_t``, and w_t
    is the trade at which ``f' = m - drift_t``, cut to its bounds. What is left at the end falls as the first m rises,
    so that bisection over this one number solves the whole problem; it is exact for every convex f.

    Parameters
    ----------
    price : float64 of shape (S, T)
        Tells which ticks have a price.
    session, tick, stop, end : integers of shape (N,)
    held : float64 of shape (N,)
        Share of the order to be traded.
    risk : float64 of shape (N,)
        Risk aversion times the variance of a tick's return.
    temporary, permanent : float64 of shape (N,)
        Impact of the whole order traded in one tick, as a share of its price.
    root
        Whether temporary impact is in the square root.
    drift : float64 of shape (N, T)
        Expected price, as a share of today's, that a tick costs more than now; no rows for none.
    room : float64 of shape (N, T)
        Most that each tick may trade, as a share of the order; no rows for none. Where all room together is less than
        `held`, it is stretched in proportion.
    """
    result = np.empty(len(held))
    for i in range(len(held)):
        if not np.isfinite(held[i] + risk[i] + temporary[i] + permanent[i]):
            result[i] = np.nan
            continue
        prices, first, last = price[session[i]], tick[i], end[i]
        moves = drift[i] if drift.shape[0] else np.empty(0)
        rooms = room[i] if room.shape[0] else np.empty(0)
        if room.shape[0]:
            whole, later = 0.0, 0.0
            for t in range(first, last):
                if has_price(prices[t]):
                    whole += rooms[t]
                    later += rooms[t] if t >= stop[i] else 0.0
            if whole <= held[i]:
                result[i] = held[i] * (later / whole) if whole > 0.0 else held[i]
                continue
        low, high = 0.0, 0.0
        for t in range(first, last if drift.shape[0] else first):
            low, high = min(low, moves[t]), max(high, moves[t])
        steepest = 1.5 * np.sqrt(held[i]) if root else 2.0 * held[i]
        high += steepest * max(temporary[i], LEAST) + 2.0 * risk[i] * held[i] * (last - first)
        terms = risk[i], temporary[i], permanent[i], root, moves, rooms
        for _ in range(_HALVINGS):
            middle = low + (high - low) / 2.0
            if middle <= low or middle >= high:
                break
            if _walk(middle, held[i], prices, first, stop[i], last, *terms)[1] > 0.0:
                low = middle
            else:
                high = middle
        result[i] = _walk(high, held[i], prices, first, stop[i], last, *terms)[0]
    return result
