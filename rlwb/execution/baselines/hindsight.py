"""The ceiling: what an order could reach at most by someone who knows the day's prices."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pandas as pd

from rlwb.execution.engine import Engine, EngineState
from rlwb.execution.kernel import TOLERANCE
from rlwb.execution.metrics import order_metrics
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS

#: Forms that fill more than is requested.
_RAISING = ("would_price", "min_participation")
#: Orders at a time, so that what each tick can fill stays small beside the panel.
_BLOCK = 4096


@dataclass(frozen=True)
class HindsightOptimum:
    """The best average price that any sequence of requests can reach through the engine, found with the day known.

    Attributes
    ----------
    price : float64 of shape (N,)
        Bound of the average price, lowest for a buy and highest for a sell; NaN where nothing can be filled. Where the
        rules value what stays open, of the whole amount's price, the open part at its own.
    filled : float64 of shape (N,)
        The amount filled at that price, 0 where nothing is.

    Notes
    -----
    PA is of what was filled, so for a policy that leaves a part open it is the bound of the part that is filled. Under
    `complete_at_end` the window's last priced tick, if it lies in the order's last step, takes all that is left as far
    as halt, limit and cap let it: a part stays open only when that tick is full, and what it took counts. Without
    `complete_at_end` nothing is forced, and the bound is the best price at which anything at all can be filled. Where
    the rules value what stays open, leaving a part open is one more trade, at a price that is known here, and the bound
    is that of the whole amount.

    The bound knows the step structure: a request is spread over the step's priced ticks and cut at each to what is
    tradable. With lots, each tick may take what is evenly due and one lot more.

    Some sequence of requests reaches it in two cases:

    - without lots, when no priced tick of the window is halted or at a limit and every cap holds the whole amount;
    - with one tick a step, when the amount is a whole number of lots or there are none.

    In the others it is an upper bound that eases two rules: each step may use any request that the whole amount allows,
    whatever was filled before, and any blend of its requests. Of an order with a would price or a minimum
    participation, which fill more than is requested, each tick may fill anything that it can; with `catch_up` and
    `complete_at_end` off, the last one may, in a step where something is cut. It holds up to the 1e-9 of the amount
    that the engine lets an order leave.
    """

    price: np.ndarray
    filled: np.ndarray

    @classmethod
    def of(
        cls, engine: Engine, orders: OrderBatch, *, capped: bool = True, cost_rate: np.ndarray | float = 0.0
    ) -> HindsightOptimum:
        """Return the bound of each order under the engine's rules, or the same without their volume cap.

        Parameters
        ----------
        cost_rate
            Costs as a share of what is filled, which a part that is left open does not bear; the price is before them.
        """
        rules, columns = engine.rules, []
        left = engine.benchmarks(orders).unfilled if rules.values_unfilled else np.full(len(orders), np.nan)
        left = left * orders.side / (1.0 + orders.side * cost_rate)
        for first in range(0, max(len(orders), 1), _BLOCK):
            some = orders[first : first + _BLOCK]
            market = engine.price, engine.room(some, capped=capped), engine.cell
            windows = some.session, some.side, some.amount, some.start, some.latest_end
            raised = [~np.isnan(some.forms[name]) for name in _RAISING if name in some.forms]
            eased = np.any(raised, axis=0) if raised else np.zeros(len(some), dtype=bool)
            terms = rules.complete_at_end, rules.catch_up, rules.lot_size, rules.trades_odd(some.side), eased
            columns.append(_least_average(*market, *windows, *terms, left[first : first + _BLOCK]))
        cost, filled = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cls(orders.side * cost, filled)


def hindsight_table(engine: Engine, orders: OrderBatch, *, capped: bool = True) -> pd.DataFrame:
    """Return one row an order: the order, and the figures of `HindsightOptimum.of` as `order_metrics` names them.

    The bound is also one against every other benchmark, and after costs in proportion to the value; `pa_net` and
    `price_net` are NaN under a minimum fee, which weighs less the more is filled, and under quotes and impact, whose
    cost depends on the tick. Where the rules value what stays open, less may be filled at the bound after costs than
    before them; `price` and `price_net` are of these fills. Steps, reward and `untraded` are NaN: the bound is no
    policy.
    """
    rules, missing = engine.rules, np.full(len(orders), np.nan)
    figures = _figures(engine, orders, capped, 0.0)
    if rules.min_fee or rules.costs_by_tick:
        figures |= {"pa_net": missing, "price_net": missing}
    elif rules.values_unfilled and rules.have_costs:
        rate = rules.half_spread_bps + rules.commission_bps + np.where(orders.side < 0, rules.sell_tax_bps, 0.0)
        net = _figures(engine, orders, capped, rate / BASIS_POINTS)
        figures |= {"pa_net": net["pa_net"], "price_net": net["price_net"]}
    return orders.table.assign(**{**figures, "num_steps": missing}, reward=np.nan)


def _figures(engine: Engine, orders: OrderBatch, capped: bool, cost_rate: np.ndarray | float) -> dict[str, np.ndarray]:
    """Return the figures of orders that trade as the bound at these costs does."""
    bound = HindsightOptimum.of(engine, orders, capped=capped, cost_rate=cost_rate)
    benchmarks, zero = engine.benchmarks(orders), np.zeros(len(orders))
    notional = np.where(bound.filled > 0, bound.price * bound.filled, 0.0)
    if engine.rules.values_unfilled:
        rest = (orders.amount - bound.filled) * benchmarks.unfilled / (1.0 + orders.side * cost_rate)
        notional = np.where(bound.filled > 0, bound.price * orders.amount - rest, 0.0)
    state = EngineState(
        tick=orders.latest_end,
        step=engine.num_steps(orders),
        position=orders.amount - bound.filled,
        requested=bound.filled,
        filled=bound.filled,
        notional=notional,
        done=np.ones(len(orders), dtype=bool),
        cost=zero,
        permanent_impact=zero,
        transient_impact=np.zeros((len(orders), 0)),
        untraded=np.full(len(orders), np.nan),
    )
    return order_metrics(orders, state, benchmarks, engine.rules)


@numba.njit(cache=True)
def _least_average(
    price: np.ndarray,
    room: np.ndarray,
    cell: np.ndarray,
    session: np.ndarray,
    side: np.ndarray,
    amount: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    complete_at_end: bool,
    catch_up: bool,
    lot: float,
    trade_odd: np.ndarray,
    eased: np.ndarray,
    left: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least average of side times price and the amount filled at it, float64 of shape (N,) each.

    The arrays are the engine's and the batch's, `room` is of `Engine.room`; the average is NaN where nothing can be
    filled. An `eased` order may fill any part of each tick's room. `left` is side times the price of what stays open,
    of which the average is too; NaN where it is of the fills alone.
    """
    n = session.shape[0]
    best = np.full(n, np.nan)
    filled = np.zeros(n)
    for i in range(n):
        s, size = session[i], end[i] - start[i]
        whole = amount[i]
        lots = np.floor(whole / lot + TOLERANCE) * lot if lot > 0.0 else whole
        total = whole if lot == 0.0 or trade_odd[i] else lots
        # What can be filled at which price; each step needs no more pieces than it has ticks.
        piece, slope = np.empty(size + 1), np.empty(size + 1)
        count = 0
        cost, limit = np.empty(size), np.empty(size)
        last_cost, last_room = 0.0, 0.0
        t = start[i]
        while t < end[i]:
            stop, k = t, 0
            while stop < end[i] and cell[stop] == cell[t]:
                if price[s, stop] > 0.0 and price[s, stop] < np.inf:
                    cost[k], limit[k] = side[i] * price[s, stop], room[i, stop]
                    k += 1
                stop += 1
            last = stop == end[i]
            forced = last and complete_at_end and k > 0
            if forced:
                last_cost, last_room = cost[k - 1], min(limit[k - 1], total)
            if eased[i]:
                for j in range(k - 1 if forced else k):
                    piece[count], slope[count] = min(limit[j], total), cost[j]
                    count += 1 if piece[count] > 0.0 else 0
            elif lot > 0.0:
                for j in range(k - 1 if forced else k):
                    due = whole * (j + 1) / k if last else whole / k
                    free = min(limit[j], np.floor(due / lot + 1.0 + TOLERANCE) * lot)
                    if free > 0.0 and (lots > 0.0 or (last and j == k - 1 and trade_odd[i])):
                        piece[count], slope[count] = free, cost[j]
                        count += 1
            elif last and not catch_up and not forced and (limit[:k] < whole).any():
                # Even parts, and at the last tick all that is left where the request was all.
                for j in range(k):
                    piece[count], slope[count] = min(limit[j], whole / k if j < k - 1 else whole), cost[j]
                    count += 1 if piece[count] > 0.0 else 0
            elif k > 0:
                count = _add_step(cost[:k], limit[:k], whole, last and catch_up, forced, piece, slope, count)
            t = stop
        most = lots if complete_at_end and not eased[i] else total
        cheap = np.argsort(slope[:count], kind="mergesort")  # which keeps the order of equals
        best[i], filled[i] = _cheapest(piece[cheap], slope[cheap], most, total, last_cost, last_room, whole, left[i])
    return best, filled


@numba.njit(cache=True)
def _fill(ask: float, ticks: int, room: np.ndarray, cost: np.ndarray, catch_up: bool) -> tuple[float, float]:
    """Return what the first ticks of a step, those of `room`, fill of an ask over `ticks`, and what that costs.

    Each fills an equal part cut to its room; with `catch_up`, in the last step, all that is due and unfilled.
    """
    done, value = 0.0, 0.0
    for k in range(len(room)):
        due = ask * (k + 1) / ticks - done if catch_up else ask / ticks
        part = min(due, room[k])
        done += part
        value += part * cost[k]
    return done, value


@numba.njit(cache=True)
def _over(ask: float, ticks: int, room: np.ndarray, cost: np.ndarray, k: int) -> float:
    """Return by how much that which tick `k` has to catch up is more than its room."""
    return ask * (k + 1) / ticks - _fill(ask, ticks, room[:k], cost, True)[0] - room[k]


@numba.njit(cache=True)
def _kinks(room: np.ndarray, cost: np.ndarray, ticks: int, whole: float, catch_up: bool) -> np.ndarray:
    """Return the asks up to `whole`, ascending, between which the fill of each tick of `room` is linear in the ask."""
    kinks, count = np.full(len(room) + 1, whole), 1
    for k in range(len(room)):
        ask = room[k] * ticks
        if catch_up and 0.0 < room[k] < whole:
            # What tick k has to catch up rises with the ask ever faster, so it outgrows the room once.
            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                if _over(kinks[middle], ticks, room, cost, k) > 0.0:
                    high = middle
                else:
                    low = middle + 1
            if low == count:
                continue
            left = kinks[low - 1] if low > 0 else 0.0
            short, over = -_over(left, ticks, room, cost, k), _over(kinks[low], ticks, room, cost, k)
            ask = left + (kinks[low] - left) * short / (short + over)
        if 0.0 < ask < whole:
            place = count
            while place > 0 and kinks[place - 1] > ask:
                kinks[place] = kinks[place - 1]
                place -= 1
            kinks[place] = ask
            count += 1
    return kinks[:count]


@numba.njit(cache=True)
def _add_step(
    cost: np.ndarray,
    room: np.ndarray,
    whole: float,
    catch_up: bool,
    forced: bool,
    piece: np.ndarray,
    slope: np.ndarray,
    count: int,
) -> int:
    """Add the lower convex hull of one step's (fill, cost) over all asks as pieces; return their new number.

    Where the window's last tick is forced it is not of the step, unless it can hold the whole amount: then what it
    must take of an ask belongs to that ask.
    """
    n = len(cost)
    free = n - 1 if forced else n
    takes_rest = forced and room[n - 1] >= whole
    kinks = _kinks(room[:free], cost, n, whole, catch_up)
    x, y = np.zeros(len(kinks) + 1), np.zeros(len(kinks) + 1)
    top = 0
    for ask in kinks:
        amount, value = _fill(ask, n, room[:free], cost, catch_up)
        if takes_rest:
            value += cost[free] * (ask - amount)
            amount = ask
        if not amount > x[top]:
            continue
        while top > 0 and (y[top] - y[top - 1]) * (amount - x[top]) >= (value - y[top]) * (x[top] - x[top - 1]):
            top -= 1
        top += 1
        x[top], y[top] = amount, value
    for k in range(top):
        piece[count + k] = x[k + 1] - x[k]
        slope[count + k] = (y[k + 1] - y[k]) / piece[count + k]
    return count + top


@numba.njit(cache=True)
def _cheapest(
    piece: np.ndarray,
    slope: np.ndarray,
    most: float,
    total: float,
    last_cost: float,
    last_room: float,
    whole: float,
    left: float,
) -> tuple[float, float]:
    """Return the least average cost and its amount: the first pieces up to some amount, then the forced tick.

    Between the amounts tried, the average is a ratio of linear functions and has no minimum of its own. Where `left` is
    a number, the average is that of the `whole` amount, with `left` for what is not filled.
    """
    valued = not np.isnan(left)
    best, best_amount = np.nan, 0.0
    filled, value = 0.0, 0.0
    for k in range(-1, len(piece)):
        free = 0.0 if k < 0 else min(piece[k], most - filled)
        price = 0.0 if k < 0 else slope[k]
        for part in (min(max(total - last_room - filled, 0.0), free), free):
            rest = min(total - filled - part, last_room)
            amount, cost = filled + part + rest, value + price * part + last_cost * rest
            if valued:
                average = (cost + left * max(whole - amount, 0.0)) / whole
            else:
                average = cost / amount if amount > 0.0 else np.nan
            if not (np.isnan(average) or average >= best):
                best, best_amount = average, amount
        filled += free
        value += price * free
    return best, best_amount
