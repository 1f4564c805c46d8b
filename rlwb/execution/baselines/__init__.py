"""The field's baselines: policies that need no learning, of one interface, and the ceiling that none passes.

Each `Baseline` reads `Known` and answers with amounts; run it with `KnownStateInterpreter` and
`AmountActionInterpreter`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.state import Known


class Baseline(ABC):
    """A policy that reads what is known of N orders and answers with amounts.

    Parameters
    ----------
    engine
        The clock, the step grid and earlier sessions. Of the order's own session a baseline reads no price or volume at
        or after the order's next tick; which ticks will have a price is taken as known.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def fit(self, orders: OrderBatch) -> None:
        """Estimate what the baseline needs on the sessions of the training orders alone; nothing by default."""
        return

    @abstractmethod
    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""

    def state_dict(self) -> dict[str, Any]:
        """Return the estimates in plain values, for a file."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the estimates that `state_dict` gave."""
        return

    def even(self, known: Known) -> np.ndarray:
        """Return the amounts of the even schedule, float64 of shape (N,)."""
        return known.position * self.engine.even_share(known, known)
