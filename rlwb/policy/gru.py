"""A gated recurrent unit whose steps are one compiled loop, forward and backward.

torch runs a GRU on a CPU as a dozen small operations a tick and as many again backward, each a pass over memory. Here
all ticks are one call (`rlwb.policy.gru_kernels`), and the gradients of the weights are one product for all of them.
The parameters stay those of `torch.nn.GRU`, which is also the path for anything but float32 on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.policy import gru_kernels as kernels

#: Rows of a product without gradients come in multiples of this, so that a row's bits do not depend on its company.
ALIGN = 16
#: Sequences at once without and with gradients, so that what a step reads and writes stays in the processor's cache.
_BLOCK, _TRAINED = 512, 256
#: Steps whose inputs are held at once without gradients; bounds the memory.
_STEPS = 32
#: Multiplications up to which the library that numba calls makes a product by one thread.
_ONE_THREAD = 1 << 18


class _Scan(torch.autograd.Function):
    """All steps of a GRU over sequences that end at different steps.

    The sequences are sorted, the longest first, so that those still running are always the first rows: step t has
    ``running[t]`` of them. Inputs are packed, step after step: (N, C) with N the sum of `running`. The states are the B
    first ones and the N after the steps, of shape (B + N, H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        first: torch.Tensor,
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor,
        b_hh: torch.Tensor,
        running: np.ndarray,
    ) -> torch.Tensor:
        rows, hidden = first.shape
        gates = torch.addmm(b_ih, inputs, w_ih.t())
        states, kept = torch.empty(rows + len(inputs), hidden), torch.empty(len(inputs), hidden)
        states[:rows] = first
        advance(gates, states, kept, w_hh, b_hh, running)
        ctx.save_for_backward(inputs, states, gates, kept, w_ih, w_hh)
        ctx.running = running
        return states

    @staticmethod
    def backward(ctx: Any, *d_states: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, states, gates, kept, w_ih, w_hh = ctx.saved_tensors
        rows, hidden = len(states) - len(inputs), states.shape[1]
        d_recurrent, d_new, d_all = torch.empty_like(gates), torch.empty_like(kept), d_states[0].contiguous()
        d_first = retreat(gates, states, kept, d_all, d_recurrent, d_new, w_hh, ctx.running)
        d_first += d_all[:rows]
        entered = torch.from_numpy(kernels.entered(ctx.running, rows))
        d_w_hh, d_b_hh = d_recurrent.t() @ states.index_select(0, entered), d_recurrent.sum(0)
        # From here on the gradient of the input's part of the gates, which differs in n alone.
        d_recurrent[:, 2 * hidden :] = d_new
        d_inputs = d_recurrent @ w_ih if ctx.needs_input_grad[0] else None
        d_b_ih = torch.cat([d_b_hh[: 2 * hidden], d_new.sum(0)])
        return d_inputs, d_first, d_recurrent.t() @ inputs, d_w_hh, d_b_ih, d_b_hh, None


def advance(
    gates: torch.Tensor,
    states: torch.Tensor,
    kept: torch.Tensor,
    w_hh: torch.Tensor,
    b_hh: torch.Tensor,
    running: np.ndarray,
) -> None:
    """Run all steps; see `kernels.advance`."""
    across, bias, spare = _for_steps(w_hh, b_hh)
    kernels.advance(gates.detach().numpy(), states.numpy(), kept.numpy(), across, bias, running, spare)


def retreat(
    gates: torch.Tensor,
    states: torch.Tensor,
    kept: torch.Tensor,
    d_states: torch.Tensor,
    d_recurrent: torch.Tensor,
    d_new: torch.Tensor,
    w_hh: torch.Tensor,
    running: np.ndarray,
) -> torch.Tensor:
    """Undo all steps; see `kernels.retreat`."""
    hidden = states.shape[1]
    spare = np.empty((_product_rows(hidden), hidden), dtype=np.float32)
    arrays = (part.detach().numpy() for part in (gates, states, kept, d_states, d_recurrent, d_new, w_hh))
    return torch.from_numpy(kernels.retreat(*arrays, running, spare))


def walk(gates: torch.Tensor, state: torch.Tensor, w_hh: torch.Tensor, b_hh: torch.Tensor, running: np.ndarray) -> None:
    """Run all steps in place; see `kernels.walk`."""
    across, bias, spare = _for_steps(w_hh, b_hh)
    kept = np.empty((len(spare), state.shape[1]), dtype=np.float32)
    kernels.walk(gates.numpy(), state.numpy(), kept, across, bias, running, spare)


def _product_rows(hidden: int) -> int:
    """Return how many rows a product in a step has at most: a multiple of 4, from 4 to 64."""
    return max(4, min(64, _ONE_THREAD // (3 * hidden * hidden) // 4 * 4))


def _unchanged(inputs: torch.Tensor) -> torch.Tensor:
    return inputs


def scan(gru: nn.GRU, inputs: torch.Tensor, first: torch.Tensor | None = None) -> torch.Tensor:
    """Return the states of a one-layer GRU after 0, 1, … T steps.

    Parameters
    ----------
    gru
        The parameters: one layer, one direction, ``batch_first``.
    inputs : float of shape (B, T, C)
    first : of shape (B, H), optional
        State before the first step; 0 by default.

    Returns
    -------
    Tensor of shape (T + 1, B, H)
        Time comes first, as the steps are made.
    """
    rows, steps, _ = inputs.shape
    if first is None:
        first = inputs.new_zeros(rows, gru.hidden_size)
    if not steps:
        return first.unsqueeze(0)
    if not _is_fast(gru, inputs):
        after, _ = gru(inputs, first.unsqueeze(0).contiguous())
        return torch.cat([first.unsqueeze(0), after.transpose(0, 1)])
    if torch.is_grad_enabled():
        packed = inputs.transpose(0, 1).flatten(0, 1)
        states: torch.Tensor = _Scan.apply(packed, first, *_weights(gru), np.full(steps, rows))
        return states.view(steps + 1, rows, -1)
    return _forward(gru, inputs.transpose(0, 1).contiguous(), first)


def states_at(
    gru: nn.GRU,
    inputs: torch.Tensor,
    row: torch.Tensor,
    step: torch.Tensor,
    first: torch.Tensor | None = None,
    embed: Callable[[torch.Tensor], torch.Tensor] = _unchanged,
) -> torch.Tensor:
    """Return chosen states of a GRU: that of sequence ``row[i]`` after ``step[i]`` steps, of shape (N, H).

    No sequence is run beyond the last state that is asked of it, where there are gradients or each sequence is asked
    for one state.

    Parameters
    ----------
    gru, first
        As in `scan`.
    inputs : float of shape (B, T, C')
    row, step : int64 of shape (N,)
    embed
        What stands before the GRU, step by step: (…, C') to (…, C).
    """
    rows, steps, width = inputs.shape
    if first is None:
        first = inputs.new_zeros(rows, gru.hidden_size)
    if not torch.is_grad_enabled() and torch.equal(row, torch.arange(rows, device=row.device)):
        begin = np.arange(rows) * steps
        return last_states(gru, inputs.reshape(rows * steps, width), begin, step.cpu().numpy(), first, embed)
    if not (torch.is_grad_enabled() and _is_fast(gru, inputs)):
        return scan(gru, embed(inputs), first)[step, row]
    return _states_with_gradients(gru, inputs, row.numpy(), step.numpy(), first, embed)


def _states_with_gradients(
    gru: nn.GRU, inputs: torch.Tensor, row: np.ndarray, step: np.ndarray, first: torch.Tensor, embed: Any
) -> torch.Tensor:
    rows, steps, width = inputs.shape
    table = inputs.reshape(rows * steps, width)
    needed = np.zeros(rows, dtype=np.int64)
    np.maximum.at(needed, row, step)
    order = np.argsort(-needed, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(rows)
    block, place = np.divmod(rank[row], _TRAINED)
    found, where, low = [], np.empty_like(row), 0
    for number in range(-(-rows // _TRAINED)):
        part = order[number * _TRAINED : (number + 1) * _TRAINED]
        read, running = kernels.pack(part * steps, needed[part])
        packed = embed(table.index_select(0, torch.from_numpy(read)))
        states: torch.Tensor = _Scan.apply(
            packed, first.index_select(0, torch.from_numpy(part)), *_weights(gru), running
        )
        begins = low + np.concatenate([[0], len(part) + np.cumsum(running) - running])
        own = block == number
        where[own] = begins[step[own]] + place[own]
        low += len(states)
        found.append(states)
    whole = found[0] if len(found) == 1 else torch.cat(found)
    return whole.index_select(0, torch.from_numpy(where))


def last_states(
    gru: nn.GRU,
    table: torch.Tensor,
    begin: np.ndarray,
    count: np.ndarray,
    first: torch.Tensor,
    embed: Callable[[torch.Tensor], torch.Tensor] = _unchanged,
) -> torch.Tensor:
    """Return the last state alone of sequences that lie in a table, of shape (B, H); without gradients.

    Parameters
    ----------
    gru, embed
        As in `states_at`.
    table : float of shape (M, C')
        Sequence i reads its rows ``begin[i]`` … ``begin[i] + count[i] - 1``.
    begin, count : int64 of shape (B,)
    first : float of shape (B, H)
        State before the first step.
    """
    with torch.no_grad():
        order = np.argsort(-count, kind="stable")
        states = torch.empty_like(first)
        for low in range(0, len(order), _BLOCK):
            part = order[low : low + _BLOCK]
            run = _run_packed if _is_fast(gru, table) else _run_padded
            states[torch.from_numpy(part)] = run(gru, table, begin[part], count[part], first[part], embed)
        return states


def _run_padded(
    gru: nn.GRU, table: torch.Tensor, begin: np.ndarray, count: np.ndarray, first: torch.Tensor, embed: Any
) -> torch.Tensor:
    rows = begin[:, None] + np.minimum(np.arange(count.max()), np.maximum(count - 1, 0)[:, None])
    steps = table[torch.as_tensor(np.minimum(rows, len(table) - 1), device=table.device)]
    place = torch.arange(len(count), device=table.device)
    return scan(gru, embed(steps), first)[torch.as_tensor(count, device=table.device), place]


def _run_packed(
    gru: nn.GRU, table: torch.Tensor, begin: np.ndarray, count: np.ndarray, first: torch.Tensor, embed: Any
) -> torch.Tensor:
    """Run sequences, the longest first, some steps at a time; products in multiples of `ALIGN` rows."""
    w_ih, w_hh, b_ih, b_hh = _weights(gru)
    rows, hidden = first.shape
    state = first.new_zeros(rows + 1, hidden)
    state[:rows] = first
    own, read_last = w_ih.t(), len(table) - 1
    for low in range(0, int(count[0]), _STEPS):
        length = np.clip(count - low, 0, _STEPS)
        at = int(np.searchsorted(-length, 0))
        read, running = kernels.pack(begin[:at] + low, length[:at])
        filled = np.pad(np.minimum(read, read_last), (0, -len(read) % ALIGN), mode="edge")
        gates = torch.addmm(b_ih, embed(table.index_select(0, torch.from_numpy(filled))), own)
        walk(gates, state, w_hh, b_hh, running)
    return state[:rows]


def _forward(gru: nn.GRU, inputs: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return the states of inputs (T, B, C) without keeping what a backward pass would need."""
    w_ih, w_hh, b_ih, b_hh = _weights(gru)
    steps, rows, _ = inputs.shape
    states = torch.empty(steps + 1, rows, first.shape[1])
    states[0] = first
    for low in range(0, steps, _STEPS):
        part = inputs[low : low + _STEPS]
        gates = torch.addmm(b_ih, part.flatten(0, 1), w_ih.t())
        here, kept = (
            states[low : low + len(part) + 1].view(-1, first.shape[1]),
            gates.new_empty(len(gates), first.shape[1]),
        )
        advance(gates, here, kept, w_hh, b_hh, np.full(len(part), rows))
    return states


def _for_steps(w_hh: torch.Tensor, b_hh: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the transposed recurrent matrix, its bias, and room for a product, as the compiled loops take them."""
    hidden = w_hh.shape[1]
    spare = np.empty((_product_rows(hidden), 3 * hidden), dtype=np.float32)
    return w_hh.detach().t().contiguous().numpy(), b_hh.detach().numpy(), spare


def _weights(gru: nn.GRU) -> tuple[torch.Tensor, ...]:
    return gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0


def _is_fast(gru: nn.GRU, inputs: torch.Tensor) -> bool:
    return inputs.device.type == "cpu" and inputs.dtype == gru.weight_hh_l0.dtype == torch.float32
