"""Bundles of less precision: the rounding, what they say of their agreement, and when they are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from onnx import numpy_helper
from typer.testing import CliRunner

from rlwb.cli import app
from rlwb.errors import BundleError, ConfigError
from rlwb.experiment.backtest import play
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.serving import quantise
from rlwb.serving.bundle import open_bundle
from rlwb.serving.cases import case_decisions, case_observations, share_equal
from rlwb.serving.export import write_bundle
from rlwb.serving.onnx import check_agreement, export_graphs
from rlwb.serving.precision import expanded, reduced, shrunk
from rlwb.serving.quantise import Limits, decisions, pa_difference, quantise_bundle
from rlwb.serving.spec import CARD, WEIGHTS, read_spec, write_spec
from tests.serving.learners import learner, observations, with_states


def _normal(value: float) -> float:
    """Return 0 for numbers so small that a 127th of them has no float32 of full precision."""
    return value if abs(value) > 1e-35 else 0.0


WEIGHT = arrays(
    np.float32, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=st.floats(-64, 64, width=32).map(_normal)
)


@given(values=WEIGHT)
def test_int8_is_within_half_a_step_of_its_row(values: np.ndarray) -> None:
    stored = reduced({"weight": values}, "int8")
    found = expanded(stored)["weight"]
    assert found.dtype == np.float32
    if values.ndim == 1:
        np.testing.assert_array_equal(found, values)
        return
    rows = values.reshape(len(values), -1)
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    assert stored["weight"].dtype == np.int8
    assert (np.abs(found.reshape(rows.shape) - rows) <= 0.501 * step + 1e-38).all()
    again = reduced({"weight": found}, "int8")
    for name in stored:
        np.testing.assert_array_equal(again[name], stored[name])


@given(values=WEIGHT)
def test_float16_is_the_nearest_half(values: np.ndarray) -> None:
    found = expanded(reduced({"weight": values}, "float16"))["weight"]
    np.testing.assert_array_equal(found, values.astype(np.float16).astype(np.float32))


def test_whole_numbers_and_what_is_named_like_a_scale_stay() -> None:
    given_ = {"count": np.arange(6).reshape(2, 3), "norm": np.ones(3, np.float32), "norm.scale": np.ones(3, np.float32)}
    found = expanded(reduced(given_, "int8"))
    assert found.keys() == given_.keys()
    for name, values in given_.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_weight_that_cannot_be_rounded_is_named() -> None:
    with pytest.raises(BundleError, match="wide"):
        reduced({"wide": np.array([1e5], np.float32)}, "float16")
    with pytest.raises(BundleError, match="NaN"):
        reduced({"lost": np.full((2, 2), np.nan, np.float32)}, "int8")


@pytest.mark.parametrize(
    ("network", "to"),
    [("recurrent", "int8"), ("recurrent", "float16"), ("attention, yesterday", "int8"), ("both", "int8")],
)
def test_a_graph_keeps_its_weights_in_few_bits(network: str, to: Any) -> None:
    policy = learner("ppo", network)
    state = {name: one.numpy() for name, one in policy.network.state_dict().items()}
    with torch.no_grad():
        for name, values in expanded(reduced(state, to)).items():
            policy.network.state_dict()[name].copy_(torch.from_numpy(values))
    obs = with_states(policy, observations())
    for graph in export_graphs(policy, observations()).values():
        small = shrunk(graph, to)
        check_agreement(policy, small, obs)
        assert len(small) < len(graph)
        left = [numpy_helper.to_array(one) for one in onnx.load_from_string(small).graph.initializer]
        wide = [one for one in left if one.dtype == np.float32 and one.size >= 32 and one.ndim >= 2]
        assert all(one.shape[0] == 1 and one.ndim == 2 for one in wide)  # biases of the GRU at most
        assert not wide or to == "int8"


@pytest.mark.parametrize("to", ["int8", "float16"])
def test_a_bundle_carries_its_agreement(finished_run: RunDirectory, bundle_path: Path, tmp_path: Path, to: Any) -> None:
    out = quantise_bundle(bundle_path, tmp_path / "out", to, run=finished_run.path, limits=Limits(equal=0.9))
    original, bundle = open_bundle(bundle_path), open_bundle(out)
    assert bundle.spec.precision == to
    told = bundle.spec.agreement
    assert told is not None
    obs, before = case_observations(original)
    after = bundle.learner.act(obs)
    np.testing.assert_array_equal(after, case_observations(bundle)[1])
    assert told["equal"] == np.mean(before == after)
    bench = workbench(finished_run)
    orders = bench.align(load_orders(finished_run, bench, "test"))
    sees = bench.state_interpreter(bench.features(normaliser=bundle.normaliser))
    pa = [
        play(bench, (policy, sees, bench.action_interpreter), orders).metrics["pa"]
        for policy in (original.learner, bundle.learner)
    ]
    assert told["pa_bp"] == pytest.approx(np.nanmean(pa[1] - pa[0]), abs=1e-9)
    assert told["orders"] == len(orders)
    assert told["days"] == len(orders.table["date"].unique())
    stored = bundle.read_arrays(WEIGHTS)
    estimated = {"network.trunk.coefficients", "network.trunk.market.filter.slopes"}
    for name in estimated:
        np.testing.assert_array_equal(stored[name], original.read_arrays(WEIGHTS)[name])
    learnt = [values for name, values in stored.items() if not name.endswith(".scale") and name not in estimated]
    assert {values.dtype for values in learnt if values.ndim > 1} == {np.dtype(to)}
    assert (out / WEIGHTS).stat().st_size < (bundle_path / WEIGHTS).stat().st_size
    assert told["bytes"][WEIGHTS] == [(folder / WEIGHTS).stat().st_size for folder in (bundle_path, out)]


def test_recorded_orders_are_decided_again(bundle_path: Path, tmp_path: Path) -> None:
    original = open_bundle(bundle_path)
    recorded = case_decisions(original)
    found = decisions(original, original.learner)
    np.testing.assert_array_equal(found["decision/action"], recorded["action"])
    np.testing.assert_array_equal(found["decision/amount"], recorded["amount"])
    bundle = open_bundle(quantise_bundle(bundle_path, tmp_path / "out", "int8", limits=Limits(equal=0.5)))
    told = bundle.spec.agreement
    assert told is not None
    assert told["interval_bp"] is None
    assert told["orders"] == len(bundle.spec.cases.orders)
    again = case_decisions(bundle)
    np.testing.assert_array_equal(again["position"], recorded["position"])
    np.testing.assert_array_equal(again["action"], decisions(original, bundle.learner)["decision/action"])


def test_above_a_limit_nothing_is_written(bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(weights: dict[str, np.ndarray], to: Any, kept: Any) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        return reduced(
            {name: rng.normal(scale=0.1, size=one.shape).astype(np.float32) for name, one in sorted(weights.items())},
            to,
        )

    monkeypatch.setattr(quantise, "reduced", other)
    with pytest.raises(BundleError, match=r"100 %"):
        quantise_bundle(bundle_path, tmp_path / "out", "int8", limits=Limits(equal=1.0))
    wide = {"on": "orders", "orders": 90, "days": 9, "pa_bp": 0.1, "interval_bp": [-0.2, 0.4]}
    monkeypatch.setattr(quantise, "compare_pa", lambda *_, **__: wide)
    with pytest.raises(BundleError, match=r"0\.400"):
        quantise_bundle(bundle_path, tmp_path / "out", "int8", limits=Limits(equal=0.0, pa_bp=0.3))
    assert not (tmp_path / "out").exists()
    quantise_bundle(bundle_path, tmp_path / "out", "int8", limits=Limits(equal=0.0, pa_bp=0.5))


def test_the_command(bundle_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["quantise", str(bundle_path), "--to", "float16", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert read_spec(out).precision == "float16"
    assert "float16" in (out / CARD).read_text(encoding="utf-8")
    again = CliRunner().invoke(app, ["quantise", str(bundle_path), "--to", "int8", "--out", str(out)])
    assert again.exit_code != 0
    assert read_spec(out).precision == "float16"


def test_opening_checks_the_agreement(bundle_path: Path, tmp_path: Path) -> None:
    out = quantise_bundle(bundle_path, tmp_path / "out", "int8", limits=Limits(equal=0.5))
    spec = read_spec(out)
    assert spec.agreement is not None
    write_bundle(
        tmp_path / "better", spec.model_copy(update={"agreement": {**spec.agreement, "equal": 2.0}}), {}, source=out
    )
    with pytest.raises(BundleError, match=r"2\.0"):
        open_bundle(tmp_path / "better")
    with pytest.raises(BundleError, match="int8"):
        quantise_bundle(out, tmp_path / "twice", "float16")


def test_the_difference_of_pa_has_an_interval_by_days() -> None:
    dates = np.repeat(np.arange("2024-01-01", "2024-01-09", dtype="datetime64[D]"), 2)
    before = np.zeros(16)
    after = np.where(np.arange(16) % 2, 1.0, np.nan)
    after[1::4] = -0.5
    found = pa_difference(before, after, dates, np.random.default_rng(0))
    assert (found["orders"], found["days"], found["pa_equal"]) == (8, 8, 0.0)
    assert found["pa_bp"] == pytest.approx(0.25)
    low, high = found["interval_bp"]
    assert -0.5 < low < 0.0 < 0.5 < high < 1.0
    few = pa_difference(before[:8], after[:8], dates[:8], np.random.default_rng(0))
    assert few["interval_bp"] is None
    none = pa_difference(before, np.full(16, np.nan), dates, np.random.default_rng(0))
    assert (none["pa_bp"], none["pa_equal"], none["interval_bp"]) == (None, None, None)


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"1\.5"):
        Limits(equal=1.5)


def test_shares_of_the_position_are_equal_up_to_a_hundredth() -> None:
    assert share_equal(np.array([0.5, 0.5, 0.5, 0.0]), np.array([0.5, 0.505, 0.52, 0.0])) == 0.75
    assert share_equal(np.array([1, 2]), np.array([1, 3])) == 0.5


def test_without_recorded_orders_a_run_is_asked_for(bundle_path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(bundle_path, tmp_path / "original"))
    spec = read_spec(path)
    write_spec(path, spec.model_copy(update={"cases": spec.cases.model_copy(update={"orders": []})}))
    with pytest.raises(ConfigError, match="--run"):
        quantise_bundle(path, tmp_path / "out", "float16")
