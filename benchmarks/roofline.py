"""What the update would take if it were matrix products alone, at the speed that this machine reaches on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import seconds
from benchmarks.parts import Parts
from rlwb.policy import gru
from rlwb.trainer import Episodes


def gru_flops(steps: int, inputs: int, hidden: int) -> int:
    """Return the operations of the products in a GRU's forward pass over `steps` rows; two an addition of a product."""
    return 2 * steps * 3 * hidden * (inputs + hidden)


def matrix_speed(rows: int, hidden: int) -> float:
    """Return operations a second of plain matrix products in the shapes of a recurrent step with `rows` sessions.

    Three products: the state times the recurrent weights, and, backwards, the gradient times them and the gradient
    times the state.
    """
    state, gates = torch.randn(rows, hidden), torch.randn(rows, 3 * hidden)
    weights, gradient = torch.randn(hidden, 3 * hidden), torch.empty(3 * hidden, hidden)
    back = torch.empty(rows, hidden)

    def products() -> None:
        for _ in range(100):
            torch.mm(state, weights, out=gates)
            torch.mm(gates, weights.t(), out=back)
            torch.mm(gates.t(), state, out=gradient)
            gates.fill_(1.0)

    return 100 * 3 * 2 * rows * 3 * hidden * hidden / seconds(products)


@contextmanager
def _counted_steps() -> Iterator[list[int]]:
    """Note the operations of the products inside the compiled steps of GRUs, which torch's counter does not see."""
    noted: list[int] = []

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(gates: np.ndarray, state: np.ndarray, *more: Any) -> Any:
            noted.append(gru_flops(len(gates), 0, state.shape[1]))
            return run(gates, state, *more)

        return counted

    with ExitStack() as stack:
        for name in ("_advance", "_retreat"):
            stack.enter_context(mock.patch.object(gru, name, counting(getattr(gru, name))))
        yield noted


def measure_update(parts: Parts, episodes: Episodes) -> dict[str, float]:
    """Time an update on `episodes` against the matrix products that it ran, forward and backward, counted as they ran.

    ``roofline`` is the time that the products alone would have taken over that of the update, ``gflops`` the speed of
    plain products.
    """
    policy, schedule = parts.policy(), parts.schedule

    def update() -> None:
        policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)

    with FlopCounterMode(display=False) as counter, _counted_steps() as steps:
        update()
    operations = counter.get_total_flops() + sum(steps)
    passed = seconds(update)
    sessions = max(1, episodes.count * schedule.batch_size // len(episodes.reward))
    speed = matrix_speed(min(sessions, episodes.count), schedule.hidden)
    return {"roofline": operations / speed / passed, "gflops": speed / 1e9}
