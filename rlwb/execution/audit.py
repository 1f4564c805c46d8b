"""What happened to one order, tick by tick and step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.execution.engine import Engine, TickRecord
from rlwb.execution.kernel import BOUND_NAMES
from rlwb.execution.order import OrderBatch

if TYPE_CHECKING:
    from rlwb.execution.vector_env import BatchedOrderExecution

_STEP_COLUMNS = ["step", "start_tick", "end_tick", "ask", "fill", "price", "position"]


def tick_audit(
    engine: Engine, orders: OrderBatch, record: TickRecord, index: int = 0, stop: int | None = None
) -> pd.DataFrame:
    """Return one row a tick of order `index`, from the window's start to tick `stop` (default: its end).

    Columns
    -------
    tick, time
        Index in the session and start of the bar.
    step
        Step of the order.
    asked, filled
        Amounts; asked is after catch-up and lot rounding, before what `bound` names cut it.
    price, volume
        Of the bar; NaN where it has none.
    left
        Position after the tick.
    cost
        What the fill paid for quoted spread and impact, in currency; fees are not in it.
    bound
        What cut the fill: volume cap, halt or price limit, no price, lot, or nothing.
    """
    start = int(orders.start[index])
    stop = int(orders.end[index]) if stop is None else stop
    ticks, row = np.arange(start, stop), int(orders.session[index])
    filled = record.fill[index, start:stop]
    price = engine.price[row, start:stop]
    return pd.DataFrame(
        {
            "tick": ticks,
            "time": [engine.sessions.calendar.time_of(tick) for tick in range(start, stop)],
            "step": engine.cell[start:stop] - engine.cell[start],
            "asked": record.ask[index, start:stop],
            "filled": filled,
            "price": np.where(np.isfinite(price) & (price > 0), price, np.nan),
            "volume": engine.volume[row, start:stop],
            "left": orders.amount[index] - np.cumsum(filled),
            "cost": record.cost[index, start:stop],
            "bound": [BOUND_NAMES[code] for code in record.bound[index, start:stop]],
        }
    )


def step_audit(steps: list[dict[str, Any]]) -> pd.DataFrame:
    """Return step records as a table; one without records has the columns all the same."""
    return pd.DataFrame(steps, columns=None if steps else _STEP_COLUMNS)


def audit(env: BatchedOrderExecution, policy: Any) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Run `policy` on the orders of `env` and show everything.

    Parameters
    ----------
    env
        A batched environment made with ``record=True``.
    policy
        Anything with ``act(obs)``.

    Returns
    -------
    ticks, steps, summary
        Tables keyed by order_id: per tick (`tick_audit`), per step (ask, fill, price, position, action and
        the parts of the reward), and one row an order. Sums of fills, and of fill times price, equal
        the summary's filled and filled times price.
    """
    active = env.reset()
    table = env.orders.table
    rows: list[dict[str, Any]] = []
    while len(active.episode):
        actions = np.asarray(policy.act(active.obs))
        before = env.state
        result, active = env.step(actions)
        after = env.state
        parts = env.last_parts
        for k, i in enumerate(result.episode):
            fill, value = float(after.fills.fill[i]), float(after.fills.notional[i])
            rows.append(
                {
                    "order_id": table["order_id"].iloc[i],
                    "step": int(before.now.step[i]),
                    "start_tick": int(before.now.tick[i]),
                    "end_tick": int(after.now.tick[i]),
                    "action": actions[k],
                    "ask": float(after.fills.ask[i]),
                    "fill": fill,
                    "price": value / fill if fill > 0 else np.nan,
                    "position": float(after.now.position[i]),
                    **{f"reward_{name}": float(values[k]) for name, values in parts.items()},
                    "reward": float(result.reward[k]),
                }
            )
    assert env.record is not None
    ticks = [
        tick_audit(env.engine, env.orders, env.record, i).assign(order_id=table["order_id"].iloc[i])
        for i in range(len(env.orders))
    ]
    return pd.concat(ticks, ignore_index=True), step_audit(rows), env.results()
