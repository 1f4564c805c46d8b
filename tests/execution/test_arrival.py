"""The arrival price: what stands as the window begins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlwb.execution import TWAP, Engine, ExecutionRules, align_orders
from rlwb.market import Sessions
from tests.execution.markets import order, run, sessions_of

NAN = math.nan
OPEN = [9.0, 10.5, NAN, 0.0, 11.0, 12.5, NAN, 13.5]
CLOSE = [10.0, NAN, NAN, NAN, 12.0, 13.0, NAN, 14.0]


def bars(**fields: list[float]) -> Sessions:
    """Two sessions of eight ticks, of which the first must not matter, with these fields in the second."""
    made = sessions_of([[50.0] * 8] * 2)
    values = {name: np.array([[50.0] * 8, own]) for name, own in fields.items()}
    kept = {"volume": made.fields["volume"], **values}
    return Sessions(made.calendar, made.instruments, made.dates, made.num_ticks, kept)


def arrival(sessions: Sessions, start: str | None, end: str | None = None, field: str = "close") -> float:
    rules = ExecutionRules(price_field=field)  # type: ignore[arg-type]
    orders = align_orders([order(1.0, start=start, end=end, day=2)], sessions, rules)
    return float(Engine(sessions, 2, rules).benchmarks(orders).arrival[0])


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, 9.0),  # the open of the first bar, not its close
        ("09:31", 10.5),  # a bar without a close has an open
        ("09:32", 10.0),  # no open: the last close before the window
        ("09:33", 10.0),  # 0 is no price
        ("09:34", 11.0),
        ("09:36", 13.0),
        ("09:37", 13.5),
    ],
)
@pytest.mark.parametrize("field", ["close", "high"])
def test_j06_the_arrival_price_is_the_open_of_the_first_bar_or_the_last_close_before(
    start: str | None, expected: float, field: str
) -> None:
    sessions = bars(open=OPEN, close=CLOSE, high=[price + 1 for price in CLOSE])
    assert arrival(sessions, start, field=field) == expected


def test_j06_without_an_earlier_price_of_the_day_it_is_the_first_of_the_window() -> None:
    late = [NAN, NAN, NAN, 12.0, 13.0, 13.0, 13.0, 13.0]
    assert arrival(bars(open=[NAN] * 8, close=late), None) == 12.0
    assert arrival(bars(close=late), "09:32") == 12.0  # no opening prices at all
    assert arrival(bars(close=late), "09:34") == 12.0


def test_j06_filled_at_the_open_the_arrival_price_is_the_first_fill() -> None:
    assert arrival(bars(open=OPEN, close=CLOSE), "09:34", field="open") == 11.0
    assert arrival(bars(open=OPEN, close=CLOSE), "09:33", "09:35", field="open") == 10.0


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, 9.0),  # no quote is known before the first bar ends: its open
        ("09:31", 10.0),  # the mid as the bar before ended
        ("09:32", 10.0),  # one with a bid alone is none
        ("09:33", 10.4),
    ],
)
def test_j06_among_quotes_it_is_the_mid_as_the_bar_before_ended(start: str | None, expected: float) -> None:
    bid = [9.9, 9.0, 10.3, 11.0, 11.0, 11.0, 11.0, 11.0]
    ask = [10.1, NAN, 10.5, 11.2, 11.2, 11.2, 11.2, 11.2]
    sessions = bars(open=[9.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0], close=CLOSE, bid=bid, ask=ask)
    assert arrival(sessions, start, field="quotes") == pytest.approx(expected, abs=1e-12)
    without = bars(close=CLOSE, bid=bid, ask=ask)
    assert arrival(without, None, field="quotes") == pytest.approx(10.0, abs=1e-12)


def test_j06_the_shortfall_is_against_the_price_that_stood_as_the_order_began() -> None:
    # Buys 1 at 10 and 1 at 12, after an open of 8: 11 / 8 - 1 = 37.5 % lost. Of the first close it would be 10 %.
    sessions = bars(open=[8.0] * 8, close=[10.0, 12.0] * 4)
    _, _, row = run(sessions, [order(2.0, end="09:32", day=2)], 2, TWAP)
    assert row["arrival"].tolist() == [8.0]
    assert row["pa_arrival"].tolist() == pytest.approx([-3750.0])


def test_every_order_has_the_arrival_price_of_its_own_window() -> None:
    sessions = sessions_of([[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]])
    orders = [order(1.0, day=2), order(1.0, start="09:31", day=1), order(1.0, "SELL", start="09:32", day=2)]
    bench = Engine(sessions, 1).benchmarks(align_orders(orders, sessions))
    assert bench.arrival.tolist() == [20.0, 11.0, 22.0]


def test_j06_bars_from_the_windows_second_on_do_not_move_the_arrival_price() -> None:
    rng = np.random.default_rng(0)
    for start in ("09:30", "09:33"):
        tick = int(start[-2:]) - 30
        first = {name: rng.uniform(5.0, 15.0, 8) for name in ("open", "close")}
        later = {name: np.where(np.arange(8) > tick, 99.0, values) for name, values in first.items()}
        later["close"] = np.where(np.arange(8) == tick, 99.0, later["close"])
        one, two = (arrival(bars(**{name: v.tolist() for name, v in each.items()}), start) for each in (first, later))
        assert one == two == first["open"][tick]
