"""The figures of finished orders."""

from __future__ import annotations

import numpy as np

from rlwb.execution.costs import net_value
from rlwb.execution.engine import Benchmarks, EngineState
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS, BENCHMARKS, ExecutionRules


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


def valued_price(
    value: np.ndarray, filled: np.ndarray, amount: np.ndarray, unfilled: np.ndarray, rules: ExecutionRules
) -> np.ndarray:
    """Return the price that the PA is of: the fills' average, or the whole amount's where the rules value the rest.

    `value` is that of the `filled` amount, and `unfilled` the price of the rest; float64 of shape (N,) each.
    """
    if not rules.values_unfilled:
        return average_price(value, filled)
    return average_price(value + (amount - filled) * unfilled, amount)


def order_metrics(
    orders: OrderBatch, state: EngineState, benchmarks: Benchmarks, rules: ExecutionRules
) -> dict[str, np.ndarray]:
    """Return the figures of each order, float64 of shape (N,) each; what cannot be computed is NaN.

    filled
        Amount filled.
    price, price_net
        Average price, and the same after spread, impact, commission and tax: worse for the trader.
    twap, vwap, arrival, benchmark
        Prices to compare with, and the one that the rules name; see `rlwb.execution.Benchmarks`.
    valued
        Amount that the PAs are of: what was filled, or the whole amount where the rules value the rest (`unfilled_at`).
    pa, pa_net
        Price advantage of the valued amount against the benchmark, before and after costs.
    pa_twap, pa_vwap, pa_arrival, pa_open, pa_close
        The same before costs against each of `rlwb.execution.Benchmarks`; where the rules value the rest, `pa_arrival`
        is minus the implementation shortfall.
    pa_unfilled
        What the part left open adds to the `pa` of the whole amount, or would add where the rules leave it out: its
        share of the amount times its price advantage at `Benchmarks.unfilled`.
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
    paid = net_value(state.notional, state.cost, side, rules)
    rest = orders.amount - filled
    gross, net = (
        valued_price(value, filled, orders.amount, benchmarks.unfilled, rules) for value in (state.notional, paid)
    )
    missed = price_advantage(benchmarks.unfilled, benchmarks.benchmark, side)
    volume = benchmarks.volume
    with np.errstate(over="ignore"):
        share = np.divide(filled, volume, out=np.full(len(filled), np.nan), where=volume > 0)
    return {
        "filled": filled,
        "price": price,
        "price_net": average_price(paid, filled),
        "twap": benchmarks.twap,
        "vwap": benchmarks.vwap,
        "arrival": benchmarks.arrival,
        "benchmark": benchmarks.benchmark,
        "valued": orders.amount if rules.values_unfilled else filled,
        "pa": price_advantage(gross, benchmarks.benchmark, side),
        "pa_net": price_advantage(net, benchmarks.benchmark, side),
        **{f"pa_{name}": price_advantage(gross, getattr(benchmarks, name), side) for name in BENCHMARKS},
        "pa_unfilled": np.where(rest > 0, rest / orders.amount * missed, 0.0),
        "ffr": filled / orders.amount,
        "num_steps": state.step.astype(np.float64),
        "participation": np.where(np.isfinite(share), share, np.nan),
        "untraded": average_price(state.untraded, filled),
    }
