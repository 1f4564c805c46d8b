"""Checks of notebook 02: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("discounted_returns")
def the_example(answer):
    """Rewards 1, 1, 1 with a discount of 0.9 return 2.71, 1.9 and 1."""
    close(answer(np.array([1.0, 1.0, 1.0]), 0.9), [2.71, 1.9, 1.0])


@case("discounted_returns")
def without_a_discount(answer):
    """Without a discount the return is the sum of what is still to come."""
    close(answer(np.array([1.0, -2.0, 4.0, 0.5]), 1.0), [3.5, 2.5, 4.5, 0.5])


@case("discounted_returns")
def the_next_reward_alone(answer):
    """With a discount of 0 only the next reward counts, and rewards stay as they were."""
    rewards = np.array([3.0, -1.0, 2.0])
    close(answer(rewards, 0.0), [3.0, -1.0, 2.0])
    answer(rewards, 0.5)
    close(rewards, [3.0, -1.0, 2.0], "the function changed rewards, which it was given: it")


@case("discounted_returns")
def a_reward_far_away(answer):
    """A reward counts half as much for each step that it is away, at a discount of a half."""
    close(answer(np.array([0.0, 0.0, 0.0, 0.0, 32.0]), 0.5), [2.0, 4.0, 8.0, 16.0, 32.0])


@case("targets")
def an_end_and_none(answer):
    """What is seen after an end is worth nothing."""
    close(answer(np.array([1.0, 1.0]), np.array([80.0, 80.0]), np.array([False, True]), 0.99), [80.2, 1.0])


@case("targets")
def a_value_below_zero(answer):
    """Values may be negative, and each step has its own."""
    rewards, values = np.array([0.0, 2.0, -1.0]), np.array([-4.0, 6.0, 10.0])
    close(answer(rewards, values, np.array([False, False, True]), 0.5), [-2.0, 5.0, -1.0])


@case("targets")
def nothing_seen_after_an_end(answer):
    """A value that is missing after an end does no harm, and nothing that is handed in changes."""
    rewards, values = np.array([3.0, 1.0]), np.array([np.nan, 1.0])
    close(answer(rewards, values, np.array([True, False]), 0.9), [3.0, 1.9])
    close(rewards, [3.0, 1.0], "the function changed rewards, which it was given: it")
    close(values, [np.nan, 1.0], "the function changed next_values, which it was given: it")


@case("q_update")
def the_example_of_the_table(answer):
    """The entry of the state and the action moves, the others stay."""
    q = np.array([[0.0, 0.0], [2.0, 4.0]])
    close(answer(q, 0, 1, 1.0, 1, False, 0.5, 0.5), [[0.0, 1.5], [2.0, 4.0]])


@case("q_update")
def the_end(answer):
    """After an end the target is the reward alone."""
    q = np.array([[1.0, 5.0], [2.0, 4.0]])
    close(answer(q, 1, 0, 10.0, 0, True, 0.25, 0.9), [[1.0, 5.0], [4.0, 4.0]])


@case("q_update")
def a_new_table(answer):
    """The given table stays as it is."""
    q = np.array([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0], [0.0, 0.0, 0.0]])
    close(answer(q, 2, 2, -1.0, 1, False, 0.1, 1.0), [[1.0, 2.0, 3.0], [6.0, 5.0, 4.0], [0.0, 0.0, 0.5]])
    close(q, [[1.0, 2.0, 3.0], [6.0, 5.0, 4.0], [0.0, 0.0, 0.0]], "the function changed q, which it was given: it")


@case("q_update")
def to_oneself(answer):
    """A step may lead back to its own state."""
    close(answer(np.array([[8.0, 2.0]]), 0, 0, 1.0, 0, False, 0.5, 0.5), [[6.5, 2.0]])
