"""The fused GRU against torch's, in values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlwb.policy import gru as module
from rlwb.policy.gru import last_states, scan, states_at, tanh


def both(gru: nn.GRU, inputs: torch.Tensor, first: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return states and gradients of the fused scan in float32, and of torch's GRU in float64."""
    out = []
    for dtype in (torch.float32, torch.float64):
        cell = nn.GRU(gru.input_size, gru.hidden_size, batch_first=True).to(dtype)
        cell.load_state_dict({name: value.to(dtype) for name, value in gru.state_dict().items()})
        x = inputs.to(dtype, copy=True).requires_grad_()
        h = first.to(dtype, copy=True).requires_grad_()
        states = scan(cell, x, h)
        weight = torch.linspace(-1, 1, states.numel(), dtype=dtype).view_as(states)
        (states * weight + states**2).sum().backward()
        grads = [x.grad, h.grad, *(parameter.grad for parameter in cell.parameters())]
        out.append([states.detach(), *grads])
    return out[0], out[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 6), st.integers(1, 17), st.integers(0, 2**16))
def test_scan_equals_torch_in_values_and_gradients(
    rows: int, ticks: int, channels: int, hidden: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    gru = nn.GRU(channels, hidden, batch_first=True)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    inputs = torch.randn(rows, ticks, channels, generator=generator) * 3
    first = torch.randn(rows, hidden, generator=generator)
    fused, reference = both(gru, inputs, first)
    for mine, exact in zip(fused, reference, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=2e-4, atol=2e-4 * float(exact.abs().max().clamp(min=1)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**16))
def test_chosen_states_are_those_of_the_whole_scan(rows: int, ticks: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gru = nn.GRU(3, 5, batch_first=True)
    inputs, first = torch.randn(rows, ticks, 3, generator=generator), torch.randn(rows, 5, generator=generator)
    row = torch.randint(rows, (count,), generator=generator)
    step = torch.randint(ticks + 1, (count,), generator=generator)
    weight = torch.randn(count, 5, generator=generator)
    found = []
    for chosen in (
        lambda x, h: states_at(gru, x, row, step, h),
        lambda x, h: scan(gru, x, h)[step, row],
    ):
        gru.zero_grad()
        x, h = inputs.clone().requires_grad_(), first.clone().requires_grad_()
        states = chosen(x, h)
        (states * weight).sum().backward()
        found.append([states.detach(), x.grad, h.grad, *(parameter.grad.clone() for parameter in gru.parameters())])
    for mine, whole in zip(*found, strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(states_at(gru, inputs, row, step, first), found[1][0], rtol=1e-5, atol=1e-6)


def test_the_first_state_is_returned_and_defaults_to_zero() -> None:
    gru = nn.GRU(2, 3, batch_first=True)
    states = scan(gru, torch.randn(4, 5, 2))
    assert states.shape == (6, 4, 3)
    assert not states[0].any()


def test_float64_takes_torch_s_own_path_to_the_last_bit() -> None:
    gru = nn.GRU(2, 3, batch_first=True).double()
    inputs = torch.randn(4, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(scan(gru, inputs)[1:].transpose(0, 1), gru(inputs)[0], rtol=0, atol=0)


def test_tanh_is_exact_to_rounding_and_keeps_missing_values() -> None:
    x = np.concatenate([np.linspace(-12, 12, 20001), [1e-20, -1e-8, 88.0, -1e30]]).astype(np.float32)
    got = np.array([tanh(value) for value in x])
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), rtol=5e-7, atol=1e-12)
    assert np.isnan(tanh(np.float32("nan")))


@pytest.mark.parametrize("where", ["input", "weight"])
def test_a_missing_value_stays_missing(where: str) -> None:
    gru, inputs = nn.GRU(2, 3, batch_first=True), torch.randn(2, 4, 2)
    if where == "input":
        inputs[0, 1, 0] = float("nan")
    else:
        with torch.no_grad():
            gru.weight_hh_l0[0, 0] = float("nan")
    states = scan(gru, inputs)
    assert states[-1, 0].isnan().any()
    if where == "input":
        assert not states[:, 1].isnan().any()


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=40), seed=st.integers(0, 2**32 - 1), double=st.booleans()
)
def test_last_states_are_those_of_scans(counts: list[int], seed: int, double: bool) -> None:
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        gru = torch.nn.GRU(3, 5, batch_first=True)
    dtype = torch.float64 if double else torch.float32
    gru = gru.to(dtype)
    table = torch.tensor(rng.normal(size=(60, 3)), dtype=dtype)
    first = torch.tensor(rng.normal(size=(len(counts), 5)), dtype=dtype)
    begin = rng.integers(0, 60 - 7, size=len(counts))
    found = last_states(gru, table, begin, np.array(counts), first, lambda steps: 2.0 * steps)
    assert not found.requires_grad
    for i, count in enumerate(counts):
        rows = 2.0 * table[begin[i] : begin[i] + count][None]
        with torch.no_grad():
            expected = scan(gru, rows, first[i : i + 1])[count, 0]
        torch.testing.assert_close(found[i], expected, rtol=1e-5, atol=1e-6)


def test_sequences_in_several_blocks_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        gru, weight = nn.GRU(3, 4, batch_first=True), torch.randn(40, 4)
    inputs = torch.tensor(rng.normal(size=(11, 6, 3)), dtype=torch.float32)
    row, step = torch.tensor(rng.integers(0, 11, 40)), torch.tensor(rng.integers(0, 7, 40))
    found = []
    for size in (256, 4, 1):
        monkeypatch.setattr(module, "_TRAINED", size)
        gru.zero_grad()
        states = states_at(gru, inputs, row, step)
        (states * weight).sum().backward()
        found.append((states.detach(), *(parameter.grad.clone() for parameter in gru.parameters())))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
