"""Policies of every algorithm as bundles, parts of one's own, and what an export refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from torch import nn

from rlwb import cli
from rlwb.env import make_env
from rlwb.errors import BundleError, CheckpointError, ConfigError
from rlwb.execution import TwapRelativeActionInterpreter
from rlwb.experiment.backtest import play
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.rolling import FOLDER
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.learner import Learner
from rlwb.serving.bundle import Bundle, join_tensors, open_bundle, split_tensors
from rlwb.serving.cases import _orders_to_record
from rlwb.serving.export import Exported, export_policy, export_run, find_checkpoint
from rlwb.serving.spec import CASES, Origin, read_spec, sha256, write_spec
from rlwb.trainer import load_checkpoint, record_of, save_checkpoint
from tests.experiment.test_work import TINY

EXPERIMENT = Path(__file__).parents[1] / "experiment"
SMALL = {**TINY, "market.tick_minutes": 30, "execution.ticks_per_step": 2}
SMALL = {name: value for name, value in SMALL.items() if not name.startswith("algorithm")}


def untrained(**changes: Any) -> Exported:
    """Return a policy of the small configuration with these changes, as it is before any training."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    base = {name: value for name, value in SMALL.items() if not any(name.startswith(f"{one}.") for one in named)}
    bench = Workbench(RunConfig.load(None, Layer("test", {**base, **named}, EXPERIMENT)))
    parts, _ = bench.make_orders()
    features = bench.features(parts["train"])
    learner = bench.learner(features)
    train, test = bench.align(parts["train"]), bench.align(parts["test"], bench.objective.middle)
    record = record_of(bench.simulator, bench.state_interpreter(features), bench.action_interpreter, learner)
    origin = Origin(name="test", id=None, iteration=None, validation=None, figure="pa")
    return Exported(bench, learner, features, record, train, test, origin, "no table", "")


def exported(found: Exported, tmp_path: Path) -> Bundle:
    export_policy(found, tmp_path / "bundle")
    return open_bundle(tmp_path / "bundle", trust_code=True)


def pa_of(found: Exported, learner: Learner) -> np.ndarray:
    playable = learner, found.bench.state_interpreter(found.features), found.bench.action_interpreter
    return np.asarray(play(found.bench, playable, found.test).metrics["pa"])


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "dqn", "network": {"name": "mlp", "hidden": 8}, "state_interpreter": "current_step"},
        {
            "algorithm": {"name": "pathwise", "decay_updates": 3},
            "network": {"name": "convolution", "hidden": 8, "layers": 2},
            "features__previous_day": True,
        },
        {"algorithm": "opd", "network": {"name": "attention", "hidden": 8, "layers": 1}, "head__even_start": True},
        {"algorithm": "all_actions", "network": {"name": "mlp", "hidden": 8}, "head__mask_actions": True},
        {"algorithm": {"name": "tianshou", "algorithm": "SAC"}, "action_interpreter": "twap_relative"},
        {"algorithm": "ppo", "action_interpreter": "position_share"},
        {"algorithm": "ppo", "action_interpreter": "twap_relative", "network": {"name": "mlp", "hidden": 8}},
        {
            "objective": {"name": "mean_variance", "aversion": [0.0, 1e-3]},
            "state_interpreter": {"name": "full_history", "forms": True},
            "head__mask_actions": True,
        },
    ],
    ids=["dqn", "pathwise", "opd", "all-actions", "sac", "ppo of shares", "ppo of ratios", "dial-and-forms"],
)
def test_every_algorithm_comes_back_as_it_was(changes: dict[str, Any], tmp_path: Path) -> None:
    found = untrained(**changes)
    bundle = exported(found, tmp_path)
    assert np.array_equal(pa_of(found, bundle.learner), pa_of(found, found.learner))
    assert (bundle.spec.onnx_reason is None) == bool(bundle.spec.onnx)
    assert not any("optim" in name for name in bundle.spec.weights)


def test_recorded_orders_are_decided_from_the_recorded_bars(tmp_path: Path) -> None:
    found = untrained(algorithm="pathwise")
    found.learner.network.share.weight.data.mul_(100)  # so that it heeds the bars
    export_policy(found, tmp_path / "bundle")
    with_reversed_days(tmp_path / "bundle")
    with pytest.raises(BundleError, match=r"order \S+ at step \d"):
        open_bundle(tmp_path / "bundle")


def with_reversed_days(path: Path) -> None:
    """Let the recorded bars run backwards, under hashes that fit."""
    arrays, spec = load((path / CASES).read_bytes()), read_spec(path)
    arrays |= {name: values[:, ::-1].copy() for name, values in arrays.items() if name.startswith("bars/")}
    content = save(arrays)
    (path / CASES).write_bytes(content)
    write_spec(path, spec.model_copy(update={"files": {**spec.files, CASES: sha256(content)}}))


OWN = {
    "features.columns": ["close", "parts/feature.py:range_so_far"],
    "simulator": {"name": "parts/simulator.py:Thin", "least": 0.3},
    "state_interpreter": {"name": "parts/state_interpreter.py:WithMove", "limit": 0.05},
    "action_interpreter": {"name": "parts/action_interpreter.py:ShareOfRest", "count": 4},
    "network": {"name": "parts/network.py:LSTM", "hidden": 8},
    "algorithm": {"name": "parts/algorithm.py:Reinforce", "learning_rate": 0.02},
}


def test_parts_of_ones_own_are_named_and_run_only_if_the_opener_says_so(tmp_path: Path) -> None:
    found = untrained(**OWN)
    found.learner.learn(*one_update(found))  # so that its optimiser has a state
    bundle = exported(found, tmp_path)
    places = {one.place: one.name for one in bundle.spec.own_parts}
    assert places["network"] == "network.py:LSTM"
    assert places["features.columns"] == "feature.py:range_so_far"
    assert "simulator" not in places, "what the policy is not made of is no part of it"
    assert np.array_equal(pa_of(found, bundle.learner), pa_of(found, found.learner))
    with pytest.raises(BundleError) as refusal:
        open_bundle(bundle.path)
    assert all(f"{one.name} (hash {one.hash})" in str(refusal.value) for one in bundle.spec.own_parts)
    (code,) = (bundle.path / "code").glob("*/network.py")
    code.write_text(code.read_text() + "\n# changed\n")
    with pytest.raises(BundleError, match=r"network\.py"):
        open_bundle(bundle.path, trust_code=True)
    changed = read_spec(bundle.path)
    files = {**changed.files, code.relative_to(bundle.path).as_posix(): sha256(code.read_bytes())}
    write_spec(bundle.path, changed.model_copy(update={"files": files}))
    with pytest.raises(BundleError, match=r"network network\.py:LSTM"):
        open_bundle(bundle.path, trust_code=True)


def one_update(found: Exported) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return the observations of first steps, and made-up actions and rewards."""
    with make_env(
        found.bench.simulator,
        found.bench.state_interpreter(found.features),
        found.bench.action_interpreter,
        None,
        found.test,
    ) as env:
        obs = env.reset().obs
    count = len(found.test)
    return obs, np.zeros(count, dtype=np.int64), np.arange(count, dtype=np.float64), np.ones(count, dtype=bool)


def test_a_policy_on_qlibs_network_needs_no_file_of_qlibs_any_more(tmp_path: Path) -> None:
    from tests.policy.test_qlib import ppo

    torch.save(ppo(), tmp_path / "qlib.pth")
    found = untrained(algorithm={"name": "qlib", "checkpoint": str(tmp_path / "qlib.pth")})
    wanted = pa_of(found, found.learner)
    export_policy(found, tmp_path / "bundle")
    (tmp_path / "qlib.pth").unlink()
    bundle = open_bundle(tmp_path / "bundle")
    assert bundle.config.network.name == "qlib_recurrent"
    assert np.array_equal(pa_of(found, bundle.learner), wanted)


def test_the_card_tells_results_range_and_how_to_verify(bundle_path: Path, finished_run: RunDirectory) -> None:
    card = (bundle_path / "card.md").read_text()
    assert (finished_run.backtest / "headline.md").read_text().splitlines()[0] in card
    spec = read_spec(bundle_path)
    for told in (f"iteration {spec.origin.iteration}", spec.seen.first, spec.seen.last, "rlwb bundle check"):
        assert told in card
    assert "None" not in card


def test_a_checkpoint_is_found_by_best_last_and_number(finished_run: RunDirectory) -> None:
    assert find_checkpoint(finished_run, "last").name == "0003.pt"
    assert find_checkpoint(finished_run, "2") == find_checkpoint(finished_run, "checkpoint-0002")
    for name in ("9", "first", "2.5"):
        with pytest.raises(CheckpointError, match=name):
            find_checkpoint(finished_run, name)


def test_a_teacher_is_refused(finished_run: RunDirectory, tmp_path: Path) -> None:
    path = shutil.copytree(finished_run.path, tmp_path / "run", symlinks=True)
    state = load_checkpoint(path / "checkpoints" / "0003.pt")
    (path / "checkpoints" / "teacher").mkdir()
    state["meta"]["sees_future"] = True
    save_checkpoint(path / "checkpoints" / "teacher" / "0003.pt", {k: v for k, v in state.items() if k != "format"})
    with pytest.raises(CheckpointError, match="teacher"):
        export_run(path, tmp_path / "bundle", checkpoint="teacher")
    assert not (tmp_path / "bundle").exists()


def test_features_across_instruments_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    found = untrained(features__columns=["close", "breadth", "returns@SYN002"])
    with pytest.raises(ConfigError, match="breadth, returns@SYN002"):
        export_policy(found, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_an_evaluation_a_rolling_run_and_an_unfinished_one_are_refused(
    finished_run: RunDirectory, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(finished_run.path, tmp_path / "run", symlinks=True))
    (path / "origin").mkdir()
    with pytest.raises(ConfigError, match="evaluation"):
        export_run(path, tmp_path / "bundle")
    (path / "origin").rmdir()
    (path / FOLDER / "002").mkdir(parents=True)
    shutil.copyfile(path / "status.json", path / FOLDER / "002" / "status.json")
    with pytest.raises(ConfigError, match=f"{FOLDER}/002"):
        export_run(path, tmp_path / "bundle")
    shutil.rmtree(path / FOLDER)
    RunDirectory(path).update_stage("backtest", {"state": "failed"})
    with pytest.raises(ConfigError, match="backtest"):
        export_run(path, tmp_path / "bundle")
    with pytest.raises(ConfigError, match="nowhere"):
        export_run(tmp_path / "nowhere", tmp_path / "bundle")


def test_a_bundle_is_replaced_only_by_force_and_nothing_else_ever(
    finished_run: RunDirectory, bundle_path: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(bundle_path, tmp_path / "bundle"))
    before = {one.name: one.read_bytes() for one in out.iterdir()}
    with pytest.raises(ConfigError, match="--force"):
        export_run(finished_run.path, out)
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="no bundle"):
        export_run(finished_run.path, tmp_path / "other", force=True)
    export_run(finished_run.path, out, force=True)
    assert {one.name: one.read_bytes() for one in out.iterdir()} == before, "the same run gives the same bytes"
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_nothing_is_left_of_an_export_that_fails(
    finished_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BundleError("it differs")

    monkeypatch.setattr("rlwb.serving.export.open_bundle", fails)
    with pytest.raises(BundleError):
        export_run(finished_run.path, tmp_path / "new" / "bundle")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        export_run(finished_run.path, tmp_path / "file" / "bundle")


def test_the_command_line_exports_checks_and_refuses_in_a_sentence(
    finished_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main([*words])
        return int(stop.value.code or 0), *capsys.readouterr()

    out = str(tmp_path / "bundle")
    code, said, _ = call("export", str(finished_run.path), "--out", out, "--checkpoint", "1")
    assert (code, said.splitlines()[-1]) == (0, f"{out}: rlwb bundle check {out}")
    assert read_spec(Path(out)).origin.iteration == 1
    code, said, _ = call("bundle", "check", out)
    assert code == 0
    assert "observations" in said
    (tmp_path / "bundle" / "card.md").write_text("better")
    code, _, said = call("bundle", "check", out)
    assert (code, said.count("\n")) == (2, 1)
    assert "card.md" in said
    assert call("export", str(tmp_path), "--out", out)[0] == 2


class Odd(Learner):
    """A learner of one's own with all that a state may hold."""

    def __init__(self) -> None:
        self.layer = nn.Linear(2, 3)
        self.state: dict[str, Any] = {"rate": 0.5, "names": ["a", None], "steps": {3: {"mean": torch.ones(2)}}}

    def act(self, obs: Any, noise: Any = None) -> np.ndarray:
        return np.zeros(1)

    def learn(self, *_: Any) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"layer": self.layer.state_dict(), **self.state}

    def load_state_dict(self, state: Any) -> None:
        self.layer.load_state_dict(state["layer"])


def test_weights_of_any_plain_form_go_apart_and_together_again() -> None:
    own = {**Odd().weights(), "array": np.arange(3.0), "small": np.float32(1.5), "$tensor": 1}
    plain, tensors = split_tensors(own)
    assert set(tensors) == {"layer.weight", "layer.bias", "steps.3.mean", "array"}
    again = join_tensors(json.loads(json.dumps(plain)), tensors)
    assert again.keys() == own.keys()
    assert torch.equal(again["steps"][3]["mean"], torch.ones(2))
    assert (again["names"], again["rate"], again["small"], again["$tensor"]) == (["a", None], 0.5, 1.5, 1)
    for wrong, named in (({"f": print}, "f"), ({"a": {"x": float("nan")}}, r"a\.x"), ({"s": {1}}, "s")):
        with pytest.raises(BundleError, match=named):
            split_tensors(wrong)
    with pytest.raises(BundleError, match=r"a\.b"):
        split_tensors({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})


def test_an_even_share_is_recorded_only_where_every_tick_has_a_price() -> None:
    found = untrained()
    bench, rng = found.bench, np.random.default_rng(0)
    acts = TwapRelativeActionInterpreter(bench.engine)
    price = np.array(bench.engine.price)
    kept = found.test.session[0]
    price[np.arange(len(price)) != kept, 3] = np.nan
    bench.engine.market = bench.engine.market._replace(price=price)
    numbers, note = _orders_to_record(bench, (None, None, acts), found.test, rng)  # type: ignore[arg-type]
    assert set(found.test.session[numbers]) == {kept}
    assert note is None
    price[kept, 3] = np.nan
    numbers, note = _orders_to_record(bench, (None, None, acts), found.test, rng)  # type: ignore[arg-type]
    assert len(numbers) == 0
    assert note is not None
    own = bench.action_interpreter
    numbers, note = _orders_to_record(bench, (None, None, own), found.test, rng)  # type: ignore[arg-type]
    assert len(numbers) == 4, "a choice of shares does not ask which ticks have a price"
