"""Walk-forward: dates cut into windows, each with a training, a validation and a test part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError

#: A number of days with orders, or a length by the calendar such as "6M".
Length = int | str

_UNITS = {"D": "days", "W": "weeks", "M": "months", "Y": "years"}
_LENGTH = re.compile(r"([1-9]\d{0,3})([DWMY])")


@dataclass(frozen=True)
class RollingSettings:
    """Lengths of rolling windows: each a number of days with orders, or by the calendar "30D", "2W", "6M".

    Parameters
    ----------
    train, valid, test : days with orders, or a calendar length
        Length of the parts of a window, one after the other; the last window tests on the days that are left.
    step : days with orders, or a calendar length
        How far a window starts after the one before; none means the length of the test. A smaller one would test a day
        twice and is refused.
    window
        ``sliding`` trains on the same length each time, ``expanding`` on all dates from the first.
    gap : days with orders, or a calendar length
        Length that is left out before the validation and before the test.
    """

    train: Length = 120
    valid: Length = 20
    test: Length = 20
    step: Length | None = None
    window: Literal["sliding", "expanding"] = "sliding"
    gap: Length = 0

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test", "step", "gap"):
            value, least = getattr(self, name), 0 if name == "gap" else 1
            is_days = isinstance(value, int) and not isinstance(value, bool) and value >= least
            is_text = isinstance(value, str) and _LENGTH.fullmatch(value)
            if not (is_days or is_text or (name == "step" and value is None)):
                raise ConfigError(f'{name} is {value!r}; give {least} or more days, or a length such as "30D" or "6M".')

    def describe(self) -> str:
        """Return the settings in a few words."""
        gap = f", gap {self.gap}" if self.gap else ""
        lengths = f"train {self.train}, valid {self.valid}, test {self.test}{gap}"
        return f"{self.window} windows, {lengths}, step {self.step or self.test}; numbers are days with orders"


def rolling_windows(dates: np.ndarray, settings: RollingSettings) -> list[dict[str, tuple[str, str]]]:
    """Return the first and the last date of each part of each window.

    Parameters
    ----------
    dates : datetime64 of shape (D,)
        Dates with orders, sorted, each once.

    Raises
    ------
    ConfigError
        When no window fits into the dates, a part of one has no orders, or a test day would be in two windows.
    """
    days = np.asarray(dates, dtype="datetime64[D]")
    end = days[-1] + 1

    def after(first: np.datetime64, length: Length, times: int = 1) -> np.datetime64:
        """Return the first day after `times` lengths from `first`."""
        if isinstance(length, int):
            place = int(np.searchsorted(days, first)) + times * length
            return days[place] if place < len(days) else end
        number, unit = length[:-1], length[-1]
        try:
            later = pd.Timestamp(first) + pd.DateOffset(**{_UNITS[unit]: times * int(number)})
        except (ValueError, OverflowError):  # beyond the year 9999
            return end
        return np.datetime64(later.date(), "D")

    edges: list[tuple[np.datetime64, ...]] = []
    step = settings.step or settings.test
    while True:
        start = after(days[0], step, len(edges))
        trained = after(start, settings.train)
        valid = after(trained, settings.gap) if settings.gap else trained
        chosen = after(valid, settings.valid)
        test = after(chosen, settings.gap) if settings.gap else chosen
        if test >= end:
            break
        first = start if settings.window == "sliding" else days[0]
        edges.append((first, trained, valid, chosen, test, after(test, settings.test)))
    if not edges:
        raise ConfigError(
            f"no window of split.rolling fits ({settings.describe()}): there are {len(days)} days with orders, from "
            f"{days[0]} to {days[-1]}. Make the windows shorter or bring more dates."
        )
    windows = []
    for number, (first, trained, valid, chosen, test, stop) in enumerate(edges):
        following = edges[number + 1][4] if number + 1 < len(edges) else end
        if settings.step is None:
            stop = following  # months are of unequal length
        elif stop > following:
            raise ConfigError(
                f"split.rolling: with step {step} the test days from {following} on lie in two windows (test "
                f"{settings.test}); make step as long as test, or longer."
            )
        window = {}
        for part, low, high in (("train", first, trained), ("valid", valid, chosen), ("test", test, stop)):
            inside = days[(days >= low) & (days < high)]
            if not len(inside):
                raise ConfigError(f"split.rolling: window {number + 1} has no orders in its part {part} from {low} on.")
            window[part] = (str(inside[0]), str(inside[-1]))
        windows.append(window)
    return windows
