"""Bundles: what is in them, what opening one checks, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from rlwb.errors import BundleError, ConfigError
from rlwb.execution import Order
from rlwb.experiment.backtest import checkpoint_policy, play
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.serving.bundle import open_bundle, read_bundle
from rlwb.serving.cases import case_decisions, case_observations, case_orders, case_sessions
from rlwb.serving.export import find_checkpoint
from rlwb.serving.feeds import bars_of
from rlwb.serving.onnx import export_graphs
from rlwb.serving.spec import CASES, FORMAT, SPEC, BundleSpec, read_spec, sha256, write_spec

SCHEMA = Path(__file__).parents[2] / "docs" / "serving" / "bundle.schema.json"


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    """A bundle to be tampered with."""
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def rewritten(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the values of bundle.json and give it a checksum that fits, as a tamperer would."""
    values = json.loads((path / SPEC).read_text())
    del values["checksum"]
    change(values)
    body = json.dumps(values, indent=2).removeprefix("{\n") + "\n"
    (path / SPEC).write_text(f'{{\n  "checksum": "{sha256(body.encode())}",\n{body}')


def test_a_bundle_holds_all_that_the_policy_needs_and_no_pickle(bundle_path: Path, finished_run: RunDirectory) -> None:
    spec, config = read_spec(bundle_path), finished_run.config
    assert {one.suffix for one in bundle_path.iterdir()} == {".json", ".safetensors", ".onnx", ".md"}
    assert spec.format == FORMAT
    assert spec.config["network"] == config.as_dict()["network"]
    assert "market" not in spec.config
    assert spec.origin.iteration == int(find_checkpoint(finished_run, "best").stem)
    assert spec.normaliser.columns == list(config.features.columns)
    orders = pd.read_parquet(finished_run.orders / "train.parquet")
    assert spec.seen.orders == len(orders)
    assert spec.seen.buys == (orders["direction"] == "BUY").sum()
    assert spec.seen.amount["1"] == orders["amount"].max()
    assert (spec.seen.first, spec.seen.last) == tuple(f"{orders['date'].agg(one):%Y-%m-%d}" for one in ("min", "max"))
    weights = load((bundle_path / "weights.safetensors").read_bytes())
    assert {f"network.{name}" for name in spec.weights["network"]} == set(weights)
    assert "optimizer" not in "".join(weights)


def test_a_bundle_is_the_policy_of_the_checkpoint_with_its_interpreters(
    bundle_path: Path, finished_run: RunDirectory
) -> None:
    bundle, bench = open_bundle(bundle_path), workbench(finished_run)
    policy, sees, acts = checkpoint_policy(bench, find_checkpoint(finished_run, "best"))
    orders = bench.align(load_orders(finished_run, bench, "test"))
    own = (
        bundle.learner,
        bundle.state_interpreter(bench.features(normaliser=bundle.normaliser)),
        bundle.action_interpreter,
    )
    wanted, found = play(bench, (policy, sees, acts), orders), play(bench, own, orders)
    assert np.array_equal(wanted.metrics["pa"], found.metrics["pa"])
    assert bundle.encoder is bundle.learner.network.trunk.market
    assert bundle.engine.max_step == bench.engine.max_step


def test_the_recorded_decisions_are_those_of_the_backtest(bundle_path: Path, finished_run: RunDirectory) -> None:
    bundle = read_bundle(bundle_path)
    decided, orders, sessions = case_decisions(bundle), case_orders(bundle), case_sessions(bundle)
    bench = workbench(finished_run)
    assert len(orders) == 4
    inventory = np.load(finished_run.backtest / "inventory" / f"checkpoint-{bundle.spec.origin.iteration:04d}.npy")
    ids = pd.read_parquet(finished_run.orders / "test.parquet")["order_id"].tolist()
    for place, order in enumerate(orders):
        rows = decided[decided["order"] == place]
        assert isinstance(order, Order)
        left = inventory[ids.index(order.order_id)][: len(rows)]
        np.testing.assert_allclose(rows["position"] / order.amount, left, rtol=1e-6)
        assert rows["step"].tolist() == list(range(len(rows)))
        row, mine = bench.sessions.row(order.instrument, order.date), sessions.row(order.instrument, order.date)
        for name, values in sessions.fields.items():
            assert np.array_equal(values[mine], bench.sessions.fields[name][row], equal_nan=True)
        assert mine == 0 or sessions.previous[mine] == mine - 1, "the session before is there for the features"


def test_blocks_of_bars_are_stored_once_a_session(bundle_path: Path) -> None:
    arrays = load((bundle_path / CASES).read_bytes())
    assert "observation/data_processed" not in arrays
    assert len(arrays["block/data_processed"]) < len(arrays["action"])
    obs, _ = case_observations(read_bundle(bundle_path))
    seen = (obs["data_processed"] != 0).any(axis=2)
    assert (seen.sum(axis=1) <= obs["cur_tick"]).all()
    assert seen.any()


def test_the_schema_is_reachable_and_names_every_value() -> None:
    schema = BundleSpec.json_schema()
    assert json.loads(SCHEMA.read_text()) == schema, "write it anew: see docs/serving/bundle.md"
    assert {"checksum", "format", "normaliser", "calendar", "seen", "files"} <= schema["properties"].keys()
    assert schema["additionalProperties"] is False


def test_a_package_that_is_not_installed_is_named(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ConfigError, match=r"safetensors.*rlwb\[serve\]"):
        open_bundle(bundle_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "cases.safetensors", "card.md", "policy.onnx"])
def test_a_missing_and_a_changed_file_are_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-1])
    with pytest.raises(BundleError, match=f"{name}.*SHA-256"):
        open_bundle(copy)
    (copy / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        open_bundle(copy)


def test_an_added_file_and_a_folder_that_is_no_bundle_are_named(copy: Path, tmp_path: Path) -> None:
    (copy / "code").mkdir()
    (copy / "code" / "more.py").write_text("")
    with pytest.raises(BundleError, match=r"code/more\.py"):
        open_bundle(copy)
    with pytest.raises(BundleError, match=r"bundle\.json is missing"):
        open_bundle(tmp_path)
    with pytest.raises(BundleError, match=r"bundle\.json is missing"):
        open_bundle(tmp_path / "nowhere")


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_or_lost_byte_of_the_specification_is_refused(copy: Path, data: st.DataObject) -> None:
    content = (copy / SPEC).read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(0, 255))
    damaged = bytearray(content[:place] if flip == 0 else content)
    if flip:
        damaged[place] ^= flip
    try:
        (copy / SPEC).write_bytes(bytes(damaged))
        with pytest.raises(BundleError, match=r"bundle\.json"):
            read_spec(copy)
    finally:
        (copy / SPEC).write_bytes(content)


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_byte_of_a_file_is_refused_by_its_name(copy: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(read_spec(copy).files)))
    content = (copy / name).read_bytes()
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        (copy / name).write_bytes(bytes(damaged))
        with pytest.raises(BundleError, match=name):
            read_bundle(copy)
    finally:
        (copy / name).write_bytes(content)


def test_another_version_is_told_as_such(copy: Path) -> None:
    def later(values: dict[str, object]) -> None:
        values.update(format=FORMAT + 1, rlwb="9.9", new="something")

    rewritten(copy, later)
    with pytest.raises(BundleError, match=rf"format {FORMAT + 1}.*9\.9"):
        open_bundle(copy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seen": None}, "seen"),
        ({"more": 1}, "more"),
        ({"calendar": {"segments": 3}}, "calendar"),
        ({"config": {"network": {"name": "nowhere"}}}, "nowhere"),
        ({"config": {"algorithm": {"name": "qlib", "checkpoint": "x.pt", "trust": True}}}, "checkpoint"),
        ({"config": {"reward": {"name": "sparse"}}}, "reward"),
        ({"config": {"network": {"name": "mlp", "hidden": 10**12}}}, "hidden|memory|bytes|size"),
        ({"normaliser": {"columns": ["open"], "mean": [0.0], "scale": [1.0]}}, "open"),
        ({"weights": {"network": {}}}, "weight"),
        ({"files": {"../secret": "0" * 64}}, "secret"),
    ],
)
def test_a_specification_with_other_values_under_a_fitting_checksum_is_refused(
    copy: Path, change: dict[str, object], named: str
) -> None:
    rewritten(copy, lambda values: values.update(change))
    with pytest.raises(BundleError, match=named):
        open_bundle(copy)


def replaced(path: Path, name: str, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the arrays of a file, with hashes that fit."""
    arrays = load((path / name).read_bytes())
    change(arrays)
    (path / name).write_bytes(save(arrays))
    spec = read_spec(path)
    write_spec(path, spec.model_copy(update={"files": {**spec.files, name: sha256((path / name).read_bytes())}}))


def test_other_weights_and_another_recorded_answer_are_refused_by_the_cases(copy: Path) -> None:
    def other(arrays: dict[str, np.ndarray]) -> None:
        arrays["action"] = arrays["action"].copy()
        arrays["action"][7] = (arrays["action"][7] + 1) % 5

    replaced(copy, CASES, other)
    with pytest.raises(BundleError, match="observation 7 of"):
        open_bundle(copy)

    def later(arrays: dict[str, np.ndarray]) -> None:
        arrays["action"][7] = (arrays["action"][7] - 1) % 5
        arrays["decision/amount"] = arrays["decision/amount"].copy()
        arrays["decision/amount"][1] += 1e-6

    replaced(copy, CASES, later)
    step, order = case_decisions(read_bundle(copy))["step"][1], case_orders(read_bundle(copy))[0].order_id
    with pytest.raises(BundleError, match=rf"order {order} at step {step}"):
        open_bundle(copy)

    def turned(arrays: dict[str, np.ndarray]) -> None:
        arrays["network.actor.weight"] = -arrays["network.actor.weight"]
        arrays["network.actor.bias"] = -arrays["network.actor.bias"]

    replaced(copy, "weights.safetensors", turned)
    with pytest.raises(BundleError, match="observation"):
        open_bundle(copy)


def test_graphs_that_answer_otherwise_are_refused(copy: Path) -> None:
    learner = read_bundle(copy).learner
    obs, actions = case_observations(read_bundle(copy))
    seldom = int(np.bincount(actions, minlength=5).argmin())
    with torch.no_grad():
        learner.network.actor.weight.zero_()
        learner.network.actor.bias.copy_(9.0 * (torch.arange(5) == seldom))
    graph = export_graphs(learner, obs)["policy.onnx"]
    (copy / "policy.onnx").write_bytes(graph)
    spec = read_spec(copy)
    write_spec(copy, spec.model_copy(update={"files": {**spec.files, "policy.onnx": sha256(graph)}}))
    with pytest.raises(BundleError, match=r"policy\.onnx"):
        open_bundle(copy)


def test_weights_of_another_name_or_shape_are_named(copy: Path) -> None:
    replaced(copy, "weights.safetensors", lambda arrays: arrays.update(more=np.zeros(3)))
    with pytest.raises(BundleError, match="more"):
        open_bundle(copy)
    replaced(copy, "weights.safetensors", lambda arrays: arrays.pop("more") is None)
    replaced(copy, "weights.safetensors", lambda arrays: arrays.update({"network.actor.bias": np.zeros(4, np.float32)}))
    with pytest.raises(BundleError, match=r"network\.actor\.bias"):
        open_bundle(copy)


def test_the_script_of_the_page_on_speed_reads_the_graph(bundle_path: Path) -> None:
    page = SCHEMA.parent / "speed-and-precision.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    inputs = onnxruntime.InferenceSession(bundle_path / "head.onnx").get_inputs()
    types: dict[str, type[np.generic]] = {
        "tensor(float)": np.float32,
        "tensor(int32)": np.int32,
        "tensor(int64)": np.int64,
        "tensor(bool)": np.bool_,
    }
    sizes = {one.name: [size if isinstance(size, int) else 3 for size in one.shape] for one in inputs}
    names = {"observations": {one.name: np.zeros(sizes[one.name], types[one.type]) for one in inputs}}
    exec(code.replace("bundles/mine", str(bundle_path)), names)
    assert names["action"].shape == (3,)


def test_the_script_of_the_page_decides(bundle_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (SCHEMA.parent / "index.md").read_text(), re.DOTALL | re.MULTILINE)
    bundle = read_bundle(bundle_path)
    panel, order = case_sessions(bundle), case_orders(bundle)[0]
    row, ticks = panel.row(order.instrument, order.date), bundle.config.execution.ticks_per_step
    earlier = panel.select(np.arange(panel.first[row], row))
    code = code.replace("bundles/mine", str(bundle_path)).replace("SYN000", order.instrument)
    exec(code, {"earlier": earlier, "today": bars_of(panel, np.array([row]))[0].head(ticks), "day": order.date})
    step, amount = capsys.readouterr().out.split()
    assert step == "1"
    assert 0 <= float(amount) <= 3000
