"""The two calls that most scripts need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.env import LogWriter
from rlwb.errors import ConfigError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.policy.learner import Learner
from rlwb.reward import Reward
from rlwb.trainer.collect import Actor, Episodes, collect
from rlwb.trainer.trainer import Trainer
from rlwb.trainer.vessel import TrainingVessel, make_env, take


def train(
    simulator_fn: Callable[[Any], Any],
    state_interpreter: StateInterpreter[Any, Any],
    action_interpreter: ActionInterpreter[Any, Any, Any],
    initial_states: Sequence[Any],
    policy: Learner,
    reward: Reward[Any],
    vessel_kwargs: dict[str, Any] | None = None,
    trainer_kwargs: dict[str, Any] | None = None,
) -> Trainer:
    """Train `policy` on `initial_states`; keywords go to `TrainingVessel` and `Trainer`. Return the trainer."""
    vessel = TrainingVessel(
        simulator_fn=simulator_fn,
        state_interpreter=state_interpreter,
        action_interpreter=action_interpreter,
        policy=policy,
        train_initial_states=initial_states,
        reward=reward,
        **(vessel_kwargs or {}),
    )
    trainer = Trainer(**(trainer_kwargs or {}))
    trainer.fit(vessel)
    return trainer


def backtest(
    simulator_fn: Callable[[Any], Any],
    state_interpreter: StateInterpreter[Any, Any],
    initial_states: Sequence[Any],
    action_interpreter: ActionInterpreter[Any, Any, Any],
    policy: Actor,
    logger: LogWriter | Sequence[LogWriter] = (),
    *,
    reward: Reward[Any] | None = None,
    finite_env_type: str = "native",
    concurrency: int = 1,
    chunk: int = 4096,
) -> Episodes:
    """Run `policy` greedily on every initial state, once.

    Parameters
    ----------
    chunk
        Most episodes at once in the native environment; bounds the memory.

    Returns
    -------
    Episodes
        In the order of `initial_states`, without transitions.
    """
    if not len(initial_states) or chunk < 1:
        raise ConfigError(
            f"backtest got {len(initial_states)} initial states and chunk={chunk}; give at least 1 of each."
        )
    loggers = [logger] if isinstance(logger, LogWriter) else list(logger)
    if finite_env_type != "native":
        chunk = len(initial_states)
    parts = []
    for low in range(0, len(initial_states), chunk):
        states = take(initial_states, np.arange(low, min(low + chunk, len(initial_states))))
        with make_env(
            simulator_fn,
            state_interpreter,
            action_interpreter,
            reward,
            states,
            finite_env_type=finite_env_type,
            concurrency=concurrency,
            loggers=loggers,
        ) as env:
            parts.append(collect(env, policy))
    return _join(parts)


def _join(parts: list[Episodes]) -> Episodes:
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    figures = {
        name: np.concatenate([part.metrics.get(name, np.full(part.count, np.nan)) for part in parts]) for name in names
    }
    return Episodes(
        sum(part.count for part in parts),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.returns for part in parts]),
        figures,
        {name: np.concatenate([part.details[name] for part in parts]) for name in parts[0].details},
    )


def result_table(orders: pd.DataFrame, episodes: Episodes) -> pd.DataFrame:
    """Return the orders with their figures and rewards, one row an order."""
    return orders.reset_index(drop=True).assign(**episodes.metrics, reward=episodes.returns)
