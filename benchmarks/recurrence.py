"""Ways to run a GRU forward and backward on this machine, side by side. Run as ``python -m benchmarks.recurrence``."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.measure import context
from benchmarks.roofline import gru_flops, matrix_speed
from benchmarks.table import RESULTS, number
from rlwb.files import write_json
from rlwb.policy.gru import states_at

_WIDTH = 64
#: Sessions of a minibatch of 256 and of 4,000 transitions, and ticks of a day.
_ROWS = (104, 1600)
_TICKS = 48


class _Cell(nn.Module):
    """The formulas of a GRU's step, for `torch.compile`."""

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.gru = gru

    def forward(self, gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        i_r, i_z, i_n = gates.chunk(3, dim=1)
        h_r, h_z, h_n = torch.addmm(self.gru.bias_hh_l0, state, self.gru.weight_hh_l0.t()).chunk(3, dim=1)
        r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        new = torch.tanh(i_n + r * h_n)
        return new + z * (state - new)


def _by_cells(gru: nn.GRU, step: Callable[..., torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    gates = nn.functional.linear(inputs.transpose(0, 1), gru.weight_ih_l0, gru.bias_ih_l0)
    state = inputs.new_zeros(len(inputs), gru.hidden_size)
    for tick in gates:
        state = step(tick, state)
    return state


def ways(gru: nn.GRU) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Return the ways that this machine can go, by name: inputs (B, T, C) to the last states (B, H)."""
    cell = _Cell(gru)

    def last(inputs: torch.Tensor) -> torch.Tensor:
        every = torch.arange(len(inputs))
        return states_at(gru, inputs, every, torch.full_like(every, inputs.shape[1]))

    def half(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return gru(inputs)[0][:, -1].float()

    found: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "rlwb: one product and one compiled loop a tick": last,
        "torch.nn.GRU": lambda inputs: gru(inputs)[0][:, -1],
        "torch.nn.GRU, bfloat16": half,
        "a cell in Python": lambda inputs: _by_cells(gru, cell, inputs),
    }
    if shutil.which("g++") or shutil.which("clang++"):
        compiled = torch.compile(cell, dynamic=False)
        found["a cell by torch.compile"] = lambda inputs: _by_cells(gru, compiled, inputs)
    return found


def _milliseconds(run: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, least: float) -> float:
    weight = torch.randn(len(inputs), _WIDTH)

    def once() -> None:
        (run(inputs) * weight).sum().backward()

    once()
    times: list[float] = []
    while sum(times) < least or len(times) < 3:
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return 1e3 * sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.5, help="least time of each measurement")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    about = context()
    for threads in args.threads:
        torch.set_num_threads(threads)
        for count in _ROWS:
            torch.manual_seed(0)
            gru = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
            inputs = torch.randn(count, _TICKS, _WIDTH, requires_grad=True)
            # Backward has twice the products of forward: the gradients of the weights, and of what they multiplied.
            products = 3 * gru_flops(count * _TICKS, _WIDTH, _WIDTH) / matrix_speed(count, _WIDTH)
            for name, run in ways(gru).items():
                passed = _milliseconds(run, inputs, args.seconds)
                row = {"way": name, "threads": threads, "sessions": count, "ticks": _TICKS, "milliseconds": passed}
                rows.append({**row, "roofline_share": 1e3 * products / passed, **about})
                print(
                    f"{threads} thread(s), {count} sessions, {name}: {number(passed)} ms, "
                    f"{1e3 * products / passed:.0%} of the products alone",
                    flush=True,
                )
    write_json(RESULTS.with_name("recurrence.json"), rows)


if __name__ == "__main__":
    main()
