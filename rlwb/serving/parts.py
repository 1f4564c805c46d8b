"""The parts of a policy without the market that it was trained in: a clock, and interpreters and networks on it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rlwb.execution import Engine
from rlwb.execution.engine import Clock, Window
from rlwb.experiment.config import RunConfig
from rlwb.experiment.workbench import Workbench
from rlwb.market import Calendar, Sessions
from rlwb.serving.spec import Bars


class ClockEngine(Engine):
    """An engine that has the step grid and the rules, and no bars: nobody knows yet which ticks will have a price.

    What needs bars, such as `benchmarks` and `step`, has no meaning here.
    """

    def even_share(self, orders: Window, state: Clock) -> np.ndarray:
        """Return the share of the position that an even schedule trades in the next step, float64 of shape (N,).

        Every tick of the clock counts, whether or not it will have a price; where all of them do, the share is that of
        `Engine.even_share`.
        """
        now = (self.step_stop(orders, state) - state.tick).astype(np.float64)
        left = np.maximum(orders.end - state.tick, now)
        return np.divide(now, left, out=np.zeros(len(now)), where=left > 0)


class ServedParts(Workbench):
    """A workbench whose panel is one blank session, so that a policy's parts are built without its market.

    Parameters
    ----------
    config
        What the policy is built from; the market of the configuration is not looked at.
    calendar
        The clock of the bars.
    bars
        Of what kind they were.
    """

    def __init__(self, config: RunConfig, calendar: Calendar, bars: Bars) -> None:
        super().__init__(config)
        self.calendar = calendar
        self.bars = bars

    @cached_property
    def sessions(self) -> Sessions:
        """One session without an instrument, in which every price and every volume is 1."""
        shape = (1, self.calendar.num_ticks)
        return Sessions(
            self.calendar,
            np.array([""]),
            np.array(["1970-01-01"], dtype="datetime64[D]"),
            np.array([self.calendar.num_ticks]),
            {name: np.ones(shape) for name in self.bars.fields},
            halted=np.zeros(shape, dtype=bool) if self.bars.halted else None,
            factor=np.ones(1) if self.bars.factor else None,
        )

    @cached_property
    def engine(self) -> Engine:
        """The step grid and the rules."""
        execution = self.config.execution
        return ClockEngine(self.sessions, execution.ticks_per_step, execution.rules)
