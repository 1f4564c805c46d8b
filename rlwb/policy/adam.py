"""Adam without torch.optim, whose optimisers import torch's compiler: 70 MB and a second that no run needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.adam import adam


class Adam:
    """The Adam optimiser (Kingma and Ba, arXiv 1412.6980), one compiled operation for all weights.

    The arithmetic and the layout of the state are those of ``torch.optim.Adam(weights, learning_rate, fused=True)``.

    Parameters
    ----------
    weights
        What is optimised, on the device where it stays.
    learning_rate
        Length of a step; may be set anew before each step.

    Attributes
    ----------
    weights : list of nn.Parameter
    learning_rate : float
    """

    def __init__(self, weights: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.weights = list(weights)
        self.learning_rate = learning_rate
        self._means = [torch.zeros_like(weight) for weight in self.weights]
        self._squares = [torch.zeros_like(weight) for weight in self.weights]
        self._steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights that have a gradient once against it."""
        moved = [at for at, weight in enumerate(self.weights) if weight.grad is not None]
        adam(
            [self.weights[at] for at in moved],
            [grad for weight in self.weights if (grad := weight.grad) is not None],
            [self._means[at] for at in moved],
            [self._squares[at] for at in moved],
            [],
            [self._steps[at] for at in moved],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the moments of every weight by its position, and the learning rate."""
        moments = zip(self._steps, self._means, self._squares, strict=True)
        return {
            "state": {
                at: {"step": step, "exp_avg": mean, "exp_avg_sq": square}
                for at, (step, mean, square) in enumerate(moments)
            },
            "param_groups": [{"lr": self.learning_rate, "params": list(range(len(self.weights)))}],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; weights that it does not know start anew.

        Raises
        ------
        ValueError
            For a state of another number of weights, or of weights of another shape.
        """
        (group,) = state["param_groups"]
        if len(group["params"]) != len(self.weights):
            raise ValueError(f"the optimiser's state is of {len(group['params'])} weights, not {len(self.weights)}")
        self.learning_rate = group["lr"]
        with torch.no_grad():
            for at, moments in enumerate(zip(self._steps, self._means, self._squares, strict=True)):
                known = state["state"].get(at, {})
                for name, moment in zip(("step", "exp_avg", "exp_avg_sq"), moments, strict=True):
                    value = torch.as_tensor(known.get(name, torch.zeros_like(moment)))
                    if value.shape != moment.shape:
                        shapes = f"{tuple(value.shape)}, not {tuple(moment.shape)}"
                        raise ValueError(f"weight {at} of the optimiser's state has the shape {shapes}")
                    moment.copy_(value)
