"""Policies that answer with the same action always."""

from __future__ import annotations

from typing import Any

import numpy as np


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
        rows = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
        return np.full(rows, self.value)
