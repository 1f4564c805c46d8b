"""The field's baselines: policies that need no learning, of one interface, and the ceiling that none passes.

Each `Baseline` reads `Known` and answers with amounts; run it with `KnownStateInterpreter` and
`AmountActionInterpreter`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from rlwb.errors import ConfigError, OrderError
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

    #: What tables take its result for; see `rlwb.evaluation.PolicyResult`.
    result_kind: Literal["baseline", "control", "attainable"] = "baseline"
    #: Whether it is told what no trader knows.
    sees_future = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def fit(self, orders: OrderBatch) -> None:
        """Estimate what the baseline needs on the sessions of the training orders alone; nothing by default."""
        return

    def check(self, orders: OrderBatch) -> None:
        """Refuse orders that the baseline cannot trade by an `OrderError`; none by default."""
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


class Schedule(Baseline):
    """A baseline that can leave out the session's first and last minutes, beside which auctions are held.

    Parameters
    ----------
    engine
        See `Baseline`.
    skip_open, skip_close : minutes
        Minutes after the session's open, and before its close, in which the schedule asks for nothing: a step that has
        a tick among them trades nothing, and the schedule is of the steps that remain. Half days close when they do.
        What is unfilled in the order's last step is asked for there even so where the rules complete orders at the end.

    Raises
    ------
    ConfigError
        When they are negative, no numbers, or leave nothing of the session.
    OrderError
        By `check` and `act`, when they leave nothing of an order's window.
    """

    def __init__(self, engine: Engine, skip_open: float = 0.0, skip_close: float = 0.0) -> None:
        super().__init__(engine)
        calendar = engine.sessions.calendar
        for name, minutes in (("skip_open", skip_open), ("skip_close", skip_close)):
            if not 0 <= minutes < np.inf:
                raise ConfigError(f"{name} is {minutes!r}; give a number of minutes, 0 for none.")
        self._open, self._close = (math.ceil(one / calendar.tick_minutes - 1e-9) for one in (skip_open, skip_close))
        if self._open + self._close >= calendar.num_ticks:
            raise ConfigError(
                f"skip_open of {skip_open:g} and skip_close of {skip_close:g} minutes leave nothing of a session of "
                f"{calendar.num_ticks} bars of {calendar.tick_minutes:g} minutes; skip less."
            )

    @abstractmethod
    def amounts(self, known: Known) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,), of windows that are traded whole."""

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        if not self._open and not self._close:
            return self.amounts(obs)
        start, until = self._window(obs)
        inside = (start <= obs.tick) & (obs.tick < until)
        within = replace(obs, start=start, end=np.minimum(obs.end, until), latest_end=until)
        return np.where(inside, self.amounts(within), 0.0)

    def check(self, orders: OrderBatch) -> None:
        self._window(orders)

    def _window(self, orders: OrderBatch | Known) -> tuple[np.ndarray, np.ndarray]:
        """Return the ticks ``[start, until)`` of the steps that are traded, int32 of shape (N,) each."""
        sessions, cell = self.engine.sessions, self.engine.cell
        last = sessions.num_ticks[orders.session] - self._close
        first = np.searchsorted(cell, cell[self._open - 1], side="right") if self._open else 0
        before = np.searchsorted(cell, cell[np.clip(last, 0, len(cell) - 1)], side="left")
        start = np.where(orders.start < self._open, np.maximum(orders.start, first), orders.start).astype(np.int32)
        latest = orders.latest_end
        until = np.where(latest > last, np.minimum(latest, before), latest).astype(np.int32)
        if (start >= until).any():
            i = int(np.flatnonzero(start >= until)[0])
            row, calendar = orders.session[i], sessions.calendar
            raise OrderError(
                f"{sessions.instruments[row]} on {sessions.dates[row]}: skip_open and skip_close leave no whole step "
                f"of the window of {int(latest[i] - orders.start[i])} bars from "
                f"{calendar.time_of(int(orders.start[i]))}; skip less, or leave this baseline out."
            )
        return start, until
