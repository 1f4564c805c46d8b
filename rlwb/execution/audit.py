"""Tables of executed orders, by tick and by step, for reading and checking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rlwb.execution.interpreters import AmountActionInterpreter, KnownStateInterpreter
from rlwb.execution.kernel import CONSTRAINTS
from rlwb.execution.order import OrderBatch
from rlwb.execution.simulator import OrderExecution
from rlwb.execution.state import ExecutionState
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward, sum_parts


def tick_audit(state: ExecutionState) -> pd.DataFrame:
    """Return one row an order and tick, from the window's start to the order's next tick.

    Columns
    -------
    order_id
        Of the order.
    tick, time
        Index in the session and start of the bar.
    step
        Step of the order.
    requested, filled
        Amounts; requested is after catch-up and lot rounding, before what `constraint` names cut it.
    price, volume
        Of the bar; NaN where it has none.
    left
        Position after the tick.
    cost
        What the fill paid for quoted spread and impact, in currency; fees are not in it.
    constraint
        What cut the fill: volume cap, halt or price limit, no price, lot, or nothing.
    """
    engine, orders, record = state.engine, state.orders, state.tick_record()
    ids, tables = orders.table["order_id"], []
    for i in range(len(orders)):
        start, stop, row = int(orders.start[i]), int(state.now.tick[i]), int(orders.session[i])
        price, filled = engine.price[row, start:stop], record.fill[i, start:stop]
        tables.append(
            pd.DataFrame(
                {
                    "order_id": ids.iloc[i],
                    "tick": np.arange(start, stop),
                    "time": [engine.sessions.calendar.time_of(tick) for tick in range(start, stop)],
                    "step": engine.cell[start:stop] - engine.cell[start],
                    "requested": record.requested[i, start:stop],
                    "filled": filled,
                    "price": np.where(np.isfinite(price) & (price > 0), price, np.nan),
                    "volume": engine.volume[row, start:stop],
                    "left": orders.amount[i] - np.cumsum(filled),
                    "cost": record.cost[i, start:stop],
                    "constraint": [CONSTRAINTS[code] for code in record.constraint[i, start:stop]],
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def audit(
    simulator: OrderExecution,
    orders: OrderBatch,
    policy: Any,
    *,
    state_interpreter: StateInterpreter[Any] | None = None,
    action_interpreter: ActionInterpreter[Any] | None = None,
    reward: Reward[Any] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Run `policy` on orders and show everything.

    Parameters
    ----------
    policy
        Anything with ``act(obs)``.
    state_interpreter, action_interpreter
        What it sees and what its answers mean; by default `Known` and amounts, as for baselines.
    reward
        Whose summands the steps show; none by default.

    Returns
    -------
    ticks, steps, summary
        Tables keyed by order_id: per tick (`tick_audit`), per step (request, fill, price, position, action and the
        summands of the reward), and one row an order with its figures. Sums of fills, and of fill times price, equal
        the summary's filled and filled times price.
    """
    sees, acts = state_interpreter or KnownStateInterpreter(), action_interpreter or AmountActionInterpreter()
    state = simulator.start(orders, np.zeros(len(orders), dtype=np.uint64))
    ids, total = orders.table["order_id"].to_numpy(), np.zeros(len(orders))
    steps: list[pd.DataFrame] = []
    while not state.done.all():
        open_ = np.flatnonzero(~state.done)
        before = state.known
        action = np.asarray(policy.act(sees.refer(before[open_])))
        request = np.zeros(len(orders))
        request[open_] = acts.interpret(before[open_], action)
        state = simulator.step(state, request)
        outcome = state.outcome[open_]
        parts = {} if reward is None else reward.parts(outcome)
        earned = sum_parts(parts) if parts else np.zeros(len(open_))
        total[open_] += earned
        steps.append(
            pd.DataFrame(
                {
                    "order_id": ids[open_],
                    "step": before.step[open_],
                    "start_tick": before.tick[open_],
                    "end_tick": outcome.known.tick,
                    "action": list(action),
                    "requested": outcome.requested,
                    "fill": outcome.fill,
                    "price": outcome.step_price,
                    "position": outcome.known.position,
                    **{f"reward_{name}": values for name, values in parts.items()},
                    "reward": earned,
                }
            )
        )
    figures = state.metrics()
    figures["num_steps"] = figures["num_steps"].astype(np.int64)
    return tick_audit(state), pd.concat(steps, ignore_index=True), orders.table.assign(**figures, reward=total)
