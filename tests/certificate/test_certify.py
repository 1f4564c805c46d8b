"""Training on a certified market, and what is measured of it."""

from __future__ import annotations

import pytest

from rlwb.certificate import certify, tree_market
from rlwb.errors import ConfigError


@pytest.mark.parametrize("method", ["ppo", "dqn", "opd"])
def test_a_learner_gains_a_part_of_what_the_tree_has_to_give(method: str) -> None:
    market = tree_market()
    settings = {"teacher_iterations": 10} if method == "opd" else {}
    found = certify(market, method, seed=1, every=8, iterations=30, episodes=500, hidden=32, **settings)
    assert [point["iteration"] for point in found["curve"]] == [8, 16, 24, 30]
    assert found["value"] == found["curve"][-1]["value"] < market.optimum
    assert found["share"] == pytest.approx((found["value"] - market.twap) / (market.optimum - market.twap))
    assert found["share"] > 0.2
    assert found["error"] == 0, "all paths are played, none is sampled"


def test_what_does_not_exist_is_refused() -> None:
    market = tree_market()
    with pytest.raises(ConfigError, match="no method 'pppo'; choose one of ppo, dqn, opd"):
        certify(market, "pppo", seed=0)
    with pytest.raises(ConfigError, match="judge after every 1 or more"):
        certify(market, "ppo", seed=0, every=0)
