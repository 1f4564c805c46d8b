"""Checks of notebook 10: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("net_pa")
def a_sell(answer):
    """A sell at 101 with TWAP 100, 2 bp commission and 5 bp tax has 92.93 bp."""
    close(answer(101.0, 100.0, -1, commission=2.0, sell_tax=5.0), (101 * (1 - 7e-4) / 100 - 1) * 1e4)


@case("net_pa")
def a_buy(answer):
    """A buy at 99 with TWAP 100 and 1 bp commission has 99.01 bp, and pays no tax on sells."""
    close(answer(99.0, 100.0, 1, commission=1.0), 99.01)
    close(answer(99.0, 100.0, 1, commission=1.0, sell_tax=8.0), 99.01)


@case("net_pa")
def no_costs(answer):
    """Without costs it is the PA."""
    close(answer(99.0, 100.0, 1), 100.0)
    close(answer(98.0, 100.0, -1), -200.0)


@case("net_pa")
def all_costs(answer):
    """All costs add up, in the order commission, half spread, tax."""
    close(answer(50.0, 49.0, -1, 1.0, 2.0, 4.0), (50 * (1 - 7e-4) / 49 - 1) * 1e4)
    close(answer(50.0, 49.0, 1, 1.0, 2.0, 4.0), (1 - 50 * (1 + 3e-4) / 49) * 1e4)


@case("net_pa")
def many(answer):
    """Arrays of orders give arrays, and stay as they are."""
    paid, twap, side = np.array([99.0, 101.0, 50.0]), np.array([100.0, 100.0, 50.0]), np.array([1, -1, -1])
    wanted = [100 - 99 * 0.03, 100 - 101 * 0.08, -8.0]
    close(answer(paid, twap, side, half_spread=3.0, sell_tax=5.0), wanted, "the net PA")
    close(paid, [99.0, 101.0, 50.0], "paid after the call")


@case("capped_fills")
def the_table(answer):
    """Three asks of 10 under 10 % of 100, 50 and 200 fill 10, 5 and 15."""
    close(answer(np.array([10.0, 10.0, 10.0]), np.array([100.0, 50.0, 200.0]), 0.1), [10, 5, 15], "the fill")


@case("capped_fills")
def all_at_once(answer):
    """What is asked for at once fills as room comes, and the rest stays open."""
    close(answer(np.array([30.0, 0.0, 0.0]), np.array([100.0, 0.0, 40.0]), 0.25), [25, 0, 5], "the fill")
    close(answer(np.array([30.0, 0.0, 0.0]), np.array([40.0, 20.0, 40.0]), 0.25), [10, 5, 10], "the fill")


@case("capped_fills")
def room_is_not_kept(answer):
    """Room that is not used is gone."""
    close(answer(np.array([0.0, 8.0, 2.0]), np.array([100.0, 5.0, 100.0]), 1.0), [0, 5, 5], "the fill")


@case("capped_fills")
def asks_stay(answer):
    """The arguments are not changed, and whole numbers are no trouble."""
    asks, volumes = np.array([9, 9]), np.array([10, 100])
    close(answer(asks, volumes, 0.5), [5, 13], "the fill")
    close(asks, [9, 9], "asks after the call")
    close(volumes, [10, 100], "volumes after the call")


@case("seen")
def on_time(answer):
    """On time the bars before the tick are known."""
    close(answer(np.array([1.0, 2.0, 3.0, 4.0]), 3, 0), [1, 2, 3, np.nan], "what is seen")


@case("seen")
def one_late(answer):
    """One bar late the last of them is missing."""
    close(answer(np.array([1.0, 2.0, 3.0, 4.0]), 3, 1), [1, 2, np.nan, np.nan], "what is seen")


@case("seen")
def nothing_yet(answer):
    """Early in the day, or with a very late feed, nothing is known."""
    close(answer(np.array([1.0, 2.0, 3.0]), 0, 0), [np.nan] * 3, "what is seen")
    close(answer(np.array([1.0, 2.0, 3.0]), 1, 2), [np.nan] * 3, "what is seen")
    close(answer(np.array([1.0, 2.0, 3.0]), 1, 5), [np.nan] * 3, "what is seen")


@case("seen")
def too_early(answer):
    """A wrong label shows more than should be known, but no more than there is."""
    close(answer(np.array([1.0, 2.0, 3.0, 4.0]), 1, -1), [1, 2, np.nan, np.nan], "what is seen")
    close(answer(np.array([1.0, 2.0, 3.0, 4.0]), 3, -4), [1, 2, 3, 4], "what is seen")


@case("seen")
def prices_stay(answer):
    """The prices that are given stay, and whole numbers are no trouble."""
    close_, whole = np.array([1.0, 2.0, 3.0]), np.array([7, 8, 9])
    answer(close_, 1, 0)
    close(close_, [1, 2, 3], "close after the call")
    close(answer(whole, 2, 0), [7, 8, np.nan], "what is seen")
