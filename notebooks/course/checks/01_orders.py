"""Checks of notebook 01: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("price_advantage")
def a_cheap_buy(answer):
    """A buy at 99.25 where TWAP is 100 gains 75 bp."""
    close(answer(99.25, 100.0, 1), 75.0)


@case("price_advantage")
def a_cheap_sell(answer):
    """A sell at 49.5 where TWAP is 50 loses 100 bp."""
    close(answer(49.5, 50.0, -1), -100.0)


@case("price_advantage")
def many_orders(answer):
    """Arrays of orders give an array of price advantages."""
    paid, twap, side = np.array([10.0, 10.0, 20.4]), np.array([10.0, 12.5, 20.0]), np.array([1, 1, -1])
    close(answer(paid, twap, side), [0.0, 2000.0, 200.0])


@case("average_price")
def two_fills(answer):
    """100 shares at 10 and 300 at 20 were paid 17.5 on average."""
    close(answer(np.array([100.0, 300.0]), np.array([10.0, 20.0])), 17.5)


@case("average_price")
def a_tick_without_a_price(answer):
    """A tick without a price, and one without a fill, do not count."""
    fills, prices = np.array([0.0, 50.0, 0.0, 150.0]), np.array([np.nan, 8.0, 1000.0, 12.0])
    close(answer(fills, prices), 11.0)


@case("average_price")
def nothing_filled(answer):
    """Where nothing was filled there is no price."""
    close(answer(np.zeros(3), np.array([1.0, 2.0, 3.0])), np.nan)


@case("average_price")
def less_than_a_share(answer):
    """Fills may be less than a share in all, and what is handed in stays as it was."""
    fills, prices = np.array([0.25, 0.0, 0.25]), np.array([4.0, np.nan, 6.0])
    close(answer(fills, prices), 5.0)
    close(fills, [0.25, 0.0, 0.25], "the function changed fills, which it was given: it")
    close(prices, [4.0, np.nan, 6.0], "the function changed prices, which it was given: it")


@case("even_schedule")
def the_example(answer):
    """10 shares in 4 steps are 2, 3, 2 and 3."""
    close(answer(10, 4), [2, 3, 2, 3])


@case("even_schedule")
def evenly_divisible(answer):
    """800 shares in 8 steps are 100 each."""
    close(answer(800, 8), np.full(8, 100))


@case("even_schedule")
def fewer_shares_than_steps(answer):
    """3 shares in 7 steps trade when a whole share is due, the last one at the end."""
    close(answer(3, 7), [0, 0, 1, 0, 1, 0, 1])


@case("even_schedule")
def all_shares_whole(answer):
    """Any amount is traded to the last share, in whole shares."""
    for amount, steps in ((1, 1), (99, 10), (12_345, 17), (5, 1)):
        found = np.asarray(answer(amount, steps), dtype=float)
        close(found.sum(), amount, f"the sum of {amount} shares in {steps} steps")
        close(found, np.floor(found), f"a step of {amount} shares in {steps} steps")
        close(len(found), steps, "the number of steps")
