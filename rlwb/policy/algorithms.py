"""What the learning algorithms have in common: acting in aligned batches, and refusing what would ruin a training."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from rlwb.errors import CheckpointError, ConfigError, InterpreterError, RlwbError
from rlwb.policy.episodes import count_rows, take_rows
from rlwb.policy.gru import ALIGN

logger = logging.getLogger(__name__)


class NoWarmUp:
    """For policies of tianshou whose compiled functions are not used here."""

    @staticmethod
    def _compile() -> None:
        """Skip tianshou's warm-up of them; it takes seconds a process."""


def fill_up(obs: Any) -> Any:
    """Repeat the last observation until their number is a multiple of `ALIGN`."""
    rows = count_rows(obs)
    if rows % ALIGN == 0:
        return obs
    # Products of other sizes take other code paths in the libraries below, with other roundings.
    return take_rows(obs, np.minimum(np.arange(rows + -rows % ALIGN), rows - 1))


def check_answers(answers: torch.Tensor) -> None:
    """Raise `InterpreterError` when a network's answers are not all finite."""
    if not bool(torch.isfinite(answers).all()):
        raise InterpreterError(
            "the network answers NaN or infinity; look for missing numbers in the observations, or lower "
            "learning_rate if the training has diverged."
        )


def check_decay(updates: int | None) -> None:
    """Raise `ConfigError` when the learning rate cannot fall within so many updates."""
    if updates is not None and updates < 1:
        raise ConfigError(f"decay_updates is {updates}; give at least 1, or none for a rate that stays.")


def decayed(settings: Any, updates: int) -> float:
    """Return the learning rate after so many updates; it depends on their number alone, as a resume needs."""
    left = 1.0 if settings.decay_updates is None else max(0.0, 1.0 - updates / settings.decay_updates)
    return float(settings.learning_rate * left)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Give all weights of an optimizer of tianshou's this rate."""
    for group in optimizer._optim.param_groups:
        group["lr"] = rate


def check_loss(loss: torch.Tensor, update: int) -> None:
    """Raise `RlwbError` when the loss of an update is not finite, before it reaches the weights."""
    if not bool(torch.isfinite(loss)):
        raise RlwbError(
            f"the loss of update {update} is {float(loss.detach())}, so the weights would be lost; "
            "lower learning_rate, or scale the reward down."
        )


def check_episodes(obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> None:
    """Check what a learner is given.

    Raises
    ------
    ConfigError
        When the rows are no whole episodes laid end to end.
    RlwbError
        When a reward is not finite.
    """
    if not len(done) or not done[-1] or not len(done) == len(action) == len(reward) == count_rows(obs):
        raise ConfigError(
            f"learn got {count_rows(obs)} observations, {len(action)} actions, {len(reward)} rewards and "
            f"{int(done.sum())} episode ends in {len(done)} rows; give whole episodes, one row a transition."
        )
    if not np.isfinite(reward).all():
        row = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise RlwbError(f"the reward of transition {row} is {reward[row]}; a reward must be a finite number.")


def foreign_state(error: Exception) -> CheckpointError:
    """Return the error to raise for a state that a policy could not load."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CheckpointError(
        f"the state is not that of this policy ({' '.join(lines[:2]) or type(error).__name__}); build the policy with "
        "the settings it was saved with."
    )


def warn_of_device(saved: str, present: str) -> None:
    """Say what a change of device means for the figures."""
    if saved != present:
        logger.warning(
            "the policy was saved on %s and goes on on %s; figures agree up to rounding, not to the last bit",
            saved,
            present,
        )
