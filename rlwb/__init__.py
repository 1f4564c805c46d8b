"""rlwb: the workbench for trade execution with reinforcement learning."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when asked for: it brings torch.
    if name == "train_gym":
        from rlwb.interop.gym_training import train_gym

        return train_gym
    raise AttributeError(f"module 'rlwb' has no attribute {name!r}")
