"""What orders cost against their arrival price, in parts that add up.

A cost is in currency, and above 0 where it is bad for the trader, for buys and sells alike. With the amount X, of which
F was filled for the notional V, the side s (+1 buys, -1 sells), and the prices at the decision D, at the arrival A, of
the window's TWAP W and of what stayed open U, it is the implementation shortfall of the whole order and all charges,
``s (V + (X - F) U - X D)`` plus spread, impact and fees (A. Perold, "The implementation shortfall: paper versus
reality", Journal of Portfolio Management 14, 1988). Its parts follow R. Kissell, "The expanded implementation
shortfall", Journal of Trading 1 (2006).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce

import numpy as np

from rlwb.execution.costs import commission, net_value, tax
from rlwb.execution.engine import Engine, TickRecord
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS, ExecutionRules

#: The parts of a cost by name, in the sequence in which they are added up, and what each is.
PARTS = {
    "delay": "from the decision to the arrival: s X (A - D); 0 where orders have no price of their decision",
    "drift": "timing: what an even schedule pays against the arrival price, s F (W - A)",
    "selection": "timing: what the fills pay against an even schedule, s (V - F W)",
    "spread": "half the spread, quoted or stated by the rules",
    "temporary_impact": "what each fill did to its own price",
    "permanent_impact": "what each fill did to the prices of later fills",
    "commission": "commission, its minimum included",
    "tax": "tax on sells",
    "opportunity": "the part left open at the price of its valuation, s (X - F) (U - A)",
}
#: Columns of a table of orders: part to its cost in currency, and the last to their sum.
COST_COLUMNS = {part: f"cost_{part}" for part in PARTS} | {"total": "cost"}
#: Column of the cost of the same order by the same policy where trading has no impact.
IMPACT_OFF = "cost_impact_off"
#: What impact changed in the fills: the cost less the charged impact, less the cost where trading has no impact.
REACTION = "impact_on_fills"
_CELLS = 1 << 20  # of an array of orders and ticks held at once


def without_impact(rules: ExecutionRules) -> ExecutionRules:
    """Return the rules of the same market where trading has no impact."""
    names = [field.name for field in dataclasses.fields(rules) if "_impact_" in field.name]
    return dataclasses.replace(rules, **{name: getattr(type(rules), name) for name in names})


def attribute_costs(
    engine: Engine,
    orders: OrderBatch,
    figures: Mapping[str, np.ndarray],
    requested: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """Return what each of N orders cost, by the columns of `COST_COLUMNS`, float64 of shape (N,) each.

    ``cost`` is the sum of the parts in the sequence of `PARTS`, to the last bit; ``cost_bp`` is the same in basis
    points of amount times arrival price.

    Parameters
    ----------
    engine, orders
        What executed the orders, and the orders; their form `decision_price` is what the delay counts from.
    figures
        The orders' figures; see `order_metrics`.
    requested : float64 of shape (N, steps)
        Amounts requested in each step, from ``ExecutionState.details``, by which the orders are executed again where
        what a fill costs depends on its tick. None, or a simulator that fills otherwise than the engine, leaves spread
        and impact NaN where any was charged.
    """
    rules, side, amount = engine.rules, orders.side.astype(np.float64), orders.amount
    filled, arrival, twap = (np.asarray(figures[name]) for name in ("filled", "arrival", "twap"))
    traded = filled > 0
    notional, net = (np.where(traded, filled * figures[name], 0.0) for name in ("price", "price_net"))
    left, open_price = amount - filled, _open_prices(engine, orders)
    charged = side * (net - net_value(notional, np.zeros(len(side)), side, rules))
    spread, temporary, permanent = _tick_charges(engine, orders, requested, charged, 1e-9 * notional)
    decision = orders.forms.get("decision_price", arrival)
    parts = {
        "delay": np.where(np.isfinite(decision), side * amount * (arrival - decision), 0.0),
        "drift": side * filled * (twap - arrival),
        "selection": side * (notional - filled * twap),
        "spread": spread + notional * rules.half_spread_bps / BASIS_POINTS,
        "temporary_impact": temporary,
        "permanent_impact": permanent,
        "commission": commission(notional, rules),
        "tax": tax(notional, side, rules),
        "opportunity": np.where(left > 0, side * left * (open_price - arrival), 0.0),
    }
    columns = {COST_COLUMNS[name]: values + 0.0 for name, values in parts.items()}  # which makes -0.0 a 0.0
    total = reduce(np.add, columns.values())
    return {**columns, COST_COLUMNS["total"]: total, "cost_bp": BASIS_POINTS * total / (amount * arrival)}


def tick_charges(engine: Engine, orders: OrderBatch, fill: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what fills pay for quoted spread, temporary and permanent impact in currency, float64 of shape (N, T).

    Parameters
    ----------
    fill : float64 of shape (N, T)
        Amount filled in each tick, of a `TickRecord`.
    """
    terms, rows, traded = engine.rules.terms(), orders.session, fill > 0
    value = np.where(traded, fill * engine.price[rows], 0.0)
    half_spread = engine.market.half_spread[rows] if len(engine.market.half_spread) else np.zeros(fill.shape)
    volume = engine.volume[rows]
    taken = np.minimum(np.divide(fill, volume, out=np.zeros(fill.shape), where=traded & (volume > 0)), 1.0)
    after = np.cumsum(terms.permanent * (np.sqrt(taken) if terms.permanent_root else taken), axis=1)
    before = np.pad(after, ((0, 0), (1, 0)))[:, :-1]
    own = terms.temporary * (np.sqrt(taken) if terms.temporary_root else taken)
    return np.where(traded, fill * half_spread, 0.0), value * own, value * before


def _tick_charges(
    engine: Engine, orders: OrderBatch, requested: np.ndarray | None, charged: np.ndarray, rounding: np.ndarray
) -> np.ndarray:
    """Return spread, temporary and permanent impact of whole orders, (3, N); NaN where they do not give `charged`."""
    count, ticks = len(orders), engine.sessions.calendar.num_ticks
    found = np.zeros((3, count))
    if engine.rules.costs_by_tick and requested is not None:
        block = max(1, _CELLS // ticks)
        for low in range(0, count, block):
            some, rows = orders[low : low + block], slice(low, low + block)
            now, record = engine.reset(some), TickRecord.empty(len(some), ticks)
            for request in requested[rows].T:
                now, _ = engine.step(some, now, np.where(now.done, 0.0, np.minimum(request, now.position)), record)
            found[:, rows] = [part.sum(axis=1) for part in tick_charges(engine, some, record.fill)]
    other = np.abs(found.sum(axis=0) - charged) > rounding
    return np.where(other, np.where(np.abs(charged) > rounding, np.nan, 0.0), found)


def _open_prices(engine: Engine, orders: OrderBatch) -> np.ndarray:
    """Return the price at which the part left open is valued: the last of the session, NaN where there is none."""
    prices = engine._closing[orders.session]
    known = np.isfinite(prices) & (prices > 0)
    last = prices.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.where(known.any(axis=1), prices[np.arange(len(prices)), last], np.nan)
