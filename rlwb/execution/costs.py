"""What trading costs beside the price: currency of an order, and of a step."""

from __future__ import annotations

import numpy as np

from rlwb.execution.rules import BASIS_POINTS, ExecutionRules


def commission(notional: np.ndarray, rules: ExecutionRules) -> np.ndarray:
    """Return the commission of whole orders in currency, float64 of shape (N,); 0 where nothing was traded."""
    return np.where(notional > 0, np.maximum(notional * rules.commission_bps / BASIS_POINTS, rules.min_fee), 0.0)


def tax(notional: np.ndarray, side: np.ndarray, rules: ExecutionRules) -> np.ndarray:
    """Return the tax on sells of whole orders in currency, float64 of shape (N,)."""
    return np.where(side < 0, notional * rules.sell_tax_bps / BASIS_POINTS, 0.0)


def fees(notional: np.ndarray, side: np.ndarray, rules: ExecutionRules) -> np.ndarray:
    """Return commission and tax of whole orders in currency, float64 of shape (N,); 0 where nothing was traded."""
    return commission(notional, rules) + tax(notional, side, rules)


def net_value(notional: np.ndarray, tick_costs: np.ndarray, side: np.ndarray, rules: ExecutionRules) -> np.ndarray:
    """Return what whole orders paid or got after all costs in currency, float64 of shape (N,).

    Parameters
    ----------
    notional, tick_costs
        Value traded, and paid for quoted spread and impact.
    side
        +1 buy, -1 sell.
    """
    crossed = notional * (1.0 + side * rules.half_spread_bps / BASIS_POINTS)
    return np.asarray(crossed + side * (fees(notional, side, rules) + tick_costs))


def step_costs(
    notional: np.ndarray,
    tick_costs: np.ndarray,
    total: np.ndarray,
    done: np.ndarray,
    side: np.ndarray,
    rules: ExecutionRules,
) -> np.ndarray:
    """Return what a step costs in currency, float64 of shape (N,); over an order's steps it adds up to the order's.

    What a minimum fee adds to the commission is charged with the order's last step.

    Parameters
    ----------
    notional, tick_costs
        Of the step: value traded, and paid for quoted spread and impact; of shape (N,).
    total
        Value traded by the order so far, this step's included.
    done
        Whether the step was the order's last.
    """
    rate = rules.half_spread_bps + rules.commission_bps + np.where(side < 0, rules.sell_tax_bps, 0.0)
    cost = tick_costs + notional * rate / BASIS_POINTS
    if rules.min_fee:
        short = np.maximum(rules.min_fee - total * rules.commission_bps / BASIS_POINTS, 0.0)
        cost = cost + np.where(done & (total > 0), short, 0.0)
    return np.asarray(cost)
