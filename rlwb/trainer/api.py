"""The two calls that most scripts need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rlwb.env import make_env
from rlwb.env.data_queue import take
from rlwb.errors import ConfigError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Actor, Learner
from rlwb.reward import Reward
from rlwb.simulator import Simulator
from rlwb.trainer.collect import Episodes, collect
from rlwb.trainer.trainer import Trainer
from rlwb.trainer.vessel import TrainingVessel


def train(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    action_interpreter: ActionInterpreter[Any],
    initial_states: Sequence[Any],
    policy: Learner,
    reward: Reward[Any],
    vessel_kwargs: dict[str, Any] | None = None,
    trainer_kwargs: dict[str, Any] | None = None,
) -> Trainer:
    """Train `policy` on `initial_states`; keywords go to `TrainingVessel` and `Trainer`. Return the trainer."""
    vessel = TrainingVessel(
        simulator=simulator,
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
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    initial_states: Sequence[Any],
    action_interpreter: ActionInterpreter[Any],
    policy: Actor,
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
    if finite_env_type != "native":
        chunk = len(initial_states)
    parts = []
    for low in range(0, len(initial_states), chunk):
        states = take(initial_states, np.arange(low, min(low + chunk, len(initial_states))))
        kwargs: dict[str, Any] = {"finite_env_type": finite_env_type, "concurrency": concurrency}
        with make_env(simulator, state_interpreter, action_interpreter, reward, states, **kwargs) as env:
            env.first_episode = low
            parts.append(collect(env, policy))
    return Episodes.join(parts)


def result_table(orders: pd.DataFrame, episodes: Episodes) -> pd.DataFrame:
    """Return the orders with their figures and rewards, one row an order."""
    return orders.reset_index(drop=True).assign(**episodes.metrics, reward=episodes.returns)
