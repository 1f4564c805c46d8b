"""A desk for tests: bars of a day and orders for a bundle's service."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from rlwb.market import Calendar
from rlwb.serving.wire import BarIn, OrderIn

DAY, NEXT = "2024-03-04", "2024-03-05"


class Desk:
    """Makes messages on a calendar; prices are a fixed random walk for each instrument and day."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.ticks = calendar.num_ticks

    def stamp(self, tick: int, day: str = DAY) -> dt.datetime:
        seconds = self.calendar.seconds_at(tick) + (self.calendar.label == "end") * self.calendar.tick_seconds
        return dt.datetime.fromisoformat(day) + dt.timedelta(seconds=seconds)

    def price(self, instrument: str, tick: int, day: str = DAY) -> float:
        rng = np.random.default_rng([sum(instrument.encode()), int(day[-2:])])
        return float(100 * np.exp(np.cumsum(rng.normal(0, 2e-3, self.ticks))[tick]))

    def bar(self, instrument: str, tick: int, day: str = DAY) -> BarIn:
        price = self.price(instrument, tick, day)
        stamp = self.stamp(tick, day)
        return BarIn(instrument=instrument, datetime=stamp, open=price, high=price, low=price, close=price, volume=1e4)

    def bars(self, instrument: str, first: int, last: int, day: str = DAY) -> list[BarIn]:
        return [self.bar(instrument, tick, day) for tick in range(first, last)]

    def order(self, name: str, instrument: str = "AAA", **fields: Any) -> OrderIn:
        values = {"date": DAY, "direction": "BUY", "amount": 1000.0, **fields}
        return OrderIn(instrument=instrument, order_id=name, **values)
