"""Checks of notebook 06: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("advantages")
def the_example(answer):
    """The example of the text gives 2.5, 1 and -2."""
    close(answer(np.array([0.0, 10.0, -4.0]), np.array([4.0, 6.0, -2.0]), 1.0, 0.5), [2.5, 1.0, -2.0])


@case("advantages")
def the_critic_s_word(answer):
    """With a weight of 0 it is the next reward and the discounted next value, less the value."""
    close(answer(np.array([1.0, 2.0]), np.array([4.0, 8.0]), 0.5, 0.0), [1.0, -6.0])


@case("advantages")
def the_whole_return(answer):
    """With a weight of 1 it is the discounted return less the value, and nothing that is handed in changes."""
    rewards, values = np.array([4.0, 0.0, 0.0, 16.0]), np.array([1.0, 2.0, 3.0, 4.0])
    close(answer(rewards, values, 0.5, 1.0), [5.0, 2.0, 5.0, 12.0])
    close(rewards, [4.0, 0.0, 0.0, 16.0], "the function changed rewards, which it was given: it")
    close(values, [1.0, 2.0, 3.0, 4.0], "the function changed values, which it was given: it")


@case("advantages")
def discount_and_weight(answer):
    """Discount and weight both count."""
    close(answer(np.array([0.0, 0.0, 100.0]), np.zeros(3), 0.5, 0.4), [4.0, 20.0, 100.0])


def counted(answer, ratio, advantage, clip=0.2):
    old = np.full(len(ratio), -1.25)
    return answer(old + np.log(ratio), old, np.array(advantage), clip)


@case("clipped_objective")
def a_good_decision(answer):
    """A good decision counts up to a ratio of 1.2; one that has become rarer counts in full."""
    close(counted(answer, [1.5], [10.0]), 12.0)
    close(counted(answer, [0.5], [10.0]), 5.0)
    close(counted(answer, [1.1], [10.0]), 11.0)


@case("clipped_objective")
def a_bad_decision(answer):
    """A bad decision counts down to a ratio of 0.8; one that has become more probable counts in full."""
    close(counted(answer, [0.5], [-10.0]), -8.0)
    close(counted(answer, [1.5], [-10.0]), -15.0)


@case("clipped_objective")
def the_mean(answer):
    """Many decisions are averaged, with any clip."""
    close(counted(answer, [2.0, 0.1, 1.0, 3.0], [1.0, -1.0, 4.0, -2.0], 0.5), (1.5 - 0.5 + 4.0 - 6.0) / 4)


@case("entropies")
def all_alike(answer):
    """Where n actions are alike the entropy is ln n."""
    close(answer(np.zeros((1, 5))), [np.log(5)])
    close(answer(np.full((2, 3), 7.0)), [np.log(3)] * 2)


@case("entropies")
def by_hand(answer):
    """Scores ln 1 and ln 3 have probabilities of a quarter and three quarters."""
    wanted = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    scores = np.log(np.array([[1.0, 3.0], [30.0, 10.0]]))
    close(answer(scores), [wanted, wanted])


@case("entropies")
def large_scores(answer):
    """Large scores do no harm; a certain action has the entropy 0, and the scores stay as they were."""
    scores = np.array([[1000.0, 1000.0, -1000.0], [2000.0, 0.0, 0.0]])
    close(answer(scores), [np.log(2), 0.0])
    before = [[1000.0, 1000.0, -1000.0], [2000.0, 0.0, 0.0]]
    close(scores, before, "the function changed scores, which it was given: it")
