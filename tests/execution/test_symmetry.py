"""What may not matter: the units of price and volume, and which side is which."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlwb.execution import Engine, ExecutionRules, OrderBatch, PAPenaltyReward, TickRecord
from rlwb.execution.metrics import order_metrics
from rlwb.execution.state import ExecutionState
from rlwb.market import Sessions
from rlwb.reward import sum_parts
from tests.execution.markets import sessions_of
from tests.execution.test_engine import batch_of, problems

Played = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def play(
    sessions: Sessions, rules: ExecutionRules, ticks_per_step: int, batch: OrderBatch, shares: list[list[float]]
) -> Played:
    """Return figures, fills by tick and the sum of rewards."""
    engine = Engine(sessions, ticks_per_step, rules)
    state, record = ExecutionState.start(engine, batch), TickRecord.empty(len(batch), sessions.calendar.num_ticks)
    reward, step = np.zeros(len(batch)), 0
    while not state.now.done.all():
        ask = np.array([row[step] for row in shares]) * np.where(state.now.done, 0.0, state.now.position)
        state = state.after(*engine.step(batch, state.now, ask, record))
        reward, step = reward + sum_parts(PAPenaltyReward(penalty=100.0).parts(state.outcome)), step + 1
    return order_metrics(batch, state.now, state.benchmarks, rules), record.fill, reward


def in_units(sessions: Sessions, price: float, volume: float) -> Sessions:
    # Volumes so small that they lose digits in other units are left out.
    known = {"volume": np.where(sessions.fields["volume"] < 1e-3, 0.0, sessions.fields["volume"]) * volume}
    fields = {name: known.get(name, array * price) for name, array in sessions.fields.items()}
    return Sessions(
        sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, fields, halted=sessions.halted
    )


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(-8, 8), st.integers(-8, 8))
def test_powers_of_two_in_prices_and_volumes_change_no_bit(problem: tuple, a: int, b: int) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks_per_step, orders, shares = problem
    price, volume = 2.0**a, 2.0**b
    other = dataclasses.replace(rules, lot_size=rules.lot_size * volume)
    if rules.price_limit:
        other = dataclasses.replace(other, price_tick=rules.price_tick * price)
    larger = [(side, amount * volume, start, end) for side, amount, start, end in orders]
    one, fills, reward = play(in_units(sessions, 1.0, 1.0), rules, ticks_per_step, batch_of(orders), shares)
    two, fills_2, reward_2 = play(in_units(sessions, price, volume), other, ticks_per_step, batch_of(larger), shares)
    for name in ("pa", "pa_vwap", "pa_arrival", "ffr", "num_steps", "participation"):
        np.testing.assert_array_equal(one[name], two[name], name)
    for name in ("price", "twap", "vwap", "arrival"):
        np.testing.assert_array_equal(one[name] * price, two[name], name)
    np.testing.assert_array_equal(fills * volume, fills_2)
    np.testing.assert_array_equal(reward, reward_2)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_b09_the_other_side_has_the_same_fills_and_the_opposite_advantage(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks_per_step, orders, shares = problem
    # A price limit, and the odd remainder that is traded of sells alone, are rules of a side.
    odd = "leave" if rules.odd_lot == "leave" else "trade_at_end"
    rules = dataclasses.replace(rules, price_limit=None, odd_lot=odd)  # type: ignore[arg-type]
    turned = [(-side, *rest) for side, *rest in orders]
    one, fills, _ = play(sessions, rules, ticks_per_step, batch_of(orders), shares)
    two, fills_2, _ = play(sessions, rules, ticks_per_step, batch_of(turned), shares)
    np.testing.assert_array_equal(fills, fills_2)
    np.testing.assert_array_equal(one["pa"], -two["pa"])
    close = sessions.fields["close"]
    some = one["filled"] > 0
    # What was filled is the amount less the position, each of at most 14 subtractions rounded at the amount's digits.
    digits = 14 * np.spacing(batch_of(orders).amount[some]) / one["filled"][some]
    assert (one["price"][some] >= np.nanmin(close) * (1 - 1e-12 - digits)).all()
    assert (one["price"][some] <= np.nanmax(close) * (1 + 1e-12 + digits)).all()
    assert np.isnan(one["price"][~some]).all()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([0.1, 0.01, 0.3, 1e-3, 7.7, 1 / 3]),
    st.floats(1.0, 40.0),
    st.sampled_from(["leave", "trade_at_end", "sell_at_end"]),
    st.sampled_from([None, 0.1, 0.05]),
    st.lists(st.sampled_from([0.0, 1.0, 3.0, 100.0]), min_size=12, max_size=12),
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1 / 3, 1.0]), min_size=12, max_size=12),
    st.integers(1, 6),
)
@example(0.1, 1.0000000000000002, "leave", None, [0.0] * 12, [0.0] * 5 + [1.0] + [0.0] * 6, 2)
def test_b05_odd_lot_sizes_leave_at_most_one_child_that_is_no_multiple(
    lot: float, lots: float, odd: str, cap: float | None, volume: list[float], shares: list[float], ticks: int
) -> None:
    sessions = sessions_of([[10.0] * 12], [[lot * 10 * v for v in volume]])
    rules = ExecutionRules(lot_size=lot, odd_lot=odd, volume_limit=cap)  # type: ignore[arg-type]
    figures, fills, _ = play(sessions, rules, ticks, batch_of([(1, lots * lot, 0, 12)], 0), [shares])
    assert (fills >= 0).all()
    assert figures["filled"][0] <= lots * lot
    multiples = fills[0] / lot
    assert (np.abs(multiples - np.round(multiples)) > 1e-6).sum() <= (odd == "trade_at_end")  # it is a buy
