"""Environments, streams of initial states, and logs.

`EnvWrapper` is one environment, `DataQueue` a stream of initial states, `vectorize_env` runs many episodes at once,
`LogWriter`s get what they log, and `dry_check` tries a user's parts before training does.
"""

from rlwb.env.check import DryRun, dry_check
from rlwb.env.data_queue import DataQueue
from rlwb.env.log_writers import ConsoleWriter, CsvWriter
from rlwb.env.logs import LogBuffer, LogCollector, LogLevel, LogWriter
from rlwb.env.native import NativeVectorEnv
from rlwb.env.vector import Active, FiniteVectorEnv, StepResult, vectorize_env
from rlwb.env.wrapper import EnvWrapper, EnvWrapperStatus, ExhaustedError

__all__ = [
    "Active",
    "ConsoleWriter",
    "CsvWriter",
    "DataQueue",
    "DryRun",
    "EnvWrapper",
    "EnvWrapperStatus",
    "ExhaustedError",
    "FiniteVectorEnv",
    "LogBuffer",
    "LogCollector",
    "LogLevel",
    "LogWriter",
    "NativeVectorEnv",
    "StepResult",
    "dry_check",
    "vectorize_env",
]
