"""Checks of notebook 04: one point a case."""

import gymnasium as gym
import numpy as np
import pandas as pd

from rlwb.course import case, close, small_market
from rlwb.execution import Direction, Engine, Order, OrderExecution

CLOSES = np.array([100.0, 101.0, 99.0, 98.0, 100.0, 102.0, 101.0, 99.0])


def known_after(*requests):
    """Return what is known of an order of 800 shares with four steps, and of one of 90 with two, after some steps."""
    day = pd.Timestamp("2024-01-02")
    late = [day + pd.Timedelta(time) for time in ("10:20:00", "10:40:00")]
    table = [Order("TOY", day, Direction.BUY, 800.0), Order("TOY", day, Direction.SELL, 90.0, *late)]
    simulator = OrderExecution(Engine(small_market(CLOSES), 2))
    state = simulator.start(table, np.zeros(2, dtype=np.uint64))
    for request in requests:
        state = simulator.step(state, np.array(request, dtype=float))
    return state.known


@case("return_so_far")
def the_example(answer):
    """The close of tick 2 is known at tick 3: 99 after 100 is -100 bp."""
    close(answer(CLOSES, 3), -100.0)


@case("return_so_far")
def before_there_is_one(answer):
    """Before the second close is known there is no return."""
    close([answer(CLOSES + 7, 0), answer(CLOSES + 7, 1)], [0.0, 0.0])
    close(answer(np.array([50.0, 51.0, np.nan]), 2), 200.0)


@case("return_so_far")
def the_future_does_not_matter(answer):
    """Whatever comes at and after the tick changes nothing."""
    for tick in range(2, 8):
        wanted = (CLOSES[tick - 1] / 100.0 - 1.0) * 1e4
        for future in (np.nan, 0.0, 1e9):
            seen = np.where(np.arange(8) < tick, CLOSES, future)
            close(answer(seen, tick), wanted, f"the return at tick {tick}")


@case("return_so_far")
def to_the_end(answer):
    """When the day is over all closes are known, and the first one counts, whatever it is."""
    close(answer(2.0 * CLOSES, 8), -100.0)
    close(answer(np.array([80.0, 90.0]), 2), 1250.0)


@case("TimeAndInventory")
def the_space(answer):
    """The space has two numbers from 0 to 1."""
    found, wanted = answer().observation_space, gym.spaces.Box(0, 1, (2,), np.float32)
    assert found == wanted, f"the space is {found}; {wanted} is needed"


@case("TimeAndInventory")
def at_the_start(answer):
    """All time and all shares are left at the start, in float32, a row an order."""
    seen = answer().interpret(known_after())
    close(seen, [[1.0, 1.0], [1.0, 1.0]], "the observations")
    assert np.asarray(seen).dtype == np.float32, "the observations are not float32"


@case("TimeAndInventory")
def on_the_way(answer):
    """After one step the orders stand at their own time and amount."""
    close(answer().interpret(known_after([200, 60])), [[0.75, 0.75], [0.5, 1 / 3]], "the observations", 1e-6)
    close(answer().interpret(known_after([200, 60], [300, 30]))[0], [0.5, 0.375], "the observation", 1e-6)


@case("FourSpeeds")
def the_choices(answer):
    """There are four choices."""
    found, wanted = answer().action_space, gym.spaces.Discrete(4)
    assert found == wanted, f"the space is {found}; {wanted} is needed"


@case("FourSpeeds")
def each_speed(answer):
    """With 600 shares left and three steps to go the choices mean 0, 200, 400 and 600."""
    known = known_after([200, 10])
    for choice, amount in enumerate((0.0, 200.0, 400.0, 600.0)):
        close(answer().interpret(known, np.array([choice, choice]))[0], amount, f"the amount of choice {choice}")


@case("FourSpeeds")
def to_the_last_share(answer):
    """In its last step an order trades all that is left, whatever is chosen; others do not."""
    known = known_after([200, 10])
    close(answer().interpret(known, np.array([0, 0])), [0.0, 80.0], "the amounts")
    alone = known_after([200, 10], [0, 80], [100, 0])[[0]]
    close(answer().interpret(alone, np.array([1])), [500.0], "the amounts")


@case("FourSpeeds")
def never_more_than_is_left(answer):
    """Three times the even rate of two steps would be more than there is."""
    known = known_after([0, 0], [0, 90])[[0]]
    close(answer().interpret(known, np.array([2])), [800.0], "the amounts")
    close(answer().interpret(known, np.array([3])), [800.0], "the amounts")
    close(answer().interpret(known_after(), np.array([1, 2])), [200.0, 90.0], "the amounts")
