"""The ceiling: what an order could reach at most by someone who knows the day's prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlwb.execution.baselines.hindsight_kernel import least_average
from rlwb.execution.engine import Engine, EngineState
from rlwb.execution.metrics import order_metrics
from rlwb.execution.order import OrderBatch

#: Orders at a time, so that what each tick can fill stays small beside the panel.
_BLOCK = 4096


@dataclass(frozen=True)
class HindsightOptimum:
    """The best average price that any sequence of requests can reach through the engine, found with the day known.

    Attributes
    ----------
    price : float64 of shape (N,)
        Bound of the average price, lowest for a buy and highest for a sell; NaN where nothing can be filled.
    filled : float64 of shape (N,)
        The amount filled at that price, 0 where nothing can be.

    Notes
    -----
    PA is of what was filled, so for a policy that leaves a part open it is the bound of the part that is filled. Under
    `complete_at_end` the window's last priced tick, if it lies in the order's last step, takes all that is left as far
    as halt, limit and cap let it: a part stays open only when that tick is full, and what it took counts. Without
    `complete_at_end` nothing is forced, and the bound is the best price at which anything at all can be filled.

    The bound knows the step structure: a request is spread over the step's priced ticks and cut at each to what is
    tradable, so that a step fills at a mix of its prices that depends on the request alone. With lots, a policy can aim
    its lots at ticks of a step; there each tick may take what is evenly due and one lot more.

    Some sequence of requests reaches it in two cases; in others it is an upper bound that may be out of reach:

    - without lots, when no priced tick of the window is halted or at a limit and every cap holds the whole amount;
    - with one tick a step, when the amount is a whole number of lots or there are none.

    In the others it eases two rules: each step may use any request that the whole amount allows, whatever was filled
    before, and any blend of its requests. The engine calls an order complete with 1e-9 of its amount left; the bound
    holds up to that.
    """

    price: np.ndarray
    filled: np.ndarray

    @classmethod
    def of(cls, engine: Engine, orders: OrderBatch, *, capped: bool = True) -> HindsightOptimum:
        """Return the bound of each order under the engine's rules, or the same without their volume cap."""
        rules, columns = engine.rules, []
        for first in range(0, max(len(orders), 1), _BLOCK):
            some = orders[first : first + _BLOCK]
            found = least_average(
                engine.price,
                engine.room(some, capped=capped),
                engine.cell,
                some.session,
                some.side,
                some.amount,
                some.start,
                some.end,
                rules.complete_at_end,
                rules.lot_size,
                rules.trades_odd(some.side),
            )
            columns.append(found)
        cost, filled = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cls(orders.side * cost, filled)


def hindsight_table(engine: Engine, orders: OrderBatch, *, capped: bool = True) -> pd.DataFrame:
    """Return one row an order: the order, and the figures of `HindsightOptimum.of` as `order_metrics` names them.

    The bound of the average price is also the bound against VWAP and arrival price, and after costs in proportion to
    the value; `pa_net` and `price_net` are NaN under a minimum fee, which weighs less the more is filled, and under
    quotes and impact, whose cost depends on the tick. Steps and reward are NaN: the bound is no policy.
    """
    bound, rules = HindsightOptimum.of(engine, orders, capped=capped), engine.rules
    notional = np.where(bound.filled > 0, bound.price, 0.0) * bound.filled
    zero = np.zeros(len(orders))
    state = EngineState(
        tick=orders.end,
        step=engine.num_steps(orders),
        position=orders.amount - bound.filled,
        requested=bound.filled,
        filled=bound.filled,
        notional=notional,
        done=np.ones(len(orders), dtype=bool),
        cost=zero,
        permanent_impact=zero,
    )
    figures = order_metrics(orders, state, engine.benchmarks(orders), rules)
    unknown = ["num_steps", *(["pa_net", "price_net"] if rules.min_fee or rules.costs_by_tick else [])]
    figures |= {name: np.full(len(orders), np.nan) for name in unknown}
    return orders.table.assign(**figures, reward=np.nan)
