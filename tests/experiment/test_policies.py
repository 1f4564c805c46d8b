"""M05: anybody's policy is judged beside a run's own, in the same table, under its own name."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from matplotlib.text import Text
from onnx import TensorProto, helper

from rlwb.errors import ConfigError
from rlwb.evaluation import plots
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import begin_evaluation, evaluated, judge, launch_evaluation
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.own_code import TRUST_ENV
from rlwb.experiment.pipeline import launch
from rlwb.experiment.policies import kept_policies, parse_policies, require_trust_of_policies
from rlwb.experiment.report import audit_order, write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage, stages_of
from rlwb.experiment.training import train_policy
from rlwb.experiment.verify import launch_verification, verify_run
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}


def do(run: RunDirectory, config: RunConfig) -> None:
    stages = [stage for stage in stages_of(run) if stage in WORK]
    with recorded(run, stages):
        for stage in stages:
            run_stage(stage, run, config, WORK[stage], echo=lambda line: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**{"market.days": 60, "market.instruments": 2})
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", config)
    do(run, config)
    return run


def best_of(run: RunDirectory) -> tuple[str, Path]:
    name = json.loads((run.backtest / "selection.json").read_text())["chosen"][0]
    return name, run.checkpoints / f"{int(name[-4:]):04d}.pt"


def test_m05_a_function_gets_the_declared_observations_in_full(trained: RunDirectory) -> None:
    """The best checkpoint, asked by its materialised observations, trades as in the run's own backtest."""
    name, path = best_of(trained)
    bench = workbench(trained)
    learner, sees, _ = checkpoint_policy(bench, path)
    space = sees.observation_space
    seen = []

    def mine(obs: dict[str, np.ndarray]) -> np.ndarray:
        assert obs.keys() == space.spaces.keys()
        assert all(obs[key].shape[1:] == part.shape and obs[key].dtype == part.dtype for key, part in space.items())
        seen.append(len(obs["target"]))
        return learner.act(obs)

    found = judge(trained, {"mine": mine})
    own = next(one for one in read_results(trained) if one.policy == name)
    pd.testing.assert_frame_equal(
        found.results["mine"].orders[list(own.orders)], own.orders, check_exact=False, check_dtype=False
    )
    assert seen[0] == len(own.orders)  # all orders at once
    rows = found.table.frame.set_index("policy")
    assert rows.loc["mine", ["title", "kind", "n"]].tolist() == ["mine", "policy", 1]
    assert rows.loc["mine", "pa_lo"] <= rows.loc["mine", "pa_mean"] <= rows.loc["mine", "pa_hi"]
    assert rows.loc["checkpoints", "n"] == 2
    assert {"twap", "last", "hindsight"} <= set(rows.index)
    assert "mine" in found.table.notes[0]
    for draw in (plots.pa_distribution, plots.inventory_paths, plots.cumulative_pa):
        assert "mine" in {text.get_text() for text in draw([*found.results.values()]).findobj(Text)}


def test_m05_functions_are_told_masks_and_episodes_if_they_ask(trained: RunDirectory) -> None:
    steps: dict[int, int] = {}

    def remembers(
        obs: dict[str, np.ndarray], action_masks: np.ndarray, episode: np.ndarray, episode_start: np.ndarray
    ) -> np.ndarray:
        for number, first, step in zip(episode.tolist(), episode_start, obs["cur_step"], strict=True):
            steps[number] = 0 if first else steps[number] + 1
            assert steps[number] == step
        assert action_masks.shape == (len(episode), 5)
        return np.argmax(action_masks, axis=1)  # the least that makes a difference: nothing, until the last step

    results = judge(trained, {"late": remembers}).results
    assert (results["late"].orders["ffr"] == 1.0).all()
    inventory = results["late"].inventory
    assert inventory is not None
    last = results["late"].orders["num_steps"].to_numpy(dtype=int) - 1
    assert (inventory[np.arange(len(last)), last] == 1.0).all()


def test_m05_a_function_may_ask_for_the_flat_form(trained: RunDirectory) -> None:
    def flat(obs: np.ndarray) -> np.ndarray:
        assert obs.dtype == np.float32
        assert obs.ndim == 2
        return np.full(len(obs), 4)  # everything at once

    flat.observation = "flat"  # type: ignore[attr-defined]
    found = judge(trained, {"at-once": flat}).results["at-once"]
    assert found.inventory is not None
    assert (found.inventory[:, 1] == 0).all()


CODE = "import numpy as np\n\n\ndef rule(obs):\n    return np.full(len(obs['target']), 1)\n"


def graph(path: Path, inputs: dict[str, list[Any]], *, actions: int = 5, chosen: int = 1) -> Path:
    """Write a graph whose scores are highest for one action, whatever it is given; its first input has a row each."""
    first = next(iter(inputs))
    rank = len(inputs[first])
    axes = helper.make_tensor("axes", TensorProto.INT64, [rank - 1], list(range(1, rank)))
    weights = np.zeros((1, actions), dtype=np.float32)
    weights[0, chosen] = 1.0
    scores = helper.make_tensor("scores", TensorProto.FLOAT, weights.shape, weights.ravel())
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    nodes = [helper.make_node("Mul", [first, "zero"], ["nothing"])]
    if rank > 1:
        nodes.append(helper.make_node("ReduceSum", ["nothing", "axes"], ["sum"], keepdims=0))
    column = helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1])
    nodes += [
        helper.make_node("Reshape", ["sum" if rank > 1 else "nothing", "column"], ["rows"]),
        helper.make_node("Add", ["rows", "scores"], ["answer"]),
    ]
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    out = helper.make_tensor_value_info("answer", TensorProto.FLOAT, [None, actions])
    model = helper.make_model(helper.make_graph(nodes, "g", told, [out], [axes, scores, zero, column]))
    model.opset_import[0].version, model.ir_version = 17, 9
    onnx.save(model, str(path))
    return path


def same_orders(first: Any, second: Any) -> None:
    pd.testing.assert_frame_equal(first.orders.drop(columns="order_id"), second.orders.drop(columns="order_id"))


def test_m05_graphs_and_files_by_one_command(
    trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with code, and graphs of the vector, of named parts, and of one row at a time: all choose action 1."""
    (tmp_path / "mine.py").write_text(CODE)
    width = judge(trained, {"x": _wide}).results and _wide.width  # type: ignore[attr-defined]
    specs = {
        "rule": f"{tmp_path / 'mine.py'}:rule",
        "vector": str(graph(tmp_path / "vector.onnx", {"anything": [None, width]})),
        "single": str(graph(tmp_path / "single.onnx", {"observation": [1, width]})),
        "named": str(graph(tmp_path / "named.onnx", {"target": [None]})),
    }
    config = evaluated(trained)
    evaluation = begin_evaluation(trained, config, tmp_path / "evaluation", specs)
    monkeypatch.setenv(TRUST_ENV, "1")
    do(evaluation, config)
    page = write_report(evaluation).read_text()
    results = {one.policy: one for one in read_results(evaluation)}
    for name in ("vector", "single", "named"):
        same_orders(results["rule"], results[name])
    assert {results[name].kind for name in specs} == {"policy"}
    frame = pd.read_csv(evaluation.backtest / "headline.csv").set_index("policy")
    assert frame.loc["rule", "kind"] == "policy"
    assert pd.isna(frame.loc["rule", "algorithm"])
    text = (evaluation.backtest / "headline.txt").read_text()
    assert "Made elsewhere: rule (rule of mine.py)" in text
    assert "best checkpoints by validation (n = 2)" in text
    assert "vector" in page
    assert verify_run(evaluation).disagreements == []
    order = str(results["rule"].orders["order_id"].iloc[0])
    audit = audit_order(evaluation, workbench(evaluation), "rule", order)
    assert audit.summary["pa"].iloc[0] == pytest.approx(results["rule"].pa[0])
    monkeypatch.delenv(TRUST_ENV)  # whoever is given this directory has not trusted the code in it
    with pytest.raises(ConfigError, match=r"the policy rule.*--trust-code"):
        launch_verification(evaluation.path)
    with pytest.raises(ConfigError, match=r"the policy rule.*--trust-code"):
        launch(None, [], evaluation.path, resume=True)


def _wide(obs: np.ndarray) -> np.ndarray:
    _wide.width = obs.shape[1]  # type: ignore[attr-defined]
    return np.zeros(len(obs), dtype=int)


_wide.observation = "flat"  # type: ignore[attr-defined]


def test_m05_code_runs_only_where_it_is_trusted(trained: RunDirectory, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"import pathlib\n\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n{CODE}")
    with pytest.raises(ConfigError, match=r"the policy mine.*--trust-code"):
        launch_evaluation(trained.path, None, [], tmp_path / "e", policies={"mine": f"{trap}:rule"})
    with pytest.raises(ConfigError, match=r"the policy mine.*--trust-code"):
        judge(trained, {"mine": f"{trap}:rule"})
    shutil.copyfile(trap, tmp_path / ".py")  # has no suffix
    with pytest.raises(ConfigError, match=r"the policy mine.*--trust-code"):
        judge(trained, {"mine": f"{tmp_path}/.py:rule"})
    (tmp_path / "model.zip").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"pickles"):
        judge(trained, {"mine": tmp_path / "model.zip"})
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "e").exists()
    judge(trained, {"mine": f"{trap}:rule"}, trust=True)
    require_trust_of_policies({"mine": f"{trap}:rule"})  # as it was trusted before


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda obs: np.zeros(3, dtype=int), r"mine.*\(3,\)"),
        (lambda obs: np.full(len(obs["target"]), 5), r"mine"),
        (lambda obs: np.full(len(obs["target"]), np.nan), r"mine"),
        (lambda obs: obs["volume"], r"mine.*KeyError.*volume"),
        (3, r"mine.*int"),
    ],
    ids=["rows", "no such action", "nan", "raises", "no function"],
)
def test_m05_what_a_policy_does_wrong_is_named(trained: RunDirectory, policy: Any, told: str) -> None:
    with pytest.raises(Exception, match=told) as caught:
        judge(trained, {"mine": policy})
    assert type(caught.value).__module__ == "rlwb.errors"


@pytest.mark.parametrize(
    ("inputs", "told"),
    [({"state": [None, 3]}, "state"), ({"target": [None], "h0": [None, 8]}, "h0"), ({"x": [None, 4, 4]}, "x")],
)
def test_m05_graphs_that_do_not_fit_are_refused(
    trained: RunDirectory, tmp_path: Path, inputs: dict[str, list[Any]], told: str
) -> None:
    with pytest.raises(ConfigError, match=rf"mine.*{told}"):
        judge(trained, {"mine": graph(tmp_path / "g.onnx", inputs)})


def test_m05_a_graph_of_other_actions_is_refused(trained: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine.*3"):
        judge(trained, {"mine": graph(tmp_path / "g.onnx", {"target": [None]}, actions=3)})


@pytest.mark.parametrize("name", ["twap", "last", "checkpoint-0001", "checkpoints", "../x", "", "a b"])
def test_m05_names_are_ones_own(trained: RunDirectory, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        judge(trained, {name: lambda obs: np.zeros(len(obs["target"]), dtype=int)})


@pytest.mark.parametrize("words", [["mine.zip"], ["mine="], ["a=1.zip", "a=2.zip"]])
def test_m05_the_option_is_name_and_spec(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--policy"):
        parse_policies(words)


@pytest.mark.parametrize("spec", ["gone.zip", "gone.py:f", "mine.py", "notes.txt", "broken.onnx", "kind.py:Kind"])
def test_m05_files_that_cannot_be_used_are_named(trained: RunDirectory, tmp_path: Path, spec: str) -> None:
    for name in ("mine.py", "notes.txt", "broken.onnx"):
        (tmp_path / name).write_text("x")
    (tmp_path / "kind.py").write_text("class Kind:\n    def __init__(self, size): ...\n")
    with pytest.raises(ConfigError, match=spec.partition(":")[0].replace(".", r"\.")):
        judge(trained, {"mine": str(tmp_path / spec)}, trust=True)


def test_m05_a_run_keeps_no_policies(trained: RunDirectory) -> None:
    assert kept_policies(trained) == {}


def test_m05_continuous_actions_are_shares_as_they_are(tmp_path: Path) -> None:
    changes = {"action_interpreter": "position_share", "algorithm": "pathwise"}
    config = tiny(**changes, **{"train.iterations": 1, "backtest.top": 1})
    run = RunDirectory.create(tmp_path / "run", config)
    do(run, config)

    def even(obs: dict[str, np.ndarray]) -> np.ndarray:
        return (1.0 / (obs["num_step"] - obs["cur_step"]))[:, None]  # a column is taken as numbers

    found = judge(run, {"even": even}).results["even"]
    np.testing.assert_allclose(found.pa, 0.0, atol=1e-3)
