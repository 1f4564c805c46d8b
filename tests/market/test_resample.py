"""Joining short bars to long ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, build_sessions, resample
from tests.market.helpers import day_bars

FINE = Calendar(
    segments=(("10:00", "10:04"), ("11:00", "11:04")), infer_early_close_minutes=0, early_closes={"2024-01-04": "11:01"}
)


def test_by_hand_with_missing_ticks_and_an_early_close() -> None:
    first = day_bars(FINE, close=[1, 2, 3, 4, 5, 6, 7, 8], volume=[1, 1, 2, 2, 0, 0, 4, 4]).assign(
        vwap=[1, 3, 3, 4, 5, 6, 7, 9], bid=[1, 2, 3, 4, 5, 6, 7, np.nan], halted=[True, True, True, False] * 2
    )
    bars = pd.concat([first.drop(index=[2]), day_bars(FINE, "2024-01-04", close=9.0, ticks=range(5))])
    long = resample(build_sessions(bars, FINE, min_coverage=0), 2)
    fields = long.fields
    assert long.calendar.num_ticks == 4
    assert long.num_ticks.tolist() == [4, 3]  # 11:00-11:01 still lies in a tick
    assert fields["open"][0].tolist() == [1, 4, 5, 7]
    assert fields["high"][0].tolist() == [2, 4, 6, 8]
    assert fields["low"][0].tolist() == [1, 4, 5, 7]
    assert fields["close"][0].tolist() == [2, 4, 6, 8]
    assert fields["volume"][0].tolist() == [2, 2, 0, 8]
    assert fields["vwap"][0].tolist() == [2, 4, 6, 8]
    assert fields["bid"][0].tolist() == [2, 4, 6, 7]
    assert np.isnan(fields["close"][1, 3])
    assert long.halted is not None
    assert long.halted[0].tolist() == [True, False, True, False]
    assert long.num_ticks.dtype == np.int32


def test_only_whole_multiples_within_segments() -> None:
    sessions = build_sessions(day_bars(FINE), FINE)
    assert resample(sessions, 1) is sessions
    with pytest.raises(DataError, match="whole multiple"):
        resample(sessions, 0.5)
