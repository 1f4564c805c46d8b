"""Checks of notebook 11: one point a case."""

import numpy as np

from rlwb.course import case, close


@case("standard_error")
def two_days(answer):
    """Days with the orders 1, 3 and 8 have the standard error 8/3."""
    close(answer(np.array([1.0, 3.0, 8.0]), np.array([0, 0, 1])), 8 / 3)


@case("standard_error")
def one_order_a_day(answer):
    """With one order a day it is the usual standard error of a mean."""
    pa = np.random.default_rng(1).normal(size=7)
    close(answer(pa, np.arange(7)), pa.std(ddof=1) / np.sqrt(7))


@case("standard_error")
def days_in_any_order(answer):
    """Orders of a day need not stand together, and days need not be 0, 1, 2."""
    pa, day = np.array([2.0, 7.0, -1.0, 4.0, 3.0, 9.0]), np.array([30, 5, 30, 12, 5, 5])
    sums = [sum(pa[day == one] - 4.0) for one in (5, 12, 30)]
    close(answer(pa, day), np.sqrt(1.5 * sum(one**2 for one in sums)) / 6)


@case("standard_error")
def orders_without_a_pa(answer):
    """An order without a PA is left out, and a day that has no other counts as no day."""
    nan = np.nan
    close(answer(np.array([1.0, nan, 3.0, 8.0, nan]), np.array([0, 0, 0, 1, 2])), 8 / 3)


@case("standard_error")
def one_day(answer):
    """One day alone has no standard error: NaN."""
    close(answer(np.array([1.0, 2.0]), np.array([4, 4])), np.nan)
    close(answer(np.array([1.0, np.nan]), np.array([4, 5])), np.nan)


@case("standard_error")
def arguments_stay(answer):
    """The arguments are not changed."""
    pa, day = np.array([1.0, 3.0, 8.0]), np.array([0, 0, 1])
    answer(pa, day)
    close(pa, [1.0, 3.0, 8.0], "pa after the call")
    close(day, [0, 0, 1], "day after the call")


@case("fall_of_choice")
def two_of_three(answer):
    """The best two of [5, 1, 4] with the tests [2, 9, 1] fall by 3."""
    close(answer(np.array([5.0, 1.0, 4.0]), np.array([2.0, 9.0, 1.0]), 2), 3.0)


@case("fall_of_choice")
def all_of_them(answer):
    """Where all are chosen it is the difference of the means."""
    rng = np.random.default_rng(2)
    validation, test = rng.normal(size=6), rng.normal(size=6)
    close(answer(validation, test, 6), validation.mean() - test.mean())


@case("fall_of_choice")
def ties(answer):
    """Of equal validation PAs the first are taken."""
    validation = np.array([1.0, 2.0, 2.0, 2.0, 0.0])
    close(answer(validation, np.array([9.0, 1.0, 3.0, 50.0, 9.0]), 2), 2.0 - 2.0)
    many = np.ones(40)
    close(answer(many, np.arange(40.0), 3), 1.0 - 1.0)


@case("fall_of_choice")
def not_validated(answer):
    """A policy without a validation PA is never chosen."""
    nan = np.nan
    close(answer(np.array([nan, 3.0, nan, 1.0]), np.array([100.0, 5.0, 100.0, 2.0]), 2), 2.0 - 3.5)
    close(answer(np.array([nan, -3.0]), np.array([100.0, 5.0]), 1), -8.0)


@case("fall_of_choice")
def choice_stays(answer):
    """The arguments are not changed."""
    validation, test = np.array([1.0, np.nan, 4.0]), np.array([2.0, 9.0, 1.0])
    answer(validation, test, 1)
    close(validation, [1.0, np.nan, 4.0], "validation after the call")
    close(test, [2.0, 9.0, 1.0], "test after the call")


@case("look_interval")
def first_look(answer):
    """The first look at 3 with the error 1 gives (0.835, 5.165)."""
    close(answer(3.0, 1.0, 1), [0.8350, 5.1650], tolerance=1e-3)


@case("look_interval")
def third_look(answer):
    """The third look has a ninth of the first one's error rate."""
    close(answer(0.0, 2.0, 3), [-5.8622492167, 5.8622492167], tolerance=1e-6)


@case("look_interval")
def own_alpha(answer):
    """Another alpha is heeded."""
    close(answer(-1.0, 1.5, 2, alpha=0.2), [-4.2473302045, 2.2473302045], tolerance=1e-6)
    close(answer(-1.0, 1.5, 2, 0.2), [-4.2473302045, 2.2473302045], tolerance=1e-6)
