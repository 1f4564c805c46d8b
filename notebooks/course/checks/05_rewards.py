"""Checks of notebook 05: one point a case."""

import numpy as np
import pandas as pd

from rlwb.course import case, close, small_market
from rlwb.execution import Direction, Engine, Order, OrderExecution
from rlwb.reward import Reward


@case("tick_rewards")
def the_example(answer):
    """Half of a buy at 98.5 where TWAP is 100 earns 75 bp, half at 100 nothing."""
    close(answer(np.array([400.0, 400.0]), np.array([98.5, 100.0]), 800.0, 100.0, 1), [75.0, 0.0])


@case("tick_rewards")
def a_sell(answer):
    """A sell earns where the price is above TWAP."""
    close(answer(np.array([10.0, 30.0]), np.array([51.0, 49.0]), 40.0, 50.0, -1), [50.0, -150.0])


@case("tick_rewards")
def ticks_without_a_fill(answer):
    """A tick without a fill earns 0, with a price or without; parts of a share count, and what is not filled."""
    fills, prices = np.array([0.0, 25.0, 0.0]), np.array([np.nan, 8.0, 1.0])
    close(answer(fills, prices, 100.0, 10.0, 1), [0.0, 500.0, 0.0])
    close(answer(np.array([0.5, 0.0]), np.array([8.0, np.nan]), 2.0, 10.0, 1), [500.0, 0.0])
    close(prices, [np.nan, 8.0, 1.0], "the function changed prices, which it was given: it")


@case("speed_penalty")
def halves(answer):
    """Two halves at 20 bp cost 10 bp."""
    close(answer(np.array([[400.0, 400.0, 0.0, 0.0]]), np.array([800.0]), 20.0), [10.0])


@case("speed_penalty")
def an_order_a_row(answer):
    """Each order has its own amount, and what was not filled costs nothing."""
    fills = np.array([[1.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    close(answer(fills, np.array([4.0, 6.0]), 8.0), [8.0 * 6 / 16, 2.0])
    close(fills, [[1.0, 1.0, 2.0], [3.0, 0.0, 0.0]], "the function changed fills, which it was given: it")


@case("speed_penalty")
def evenly(answer):
    """Evenly in n ticks costs an n-th of the penalty."""
    for ticks in (1, 5, 48):
        close(answer(np.full((2, ticks), 6.0 / ticks), np.array([6.0, 6.0]), 30.0), [30.0 / ticks] * 2)


def outcomes(requests, closes):
    """Return the outcome of each step of a buy of 800 and a sell of 400."""
    simulator = OrderExecution(Engine(small_market(closes), 2))
    day = pd.Timestamp("2024-01-02")
    orders = [Order("TOY", day, Direction.BUY, 800.0), Order("TOY", day, Direction.SELL, 400.0)]
    state = simulator.start(orders, np.zeros(2, dtype=np.uint64))
    for request in requests:
        state = simulator.step(state, np.array(request, dtype=float))
        yield state.outcome


CLOSES = [100, 101, 99, 98, 100, 102, 101, 99]


@case("AgainstArrival")
def the_example_of_the_text(answer):
    """A buy that came at 100 and fills half at 98.5 earns 75 bp."""
    assert issubclass(answer, Reward), "it is not a subclass of Reward"
    _, second = outcomes([(0, 400), (400, 0)], CLOSES)
    close(answer().reward(second)[0], 75.0, "the reward")


@case("AgainstArrival")
def each_step_and_order(answer):
    """Buys and sells earn in the steps that fill, and nothing in the others."""
    found = [answer().reward(one) for one in outcomes([(400, 0), (0, 100), (400, 0)], CLOSES)]
    close(found[0], [-25.0, 0.0], "the rewards of the first step")
    close(found[1], [0.0, -37.5], "the rewards of the second step")
    close(found[2], [-50.0, 0.0], "the rewards of the third step")


@case("AgainstArrival")
def not_against_twap(answer):
    """The arrival price counts, wherever TWAP is, and a fill may be a part of a share."""
    (first,) = outcomes([(800, 100)], [200, 198, 150, 150, 150, 150, 150, 150])
    close(answer().reward(first), [50.0, -12.5], "the rewards")
    (little,) = outcomes([(0.8, 0)], [200, 198, 150, 150, 150, 150, 150, 150])
    close(answer().reward(little), [0.05, 0.0], "the rewards")
