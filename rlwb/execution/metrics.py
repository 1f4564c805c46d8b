"""The figures of finished orders."""

from __future__ import annotations

import numpy as np

from rlwb.execution.costs import net_value
from rlwb.execution.engine import Benchmarks, EngineState
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS, ExecutionRules


def price_advantage(price: np.ndarray, benchmark: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the price advantage in basis points.

    ``BUY (1 - price / benchmark) * 1e4``, ``SELL (price / benchmark - 1) * 1e4``
    (Fang et al., AAAI 2021, arXiv 2103.10860, on evaluation metrics).

    Parameters
    ----------
    price, benchmark : float64 of shape (N,)
        NaN where there is none; so is the result.
    side : of shape (N,)
        +1 buy, -1 sell.
    """
    return side * (1.0 - price / benchmark) * BASIS_POINTS


def average_price(notional: np.ndarray, fill: np.ndarray) -> np.ndarray:
    """Return notional / fill, NaN where nothing was filled."""
    fill = np.asarray(fill)
    return np.divide(notional, fill, out=np.full(fill.shape, np.nan), where=fill > 0)


def order_metrics(
    orders: OrderBatch, state: EngineState, benchmarks: Benchmarks, rules: ExecutionRules
) -> dict[str, np.ndarray]:
    """Return the figures of each order, float64 of shape (N,) each; what cannot be computed is NaN.

    filled
        Amount filled.
    price, price_net
        Average price, and the same after spread, impact, commission and tax: worse for the trader.
    twap, vwap, arrival
        Benchmarks of the window; see `rlwb.execution.Benchmarks`.
    pa, pa_net, pa_vwap, pa_arrival
        Price advantage against TWAP, the same for the net price, and against VWAP and arrival price; the last is minus
        the implementation shortfall of what was filled.
    ffr
        Filled share of the amount.
    num_steps
        Steps taken.
    participation
        Filled share of the window's volume.
    untraded
        Share of the fills that lie in bars for which the market states no volume, or none at all: their price is
        carried or quoted, and nobody is known to have traded at it.
    """
    filled, side = state.filled, orders.side.astype(np.float64)
    price = average_price(state.notional, filled)
    net = average_price(net_value(state.notional, state.cost, side, rules), filled)
    volume = benchmarks.volume
    with np.errstate(over="ignore"):
        share = np.divide(filled, volume, out=np.full(len(filled), np.nan), where=volume > 0)
    return {
        "filled": filled,
        "price": price,
        "price_net": net,
        "twap": benchmarks.twap,
        "vwap": benchmarks.vwap,
        "arrival": benchmarks.arrival,
        "pa": price_advantage(price, benchmarks.twap, side),
        "pa_net": price_advantage(net, benchmarks.twap, side),
        "pa_vwap": price_advantage(price, benchmarks.vwap, side),
        "pa_arrival": price_advantage(price, benchmarks.arrival, side),
        "ffr": filled / orders.amount,
        "num_steps": state.step.astype(np.float64),
        "participation": np.where(np.isfinite(share), share, np.nan),
        "untraded": average_price(state.untraded, filled),
    }
