"""Decisions as ONNX graphs: every network and algorithm decides as torch does."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.batch import take_rows
from rlwb.errors import BundleError
from rlwb.policy import PPO, ActorCritic, AllOne, Network, make_network
from rlwb.serving.onnx import HEAD, OUTPUTS, POLICY, check_agreement, export_graphs, make_session, score_distance
from tests.serving.learners import NETWORKS, Averages, learner, observations, with_states
from tests.trainer.small import ACTIONS, small

PLAIN = [("ppo", "recurrent"), ("dqn", "recurrent"), ("opd", "mlp")]


def answers(graph: bytes, obs: dict[str, Any]) -> list[np.ndarray]:
    session = make_session(graph)
    return session.run(OUTPUTS, {one.name: obs[one.name] for one in session.get_inputs()})


@pytest.mark.parametrize(
    ("algorithm", "network"),
    [
        *product(["ppo"], NETWORKS),
        *product(["pathwise", "ppo of shares"], ["recurrent, yesterday", "attention", "informed"]),
        *(("dqn", "recurrent"), ("dqn", "both"), ("opd", "dialled")),
    ],
)
def test_the_graphs_decide_as_the_learner(algorithm: str, network: str) -> None:
    policy, obs = learner(algorithm, network), observations()
    graphs = export_graphs(policy, obs)
    assert set(graphs) == ({POLICY} if network in ("mlp", "both", "own") else {POLICY, HEAD})
    expected = policy.act(obs)
    assert len(np.unique(expected)) > 2
    for graph in graphs.values():
        action, scores = answers(graph, with_states(policy, obs))
        with torch.no_grad():
            _, near = policy.greedy(obs)
        np.testing.assert_allclose(scores, near.numpy(), rtol=1e-5, atol=1e-5)
        if action.dtype == np.int64:
            np.testing.assert_array_equal(action, expected)
        else:
            np.testing.assert_allclose(action, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", [*PLAIN, "incomplete"])
def test_without_a_mask_or_a_completed_end(case: Any) -> None:
    policy = learner(*case, plain=True) if case != "incomplete" else learner("ppo", "mlp", complete_at_end=False)
    action, _ = answers(export_graphs(policy, observations())[POLICY], observations())
    np.testing.assert_array_equal(action, policy.act(observations()))


@cache
def policy_and_head(name: str) -> tuple[Any, bytes]:
    policy = learner(name)
    return policy, export_graphs(policy, observations())[HEAD]


@settings(max_examples=40)
@given(data=st.data(), name=st.sampled_from(["ppo", "dqn"]))
def test_any_order_at_any_step(data: st.DataObject, name: str) -> None:
    policy, graph = policy_and_head(name)
    rows = data.draw(st.integers(1, 5))
    longest = small().simulator.engine.max_step

    def column(kind: Any, elements: st.SearchStrategy[Any]) -> np.ndarray:
        return np.array(data.draw(st.lists(elements, min_size=rows, max_size=rows)), dtype=kind)

    steps = column(np.int32, st.integers(1, longest))
    taken = np.minimum(column(np.int32, st.integers(0, longest)), steps)
    target = np.maximum(column(np.float32, st.floats(2.0**-99, 2.0**99, width=32)), np.float32(2.0**-99))
    left = column(np.float32, st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0.0, 1.0, width=32)))
    history = np.where(np.arange(longest) <= taken[:, None], (left * target)[:, None], 0.0).astype(np.float32)
    obs = {
        "acquiring": column(np.int64, st.integers(0, 1)),
        "cur_step": taken,
        "num_step": steps,
        "target": target,
        "position": left * target,
        "position_history": history,
        "market_states": column(np.float32, st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8)),
    }
    with torch.no_grad():
        expected, near = (part.numpy() for part in policy.greedy(obs))
    action, scores = answers(graph, obs)
    np.testing.assert_allclose(scores, near, rtol=1e-5, atol=1e-5)
    allowed = policy.network.allowed(obs).numpy()
    ranked = np.sort(np.where(allowed, near, -np.inf), axis=1)
    clear = ranked[:, -1] - ranked[:, -2] > 1e-4
    np.testing.assert_array_equal(action[clear], expected[clear])
    assert allowed[np.arange(rows), action].all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("A2C", {"deterministic_eval": True}),
        ("DiscreteSAC", {"deterministic_eval": True}),
        ("RainbowDQN", {}),
        ("SAC", {"deterministic_eval": True}),
        ("TD3", {}),
    ],
)
def test_algorithms_of_tianshou(name: str, options: dict[str, Any]) -> None:
    policy = tianshou(name, options)
    obs = observations()
    for graph in export_graphs(policy, obs).values():
        action, _ = answers(graph, with_states(policy, obs))
        np.testing.assert_allclose(action, policy.act(obs), rtol=1e-6, atol=1e-6)


def test_what_draws_its_actions_is_not_exported() -> None:
    with pytest.raises(BundleError, match="deterministic_eval"):
        export_graphs(tianshou("A2C", {}), observations())


def tianshou(name: str, options: dict[str, Any]) -> Any:
    from rlwb.policy.tianshou import FAMILIES, TianshouLearner, TianshouSettings

    discrete = gym.spaces.Discrete in FAMILIES[name]
    space = gym.spaces.Discrete(ACTIONS) if discrete else gym.spaces.Box(0.0, 4.0, (), np.float32)
    channels = small().features.shape[2]
    make = lambda seed: make_network(lambda: NETWORKS["recurrent"](channels), seed)  # noqa: E731
    return TianshouLearner(make, space, TianshouSettings(algorithm=name, options=options))


class Branching(Averages):
    """A network that torch traces to one of its branches."""

    def forward(self, obs: Any) -> torch.Tensor:
        features = super().forward(obs)
        return features if self.tensor(obs["cur_step"]).shape[0] > 1 else features + 1.0


class Untraceable(Averages):
    """A network that leaves torch on its way."""

    def forward(self, obs: Any) -> torch.Tensor:
        return super().forward(obs) * float(np.linalg.norm(np.asarray(obs["position"].tolist())))


def own(kind: type[Network]) -> PPO:
    return PPO(make_network(lambda: ActorCritic(kind(small().features.shape[2]), ACTIONS), 0))  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [Branching, Untraceable])
def test_a_network_that_cannot_be_traced_is_named(kind: type[Network]) -> None:
    with pytest.raises(BundleError, match="PPO"):
        export_graphs(own(kind), observations())


def test_a_policy_without_a_network_is_named() -> None:
    with pytest.raises(BundleError, match="AllOne"):
        export_graphs(AllOne(), observations())  # type: ignore[arg-type]


def test_another_graph_is_refused() -> None:
    graph = export_graphs(learner("ppo", "mlp"), observations())[POLICY]
    with pytest.raises(BundleError, match="otherwise"):
        check_agreement(learner("ppo", "mlp", plain=True), graph, observations())


def test_a_difference_of_scores_counts_by_the_largest_of_its_row() -> None:
    barred = np.finfo(np.float32).min
    wanted = np.array([[0.5, -4.0, barred], [0.5, 0.25, 0.0]])
    found = score_distance(wanted + np.array([[2e-5, 0.0, 0.0], [0.0, 0.0, 3e-5]]), wanted)
    np.testing.assert_allclose(found, [[5e-6, 0.0, 0.0], [0.0, 0.0, 3e-5]], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(score_distance(np.array([8.0, 0.5]), np.array([4.0, 0.25])), [1.0, 0.25])


def test_the_same_learner_gives_the_same_bytes() -> None:
    obs = take_rows(observations(), np.arange(20))
    assert export_graphs(learner("ppo"), obs) == export_graphs(learner("ppo"), observations())
