"""Names of rlwb's environments for `gymnasium.make`; ``import rlwb.interop`` registers them."""

from __future__ import annotations

import gymnasium as gym

ORDER_EXECUTION = "rlwb/OrderExecution-v0"
"""Order execution in one environment, or by `gymnasium.make_vec` in the native one."""

_PLACE = "rlwb.interop.environments"


def register_ids() -> None:
    """Register what is not registered yet."""
    if ORDER_EXECUTION not in gym.registry:
        places = {"entry_point": f"{_PLACE}:OrderExecutionEnv", "vector_entry_point": f"{_PLACE}:order_executions"}
        gym.register(ORDER_EXECUTION, **places)
