"""The arrival price: the first valid price of the window."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlwb.execution import Engine, align_orders
from tests.execution.markets import order, sessions_of

PRICES = [10.0, math.nan, 0.0, math.inf, 12.0, 13.0, math.nan, 14.0]


@pytest.mark.parametrize(
    ("start", "end", "arrival", "twap"),
    [
        (None, None, 10.0, 49 / 4),
        # A price before the window is none of it; a missing one, 0 and an infinite one are passed over.
        ("09:31", None, 12.0, 13.0),
        ("09:34", "09:36", 12.0, 12.5),
        ("09:35", None, 13.0, 13.5),
        ("09:36", "09:38", 14.0, 14.0),
        ("09:33", "09:35", 12.0, 12.0),
    ],
)
def test_the_arrival_price_is_the_first_valid_one_of_the_window(
    start: str | None, end: str | None, arrival: float, twap: float
) -> None:
    # The session before must not matter.
    sessions = sessions_of([[50.0] * 8, PRICES])
    bench = Engine(sessions, 2).benchmarks(align_orders([order(1.0, start=start, end=end, day=2)], sessions))
    np.testing.assert_allclose([bench.arrival[0], bench.twap[0]], [arrival, twap], rtol=1e-12)


def test_every_order_has_the_arrival_price_of_its_own_window() -> None:
    sessions = sessions_of([[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]])
    orders = [order(1.0, day=2), order(1.0, start="09:31", day=1), order(1.0, "SELL", start="09:32", day=2)]
    bench = Engine(sessions, 1).benchmarks(align_orders(orders, sessions))
    assert bench.arrival.tolist() == [20.0, 11.0, 22.0]
