from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.policy import ActorCritic, Oracle, OracleEncoder
from rlwb.policy.episodes import last_rows
from tests.policy.conftest import Rollout
from tests.policy.test_recurrent_encoder import refer, step_by_step
from tests.trainer.small import small, small_network


def encoder(previous_day: bool = False) -> OracleEncoder:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return OracleEncoder(small().features.shape[2], 8, previous_day=previous_day)


def network(seed: int = 0) -> ActorCritic:
    return small_network(Oracle, seed=seed)


def observe(n: int = 24) -> dict[str, Any]:
    """Sessions and ticks from the open to the close."""
    features, rng = small().features, np.random.default_rng(0)
    session = rng.integers(len(features), size=n).astype(np.int32)
    tick = rng.integers(features.shape[1] + 1, size=n).astype(np.int32)
    tick[:2] = 0, features.shape[1]
    return refer(session, tick)


def specification(net: OracleEncoder, obs: dict[str, Any]) -> torch.Tensor:
    """Both runs written as a walk, tick by tick."""
    features, rows = small().features, []
    for session, tick in zip(obs["session"], obs["cur_tick"], strict=True):
        today, before = features.today[session], features.block_previous(np.array([session]))[0]
        past = torch.zeros(net.hidden)
        if net.past.previous_gru is not None:
            past = step_by_step(net.past.previous_gru, torch.tensor(before), len(before), past)
        past = step_by_step(net.past.gru, torch.tensor(today), int(tick), past)
        rest = torch.tensor(today[tick:][::-1].copy())
        future = step_by_step(net.future.gru, rest, len(rest), torch.zeros(net.hidden))
        weight, bias = net.both[0].weight, net.both[0].bias
        rows.append(torch.clamp(weight @ torch.cat([past, future]) + bias, min=0))
    return torch.stack(rows)


@pytest.mark.parametrize("previous_day", [False, True])
def test_a_shared_pass_equals_a_walk_along_both_sides(previous_day: bool) -> None:
    net, obs = encoder(previous_day), observe()
    weight = torch.tensor(np.random.default_rng(3).normal(size=(24, 8)), dtype=torch.float32)
    gradients = []
    results = net(obs), specification(net, obs)
    for result in results:
        net.zero_grad()
        (result * weight).sum().backward()
        gradients.append({name: value.grad.clone() for name, value in net.named_parameters() if value.grad is not None})
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    assert gradients[0].keys() == gradients[1].keys() == dict(net.named_parameters()).keys()
    for name in gradients[1]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=1e-4, atol=1e-5, msg=name)
    with torch.no_grad():
        torch.testing.assert_close(net(obs), results[1], rtol=1e-5, atol=1e-6)
        whole = net.encode(*net.read(small().features, np.unique(obs["session"])))
    place = np.searchsorted(np.unique(obs["session"]), obs["session"])
    torch.testing.assert_close(whole[place, obs["cur_tick"]], results[1], rtol=1e-5, atol=1e-6)


def test_the_part_that_looks_ahead_knows_the_ticks_from_the_current_one_on_and_no_others() -> None:
    old = small().features
    today = old.today.copy()
    today[:, 9] += 1.0
    moved = MarketFeatures(old.columns, today, old.previous, old.normaliser)
    sessions = np.arange(24)
    with torch.no_grad():
        future = encoder().future
        before, after = (future.encode(*future.read(panel, sessions)).flip(1) for panel in (old, moved))
    assert torch.equal(before[:, 10:], after[:, 10:])
    assert (before[:, : 9 + 1] != after[:, : 9 + 1]).any(dim=2).all()


def test_kept_states_follow_the_weights_of_both_parts() -> None:
    net, obs = encoder(), observe()
    with torch.no_grad():
        before = net(obs)
        for part in (net.past.gru, net.future.gru):
            part.bias_hh_l0.add_(0.5)
            moved = net(obs)
            assert not torch.allclose(moved, before)
            torch.testing.assert_close(moved, specification(net, obs), rtol=1e-5, atol=1e-6)
            before = moved
        net.forget()
        assert torch.equal(net(obs), before)


def test_a_teacher_may_read_shared_private_paths_and_one_a_row(rollout: Rollout) -> None:
    net, obs = network(), rollout.reference.obs
    with torch.no_grad():
        alone, shared = net(obs), net({**obs, "path": last_rows(rollout.reference.done)})
    torch.testing.assert_close(alone, shared, rtol=1e-5, atol=1e-6)


def test_blocks_that_end_at_the_current_tick_are_refused(rollout: Rollout) -> None:
    with pytest.raises(ConfigError, match="collect in the native environment"):
        network()(rollout.blocks.obs)


def test_a_teacher_says_that_it_sees_the_future_and_a_student_does_not() -> None:
    student = small_network()
    assert network().sees_future
    assert not network().causal
    assert not student.sees_future
