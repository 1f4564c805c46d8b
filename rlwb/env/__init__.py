"""Environments, streams of initial states, and many episodes at once.

`EnvWrapper` is one environment, `DataQueue` a stream of initial states, `make_env` runs an episode for each of many
initial states, `GymVectorEnv` is the environment for other libraries, and `check_env` tries a user's parts before
training does.
"""

from rlwb.env.data_queue import DataQueue
from rlwb.env.gym_vector import GymVectorEnv
from rlwb.env.slots import make_env, vectorize_env
from rlwb.env.vector import Active, FiniteVectorEnv, NativeVectorEnv, StepResult
from rlwb.env.wrapper import EnvWrapper, EnvWrapperStatus, ExhaustedError, check_env

__all__ = [
    "Active",
    "DataQueue",
    "EnvWrapper",
    "EnvWrapperStatus",
    "ExhaustedError",
    "FiniteVectorEnv",
    "GymVectorEnv",
    "NativeVectorEnv",
    "StepResult",
    "check_env",
    "make_env",
    "vectorize_env",
]
