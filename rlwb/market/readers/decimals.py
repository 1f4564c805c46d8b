"""Decimal numbers that were stored as float32."""

from __future__ import annotations

import numpy as np

_DIGITS = 6


def nearest_decimal(values: np.ndarray) -> np.ndarray:
    """Return float64 values with the fewest digits after the point that are the same float32.

    float32 holds 11.53 as 11.5299997, which a limit of 11.53 would not be seen to reach. Where up to six digits after
    the point give back the same float32, that decimal is returned, otherwise the float32 itself; nothing is lost.

    Parameters
    ----------
    values
        float32 of any shape.
    """
    with np.errstate(invalid="ignore"):  # one kind of NaN
        exact = values.astype(np.float64)
    found = exact.copy()
    open_ = np.isfinite(values) & (exact != np.rint(exact))
    for digits in range(1, _DIGITS + 1):
        if not open_.any():
            break
        scale = 10.0**digits
        with np.errstate(over="ignore"):
            decimal = np.rint(exact * scale) / scale
            same = open_ & (decimal.astype(np.float32) == values)
        found[same] = decimal[same]
        open_ &= ~same
    return found
