"""The compiled loops of a gated recurrent unit: all steps of many sequences, forward, backward and in place.

Sequences are sorted, the longest first, and packed step after step, so that those still running at a step are always
the first ones: step t has ``running[t]`` of them, and N is the sum of `running`. Arrays are float32 and contiguous.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# tanh(x) / x = P(x^2) / Q(x^2) on [-9, 9], fitted by weighted least squares; relative error 2.1e-8 before rounding.
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(value)
    for value in (
        0.9999999796767073,
        0.13381050865847086,
        0.003495617161900108,
        2.0609524416958164e-05,
        1.3355202902948083e-08,
    )
)
_Q1, _Q2, _Q3, _Q4 = (
    np.float32(value)
    for value in (0.4671436653520803, 0.025877094986877656, 0.0003285680773035716, 7.776795244334829e-07)
)
_LIMIT, _ZERO, _HALF, _ONE = np.float32(9.0), np.float32(0.0), np.float32(0.5), np.float32(1.0)
# Not the whole of fast mathematics: a NaN must stay one.
_FAST = {"contract", "arcp", "nsz", "reassoc"}


@numba.njit(inline="always")
def tanh(x: Any) -> Any:
    """Return tanh(x) to the rounding of float32; NaN stays NaN."""
    cut = min(max(x, -_LIMIT), _LIMIT)
    y = cut * cut
    p = (((_P4 * y + _P3) * y + _P2) * y + _P1) * y + _P0
    q = (((_Q4 * y + _Q3) * y + _Q2) * y + _Q1) * y + _ONE
    return cut * p / q + _ZERO * x


@numba.njit(inline="always")
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return _HALF * tanh(_HALF * x) + _HALF


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def step(gates: Any, recurrent: Any, bias: Any, before: Any, after: Any, kept: Any) -> None:
    """Turn the input's part `gates` (B, 3 H) of the gates into r, z, n in place and write the state `after` (B, H).

    With ``u = recurrent + bias``: ``r, z = sigmoid(gates + u)``, ``n = tanh(gates + r * u)``, ``h' = n + z * (h - n)``;
    `kept` receives the last third of u, which the backward pass needs.
    """
    rows, hidden = before.shape
    for i in range(rows):
        g, u, h, out, k = gates[i], recurrent[i], before[i], after[i], kept[i]
        for j in range(2 * hidden):
            g[j] = sigmoid(g[j] + (u[j] + bias[j]))
        for j in range(hidden):
            k[j] = u[2 * hidden + j] + bias[2 * hidden + j]
        for j in range(hidden):
            g[2 * hidden + j] = tanh(g[2 * hidden + j] + g[j] * k[j])
        for j in range(hidden):
            n = g[2 * hidden + j]
            out[j] = n + g[hidden + j] * (h[j] - n)


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def step_back(gates: Any, kept: Any, before: Any, d_after: Any, d_state: Any, d_recurrent: Any, d_new: Any) -> None:
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


@numba.njit(cache=True)
def pack(begin: Any, count: Any) -> Any:
    """Lay sequences out step after step: which rows of a table are read, and how many sequences run at each step.

    The longest sequence comes first, so that those still running are always the first ones.
    """
    running, rows = np.empty(count[0], dtype=np.int64), np.empty(count.sum(), dtype=np.int64)
    n, low = len(count), 0
    for t in range(len(running)):
        while count[n - 1] <= t:
            n -= 1
        running[t] = n
        for i in range(n):
            rows[low + i] = begin[i] + t
        low += n
    return rows, running


@numba.njit(cache=True)
def entered(running: Any, rows: int) -> Any:
    """Return where the state before each packed row lies, among `rows` first states and those after the steps."""
    found = np.empty(running.sum(), dtype=np.int64)
    before, low = 0, 0
    for n in running:
        for i in range(n):
            found[low + i] = before + i
        before, low = rows + low, low + n
    return found


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def advance(gates: Any, states: Any, kept: Any, weights: Any, bias: Any, running: Any, spare: Any) -> None:
    """Run all steps of packed sequences; `states` holds the first ones and receives those after each step.

    `weights` is the transposed recurrent matrix (H, 3 H); `spare` (P, 3 H) is for P rows of a product, few enough for
    the library to make it by one thread and for its result to be still in the cache when it is read.
    """
    before, low, rows = 0, 0, len(states) - len(gates)
    for n in running:
        for at in range(0, n, len(spare)):
            to = min(at + len(spare), n)
            recurrent = spare[: to - at]
            np.dot(states[before + at : before + to], weights, recurrent)
            part = slice(low + at, low + to)
            after = states[rows + low + at : rows + low + to]
            step(gates[part], recurrent, bias, states[before + at : before + to], after, kept[part])
        before, low = rows + low, low + n


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def retreat(
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
    """Undo `advance`; return the gradient of the first states, without that which reaches them directly."""
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
            step_back(gates[part], kept[part], entered, d_after, direct, d_recurrent[part], d_new[part])
            through = spare[: to - at]
            np.dot(d_recurrent[part], weights, through)
            for i in range(to - at):
                for j in range(through.shape[1]):
                    direct[i, j] += through[i, j]
    return d_state


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def walk(gates: Any, state: Any, kept: Any, weights: Any, bias: Any, running: Any, spare: Any) -> None:
    """Run all steps of packed sequences in place; `state` (B + 1, H) has a row more than there are sequences."""
    low = 0
    for n in running:
        for at in range(0, n, len(spare)):
            to = min(at + len(spare), n)
            # Of two rows or more: a product of one alone goes another way in the library, with other roundings.
            recurrent = spare[: max(to - at, 2)]
            np.dot(state[at : at + len(recurrent)], weights, recurrent)
            own = state[at:to]
            step(gates[low + at : low + to], recurrent, bias, own, own, kept[: to - at])
        low += n
