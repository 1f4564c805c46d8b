"""Backends: torch gives the bits of the learner, onnxruntime its decisions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load

from rlwb.batch import take_rows
from rlwb.errors import BundleError, ConfigError, InterpreterError
from rlwb.serving.backend import OnnxBackend, TorchBackend, make_backend
from rlwb.serving.bundle import open_bundle, read_bundle
from rlwb.serving.cases import replay
from rlwb.serving.export import write_bundle
from rlwb.serving.onnx import HEAD, POLICY, export_graphs
from rlwb.serving.spec import CASES, read_spec
from tests.serving.learners import learner, observations, with_states


def onnx_of(policy: Any) -> OnnxBackend:
    graphs = export_graphs(policy, observations())
    return OnnxBackend(graphs[POLICY], graphs.get(HEAD))


@pytest.mark.parametrize("network", ["recurrent", "attention", "mlp", "qlib", "own"])
@pytest.mark.parametrize("algorithm", ["ppo", "pathwise", "ppo of shares"])
def test_every_backend_and_form_of_observation_decides_alike(algorithm: str, network: str) -> None:
    policy, blocks, named = learner(algorithm, network), observations(), observations(refer=True)
    states = with_states(policy, named)
    expected = policy.act(named)
    for obs in (named, states):
        np.testing.assert_array_equal(TorchBackend(policy).act(obs), expected)
    graphs = export_graphs(policy, blocks)
    for backend, obs in (
        *((OnnxBackend(graphs[POLICY], graphs.get(HEAD)), one) for one in (blocks, states, named)),
        (OnnxBackend(graphs[POLICY]), states),
    ):
        found = backend.act(obs)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_row_is_decided_alike_in_any_company() -> None:
    policy = learner("pathwise")
    obs = with_states(policy, observations(refer=True))
    backend = onnx_of(policy)
    together = backend.act(obs)
    for row in range(0, len(together), 7):
        alone = backend.act(take_rows(obs, np.array([row])))
        np.testing.assert_allclose(alone, together[row : row + 1], rtol=0, atol=1e-6)


def test_states_of_the_market_may_be_tensors() -> None:
    import torch

    policy = learner("ppo")
    obs = with_states(policy, observations(refer=True))
    given = {**obs, "market_states": torch.from_numpy(obs["market_states"])}
    for backend in (TorchBackend(policy), onnx_of(policy)):
        np.testing.assert_array_equal(backend.act(given), policy.act(obs))


@pytest.mark.parametrize("make", [TorchBackend, onnx_of])
def test_numbers_that_are_missing_are_refused(make: Any) -> None:
    policy = learner("ppo")
    obs = with_states(policy, observations(refer=True))
    obs = {**obs, "market_states": np.full_like(obs["market_states"], np.nan)}
    with pytest.raises(InterpreterError, match="NaN"):
        make(policy).act(obs)


def test_an_observation_that_is_missing_is_named() -> None:
    obs = {name: part for name, part in observations().items() if name != "acquiring"}
    with pytest.raises(InterpreterError, match="acquiring"):
        onnx_of(learner("ppo")).act(obs)


def test_the_backend_of_a_bundle(tmp_path: Path) -> None:
    policy = learner("ppo")
    bundle: Any = SimpleNamespace(path=tmp_path, learner=policy)
    assert isinstance(make_backend(bundle, "torch"), TorchBackend)
    with pytest.raises(BundleError, match=POLICY):
        make_backend(bundle, "onnx")
    for name, graph in export_graphs(policy, observations()).items():
        (tmp_path / name).write_bytes(graph)
    states = with_states(policy, observations(refer=True))
    np.testing.assert_array_equal(make_backend(bundle, "onnx").act(states), policy.act(states))
    with pytest.raises(ConfigError, match="jax"):
        make_backend(bundle, "jax")  # type: ignore[arg-type]


def test_opening_a_bundle_has_its_graphs_answer_too(bundle_path: Path, tmp_path: Path) -> None:
    spec = read_spec(bundle_path)
    actions = load((bundle_path / CASES).read_bytes())["action"]
    assert any("policy.onnx" in line for line in replay(read_bundle(bundle_path)))
    for name in (POLICY, HEAD):
        graph = onnx.load(bundle_path / name)
        bias = next(one for one in graph.graph.initializer if one.name == "network.actor.bias")
        seldom = np.bincount(actions, minlength=bias.dims[0]).argmin()
        bias.raw_data = np.where(np.arange(bias.dims[0]) == seldom, 9.0, 0.0).astype(np.float32).tobytes()
        write_bundle(tmp_path / name, spec, {name: graph.SerializeToString()}, source=bundle_path)
        with pytest.raises(BundleError, match=name):
            open_bundle(tmp_path / name)
