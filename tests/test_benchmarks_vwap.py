"""What the peers of the VWAP are given, and the formula that judges all."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.vwap import peer_data, row, slippage
from tests.execution.markets import sessions_of


def test_slippage_is_the_price_paid_over_the_vwap() -> None:
    judged = np.array([[[300.0, 10.0], [100.0, 14.0]]])  # a VWAP of 11
    curves = {(0.75, 0.25): 0.0, (1.0, 1.0): 1e4 / 11, (1.0, 0.0): -1e4 / 11}
    for curve, found in curves.items():
        assert slippage(np.array([curve]), judged) == pytest.approx([found], abs=1e-9)
    assert row("one", np.array([3.0, -4.0]), None) == {
        "method": "one",
        "mean_abs": 3.5,
        "rms": pytest.approx(12.5**0.5),
        "seconds": None,
    }


def test_the_peers_see_the_session_before_and_all_bars_of_today_but_the_last() -> None:
    sessions = sessions_of([[10.0, 11.0], [12.0, 13.0]], [[100.0, 300.0], [400.0, 600.0]])
    seen, judged = peer_data(sessions, np.array([1]))
    assert seen[0, :, 0] == pytest.approx([0.5, 1.5, 2.0])
    assert seen[0, :, 1] == pytest.approx([0.0, 0.5, 0.0])
    assert seen[0, :, 2] == pytest.approx(100 * np.log([1.0, 11 / 10, 12 / 11]))
    assert judged[0] == pytest.approx(np.array([[1.0, 12 / 11], [1.5, 13 / 11]]))
