"""Trackers: writers of a run's figures, configuration and files for TensorBoard, MLflow and others."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlwb.tracking.callback import TrackerCallback
    from rlwb.tracking.mlflow import MLflow
    from rlwb.tracking.tensorboard import TensorBoard
    from rlwb.tracking.tracker import TrackedRun, Tracker, Trackers
    from rlwb.tracking.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "TrackedRun", "Tracker", "TrackerCallback", "Trackers", "WandB"]

#: Where each name is; modules are loaded when a name of theirs is asked for, since only the callback needs torch.
_PLACES = {
    "MLflow": "mlflow",
    "TensorBoard": "tensorboard",
    "TrackedRun": "tracker",
    "Tracker": "tracker",
    "TrackerCallback": "callback",
    "Trackers": "tracker",
    "WandB": "wandb",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
