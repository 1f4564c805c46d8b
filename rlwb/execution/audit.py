"""Tables of executed orders, by tick and by step, for reading and checking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rlwb.execution.attribution import attribute_costs
from rlwb.execution.interpreters import AmountActionInterpreter, KnownStateInterpreter
from rlwb.execution.kernel import CONSTRAINTS
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import valid_prices
from rlwb.execution.simulator import OrderExecution
from rlwb.execution.state import ExecutionState
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward, sum_parts


def tick_audit(state: ExecutionState) -> pd.DataFrame:
    """Return one row an order and tick, from the window's start to the order's next tick.

    Columns are order_id; tick and time (index in the session, and start of the bar); step; requested (after catch-up
    and lot rounding) and filled; price and volume of the bar, NaN where it has none; left, the position after the tick;
    cost, what the fill paid for quoted spread and impact in currency, without fees; and constraint, what cut the fill.
    """
    engine, orders, record = state.engine, state.orders, state.tick_record()
    ticks = np.arange(engine.sessions.calendar.num_ticks)
    taken = (ticks >= orders.start[:, None]) & (ticks < state.now.tick[:, None])
    i, tick = np.nonzero(taken)
    price = engine.price[orders.session[i], tick]
    times = np.array([engine.sessions.calendar.time_of(each) for each in ticks.tolist()], dtype=object)
    columns = {
        "order_id": orders.source["order_id"][orders.row[i]],
        "tick": tick,
        "time": times[tick],
        "step": engine.cell[tick] - engine.cell[orders.start[i]],
        "requested": record.requested[taken],
        "filled": record.fill[taken],
        "price": valid_prices(price),
        "volume": engine.volume[orders.session[i], tick],
        "left": orders.amount[i] - np.cumsum(record.fill, axis=1)[taken],
        "cost": record.cost[taken],
        "constraint": np.array(CONSTRAINTS, dtype=object)[record.constraint[taken]],
    }
    return pd.DataFrame(columns)


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
        summands of the reward), and one row an order with its figures and the parts of its cost
        (`rlwb.execution.attribution`). Sums of fills, and of fill times price, equal the summary's filled and filled
        times price.
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
    costs = attribute_costs(simulator.engine, orders, figures, state.details()["requested"])
    figures["num_steps"] = figures["num_steps"].astype(np.int64)
    summary = orders.table.assign(**figures, **costs, reward=total)
    return tick_audit(state), pd.concat(steps, ignore_index=True), summary
