"""Names of rlwb's environments for `gymnasium.make`; ``import rlwb.interop`` registers them."""

from __future__ import annotations

import gymnasium as gym

ORDER_EXECUTION = "rlwb/OrderExecution-v0"
"""Order execution in one environment, or by `gymnasium.make_vec` in the native one."""

_PLACE = "rlwb.interop.environments"


ENV_WRAPPER = "rlwb/EnvWrapper-v0"
"""An `rlwb.env.EnvWrapper` of parts that are given as keywords; the name that its spec has."""


def register_ids() -> None:
    """Register what is not registered yet."""
    if ENV_WRAPPER not in gym.registry:
        gym.register(ENV_WRAPPER, "rlwb.env:EnvWrapper")
    if ORDER_EXECUTION not in gym.registry:
        places = {"entry_point": f"{_PLACE}:OrderExecutionEnv", "vector_entry_point": f"{_PLACE}:order_executions"}
        gym.register(ORDER_EXECUTION, **places)
