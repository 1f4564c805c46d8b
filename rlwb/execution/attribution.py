"""The cost of orders against their arrival price, in parts that add up.

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
from typing import Any

import numpy as np

from rlwb.execution.costs import commission, net_value, tax
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import TOLERANCE, mean_move
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
    "transient_impact": "what each fill did in passing to its own price and to those of later fills",
    "within_bar": "of real fills: what they paid beside the price of their bars and the spread and impact of the rules",
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
#: The parts that impact makes.
IMPACT_PARTS = ("temporary_impact", "permanent_impact", "transient_impact")
_CELLS = 1 << 20  # of an array of orders and ticks held at once


def reaction(orders: Any) -> Any:
    """Return `REACTION` of orders, or of one, from their columns; in currency."""
    charged = sum(orders[COST_COLUMNS[part]] for part in IMPACT_PARTS if COST_COLUMNS[part] in orders)
    return orders[COST_COLUMNS["total"]] - charged - orders[IMPACT_OFF]


def without_impact(rules: ExecutionRules) -> ExecutionRules:
    """Return the rules of the same market where trading has no impact."""
    every = [field.name for field in dataclasses.fields(rules)]
    names = [name for name in every if "_impact_" in name or name.startswith("transient_")]
    return dataclasses.replace(rules, **{name: getattr(type(rules), name) for name in names})


def attribute_costs(
    engine: Engine, orders: OrderBatch, figures: Mapping[str, np.ndarray], requested: np.ndarray | None
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
    rules, side = engine.rules, orders.side.astype(np.float64)
    notional, net = (_value(figures, name) for name in ("price", "price_net"))
    charged = side * (net - net_value(notional, np.zeros(len(side)), side, rules))
    spread, *impact = _tick_charges(engine, orders, requested, charged, TOLERANCE * notional)
    charges = {
        "spread": spread + notional * rules.half_spread_bps / BASIS_POINTS,
        **dict(zip(IMPACT_PARTS, impact, strict=True)),
        "within_bar": np.zeros(len(side)),
        "commission": commission(notional, rules),
        "tax": tax(notional, side, rules),
    }
    return _columns(engine, orders, figures, charges)


def attribute_fills(
    engine: Engine,
    orders: OrderBatch,
    figures: Mapping[str, np.ndarray],
    fill: np.ndarray,
    beside: np.ndarray,
    fee: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return what each of N orders with real fills cost, as `attribute_costs` does.

    Spread and impact are those that the engine's rules state for such fills; what the fills paid beside the price of
    their bars further is ``within_bar``.

    Parameters
    ----------
    figures
        The orders' figures with fills at the price of their bars.
    fill : float64 of shape (N, T)
        Amount filled in each tick.
    beside : float64 of shape (N,)
        Currency paid beside the price of the bars, fees not included.
    fee : float64 of shape (N,)
        Fees that were paid; None takes those of the rules.
    """
    rules, side, notional = engine.rules, orders.side.astype(np.float64), _value(figures, "price")
    spread, *impact = (part.sum(axis=1) for part in tick_charges(engine, orders, fill))
    spread = spread + notional * rules.half_spread_bps / BASIS_POINTS
    charges = {
        "spread": spread,
        **dict(zip(IMPACT_PARTS, impact, strict=True)),
        "within_bar": beside - reduce(np.add, [spread, *impact]),
        "commission": commission(notional, rules) if fee is None else fee,
        "tax": tax(notional, side, rules) if fee is None else np.zeros(len(side)),
    }
    return _columns(engine, orders, figures, charges)


def _columns(
    engine: Engine, orders: OrderBatch, figures: Mapping[str, np.ndarray], charges: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the columns of costs of orders whose charges are known."""
    side, amount, notional = orders.side.astype(np.float64), orders.amount, _value(figures, "price")
    filled, arrival, twap = (np.asarray(figures[name]) for name in ("filled", "arrival", "twap"))
    decision, unfilled = orders.forms.get("decision_price", arrival), engine.benchmarks(orders).unfilled
    left = amount - filled
    parts = {
        "delay": np.where(np.isfinite(decision), side * amount * (arrival - decision), 0.0),
        "drift": side * filled * (twap - arrival),
        "selection": side * (notional - filled * twap),
        **charges,
        "opportunity": np.where(left > 0, side * left * (unfilled - arrival), 0.0),
    }
    columns = {COST_COLUMNS[name]: parts[name] + 0.0 for name in PARTS}  # which makes -0.0 a 0.0
    total = reduce(np.add, columns.values())
    return {**columns, COST_COLUMNS["total"]: total, "cost_bp": BASIS_POINTS * total / (amount * arrival)}


def _value(figures: Mapping[str, np.ndarray], price: str) -> np.ndarray:
    """Return the filled amount times a price of the figures, 0 where nothing was filled."""
    filled = np.asarray(figures["filled"])
    return np.where(filled > 0, filled * figures[price], 0.0)


def tick_charges(engine: Engine, orders: OrderBatch, fill: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return what fills pay for quoted spread and the three impacts of `IMPACT_PARTS` in currency, (N, T) each.

    Parameters
    ----------
    fill : float64 of shape (N, T)
        Amount filled in each tick, of a `TickRecord`.
    """
    terms, rows, traded = engine.terms, orders.session, fill > 0
    value = np.where(traded, fill * engine.price[rows], 0.0)
    half_spread = engine.market.half_spread[rows] if len(engine.market.half_spread) else np.zeros(fill.shape)
    volume = engine.volume[rows]
    taken = np.minimum(np.divide(fill, volume, out=np.zeros(fill.shape), where=traded & (volume > 0)), 1.0)
    after = np.cumsum(terms.permanent * (np.sqrt(taken) if terms.permanent_root else taken), axis=1)
    before = np.pad(after, ((0, 0), (1, 0)))[:, :-1]
    own = terms.temporary * (np.sqrt(taken) if terms.temporary_root else taken)
    moves = terms.transient * (np.sqrt(taken) if terms.transient_root else taken)
    stays = moves * mean_move(1.0, terms.transient_root)
    if terms.transient:
        ticks, minutes = np.arange(fill.shape[1]), engine.sessions.calendar.tick_minutes
        since = ticks - ticks[:, None]
        stays = stays + moves @ np.where(since > 0, engine.rules.transient_left(np.maximum(since, 0) * minutes), 0.0)
    return np.where(traded, fill * half_spread, 0.0), value * own, value * before, value * stays


def _tick_charges(
    engine: Engine, orders: OrderBatch, requested: np.ndarray | None, charged: np.ndarray, rounding: np.ndarray
) -> np.ndarray:
    """Return spread and the three impacts of whole orders, (4, N); NaN where they do not give `charged`."""
    count, ticks = len(orders), engine.sessions.calendar.num_ticks
    found = np.zeros((4, count))
    if engine.rules.costs_by_tick and requested is not None:
        block = max(1, _CELLS // ticks)
        for low in range(0, count, block):
            some, rows = orders[low : low + block], slice(low, low + block)
            fill = engine.replay(some, requested[rows].T).fill
            found[:, rows] = [part.sum(axis=1) for part in tick_charges(engine, some, fill)]
    other = np.abs(found.sum(axis=0) - charged) > rounding
    return np.where(other, np.where(np.abs(charged) > rounding, np.nan, 0.0), found)
