"""Small markets for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.execution import (
    Engine,
    ExecutionRules,
    Known,
    Order,
    OrderExecution,
    PAPenaltyReward,
    audit,
    parse_direction,
)
from rlwb.market import Calendar, Sessions


def sessions_of(
    prices: Sequence[Sequence[float]],
    volumes: Sequence[Sequence[float]] | float = 1000.0,
    *,
    segments: tuple[tuple[str, str], ...] | None = None,
    halted: np.ndarray | None = None,
    instruments: Sequence[str] | None = None,
    num_ticks: Sequence[int] | None = None,
) -> Sessions:
    """A panel of one-minute sessions of one instrument on consecutive days; every price field is the close."""
    close = np.asarray(prices, dtype=float)
    count, ticks = close.shape
    volume = np.full(close.shape, float(volumes)) if isinstance(volumes, (int, float)) else np.asarray(volumes, float)
    if segments is None:
        stop = pd.Timestamp("2024-01-01 09:30") + pd.Timedelta(minutes=ticks)
        segments = (("09:30", f"{stop:%H:%M}"),)
    calendar = Calendar(segments=segments, weekdays=(0, 1, 2, 3, 4, 5, 6))
    fields = dict.fromkeys(("open", "high", "low", "close"), close)
    return Sessions(
        calendar,
        np.array(instruments or ["AAA"] * count),
        np.array("2024-01-01", dtype="datetime64[D]") + np.arange(count)
        if instruments is None
        else np.array(["2024-01-01"] * count, dtype="datetime64[D]"),
        np.array(num_ticks if num_ticks is not None else [ticks] * count, dtype=np.int32),
        {**fields, "volume": volume},
        halted=halted,
    )


def order(amount: float, side: str = "BUY", start: str | None = None, end: str | None = None, day: int = 1) -> Order:
    """An order of AAA on a day of January 2024."""
    date = pd.Timestamp(2024, 1, day)
    stamps = [None if text is None else pd.Timestamp(f"{date:%Y-%m-%d} {text}") for text in (start, end)]
    return Order("AAA", date, parse_direction(side), amount, *stamps)


def run(
    sessions: Sessions,
    orders: Sequence[Order],
    ticks_per_step: int,
    policy: Any,
    rules: ExecutionRules | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Run a policy, or the baseline that a class or function makes of the engine; return what `audit` does."""
    engine = Engine(sessions, ticks_per_step, rules)
    simulator = OrderExecution(engine)
    actor = policy(engine) if callable(policy) else policy
    return audit(simulator, simulator.align(orders), actor, reward=PAPenaltyReward(penalty=100.0))


class OneOrder:
    """One order in flight, for tests that step by hand."""

    def __init__(self, one: Order, engine: Engine) -> None:
        self.simulator = OrderExecution(engine)
        self.state = self.simulator.start([one], np.zeros(1, dtype=np.uint64))

    @property
    def known(self) -> Known:
        return self.state.known

    def step(self, amount: Any) -> None:
        self.state = self.simulator.step(self.state, [amount])  # type: ignore[arg-type]


class AskAtStep:
    """Asks for everything in one step and for nothing before."""

    def __init__(self, step: int) -> None:
        self.step = step

    def act(self, obs, noise=None):  # type: ignore[no-untyped-def]
        return np.where(obs.step == self.step, obs.position, 0.0)
