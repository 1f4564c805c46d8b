"""Windows that walk over dates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.execution.generate import SplitSettings, split_orders
from rlwb.execution.rolling import RollingSettings, rolling_windows

DAYS = np.arange("2024-01-01", "2024-01-15", dtype="datetime64[D]")  # fourteen, called 1 to 14 below


def walked(days: np.ndarray = DAYS, **settings: Any) -> list[tuple[tuple[int, int], ...]]:
    """Return the windows as first and last number of a day, of train, valid and test."""
    found = rolling_windows(days, RollingSettings(**settings))
    number = {str(day): place for place, day in enumerate(days, start=1)}
    return [tuple((number[low], number[high]) for low, high in window.values()) for window in found]


def test_k06_windows_by_hand() -> None:
    three = {"train": 6, "valid": 2, "test": 2}
    assert walked(**three) == [
        ((1, 6), (7, 8), (9, 10)),
        ((3, 8), (9, 10), (11, 12)),
        ((5, 10), (11, 12), (13, 14)),
    ]
    assert walked(**three, window="expanding") == [
        ((1, 6), (7, 8), (9, 10)),
        ((1, 8), (9, 10), (11, 12)),
        ((1, 10), (11, 12), (13, 14)),
    ]
    assert walked(**three, gap=1) == [((1, 6), (8, 9), (11, 12)), ((3, 8), (10, 11), (13, 14))]
    assert walked(train=6, valid=2, test=4)[-1] == ((5, 10), (11, 12), (13, 14)), "the last tests what is left"
    assert walked(train=4, valid=2, test=2, step=5) == [((1, 4), (5, 6), (7, 8)), ((6, 9), (10, 11), (12, 13))]


def test_k06_windows_by_the_calendar_follow_the_months_and_miss_no_test_day() -> None:
    days = pd.bdate_range("2023-01-31", "2023-12-29").to_numpy().astype("datetime64[D]")
    found = rolling_windows(days, RollingSettings(train="6M", valid="1M", test="1M"))
    tests = [window["test"] for window in found]
    assert tests[0][0] == "2023-08-31"
    judged = np.concatenate([days[(days >= np.datetime64(a)) & (days <= np.datetime64(b))] for a, b in tests])
    np.testing.assert_array_equal(judged, days[days >= np.datetime64("2023-08-31")], "each once, in order")
    for window in found:
        assert window["train"][1] < window["valid"][0]
        assert window["valid"][1] < window["test"][0]


@pytest.mark.parametrize("window", ["sliding", "expanding"])
@pytest.mark.parametrize("lengths", [(5, 1, 1), (3, 2, 4), ("7D", "2D", "3D"), (4, "3D", 2)])
@pytest.mark.parametrize("gap", [0, 1, "1D"])
def test_k06_no_day_of_a_test_is_in_the_training_or_choice_of_its_window_or_in_two_tests(
    window: Any, lengths: tuple[Any, ...], gap: Any
) -> None:
    days = DAYS[[0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 13]]
    train, valid, test = lengths
    found = walked(days, train=train, valid=valid, test=test, gap=gap, window=window)
    judged: list[int] = []
    for own in found:
        assert own[0][1] < own[1][0] <= own[1][1] < own[2][0]
        judged += range(own[2][0], own[2][1] + 1)
    assert judged == list(range(judged[0], len(days) + 1))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"train": 12, "valid": 1, "test": 1, "gap": 1}, ["14 days", "2024-01-01", "2024-01-14", "train 12"]),
        ({"train": "3M", "valid": 1, "test": 1}, ["train 3M"]),
        ({"train": "9999Y", "valid": 1, "test": 1}, ["train 9999Y"]),
        ({"train": 4, "valid": 2, "test": 4, "step": 2}, ["step 2", "test 4"]),
        ({"train": 0}, ["train", "0"]),
        ({"valid": -3}, ["valid", "-3"]),
        ({"test": "2 weeks"}, ["test", "2 weeks"]),
        ({"gap": True}, ["gap", "True"]),
        ({"step": 0}, ["step", "0"]),
    ],
)
def test_k06_windows_that_cannot_be_are_refused_by_name(settings: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        walked(**settings)
    assert all(text in str(caught.value) for text in named)


def test_k06_a_part_without_orders_is_named() -> None:
    days = DAYS[[0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13]]
    with pytest.raises(ConfigError, match=r"window 1 has no orders in its part valid from 2024-01-07"):
        walked(days, train="6D", valid="2D", test="2D")


def test_k06_rolling_and_dates_are_one_or_the_other_and_a_stage_takes_no_windows() -> None:
    with pytest.raises(ConfigError, match="keep one of the two"):
        SplitSettings(train=0.5, rolling=RollingSettings())
    with pytest.raises(ConfigError, match=r"split\.rolling is for a whole run"):
        split_orders(pd.DataFrame({"date": DAYS}), SplitSettings(rolling=RollingSettings()))
