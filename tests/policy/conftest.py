from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rlwb.env import make_env
from rlwb.execution import PAPenaltyReward
from rlwb.trainer import Episodes, collect
from tests.trainer.conftest import one_thread  # noqa: F401
from tests.trainer.small import small, small_ppo


@dataclass(frozen=True)
class Rollout:
    """The same random episodes, seen by reference and in blocks."""

    reference: Episodes
    blocks: Episodes


def learn(policy: Any, rollout: Rollout, seen: str = "reference", **changed: Any) -> dict[str, float]:
    """Update once on the episodes of a rollout, with some settings changed for good."""
    episodes = getattr(rollout, seen)
    policy.settings = replace(policy.settings, **changed)
    return policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)


@pytest.fixture(scope="session")
def rollout() -> Rollout:
    market, policy = small(), small_ppo()
    parts = (market.simulator, market.observer, market.chooser, PAPenaltyReward(scale=0.1), market.orders)
    gathered: list[Any] = []
    for kind in ("native", "dummy"):
        with make_env(*parts, finite_env_type=kind, concurrency=5) as env:
            gathered.append(collect(env, policy, seed=(7,), keep=True))
    assert "session" in gathered[0].obs
    assert "data_processed" in gathered[1].obs
    np.testing.assert_array_equal(gathered[0].action, gathered[1].action)
    return Rollout(*gathered)
