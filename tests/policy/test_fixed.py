from __future__ import annotations

import numpy as np

from rlwb.execution import TwapRelativeActionInterpreter
from rlwb.policy import AllOne
from rlwb.trainer import backtest
from tests.trainer.small import small


def test_all_one_answers_a_row_each() -> None:
    np.testing.assert_array_equal(AllOne().act(np.zeros((3, 2))), [1, 1, 1])
    np.testing.assert_array_equal(AllOne(0.5).act({"a": np.zeros(2)}), [0.5, 0.5])


def test_all_one_on_the_twap_scale_is_twap() -> None:
    market = small()
    episodes = backtest(
        market.simulator,
        market.observer,
        market.orders,
        TwapRelativeActionInterpreter(market.simulator.engine),
        AllOne(),
    )
    np.testing.assert_allclose(episodes.metrics["pa"], 0.0, atol=1e-8)
    np.testing.assert_allclose(episodes.metrics["ffr"], 1.0)
