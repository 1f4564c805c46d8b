"""Policies that answer with the same action always."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlwb.batch import count_rows


class AllOne:
    """Answers 1; with `TwapRelativeActionInterpreter` this is TWAP.

    Parameters
    ----------
    value
        The answer.
    """

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the value for each of the N observations, of shape (N,)."""
        rows = count_rows(obs)
        return np.full(rows, self.value)
