"""The encoders that are no GRU: both ways of observing, the pass they share, and nothing of the future."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlwb.batch import take_rows
from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy import (
    Attention,
    AttentionEncoder,
    Convolution,
    ConvolutionEncoder,
    MarketNetwork,
    OracleEncoder,
    RecurrentEncoder,
    SequenceEncoder,
)
from rlwb.policy.episodes import last_rows
from tests.policy.conftest import Rollout
from tests.policy.test_recurrent_encoder import (
    fresh,
    move_by_optimiser,
    move_by_state_dict,
    observe,
    other_panel,
    refer,
)
from tests.trainer.small import small, small_network

NETWORKS = {"convolution": Convolution, "attention": Attention}
KINDS = {"convolution": ConvolutionEncoder, "attention": AttentionEncoder}
HIDDEN = 8

each_kind = pytest.mark.parametrize("kind", KINDS)
with_yesterday = pytest.mark.parametrize("previous_day", [False, True])


def encoder(kind: str, previous_day: bool = False, **own: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return KINDS[kind](small().features.shape[2], HIDDEN, previous_day=previous_day, **own)


def rows_seen(net: Any, today: np.ndarray, yesterday: np.ndarray, tick: int) -> torch.Tensor:
    """What a state may depend on, one row after the other: the empty row, yesterday's ticks, today's until now."""
    ticks = len(today)
    rows = [np.zeros(today.shape[1] + 1)]
    rows += [np.append(bar, (t + 1) / ticks) for t, bar in enumerate(yesterday)] if net.previous_day else []
    rows += [np.append(bar, (t + 1) / ticks) for t, bar in enumerate(today[:tick])]
    empty = np.zeros((len(rows), net.row_width - today.shape[1] - 1))
    return torch.tensor(np.concatenate([np.stack(rows), empty], axis=1), dtype=torch.float32)


def convolve(net: Any, rows: torch.Tensor) -> torch.Tensor:
    """torch's own dilated convolution, padded on the left."""
    x = net.enter(rows).T[None]
    for layer in net.layers:
        weight = layer.mix.weight.view(HIDDEN, 3, HIDDEN).transpose(1, 2)
        padded = nn.functional.pad(x, (2 * layer.dilation, 0))
        x = x + torch.relu(nn.functional.conv1d(padded, weight, layer.mix.bias, dilation=layer.dilation))
    return x[0, :, -1]


def attend(net: Any, rows: torch.Tensor) -> torch.Tensor:
    """The formulas of attention, a row and a head at a time."""
    wave = [
        [np.sin(p / 1e4 ** (i / 4)) for i in range(4)] + [np.cos(p / 1e4 ** (i / 4)) for i in range(4)]
        for p in range(len(rows))
    ]
    x = net.enter(rows) + torch.tensor(wave, dtype=torch.float32)
    for block in net.blocks:
        q, k, v = block.attend(block.attend_norm(x)).chunk(3, dim=1)
        out = torch.zeros_like(x)
        width = HIDDEN // 4
        for head in range(4):
            own = slice(head * width, (head + 1) * width)
            for t in range(len(x)):
                weight = torch.softmax(k[: t + 1, own] @ q[t, own] / np.sqrt(width), dim=0)
                out[t, own] = weight @ v[: t + 1, own]
        x = x + block.gather(out)
        x = x + block.think(x)
    return net.norm(x)[-1]


SPECIFICATION = {"convolution": convolve, "attention": attend}


@each_kind
@with_yesterday
def test_reference_equals_blocks_equals_the_formulas(kind: str, previous_day: bool) -> None:
    net = encoder(kind, previous_day)
    reference, blocks = observe(12)
    weight = torch.tensor(np.random.default_rng(3).normal(size=(12, HIDDEN)), dtype=torch.float32)
    one_by_one = zip(blocks["data_processed"], blocks["data_processed_prev"], blocks["cur_tick"], strict=True)
    results = {
        "reference": net(reference),
        "blocks": net(blocks),
        "formulas": torch.stack([SPECIFICATION[kind](net, rows_seen(net, *one)) for one in one_by_one]),
    }
    gradients = {}
    for name, result in results.items():
        net.zero_grad()
        (result * weight).sum().backward()
        gradients[name] = {key: value.grad.clone() for key, value in net.named_parameters()}
    for name in ("reference", "blocks"):
        torch.testing.assert_close(results[name], results["formulas"], rtol=1e-4, atol=1e-5)
        for key, gradient in gradients["formulas"].items():
            torch.testing.assert_close(gradients[name][key], gradient, rtol=1e-3, atol=1e-4, msg=f"{name} {key}")


@each_kind
@with_yesterday
def test_the_kept_pass_equals_the_pass_with_gradients(kind: str, previous_day: bool) -> None:
    net = encoder(kind, previous_day)
    reference, blocks = observe()
    with torch.no_grad():
        kept = net(reference)
        assert torch.equal(net(reference), kept)
        torch.testing.assert_close(net(blocks), kept, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net(reference).detach(), kept, rtol=1e-5, atol=1e-6)
    states = net.encode(*net.read(small().features, np.array([3, 5]))).detach()
    assert states.shape == (2, 17, HIDDEN)
    one = refer([5], [9])
    torch.testing.assert_close(net(one).detach()[0], states[1, 9], rtol=1e-5, atol=1e-6)


@each_kind
def test_one_pass_over_the_sessions_serves_all_decisions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = encoder(kind)
    passes: list[int] = []
    whole = net.transform
    monkeypatch.setattr(net, "transform", lambda rows: passes.append(len(rows)) or whole(rows))
    obs, _ = observe(40)
    sessions = len(np.unique(obs["session"]))
    net(obs)
    assert passes == [sessions]
    with torch.no_grad():
        for rows in (slice(None), slice(3, 9), [0]):
            net(take_rows(obs, np.arange(40)[rows]))
    assert len(passes) == 2, "a subset costs no new pass"


@each_kind
@pytest.mark.parametrize("move", [move_by_optimiser, move_by_state_dict, None])
def test_a_kept_pass_is_never_stale(kind: str, move: Any) -> None:
    net = encoder(kind, True)
    obs, _ = observe()
    with torch.no_grad():
        before = net(obs)
    if move is None:
        obs["features"] = other_panel()
    else:
        move(net)
    with torch.no_grad():
        after = net(obs)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, fresh(net, obs), rtol=1e-5, atol=1e-6)


@each_kind
def test_a_session_has_the_same_bits_in_any_company(kind: str) -> None:
    alone, together = encoder(kind), encoder(kind)
    with torch.no_grad():
        whole = together(refer(np.arange(24), np.full(24, 11)))
        for session in range(24):
            alone.forget()
            assert torch.equal(alone(refer([session], [11]))[0], whole[session])


@each_kind
def test_yesterday_matters_only_when_it_is_read(kind: str) -> None:
    reference, _ = observe()
    reference["cur_tick"][:] = 0
    first = torch.tensor(small().features.previous[reference["session"]] < 0)
    with torch.no_grad():
        without, with_it = encoder(kind, False)(reference), encoder(kind, True)(reference)
    assert torch.equal(without, without[:1].expand_as(without)), "before the first tick all days are alike"
    assert len(torch.unique(with_it[~first], dim=0)) > 1


@each_kind
@pytest.mark.parametrize("grad", [False, True])
def test_no_later_bar_moves_a_logit(rollout: Rollout, kind: str, grad: bool) -> None:
    """For each tick in turn, bars from it on are changed beyond measure; no decision up to it may notice."""
    features, obs = small().features, rollout.reference.obs
    net, noticed = small_network(NETWORKS[kind], HIDDEN), 0
    with torch.set_grad_enabled(grad):
        before = net(obs)
        for tick in range(0, features.today.shape[1], 3):
            future = features.today.copy()
            future[:, tick:] = 1e4
            changed = MarketFeatures(features.columns, future, features.previous, features.normaliser)
            after = net({**obs, "features": changed})
            unaware = torch.tensor(obs["cur_tick"] <= tick)
            for old, new in zip(before, after, strict=True):
                assert torch.equal(old[unaware], new[unaware]), tick
            noticed += int((before[0][~unaware] != after[0][~unaware]).any(dim=1).sum())
    assert noticed > 100


@each_kind
def test_blocks_beyond_the_tick_move_no_logit(rollout: Rollout, kind: str) -> None:
    obs = rollout.blocks.obs
    ticks = np.arange(obs["data_processed"].shape[1])
    later = (ticks[None, :] >= obs["cur_tick"][:, None])[:, :, None]
    changed = {**obs, "data_processed": np.where(later, np.float32(1e4), obs["data_processed"])}
    net = small_network(NETWORKS[kind], HIDDEN)
    with torch.no_grad():
        assert torch.equal(net(obs)[0], net(changed)[0])


@pytest.mark.parametrize(("layers", "reach"), [(1, 3), (2, 7), (3, 15)])
def test_a_convolution_sees_so_far_and_no_farther(layers: int, reach: int) -> None:
    features = small().features
    with torch.no_grad():
        net = encoder("convolution", layers=layers)
        before = net.encode(*net.read(features, np.arange(24)))
        past = features.today.copy()
        past[:, 0] += 5.0
        moved = MarketFeatures(features.columns, past, features.previous, features.normaliser)
        after = net.encode(*net.read(moved, np.arange(24)))
    notices = (before != after).any(dim=2).any(dim=0)
    # The state after k ticks is that of tick k - 1; tick 0 is among its last `reach` ticks for k = 1 … reach.
    assert notices.tolist() == [1 <= k <= reach for k in range(17)]


@each_kind
def test_attention_and_convolution_know_the_time(kind: str) -> None:
    """Sessions without any movement: what differs between ticks is the time alone."""
    features = small().features
    flat = MarketFeatures(features.columns, np.zeros_like(features.today), features.previous, features.normaliser)
    with torch.no_grad():
        net = encoder(kind)
        states = net.encode(*net.read(flat, np.array([0])))[0]
    assert len(torch.unique(states, dim=0)) == 17


@each_kind
def test_a_network_of_either_kind_learns_the_same_from_both_ways_of_observing(rollout: Rollout, kind: str) -> None:
    net = small_network(NETWORKS[kind], HIDDEN, previous_day=True)
    gradients = []
    shared = {**rollout.reference.obs, "path": last_rows(rollout.reference.done)}
    for obs in (shared, rollout.blocks.obs):
        net.zero_grad()
        logits, value = net(obs)
        (logits.pow(2).sum() * 100 + value.sum()).backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    for (name, _), a, b in zip(net.named_parameters(), *gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-5, msg=name)


# What is not causal


class Around(SequenceEncoder):
    """Sums up all rows, those before and those after."""

    causal = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mix = nn.Linear(self.row_width, self.hidden)

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        seen = torch.tanh(self.mix(rows))
        return seen.sum(dim=1, keepdim=True).expand_as(seen)


@with_yesterday
def test_what_is_not_causal_is_given_each_decision_s_own_block(previous_day: bool) -> None:
    features = small().features
    net = Around(features.today.shape[2], HIDDEN, previous_day=previous_day)
    reference, blocks = observe()
    torch.testing.assert_close(net(reference), net(blocks))
    future = np.where(np.arange(16)[None, :, None] >= 9, np.float32(7.0), features.today)
    changed = MarketFeatures(features.columns, future, features.previous, features.normaliser)
    obs = refer(np.arange(24), np.full(24, 9))
    with torch.no_grad():
        before = net(obs)
        obs["features"] = changed
        assert torch.equal(net(obs), before) is not previous_day, "today's later ticks are hidden, yesterday's are past"


def test_a_network_says_whether_it_is_causal() -> None:
    assert not MarketNetwork(Around(5, HIDDEN)).causal
    for encoder in (RecurrentEncoder, *KINDS.values()):
        assert MarketNetwork(encoder(5, HIDDEN)).causal


@pytest.mark.parametrize("kind", [*KINDS.values(), RecurrentEncoder, OracleEncoder])
@pytest.mark.parametrize("grad", [True, False])
def test_sessions_without_a_panel_are_refused(kind: Any, grad: bool) -> None:
    obs, _ = observe()
    del obs["features"]
    with torch.set_grad_enabled(grad), pytest.raises(ConfigError, match="MarketFeatures"):
        kind(5, HIDDEN)(obs)
    with pytest.raises(ConfigError, match="channels is 0"):
        kind(0, HIDDEN)
