from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlwb.market import MarketFeatures
from rlwb.policy import RecurrentEncoder
from rlwb.policy import encoder as module
from rlwb.policy.encoder import EncoderCache
from rlwb.policy.gru import last_states
from tests.trainer.small import small


def step_by_step(gru: nn.GRU, block: torch.Tensor, ticks: int, state: torch.Tensor) -> torch.Tensor:
    """The formulas of a gated recurrent unit, one tick after the other (torch's documentation of GRU)."""
    for t in range(ticks):
        i = gru.weight_ih_l0 @ block[t] + gru.bias_ih_l0
        h = gru.weight_hh_l0 @ state + gru.bias_hh_l0
        (ir, iz, i_new), (hr, hz, h_new) = i.chunk(3), h.chunk(3)
        z = torch.sigmoid(iz + hz)
        state = (1 - z) * torch.tanh(i_new + torch.sigmoid(ir + hr) * h_new) + z * state
    return state


def specification(encoder: RecurrentEncoder, obs: dict[str, np.ndarray]) -> torch.Tensor:
    rows = []
    for today, yesterday, tick in zip(obs["data_processed"], obs["data_processed_prev"], obs["cur_tick"], strict=True):
        state = torch.zeros(encoder.hidden)
        if encoder.previous_gru is not None:
            state = step_by_step(encoder.previous_gru, torch.tensor(yesterday), len(yesterday), state)
        rows.append(step_by_step(encoder.gru, torch.tensor(today), int(tick), state))
    return torch.stack(rows)


def refer(session: Any, tick: Any, features: MarketFeatures | None = None) -> dict[str, Any]:
    """Observations that name their sessions, in a panel of features."""
    panel = features or small().features
    return {"session": np.asarray(session), "cur_tick": np.asarray(tick), "features": panel}


def observe(n: int = 24, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Observations by reference and in blocks; ticks from 0 to the close."""
    features, rng = small().features, np.random.default_rng(seed)
    session = rng.integers(len(features), size=n).astype(np.int32)
    tick = rng.integers(features.today.shape[1] + 1, size=n).astype(np.int32)
    tick[:2] = 0, features.today.shape[1]
    blocks = {"data_processed": features.block(session, tick), "data_processed_prev": features.block_previous(session)}
    return refer(session, tick), {**blocks, "cur_tick": tick}


def encoder(previous_day: bool) -> RecurrentEncoder:
    features = small().features
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return RecurrentEncoder(features.today.shape[2], 8, previous_day=previous_day)


@pytest.mark.parametrize("previous_day", [False, True])
def test_reference_equals_blocks_equals_step_by_step(previous_day: bool) -> None:
    net = encoder(previous_day)
    reference, blocks = observe()
    weight = torch.tensor(np.random.default_rng(3).normal(size=(24, 8)), dtype=torch.float32)
    results = {"reference": net(reference), "blocks": net(blocks), "steps": specification(net, blocks)}
    gradients = {}
    for name, result in results.items():
        net.zero_grad()
        (result * weight).sum().backward()
        gradients[name] = {key: value.grad.clone() for key, value in net.named_parameters() if value.grad is not None}
    for name in ("reference", "blocks"):
        torch.testing.assert_close(results[name], results["steps"], rtol=1e-5, atol=1e-6)
        assert gradients[name].keys() == dict(net.named_parameters()).keys()
        for key, gradient in gradients["steps"].items():
            torch.testing.assert_close(gradients[name][key], gradient, rtol=1e-4, atol=1e-5, msg=f"{name} {key}")


@pytest.mark.parametrize("previous_day", [False, True])
def test_the_kept_pass_equals_the_pass_with_gradients(previous_day: bool) -> None:
    net = encoder(previous_day)
    reference, blocks = observe()
    with torch.no_grad():
        kept = net(reference)
        again = net(reference)
        torch.testing.assert_close(net(blocks), kept, rtol=1e-6, atol=1e-7)
    assert torch.equal(kept, again)
    torch.testing.assert_close(net(reference).detach(), kept, rtol=1e-6, atol=1e-7)


def test_yesterday_matters_only_when_it_is_read() -> None:
    reference, _ = observe()
    reference["cur_tick"][:] = 1
    without, with_it = encoder(False), encoder(True)
    with torch.no_grad():
        assert torch.equal(without(reference)[0], without(reference)[0])
        zero_tick = {**reference, "cur_tick": np.zeros(24, dtype=np.int32)}
        assert not without(zero_tick).any()
        first = small().features.previous[reference["session"]] < 0
        start = with_it(zero_tick)
        assert start[~torch.tensor(first)].abs().sum() > 0


def test_later_ticks_never_move_a_state() -> None:
    features = small().features
    future = features.today.copy()
    future[:, 9:] += 5.0
    changed = MarketFeatures(features.columns, future, features.previous, features.normaliser)
    net, every = encoder(False), np.arange(12)
    with torch.no_grad():
        for tick in (9, 10):
            before, after = (net(refer(every, np.full(12, tick), panel)) for panel in (features, changed))
            assert torch.equal(before, after) == (tick == 9)


def fresh(net: RecurrentEncoder, obs: dict[str, Any]) -> torch.Tensor:
    with torch.enable_grad():
        return net(obs).detach()


def move_by_optimiser(net: RecurrentEncoder) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    net(observe()[0]).sum().backward()
    optimiser.step()


def move_by_state_dict(net: RecurrentEncoder) -> None:
    net.load_state_dict({name: value + 0.1 for name, value in net.state_dict().items()})


def move_behind_its_back(net: RecurrentEncoder) -> None:
    net.gru.weight_ih_l0.data = net.gru.weight_ih_l0.data + 0.1


def move_by_vector(net: RecurrentEncoder) -> None:
    vector = nn.utils.parameters_to_vector(net.parameters()).detach()
    nn.utils.vector_to_parameters(vector + 0.1, net.parameters())


def other_panel() -> MarketFeatures:
    old = small().features
    return MarketFeatures(old.columns, old.today + 1.0, old.previous, old.normaliser)


@pytest.mark.parametrize("move", [move_by_optimiser, move_by_state_dict, move_behind_its_back, move_by_vector, None])
def test_a_kept_pass_is_never_stale(move) -> None:
    net = encoder(True)
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
    torch.testing.assert_close(after, fresh(net, obs), rtol=1e-6, atol=1e-7)


def test_other_sessions_than_the_kept_ones() -> None:
    net = encoder(False)
    some = refer([1, 5, 7], [3, 4, 5])
    with torch.no_grad():
        net(some)
        for sessions in ([5], [7, 1, 1], [0, 1], [20, 3, 11], [23]):
            obs = refer(sessions, np.full(len(sessions), 6))
            torch.testing.assert_close(net(obs), fresh(net, obs), rtol=1e-6, atol=1e-7)


def test_a_day_is_read_once_from_decision_to_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    net, read = encoder(False), []

    def counted(gru: nn.GRU, table: torch.Tensor, begin: np.ndarray, count: np.ndarray, *more: Any) -> torch.Tensor:
        read.append(int(count.sum()))
        return last_states(gru, table, begin, count, *more)

    monkeypatch.setattr(module, "last_states", counted)

    def ticks_read(session: list[int], tick: list[int]) -> int:
        read.clear()
        with torch.no_grad():
            net(refer(session, tick))
        return sum(read)

    assert ticks_read([3, 8, 8], [4, 6, 2]) == 4 + 6, "two decisions of session 8 share its first ticks"
    assert ticks_read([8, 3, 3], [6, 4, 0]) == 0, "known"
    assert ticks_read([3, 8], [5, 3]) == (5 - 4) + (3 - 2), "each goes on from the last known state before it"
    assert ticks_read([3, 9], [1, 1]) == 1 + 1, "another session begins anew"
    net.forget()
    assert ticks_read([3], [5]) == 5


@settings(max_examples=20, deadline=None)
@given(
    asks=st.lists(
        st.lists(st.tuples(st.integers(0, 23), st.integers(0, 12)), min_size=1, max_size=20), min_size=1, max_size=4
    )
)
@pytest.mark.parametrize("previous_day", [False, True])
def test_a_state_has_the_same_bits_however_it_is_reached(previous_day: bool, asks: list[list[tuple[int, int]]]) -> None:
    at_once, by_and_by = encoder(previous_day), encoder(previous_day)
    with torch.no_grad():
        by_and_by(refer(np.arange(24), np.zeros(24, dtype=np.int64)))
        whole = by_and_by.encode(*by_and_by.read(small().features, np.arange(24)))
        for ask in asks:
            session, tick = np.array(ask).T
            found = by_and_by(refer(session, tick))
            torch.testing.assert_close(found, whole[session, tick], rtol=1e-6, atol=1e-7)
            for i in range(len(ask)):
                at_once.forget()
                assert torch.equal(at_once(refer(session[i : i + 1], tick[i : i + 1]))[0], found[i])


def test_layers_in_front_of_the_recurrent_one_and_a_first_state_of_one_s_own() -> None:
    class Front(RecurrentEncoder):
        def embed(self, ticks: torch.Tensor) -> torch.Tensor:
            return 0.5 * ticks + 0.25

        def first(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
            return torch.full((len(today), self.hidden), 0.5)

    features = small().features
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = Front(features.today.shape[2], 8)
    reference, blocks = observe()
    expected = []
    for today, tick in zip(blocks["data_processed"], blocks["cur_tick"], strict=True):
        expected.append(step_by_step(net.gru, 0.5 * torch.tensor(today) + 0.25, int(tick), torch.full((8,), 0.5)))
    with torch.no_grad():
        kept = net(reference), net(blocks)
    for found in (*kept, net(reference), net(blocks)):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-6)


def test_a_session_has_the_same_bits_in_any_company() -> None:
    alone, together = encoder(False), encoder(False)
    with torch.no_grad():
        whole = together(refer(np.arange(24), np.full(24, 11)))
        for session in range(24):
            alone.forget()
            assert torch.equal(alone(refer([session], [11]))[0], whole[session])


def test_a_copy_holds_weights_and_no_panel() -> None:
    net, (obs, _) = encoder(True), observe()
    with torch.no_grad():
        net(obs)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        held = [value for module in copied.modules() for value in vars(module).values()]
        assert not any(isinstance(value, (MarketFeatures, EncoderCache)) for value in held)
        with torch.no_grad():
            assert torch.equal(copied(obs), net(obs))
