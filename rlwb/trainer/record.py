"""The record of a training from its parts, and out of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.record import TrainingRecord
from rlwb.reward import Reward
from rlwb.simulator import Simulator


def record_of(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    action_interpreter: ActionInterpreter[Any],
    policy: Any = None,
    reward: Reward[Any] | None = None,
    initial_states: Any = None,
    run: str | None = None,
) -> TrainingRecord:
    """Return the record of a training with these parts, by what each says of itself in its `record`."""
    parts = (simulator, state_interpreter, action_interpreter)
    told = {name: value for part in parts for name, value in part.record().items()}
    if isinstance(policy, Learner):
        told |= policy.record()
    if reward is not None:
        told["reward"] = type(reward).__qualname__
    return TrainingRecord(
        **told, threads=torch.get_num_threads(), run=run, orders=getattr(initial_states, "fingerprint", None)
    )


def recorded_in(state: Mapping[str, Any]) -> TrainingRecord:
    """Return the record in a checkpoint's state; one that a script has saved without it knows nothing."""
    return TrainingRecord.from_dict(state["record"]) if "record" in state else TrainingRecord()
