"""Checks of notebook 08: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("oracle_ticks")
def both_sides(answer):
    """A buy takes the cheapest tick and a sell the dearest."""
    price = np.array([[100.0, 99.0, 101.0], [100.0, 99.0, 101.0]])
    close(answer(price, np.array([1, -1])), [1, 2], "the tick")


@case("oracle_ticks")
def many(answer):
    """Each order has its own prices and its own side."""
    rng = np.random.default_rng(5)
    price, side = 100 + rng.normal(size=(30, 7)), np.where(np.arange(30) % 3, 1, -1)
    wanted = [int(np.argmin(row)) if one > 0 else int(np.argmax(row)) for row, one in zip(price, side, strict=True)]
    got = np.asarray(answer(price, side))
    assert np.issubdtype(got.dtype, np.integer), f"the ticks are {got.dtype}; whole numbers are needed"
    close(got, wanted, "the tick")


@case("oracle_ticks")
def no_price(answer):
    """Ticks without a price are never chosen, and prices stay as they are."""
    nan = np.nan
    price = np.array([[nan, 5.0, 4.0, nan], [nan, 5.0, 4.0, nan], [7.0, nan, nan, nan]])
    close(answer(price, np.array([1, -1, -1])), [2, 1, 0], "the tick")
    close(price[0], [nan, 5.0, 4.0, nan], "price after the call")


@case("oracle_ticks")
def equal_prices(answer):
    """Of equal prices the first is taken."""
    price = np.array([[2.0, 1.0, 1.0, 3.0, 3.0], [2.0, 1.0, 1.0, 3.0, 3.0]])
    close(answer(price, np.array([1, -1])), [1, 3], "the tick")


@case("distillation_loss")
def a_coin(answer):
    """Equal scores of two actions cost log 2."""
    close(answer(np.array([[0.0, 0.0]]), np.array([1])), np.log(2))


@case("distillation_loss")
def by_hand(answer):
    """A chance of one quarter costs log 4, of three quarters log 4/3."""
    scores = np.log([[1.0, 3.0], [1.0, 3.0], [3.0, 1.0]])
    close(answer(scores, np.array([0, 1, 0])), (np.log(4) + 2 * np.log(4 / 3)) / 3)


@case("distillation_loss")
def a_shift(answer):
    """A number that is added to all scores of a state changes nothing."""
    scores, teacher = np.array([[1.0, -2.0, 0.5], [0.3, 0.1, -4.0]]), np.array([2, 0])
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    wanted = -np.log([chances[0, 2], chances[1, 0]]).mean()
    close(answer(scores, teacher), wanted)
    close(answer(scores + np.array([[3.0], [-7.0]]), teacher), wanted)


@case("distillation_loss")
def large_scores(answer):
    """Scores of 1000 do not overflow, and scores stay as they are."""
    scores = np.array([[1000.0, 0.0], [0.0, 1000.0], [-1000.0, -1000.0]])
    with np.errstate(all="ignore"):
        close(answer(scores, np.array([0, 0, 1])), (0.0 + 1000.0 + np.log(2)) / 3)
    close(scores[0], [1000.0, 0.0], "scores after the call")


@case("heard")
def three_paths(answer):
    """Three paths in two of three states give [0.25, nan, 1]."""
    got = answer(np.array([True, False, True]), np.array([0, 0, 2]), np.array([0.1, 0.3, 0.6]), 3)
    close(got, [0.25, np.nan, 1.0], "the share")


@case("heard")
def no_chance(answer):
    """Paths without a chance are not heard."""
    got = answer(np.array([True, True, False]), np.array([1, 0, 0]), np.array([0.0, 0.5, 0.5]), 2)
    close(got, [0.5, np.nan], "the share")


@case("heard")
def many_paths(answer):
    """Many paths count by their chances, whatever these sum up to."""
    rng = np.random.default_rng(6)
    says, state, chance = rng.random(200) < 0.4, rng.integers(0, 5, 200), 3 * rng.random(200)
    wanted = [chance[(state == one) & says].sum() / chance[state == one].sum() for one in range(5)]
    close(answer(says, state, chance, 5), wanted, "the share")


@case("heard")
def more_states(answer):
    """There is a number for every state, and the arguments stay."""
    says, chance = np.array([True]), np.array([0.5])
    close(answer(says, np.array([0]), chance, 4), [1.0, np.nan, np.nan, np.nan], "the share")
    close(chance, [0.5], "chance after the call")
