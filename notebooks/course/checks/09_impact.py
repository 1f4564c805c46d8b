"""Checks of notebook 09: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("impact_cost")
def four_quarters(answer):
    """Four quarters under 60 bp temporary and 10 bp permanent impact cost 18.75 bp."""
    close(answer(np.full(4, 0.25), 60.0, 10.0), 18.75)


@case("impact_cost")
def incomplete(answer):
    """The first two of the quarters alone cost 8.125 bp."""
    close(answer(np.array([0.25, 0.25]), 60.0, 10.0), 8.125)


@case("impact_cost")
def uneven(answer):
    """Uneven shares count as they are, and in their order."""
    close(answer(np.array([0.5, 0.0, 0.3, 0.2]), 40.0, 20.0), 0.38 * 40 + (0.3 * 0.5 + 0.2 * 0.8) * 20)


@case("impact_cost")
def single_impacts(answer):
    """Each impact counts by itself."""
    shares = np.array([0.7, 0.3])
    close(answer(shares, 100.0, 0.0), 58.0)
    close(answer(shares, 0.0, 100.0), 21.0)
    close(shares, [0.7, 0.3], "shares after the call")


@case("almgren_chriss")
def three_ticks(answer):
    """Three ticks with kappa 1 trade 0.638, 0.245 and 0.117."""
    left = np.sinh([3.0, 2.0, 1.0, 0.0]) / np.sinh(3.0)
    close(answer(3, 1.0), left[:-1] - left[1:], "the share")


@case("almgren_chriss")
def even(answer):
    """With kappa 0 every tick trades the same."""
    close(answer(5, 0.0), np.full(5, 0.2), "the share")
    close(answer(1, 0.0), np.ones(1), "the share")


@case("almgren_chriss")
def is_optimal(answer):
    """What is left obeys the equation of the best schedule, and all is traded."""
    shares = np.asarray(answer(8, 0.4))
    close(shares.sum(), 1.0, "the sum of the shares")
    left = np.append(1.0, 1.0 - shares.cumsum())
    close(left[:-2] + left[2:], 2 * np.cosh(0.4) * left[1:-1], "the sum of what is left a tick before and after", 1e-8)


@case("almgren_chriss")
def one_tick(answer):
    """A single tick trades everything."""
    close(answer(1, 2.0), np.ones(1), "the share")


@case("transient_cost")
def three_fills(answer):
    """The shares 0.4, 0.2, 0.4 with moves of 120 bp that halve cost 36 bp."""
    close(answer(np.array([0.4, 0.2, 0.4]), 120.0, 0.5), 36.0)


@case("transient_cost")
def thirds(answer):
    """Three thirds cost 36.67 bp, as in the table."""
    close(answer(np.full(3, 1 / 3), 120.0, 0.5), 60 * 5.5 / 9)


@case("transient_cost")
def limits(answer):
    """If nothing is left of a move a fill pays half of its own; if all is left an order pays half of its whole move."""
    shares = np.array([0.5, 0.3, 0.2])
    close(answer(shares, 100.0, 0.0), 50.0 * 0.38)
    close(answer(shares, 100.0, 1.0), 50.0)


@case("transient_cost")
def order_matters(answer):
    """Uneven shares count in their order, and gaps let moves fade."""
    shares = np.array([0.6, 0.0, 0.3, 0.1])
    wanted = 0.6 * 15 + 0.3 * (30 * 0.64 + 7.5) + 0.1 * (30 * 0.512 + 15 * 0.8 + 2.5)
    close(answer(shares, 50.0, 0.8), wanted)
    close(shares, [0.6, 0.0, 0.3, 0.1], "shares after the call")
