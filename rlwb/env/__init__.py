"""Environments, streams of initial states, and many episodes at once.

`EnvWrapper` is one environment, `DataQueue` a stream of initial states, `make_env` runs an episode for each of many
initial states, and `check_env` tries a user's parts before training does.
"""

from rlwb.env.check import check_env
from rlwb.env.data_queue import DataQueue
from rlwb.env.make import make_env
from rlwb.env.native import NativeVectorEnv
from rlwb.env.vector import Active, FiniteVectorEnv, StepResult, vectorize_env
from rlwb.env.wrapper import EnvWrapper, EnvWrapperStatus, ExhaustedError

__all__ = [
    "Active",
    "DataQueue",
    "EnvWrapper",
    "EnvWrapperStatus",
    "ExhaustedError",
    "FiniteVectorEnv",
    "NativeVectorEnv",
    "StepResult",
    "check_env",
    "make_env",
    "vectorize_env",
]
