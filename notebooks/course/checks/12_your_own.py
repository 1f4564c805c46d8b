"""Checks of notebook 12: one point a case."""

import gymnasium as gym
import numpy as np

from rlwb.course import case, close, small_market
from rlwb.execution import Direction, Engine, Order, OrderExecution

_MARKET = small_market([100.0, 101.0, 99.0, 102.0, 100.0], [100.0, 300.0, 50.0, 50.0, 100.0])
_VWAP = (100 * 100 + 101 * 300 + 99 * 50 + 102 * 50 + 100 * 100) / 600
_ENGINE = Engine(_MARKET, ticks_per_step=1)


def _state(asks, *, start=None, amounts=(10.0, 10.0)):
    """Return the state of a buy and a sell after steps that asked for these amounts, of shape (steps, 2)."""
    simulator, sides = OrderExecution(_ENGINE), (Direction.BUY, Direction.SELL)
    orders = [
        Order("TOY", "2024-01-02", side, amount, start=start) for side, amount in zip(sides, amounts, strict=True)
    ]
    state = simulator.start(orders, np.zeros(2, dtype=np.uint64))
    for ask in asks:
        state = simulator.step(state, np.array(ask, dtype=float))
    return state


@case("OverVWAP")
def a_sell(answer):
    """A fifth that is sold at 100 where VWAP is 100.58 is worth -11.60, and a step without a fill 0."""
    state = _state([(0.0, 2.0)])
    close(answer().reward(state.outcome), [0.0, (100 / _VWAP - 1) * 1e4 * 0.2], "the reward")


@case("OverVWAP")
def both(answer):
    """A buy and a sell of the same step have opposite signs, each by its own share."""
    outcome = _state([(0.0, 0.0), (5.0, 1.0)], amounts=(10.0, 4.0)).outcome
    gain = (101 / _VWAP - 1) * 1e4
    close(answer().reward(outcome), [-gain * 0.5, gain * 0.25], "the reward")


@case("OverVWAP")
def share_of_the_order(answer):
    """The share is that of the whole order, and of this step alone."""
    outcome = _state([(4.0, 4.0), (0.0, 0.0), (3.0, 6.0)]).outcome
    gain = (1 - 99 / _VWAP) * 1e4
    close(answer().reward(outcome), [gain * 0.3, -gain * 0.6], "the reward")


@case("OverVWAP")
def one_number_each(answer):
    """One finite number an order, and for an order alone what it earns in a batch."""
    outcome = _state([(5.0, 1.0)], amounts=(10.0, 4.0)).outcome
    together = np.asarray(answer().reward(outcome), dtype=float)
    for row in range(2):
        close(answer().reward(outcome[row : row + 1]), together[row : row + 1], "the reward of an order alone")


def _amounts(interpreter, known, action):
    return np.asarray(interpreter.interpret(known, np.asarray(action)), dtype=float)


@case("Halves")
def a_quarter(answer):
    """Action 3 trades a quarter of what is left, action 0 nothing."""
    known = _state([(2.0, 6.0)]).known
    close(_amounts(answer(5), known, [3, 0]), [2.0, 0.0], "the amount")


@case("Halves")
def all_and_half(answer):
    """Action 1 trades all that is left, action 2 a half, action 6 a thirty-second."""
    known = _state([(2.0, 6.0)]).known
    close(_amounts(answer(7), known, [1, 2]), [8.0, 2.0], "the amount")
    close(_amounts(answer(7), known, [6, 6]), [0.25, 0.125], "the amount")


@case("Halves")
def last_step(answer):
    """In the last step every action trades everything that is left."""
    known = _state([(2.0, 6.0), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0)]).known
    close(_amounts(answer(4), known, [0, 3]), [7.0, 3.0], "the amount")


@case("Halves")
def its_actions(answer):
    """The action space has `count` actions, 5 unless it is told."""
    assert answer().action_space.n == 5, f"Halves() has {answer().action_space.n} actions; 5 are needed"
    for count in (3, 6):
        space = answer(count).action_space
        assert isinstance(space, gym.spaces.Discrete), f"the action space is {space}; a Discrete is needed"
        assert space.n == count, f"the action space has {space.n} actions; {count} are needed"
        assert space.start == 0, f"the first action is {space.start}; 0 is needed"


@case("Halves")
def keeps_its_promises(answer):
    """No amount is below 0 or above the position, and an order alone is treated as in a batch."""
    state, interpreter = _state([(2.0, 6.0)]), answer(5)
    for action in range(5):
        together = _amounts(interpreter, state.known, [action, action])
        assert (together >= 0).all(), f"action {action} trades {together.min():g}"
        assert (together <= state.known.position).all(), f"action {action} trades more than is left"
        for row in range(2):
            alone = _amounts(interpreter, state.known[row : row + 1], [action])
            close(alone, together[row : row + 1], "the amount of an order alone")


@case("Bargain")
def faster_and_slower(answer):
    """After a rise a sell hurries and a buy slows down; after a fall the other way round."""
    policy = answer(_ENGINE)
    close(policy.act(_state([(0.0, 0.0), (0.0, 0.0)]).known), [10 / 3 / 2, 20 / 3], "after a rise")
    close(policy.act(_state([(0.0, 0.0)] * 3).known), [10.0, 2.5], "after a fall")


@case("Bargain")
def nothing_better(answer):
    """Without a price yet, and where it is the first one again, the order trades half of the even amount."""
    policy = answer(_ENGINE)
    close(policy.act(_state([]).known), [1.0, 1.0], "before the first bar")
    close(policy.act(_state([(0.0, 0.0)]).known), [1.25, 1.25], "after the first bar")


@case("Bargain")
def from_the_window_on(answer):
    """The first price is that of the order's window, and no price before the window counts."""
    policy = answer(_ENGINE)
    close(policy.act(_state([], start="10:05").known), [1.25, 1.25], "before the window's first bar")
    close(policy.act(_state([(0.0, 0.0), (0.0, 0.0)], start="10:05").known), [10.0, 2.5], "after a fall in the window")
    close(policy.act(_state([(0.0, 0.0)], start="10:10").known), [2.5, 2.5], "after one bar of the window")


@case("Bargain")
def never_too_much(answer):
    """It never asks for more than is left, and for all of it at the end."""
    policy = answer(_ENGINE)
    close(
        policy.act(_state([(4.0, 4.0), (0.0, 0.0), (0.0, 0.0)], amounts=(10.0, 6.0)).known), [6.0, 0.5], "after a fall"
    )
    close(policy.act(_state([(4.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]).known), [6.0, 9.0], "in the last step")
    known = _state([(9.0, 9.5), (0.0, 0.0), (0.0, 0.0)]).known
    close(policy.act(known), [1.0, 0.125], "with little left")
