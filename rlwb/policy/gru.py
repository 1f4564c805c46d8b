"""A gated recurrent unit whose steps are one compiled loop, forward and backward.

torch runs a GRU on a CPU as a dozen small operations a tick and as many again backward, each a pass over memory. Here
all ticks are one call, and the gradients of the weights are one product for all of them. The parameters stay those of
`torch.nn.GRU`, which is also the path for anything but float32 on a CPU.

Sequences are sorted, the longest first, and packed step after step, so that those still running at a step are always
the first ones: step t has ``running[t]`` of them, and N is the sum of `running`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from torch import nn

#: Rows of a product without gradients come in multiples of this, so that a row's bits do not depend on its company.
ALIGN = 16
#: Sequences at once without and with gradients, so that what a step reads and writes stays in the processor's cache.
_BLOCK, _TRAINED = 512, 256
#: Steps whose inputs are held at once without gradients; bounds the memory.
_STEPS = 32
#: Multiplications up to which the library that numba calls makes a product by one thread.
_ONE_THREAD = 1 << 18

Embed = Callable[[torch.Tensor], torch.Tensor]
"""What stands before the GRU, step by step: (…, C') to (…, C)."""


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
    states = [first.unsqueeze(0)]
    if steps and not _is_fast(gru, inputs):
        after, _ = gru(inputs, states[0].contiguous())
        states.append(after.transpose(0, 1))
    elif steps:
        for part in inputs.transpose(0, 1).split(steps if torch.is_grad_enabled() else _STEPS):
            running = np.full(len(part), rows)
            after = _Scan.apply(part.flatten(0, 1), states[-1][-1], *_weights(gru), running)
            states.append(after.view(len(part) + 1, rows, -1)[1:])
    return torch.cat(states)


def states_at(
    gru: nn.GRU,
    inputs: torch.Tensor,
    row: torch.Tensor,
    step: torch.Tensor,
    first: torch.Tensor | None = None,
    embed: Embed = _unchanged,
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
        See `Embed`.
    """
    if is_exporting():
        return _states_in_a_graph(gru, embed(inputs), step, first)
    rows, steps, width = inputs.shape
    if first is None:
        first = inputs.new_zeros(rows, gru.hidden_size)
    if not torch.is_grad_enabled() and torch.equal(row, torch.arange(rows, device=row.device)):
        begin = np.arange(rows) * steps
        return last_states(gru, inputs.reshape(rows * steps, width), begin, step.cpu().numpy(), first, embed)
    if not (torch.is_grad_enabled() and _is_fast(gru, inputs)):
        return scan(gru, embed(inputs), first)[step, row]
    return _states_with_gradients(gru, inputs, row.numpy(), step.numpy(), first, embed)


def _states_in_a_graph(
    gru: nn.GRU, inputs: torch.Tensor, step: torch.Tensor, first: torch.Tensor | None
) -> torch.Tensor:
    """Return the state of each sequence after `step` steps, by the operator GRU of an exported graph."""
    hidden = gru.hidden_size
    # The operator has the gates in another order.
    w_ih, w_hh, b_ih, b_hh = (
        torch.cat([part[hidden : 2 * hidden], part[:hidden], part[2 * hidden :]]) for part in _weights(gru)
    )
    start = None if first is None else first.unsqueeze(0)
    weights = w_ih.unsqueeze(0), w_hh.unsqueeze(0), torch.cat([b_ih, b_hh]).unsqueeze(0)
    last: torch.Tensor = _Operator.apply(inputs.transpose(0, 1), *weights, step.to(torch.int32), start)
    found = last.squeeze(0)
    return found if first is None else torch.where((step > 0).unsqueeze(1), found, first)


def last_states(
    gru: nn.GRU,
    table: torch.Tensor,
    begin: np.ndarray,
    count: np.ndarray,
    first: torch.Tensor,
    embed: Embed = _unchanged,
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
    run = _run_packed if _is_fast(gru, table) else _run_padded
    with torch.no_grad():
        order = np.argsort(-count, kind="stable")
        states = torch.empty_like(first)
        for low in range(0, len(order), _BLOCK):
            part = order[low : low + _BLOCK]
            states[torch.from_numpy(part)] = run(gru, table, begin[part], count[part], first[part], embed)
        return states


def next_states(gru: nn.GRU, inputs: torch.Tensor, states: torch.Tensor, embed: Embed = _unchanged) -> torch.Tensor:
    """Return the states after one step more, of shape (B, H), to the bits of `last_states`; without gradients.

    Parameters
    ----------
    gru, embed
        As in `states_at`.
    inputs : float of shape (B, C')
    states : float of shape (B, H)
        Those before the step.
    """
    with torch.no_grad():
        if not _is_fast(gru, inputs):
            return scan(gru, embed(inputs[:, None]), states)[1]
        rows = len(inputs)
        state, filled = (
            states.new_zeros(rows + 1, gru.hidden_size),
            inputs.new_zeros(rows + -rows % ALIGN, inputs.shape[1]),
        )
        state[:rows], filled[:rows] = states, inputs
        _step_packed(gru, embed(filled), state, np.array([rows]))
        return state[:rows]


def _run_padded(
    gru: nn.GRU, table: torch.Tensor, begin: np.ndarray, count: np.ndarray, first: torch.Tensor, embed: Embed
) -> torch.Tensor:
    rows = begin[:, None] + np.minimum(np.arange(count.max()), np.maximum(count - 1, 0)[:, None])
    steps = table[torch.as_tensor(np.minimum(rows, len(table) - 1), device=table.device)]
    place = torch.arange(len(count), device=table.device)
    return scan(gru, embed(steps), first)[torch.as_tensor(count, device=table.device), place]


def _run_packed(
    gru: nn.GRU, table: torch.Tensor, begin: np.ndarray, count: np.ndarray, first: torch.Tensor, embed: Embed
) -> torch.Tensor:
    """Run sequences, the longest first, some steps at a time; products in multiples of `ALIGN` rows."""
    rows, hidden = first.shape
    # A row more than there are sequences, for products of two rows or more.
    state = first.new_zeros(rows + 1, hidden)
    state[:rows] = first
    for low in range(0, int(count[0]), _STEPS):
        length = np.clip(count - low, 0, _STEPS)
        read, running = _pack(begin + low, length)
        filled = np.pad(np.minimum(read, len(table) - 1), (0, -len(read) % ALIGN), mode="edge")
        _step_packed(gru, embed(table.index_select(0, torch.from_numpy(filled))), state, running)
    return state[:rows]


def _step_packed(gru: nn.GRU, inputs: torch.Tensor, state: torch.Tensor, running: np.ndarray) -> None:
    """Run the steps of packed inputs on `state`, in place."""
    w_ih, w_hh, b_ih, b_hh = _weights(gru)
    hidden = gru.hidden_size
    gates = torch.addmm(b_ih, inputs, w_ih.t())
    _run(gates, state, torch.empty(_product_rows(hidden), hidden), w_hh, b_hh, running, in_place=True)


def _states_with_gradients(
    gru: nn.GRU, inputs: torch.Tensor, row: np.ndarray, step: np.ndarray, first: torch.Tensor, embed: Embed
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
        read, running = _pack(part * steps, needed[part])
        packed = embed(table.index_select(0, torch.from_numpy(read)))
        states = _Scan.apply(packed, first.index_select(0, torch.from_numpy(part)), *_weights(gru), running)
        begins = low + np.concatenate([[0], len(part) + np.cumsum(running) - running])
        own = block == number
        where[own] = begins[step[own]] + place[own]
        low += len(states)
        found.append(states)
    whole = found[0] if len(found) == 1 else torch.cat(found)
    return whole.index_select(0, torch.from_numpy(where))


class _Operator(torch.autograd.Function):
    """The operator GRU of ONNX, of which torch exports no form with a length for each sequence."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        w: torch.Tensor,
        r: torch.Tensor,
        b: torch.Tensor,
        lengths: torch.Tensor,
        first: torch.Tensor | None,
    ) -> torch.Tensor:
        # While a graph is traced the shape alone matters.
        return inputs.new_zeros(1, inputs.shape[1], r.shape[2])

    @staticmethod
    def symbolic(g: Any, inputs: Any, w: Any, r: Any, b: Any, lengths: Any, first: Any) -> Any:
        settings = {"hidden_size_i": r.type().sizes()[2], "linear_before_reset_i": 1, "outputs": 2}
        return g.op("GRU", inputs, w, r, b, lengths, *([] if first is None else [first]), **settings)[1]


class _Scan(torch.autograd.Function):
    """All steps of packed sequences: from inputs (N, C) and B first states to these and the N after the steps."""

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
        _run(gates, states, kept, w_hh, b_hh, running, in_place=False)
        ctx.save_for_backward(inputs, states, gates, kept, w_ih, w_hh)
        ctx.running = running
        return states

    @staticmethod
    def backward(ctx: Any, *d_states: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, states, gates, kept, w_ih, w_hh = ctx.saved_tensors
        running, rows, hidden = ctx.running, len(states) - len(inputs), states.shape[1]
        d_recurrent, d_new, d_all = torch.empty_like(gates), torch.empty_like(kept), d_states[0].contiguous()
        arrays = (part.detach().numpy() for part in (gates, states, kept, d_all, d_recurrent, d_new, w_hh))
        spare = np.empty((_product_rows(hidden), hidden), dtype=np.float32)
        d_first = torch.from_numpy(_retreat(*arrays, running, spare)) + d_all[:rows]
        # Where the state before each packed row lies.
        low = np.cumsum(running) - running
        before = np.concatenate([[0], rows + low[:-1]])
        entered = torch.from_numpy(np.arange(len(inputs)) + np.repeat(before - low, running))
        d_w_hh, d_b_hh = d_recurrent.t() @ states.index_select(0, entered), d_recurrent.sum(0)
        # From here on the gradient of the input's part of the gates, which differs in n alone.
        d_recurrent[:, 2 * hidden :] = d_new
        d_inputs = d_recurrent @ w_ih if ctx.needs_input_grad[0] else None
        d_b_ih = torch.cat([d_b_hh[: 2 * hidden], d_new.sum(0)])
        return d_inputs, d_first, d_recurrent.t() @ inputs, d_w_hh, d_b_ih, d_b_hh, None


def _run(
    gates: torch.Tensor,
    states: torch.Tensor,
    kept: torch.Tensor,
    w_hh: torch.Tensor,
    b_hh: torch.Tensor,
    running: np.ndarray,
    *,
    in_place: bool,
) -> None:
    """Run all steps; see `_advance`."""
    spare = np.empty((_product_rows(w_hh.shape[1]), len(w_hh)), dtype=np.float32)
    across, bias = w_hh.detach().t().contiguous().numpy(), b_hh.detach().numpy()
    _advance(gates.detach().numpy(), states.numpy(), kept.numpy(), across, bias, running, spare, in_place)


def _product_rows(hidden: int) -> int:
    """Return how many rows a product in a step has at most: a multiple of 4, from 4 to 64."""
    return max(4, min(64, _ONE_THREAD // (3 * hidden * hidden) // 4 * 4))


def _weights(gru: nn.GRU) -> tuple[torch.Tensor, ...]:
    return gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0


def _is_fast(gru: nn.GRU, inputs: torch.Tensor) -> bool:
    is_plain = inputs.dtype == gru.weight_hh_l0.dtype == torch.float32 and inputs.device.type == "cpu"
    return is_plain and not is_exporting()  # an exported graph has an operator for a GRU, not our loop


def is_exporting() -> bool:
    """Return whether a network is being written as an ONNX graph."""
    # Who exports has imported the exporter, which takes half a second.
    return "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()


# The compiled loops; arrays are float32 and contiguous.

# tanh(x) / x = P(x^2) / Q(x^2) on [-9, 9], fitted by weighted least squares; relative error 2.1e-8 before rounding.
_P = (0.9999999796767073, 0.13381050865847086, 0.003495617161900108, 2.0609524416958164e-05, 1.3355202902948083e-08)
_Q = (0.4671436653520803, 0.025877094986877656, 0.0003285680773035716, 7.776795244334829e-07)
_P0, _P1, _P2, _P3, _P4 = map(np.float32, _P)
_Q1, _Q2, _Q3, _Q4 = map(np.float32, _Q)
_LIMIT, _ZERO, _HALF, _ONE = np.float32(9.0), np.float32(0.0), np.float32(0.5), np.float32(1.0)
# Not the whole of fast mathematics: a NaN must stay one.
_compiled = numba.njit(cache=True, fastmath={"contract", "arcp", "nsz", "reassoc"}, error_model="numpy")


@numba.njit(inline="always")
def tanh(x: Any) -> Any:
    """Return tanh(x) to the rounding of float32; NaN stays NaN."""
    cut = min(max(x, -_LIMIT), _LIMIT)
    y = cut * cut
    p = (((_P4 * y + _P3) * y + _P2) * y + _P1) * y + _P0
    q = (((_Q4 * y + _Q3) * y + _Q2) * y + _Q1) * y + _ONE
    return cut * p / q + _ZERO * x


@numba.njit(inline="always")
def _sigmoid(x: Any) -> Any:
    return _HALF * tanh(_HALF * x) + _HALF


@_compiled
def _pack(begin: Any, count: Any) -> Any:
    """Return which row of a table each packed row reads, and `running`, for sequences sorted by `count`."""
    running, read, low = np.empty(count[0], dtype=np.int64), np.empty(count.sum(), dtype=np.int64), 0
    for t in range(len(running)):
        n: Any = np.searchsorted(-count, -t)
        read[low : low + n] = begin[:n] + t
        running[t] = n
        low += n
    return read, running


@_compiled
def _step(gates: Any, recurrent: Any, bias: Any, before: Any, after: Any, kept: Any) -> None:
    """Turn the input's part `gates` (B, 3 H) of the gates into r, z, n in place and write the state `after` (B, H).

    With ``u = recurrent + bias``: ``r, z = sigmoid(gates + u)``, ``n = tanh(gates + r * u)``, ``h' = n + z * (h - n)``;
    `kept` receives the last third of u, which the backward pass needs.
    """
    rows, hidden = before.shape
    for i in range(rows):
        g, u, h, out, k = gates[i], recurrent[i], before[i], after[i], kept[i]
        for j in range(2 * hidden):
            g[j] = _sigmoid(g[j] + (u[j] + bias[j]))
        for j in range(hidden):
            k[j] = u[2 * hidden + j] + bias[2 * hidden + j]
        for j in range(hidden):
            g[2 * hidden + j] = tanh(g[2 * hidden + j] + g[j] * k[j])
        for j in range(hidden):
            n = g[2 * hidden + j]
            out[j] = n + g[hidden + j] * (h[j] - n)


@_compiled
def _step_back(gates: Any, kept: Any, before: Any, d_after: Any, d_state: Any, d_recurrent: Any, d_new: Any) -> None:
    """Undo one step: from the gradient ``d_state + d_after`` of the state after it (B, H) to that of pre-activations.

    `d_recurrent` (B, 3 H) receives the gradient of ``W_hh h + b_hh``, `d_new` (B, H) that of the input's part of n
    (for r and z the two are the same), and `d_state` becomes what goes to the state before directly.
    """
    rows, hidden = before.shape
    for i in range(rows):
        g, k, h, e, d, u, v = gates[i], kept[i], before[i], d_after[i], d_state[i], d_recurrent[i], d_new[i]
        for j in range(hidden):
            r, z, n = g[j], g[hidden + j], g[2 * hidden + j]
            whole = d[j] + e[j]
            share = whole * (_ONE - z)
            new = share * (_ONE - n * n)
            v[j] = new
            u[2 * hidden + j] = new * r
            u[j] = new * k[j] * r * (_ONE - r)
            u[hidden + j] = share * (h[j] - n) * z
            d[j] = whole * z


@_compiled
def _advance(
    gates: Any, states: Any, kept: Any, weights: Any, bias: Any, running: Any, spare: Any, in_place: Any
) -> None:
    """Run all steps of packed sequences.

    `states` holds the first ones and receives those after each step behind them; `in_place`, each replaces the one
    before, there is a row more than sequences, and `kept` has room for a product's rows alone.

    `weights` is the transposed recurrent matrix (H, 3 H); `spare` (P, 3 H) is for P rows of a product, few enough for
    the library to make it by one thread and for its result to be still in the cache when it is read.
    """
    before, low, rows = 0, 0, len(states) - len(gates)
    # A product of one row alone goes another way in the library, with other roundings.
    least = 2 if in_place else 1
    for n in running:
        after = 0 if in_place else rows + low
        for at in range(0, n, len(spare)):
            to = min(at + len(spare), n)
            recurrent = spare[: max(to - at, least)]
            np.dot(states[before + at : before + at + len(recurrent)], weights, recurrent)
            own = kept[: to - at] if in_place else kept[low + at : low + to]
            entered, left = states[before + at : before + to], states[after + at : after + to]
            _step(gates[low + at : low + to], recurrent, bias, entered, left, own)
        before, low = after, low + n


@_compiled
def _retreat(
    gates: Any,
    states: Any,
    kept: Any,
    d_states: Any,
    d_recurrent: Any,
    d_new: Any,
    weights: Any,
    running: Any,
    spare: Any,
) -> Any:
    """Undo `_advance`; return the gradient of the first states, without that which reaches them directly."""
    rows, low = len(states) - len(gates), len(gates)
    d_state = np.zeros((rows, states.shape[1]), dtype=states.dtype)
    for t in range(len(running) - 1, -1, -1):
        n = running[t]
        low -= n
        before = rows + low - running[t - 1] if t else 0
        for at in range(0, n, len(spare)):
            to = min(at + len(spare), n)
            part, direct = slice(low + at, low + to), d_state[at:to]
            d_after = d_states[rows + low + at : rows + low + to]
            entered = states[before + at : before + to]
            _step_back(gates[part], kept[part], entered, d_after, direct, d_recurrent[part], d_new[part])
            through = spare[: to - at]
            np.dot(d_recurrent[part], weights, through)
            for i in range(to - at):
                for j in range(through.shape[1]):
                    direct[i, j] += through[i, j]
    return d_state
