"""The one call that most scripts need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.reward import Reward
from rlwb.simulator import Simulator
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
    ckpt_path: str | os.PathLike[str] | None = None,
) -> Trainer:
    """Train `policy` on `initial_states`, from a checkpoint on if one is given; return the trainer.

    Keywords go to `TrainingVessel` and `Trainer`.
    """
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
    trainer.fit(vessel, ckpt_path)
    return trainer
