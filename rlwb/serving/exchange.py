"""The exchange of paper trading: the engine, on a panel of the past or on bars as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd

from rlwb.execution import Engine, ExecutionRules, ExecutionState, OrderBatch, OrderExecution, align_orders
from rlwb.market import Calendar, Sessions

if TYPE_CHECKING:
    from rlwb.experiment.workbench import Workbench
    from rlwb.serving.bundle import Bundle


class Exchange(Protocol):
    """What executes orders day by day."""

    @property
    def calendar(self) -> Calendar:
        """The clock."""

    @property
    def order_ids(self) -> list[str]:
        """The orders of all days."""

    def begin(self, date: np.datetime64) -> ExecutionState | None:
        """Return the state of a day's orders before they trade; None where there are none."""

    def add(self, bars: pd.DataFrame) -> None:
        """Take the bars that a feed tells."""

    @property
    def market(self) -> OrderExecution:
        """Executes the day's steps that are over by now."""


class PanelExchange:
    """Executes on a panel that is known beforehand.

    Parameters
    ----------
    bench
        The panel and the rules.
    orders
        Aligned with the panel.
    """

    def __init__(self, bench: Workbench, orders: OrderBatch) -> None:
        self._bench, self._orders = bench, orders
        self._dates = bench.sessions.dates[orders.session]

    @property
    def calendar(self) -> Calendar:
        """The clock."""
        return self._bench.sessions.calendar

    @property
    def order_ids(self) -> list[str]:
        """The orders of all days."""
        return self._orders.table["order_id"].tolist()

    def begin(self, date: np.datetime64) -> ExecutionState | None:
        """Return the state of a day's orders before they trade; None where there are none."""
        rows = np.flatnonzero(self._dates == date)
        return ExecutionState.start(self._bench.engine, self._orders[rows]) if len(rows) else None

    def add(self, bars: pd.DataFrame) -> None:
        """Do nothing: the panel has them."""

    @property
    def market(self) -> OrderExecution:
        """Executes on the panel."""
        return OrderExecution(self._bench.engine)


class LiveExchange:
    """Executes on bars as a feed tells them: a step when its ticks are over.

    Bars come by the rules of `rlwb.serving.live`. Nobody knows which ticks will have a price, so an order that gets no
    answer trades evenly over the clock. There is no earlier session, so that price limits cut nothing, and bars do not
    tell halts.

    Parameters
    ----------
    bundle
        Whose clock and kind of bars count.
    rules
        Of execution.
    orders
        A canonical table of the orders of all days.
    capacity
        Instruments that may have orders on a day.
    """

    def __init__(self, bundle: Bundle, rules: ExecutionRules, orders: pd.DataFrame, *, capacity: int = 1024) -> None:
        from rlwb.serving.live import LiveMarket

        self._rules, self._ticks_per_step = rules, bundle.engine.ticks_per_step
        self._orders = orders
        self._live = LiveMarket(
            bundle.calendar,
            bundle.config.features,
            bundle.normaliser,
            fields=bundle.spec.bars.fields,
            capacity=capacity,
        )
        self._dates = orders["date"].to_numpy().astype("datetime64[D]")
        self._rows: list[int] = []

    @property
    def calendar(self) -> Calendar:
        """The clock."""
        return self._live.calendar

    @property
    def order_ids(self) -> list[str]:
        """The orders of all days."""
        return self._orders["order_id"].tolist()

    def begin(self, date: np.datetime64) -> ExecutionState | None:
        """Return the state of a day's orders before they trade; None where there are none."""
        for row in self._rows:
            self._live.release(row)
        self._rows = []
        own = self._orders[self._dates == date]
        if own.empty:
            return None
        for name in sorted(set(own["instrument"])):
            row = self._live.open(name, date)
            self._live.hold(row)
            self._rows.append(row)
        blank = Engine(self._panel(blank=True), self._ticks_per_step, self._rules)
        return ExecutionState.start(blank, align_orders(own.reset_index(drop=True), blank.sessions, self._rules))

    def add(self, bars: pd.DataFrame) -> None:
        """Take bars of today's instruments; what the live market refuses has no effect."""
        names = self._live.panel.instruments[self._rows]
        own = bars[bars["instrument"].isin(names)]
        if len(own):
            self._live.add(own)

    @property
    def market(self) -> OrderExecution:
        """Executes on the bars of today so far."""
        return OrderExecution(Engine(self._panel(), self._ticks_per_step, self._rules))

    @property
    def today(self) -> Sessions:
        """The sessions of the day that has begun, with the bars so far."""
        return self._panel()

    def _panel(self, *, blank: bool = False) -> Sessions:
        """Return today's sessions with the bars so far, or with 1 for every price and volume."""
        panel, rows = self._live.panel, np.array(self._rows)
        own = (panel.instruments[rows], panel.dates[rows], panel.num_ticks[rows])
        fields = {name: values[rows] for name, values in panel.fields.items()}
        if blank:
            fields = {name: np.ones_like(values) for name, values in fields.items()}
        return Sessions(self.calendar, *own, fields)


def joined(parts: Sequence[Sessions]) -> Sessions:
    """Return panels of the same clock and fields as one."""
    names, dates, lengths = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("instruments", "dates", "num_ticks")
    )
    order = np.lexsort((dates, names))
    fields = {name: np.concatenate([part.fields[name] for part in parts])[order] for name in parts[0].fields}
    return Sessions(parts[0].calendar, names[order], dates[order], lengths[order], fields)
