"""What networks read of observations, whether these carry the bars themselves or name session and tick of a panel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures


def as_tensor(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an array or tensor as a tensor on `device`."""
    return torch.as_tensor(value, dtype=dtype, device=device)


def panel_of(obs: Any) -> MarketFeatures:
    """Return the panel of features that ``session`` in an observation refers to.

    Raises
    ------
    ConfigError
        When the observation has none.
    """
    if "features" not in obs:
        raise ConfigError(
            "the observation names sessions but holds no features, the MarketFeatures that they are rows of; add them "
            "under 'features', as FullHistoryStateInterpreter does."
        )
    panel: MarketFeatures = obs["features"]
    return panel


def today(obs: Any, device: torch.device) -> torch.Tensor:
    """Return the session's features so far, float32 of shape (N, T, C), 0 from the current tick on."""
    if "session" not in obs:
        return as_tensor(obs["data_processed"], device)
    return as_tensor(panel_of(obs).block(np.asarray(obs["session"]), np.asarray(obs["cur_tick"])), device)


def yesterday(obs: Any, device: torch.device) -> torch.Tensor:
    """Return the previous session's features, float32 of shape (N, T, C), 0 where there is none."""
    if "session" not in obs:
        return as_tensor(obs["data_processed_prev"], device)
    return as_tensor(panel_of(obs).block_previous(np.asarray(obs["session"])), device)


def scalars(obs: Any, device: torch.device) -> torch.Tensor:
    """Return the order's numbers, whatever its size: float32 of shape (N, 3).

    The columns are the share of the amount that is left, the share of the steps that is taken, and one over the number
    of steps left.
    """
    target, position, step, steps = (
        as_tensor(obs[name], device).float() for name in ("target", "position", "cur_step", "num_step")
    )
    return torch.stack([position / target, step / steps, 1.0 / (steps - step).clamp(min=1.0)], dim=1)
