"""Names of rlwb's environments for `gymnasium.make`; ``import rlwb.interop`` registers them."""

from __future__ import annotations

import gymnasium as gym

ORDER_EXECUTION = "rlwb/OrderExecution-v0"
"""Order execution, one order after another."""

_PLACE = "rlwb.interop.environments"


def register_ids() -> None:
    """Register what is not registered yet."""
    if ORDER_EXECUTION not in gym.registry:
        gym.register(ORDER_EXECUTION, f"{_PLACE}:OrderExecutionEnv")
