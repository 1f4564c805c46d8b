"""The figures that callbacks watch: refused before training when they will never come."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import TYPE_CHECKING

from rlwb.errors import ConfigError

if TYPE_CHECKING:
    from rlwb.trainer.callbacks import Callback
    from rlwb.trainer.trainer import Trainer
    from rlwb.trainer.vessel import TrainingVessel

_OF_ANY_COLLECT = ("episodes", "reward", "length")
_OF_TRAINING = ("transitions", "seconds")


def check_watched(trainer: Trainer, vessel: TrainingVessel, metrics: Collection[str]) -> None:
    """Raise `ConfigError` for a callback that watches a figure the training will not have.

    Parameters
    ----------
    metrics
        Names of the metrics that an episode ends with.
    """
    collected = [*_OF_ANY_COLLECT, *metrics, *(f"{name}_count" for name in metrics)]
    learnt = vessel.policy.figures
    validated = [] if trainer.val_every_n_iters is None else [f"val/{name}" for name in collected]
    for callback in trainer.callbacks:
        name = callback.watches
        if name is None:
            continue
        if callback.can_stop and trainer.val_every_n_iters is None:
            raise ConfigError(
                f"{type(callback).__name__} watches {name!r} at validations, but val_every_n_iters is empty; set it."
            )
        known = [*collected, *_OF_TRAINING, *(learnt or ()), *validated]
        # Of a policy that does not say what it reports, only figures of validation are known before it has learnt.
        if name not in known and (learnt is not None or name.startswith("val/")):
            raise ConfigError(unknown_figure(callback, name, known))


def unknown_figure(callback: Callback, name: str, known: Collection[str]) -> str:
    """Return the sentence that refuses a watched name."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    names = ", ".join(sorted(name for name in known if not name.endswith("_count")))
    return f"{type(callback).__name__} watches {name!r}, which is not among the figures {names}{hint}"
