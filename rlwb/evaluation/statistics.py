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


def _present(values: np.ndarray) -> np.ndarray:
    array = finite_or_nan(values)
    return array[~np.isnan(array)]
