"""What a table of orders says in one number each.

Every function takes arrays with one element an order. Missing values are NaN; they are left out of every mean
and counted where a result is reported, never read as 0. A number that cannot be computed is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from rlwb.evaluation.results import finite_or_nan

#: PAs this close to 0, in basis points, are rounding and count as neither gain nor loss.
ZERO_BP = 1e-6


def mean(values: np.ndarray) -> float:
    """Equal-weighted mean of what is there."""
    present = _present(values)
    return float(present.mean()) if len(present) else math.nan


def standard_deviation(values: np.ndarray) -> float:
    """Sample standard deviation (divisor n - 1) of what is there; needs two values."""
    present = _present(values)
    return float(present.std(ddof=1)) if len(present) > 1 else math.nan


def win_rate(pa: np.ndarray) -> float:
    """Share of orders with a PA above 0 among the orders that have one ("POS" in the OPD paper)."""
    present = _present(pa)
    return float((present > ZERO_BP).mean()) if len(present) else math.nan


def gain_loss_ratio(pa: np.ndarray) -> float:
    """Mean gain over mean loss, ``E[PA | PA > 0] / |E[PA | PA < 0]|``; NaN without a gain or without a loss.

    References
    ----------
    Fang et al., "Universal Trading for Order Execution with Oracle Policy Distillation", AAAI 2021,
    arXiv:2103.10860, section "Evaluation metrics" (GLR).
    """
    present = _present(pa)
    gains, losses = present[present > ZERO_BP], present[present < -ZERO_BP]
    if not len(gains) or not len(losses):
        return math.nan
    return float(gains.mean() / abs(losses.mean()))


def value_weighted_mean(pa: np.ndarray, value: np.ndarray) -> float:
    """Mean PA weighted by the value each order traded.

    With ``value = filled * twap`` this is the money gained over the money that TWAP would have moved, in
    basis points: large orders speak louder than in the equal-weighted mean.
    """
    pa, value = finite_or_nan(pa), finite_or_nan(value)
    present = ~np.isnan(pa) & ~np.isnan(value) & (value > 0)
    total = float(value[present].sum())
    return float((pa[present] * value[present]).sum() / total) if total > 0 else math.nan


def count_missing(values: np.ndarray) -> int:
    """Count the values that are missing (NaN or infinite)."""
    return int(np.isnan(finite_or_nan(values)).sum())


def _present(values: np.ndarray) -> np.ndarray:
    array = finite_or_nan(values)
    return array[~np.isnan(array)]
