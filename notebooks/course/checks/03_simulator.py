"""Checks of notebook 03: one point a case."""

import numpy as np
import pandas as pd

from rlwb.course import case, close, small_market
from rlwb.execution import Direction, Engine, ExecutionRules, Order, OrderExecution

PRICES = [100, 101, 99, 98, 100, 102, 101, 99]


@case("step_fills")
def the_example(answer):
    """300 shares in ticks of 400 and 1,200 at a limit of 25 % fill 100 and 150."""
    close(answer(300.0, np.array([400.0, 1200.0]), 0.25), [100.0, 150.0])


@case("step_fills")
def enough_for_all(answer):
    """Where there is enough, each tick fills its even part."""
    close(answer(90.0, np.array([1000.0, 2000.0, 500.0]), 1.0), [30.0, 30.0, 30.0])


@case("step_fills")
def a_tick_that_nobody_trades(answer):
    """A tick without volume fills nothing, and its part is not moved to another."""
    volumes = np.array([0.0, 60.0, 30.0, 400.0])
    close(answer(80.0, volumes, 0.5), [0.0, 20.0, 15.0, 20.0])
    close(volumes, [0.0, 60.0, 30.0, 400.0], "the function changed volumes, which it was given: it")


@case("count_steps")
def windows_of_the_text(answer):
    """The windows of the text have 2, 2 and 1 steps."""
    close([answer(3, 6, 2), answer(3, 5, 2), answer(7, 8, 2)], [2, 2, 1])


@case("count_steps")
def whole_sessions(answer):
    """A whole session of 48 ticks in steps of 6 has 8 steps; the last may be short."""
    close([answer(0, 48, 6), answer(0, 49, 6), answer(0, 1, 6)], [8, 9, 1])


@case("count_steps")
def one_tick_a_step(answer):
    """With one tick a step there are as many steps as ticks."""
    close([answer(5, 9, 1), answer(0, 3, 1)], [4, 3])


@case("count_steps")
def as_the_engine(answer):
    """The number is the engine's for any window."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        start, size, width = (int(number) for number in rng.integers(1, 40, 3))
        first = start // width
        wanted = len({tick // width - first for tick in range(start, start + size)})
        close(answer(start, start + size, width), wanted, f"ticks {start} to {start + size}, {width} a step")


def worked(kind, requests, *, side=Direction.BUY, orders=1, rules=None):
    engine = Engine(small_market(PRICES), 2, rules)
    day = pd.Timestamp("2024-01-02")
    late = day + pd.Timedelta("10:20:00")
    table = [Order("TOY", day, side, 800.0), Order("TOY", day, side, 400.0, late)][:orders]
    simulator = kind(engine)
    states = [simulator.start(table, np.zeros(orders, dtype=np.uint64))]
    for request in requests:
        states.append(simulator.step(states[-1], np.full(orders, float(request))))
    return states


@case("Sticky")
def half_is_filled(answer):
    """200 asked in each of four steps fill 100, 100, 100, and all that is left."""
    assert issubclass(answer, OrderExecution), "it is not a subclass of OrderExecution"
    last = worked(answer, [200, 200, 200, 200])[-1]
    close(last.known.fill_history[0], [100.0, 100.0, 100.0, 500.0], "the fills")


@case("Sticky")
def the_last_step_is_not_halved(answer):
    """The last step fills all that is asked for, where nothing forces an order to its end."""
    last = worked(answer, [200, 0, 40, 300], rules=ExecutionRules(complete_at_end=False))[-1]
    close(last.known.fill_history[0], [100.0, 0.0, 20.0, 300.0], "the fills")


@case("Sticky")
def each_order_has_its_own_last_step(answer):
    """Of two orders each has a last step of its own, and a state that is stepped from stays as it is."""
    states = worked(answer, [100, 200], orders=2)
    close(states[-1].known.position, [650.0, 0.0], "what is left")
    close(states[0].known.position, [800.0, 400.0], "the state that was stepped from has changed: what was left")
