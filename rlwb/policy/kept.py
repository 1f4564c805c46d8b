"""States of sessions that are kept while the weights stay, so that orders and decisions share them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Kept:
    """States of some sessions, and all that they depend on.

    Attributes
    ----------
    encoder
        Whose states they are.
    sessions : int64 of shape (S,)
        Rows of the panel, sorted.
    weights, features
        The encoder's, as they were.
    states
        Of shape (T + 1, S, H), time first. Memory that was not written costs nothing.
    known : bool of shape (T + 1, S)
        Which of them have been found.
    steps
        What the sessions' states are made of, if their encoder wants it again.
    """

    encoder: nn.Module
    sessions: np.ndarray
    features: Any
    states: torch.Tensor
    known: np.ndarray
    steps: torch.Tensor | None = None
    weights: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", [weight.detach().clone() for weight in self.encoder.parameters()])

    def serves(self, sessions: np.ndarray, features: Any) -> bool:
        """Return whether the states hold still, and of all these sessions.

        The weights themselves are compared: a version counter misses writes through ``.data`` and swapped tensors.
        """
        return (
            features is self.features
            and all(
                old.device == new.device and torch.equal(old, new)
                for old, new in zip(self.weights, self.encoder.parameters(), strict=True)
            )
            and bool(np.isin(sessions, self.sessions).all())
        )
