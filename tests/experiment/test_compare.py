"""Methods compared on a small market."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb import cli
from rlwb.errors import CheckpointError, ConfigError
from rlwb.evaluation import COLUMNS
from rlwb.experiment import compare as of_compare
from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import (
    METHODS,
    audit_method,
    compare,
    launch_comparison,
    method_configs,
    parse_methods,
    title,
)
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import ORDERS, TRAIN
from rlwb.parts import names

SMALL = {
    "market.instruments": 3,
    "market.days": 32,
    "network.hidden": 8,
    "train.iterations": 2,
    "train.episodes_per_iteration": 40,
    "algorithm.batch_size": 50,
    "algorithm.repeat": 1,
    "backtest.top": 2,
    "backtest.bootstrap_samples": 100,
}


def said(**changes: object) -> Layer:
    return Layer("test", {**SMALL, **own_of(**changes).values})


def own_of(**changes: object) -> Layer:
    return Layer("test", {name.replace("__", "."): value for name, value in changes.items()})


def config(**changes: object) -> RunConfig:
    return RunConfig.load(None, said(**changes))


def alone(name: str, **changes: object) -> RunConfig:
    return method_configs({name: METHODS[name]}, None, said(**changes))[name]


def test_every_method_has_its_parts_and_all_share_the_rest() -> None:
    shared = config(train__keep=3)
    for name, one in method_configs(METHODS, None, said(train__keep=3)).items():
        assert (one.orders, one.market, one.execution, one.train) == (
            *(shared.orders, shared.market, shared.execution),
            shared.train,
        )
        for slot, part in METHODS[name].changes.items():
            assert getattr(one, slot).name == part


def test_every_baseline_and_ceiling_stands_beside_the_learners_unless_some_are_named() -> None:
    named = [one.name for one in alone("ppo").baselines]
    every = [one for one in names("baseline") if one not in ("forecast_trees", "filter_optimum")]
    usual = [one for one in every if one != "hindsight_uncapped"]
    assert named == [*usual, "filter_optimum", "filter_optimum"], "nor what needs an extra"
    capped = alone("ppo", execution__rules__volume_limit=0.1)
    assert [one.name for one in capped.baselines] == every
    assert [one.name for one in alone("ppo", baselines=["twap"]).baselines] == ["twap"]


def test_k16_a_method_is_called_as_its_algorithm() -> None:
    for name in names("algorithm"):
        if name not in ("tianshou", "qlib"):  # one needs its learner named, one is trained already
            (config,) = method_configs(parse_methods([name]), None, said()).values()
            assert config.algorithm.name == name


def test_an_unknown_method_is_told_the_nearest_and_one_of_your_own_is_a_configuration() -> None:
    with pytest.raises(ConfigError, match=r"'ddqn'.* did you mean dqn\?"):
        parse_methods(["ddqn"])
    for name in ("../mine", "a/b", ".hidden", "a\nb", ""):
        with pytest.raises(ConfigError, match=r"cannot be the name of a folder|no method"):
            parse_methods([f"{name}={{algorithm: ppo}}"])
    with pytest.raises(ConfigError, match="no method was named"):
        method_configs({})
    with pytest.raises(ConfigError, match="mine is 3"):
        parse_methods(["mine=3"])
    own = parse_methods(["ppo", "mine={network: mlp, algorithm: {name: ppo, gamma: 0.9}}"])
    found = method_configs(own, None, said())["mine"]
    assert (found.network.name, found.algorithm.settings["gamma"], own["mine"].title) == ("mlp", 0.9, "mine")


def test_a_setting_of_one_part_goes_to_the_methods_that_have_it(tmp_path: Path) -> None:
    own = {"algorithm.distillation": 0.05, "algorithm.n_step": 2, "reward.penalty": 3.0, "train.iterations": 6}
    found = method_configs(METHODS, None, said(**own))
    assert found["opd"].algorithm.settings["distillation"] == 0.05
    assert found["opd"].algorithm.settings["teacher_iterations"] == 6
    assert found["dqn"].algorithm.settings["n_step"] == 2
    assert found["ppo"].reward.settings["penalty"] == 3.0
    assert found["ppo_sparse"].reward.settings == {}

    file = tmp_path / "mine.yaml"
    file.write_text("algorithm:\n  name: ppo\n  clip: 0.1\n")
    both = method_configs(parse_methods(["dqn", "ppo"]), file)
    assert both["ppo"].algorithm.settings["clip"] == 0.1
    assert "clip" not in both["dqn"].algorithm.settings


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"algorithm.distillation": 0.05}, ["test", "algorithm.distillation", "dqn, ppo"]),
        ({"algorithm.n_stop": 2}, ["test", "algorithm.n_stop", "dqn, ppo"]),
        ({"algorithm": {"name": "opd", "distillation": 0.1}}, ["algorithm=opd", "dqn, ppo"]),
        ({"algorithm": "opd"}, ["test", "algorithm=opd", "dqn, ppo"]),
        ({"algorithm": ["ppo"]}, ["algorithm", "['ppo']"]),
        ({"train.iteratons": 2}, ["train.iteratons", "train.iterations"]),
    ],
)
def test_a_setting_that_no_method_has_or_that_is_wrong_is_refused(values: dict[str, object], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        method_configs(parse_methods(["dqn", "ppo"]), None, own_of(**values))
    assert all(text in str(caught.value) for text in named)


def test_methods_trade_the_same_orders_and_any_may_be_audited(tmp_path: Path) -> None:
    configs = method_configs(parse_methods(["ppo", "ppo_sparse"]), None, said())
    table = compare(tmp_path, configs, echo=lambda line: None)
    orders = [pd.read_parquet(tmp_path / name / "orders" / "test.parquet") for name in ("ppo", "ppo_sparse")]
    pd.testing.assert_frame_equal(*orders)
    methods = table.frame["policy"].to_list()
    assert methods[0] == "twap"
    twap = table.frame.set_index("policy").loc["twap"]
    assert twap["reward"] == pytest.approx(-config().reward.penalty / 48), "paid by the reward of the first method"
    assert methods[-2:] == ["ppo", "ppo_sparse"]
    assert table.frame["title"].to_list()[-2:] == ["PPO", "PPO, sparse reward"]
    written = pd.read_csv(tmp_path / "comparison.csv")
    pd.testing.assert_frame_equal(written[list(table.frame)], table.frame, check_dtype=False)
    learners = written.set_index("policy").loc[["ppo", "ppo_sparse"], ["seed", "algorithm", "network", "reward_part"]]
    assert learners.to_numpy().tolist() == [[0, "ppo", "signals", "pa_penalty"], [0, "ppo", "signals", "sparse"]]
    # K27: each column of every table stands in the data dictionary, but for the learner's own figures.
    own = {"policy_loss", "value_loss", "entropy"}
    tables = [*tmp_path.rglob("*.csv"), *tmp_path.rglob("orders/*.parquet")]
    assert len(tables) > 20
    for path in tables:
        read = pd.read_csv if path.suffix == ".csv" else pd.read_parquet
        found = {name.removesuffix("_count") for name in read(path) if not name.startswith("reward/")}
        ends = {
            f"{name}{end}" for name, one in COLUMNS.items() if "_lo and _hi" in one.meaning for end in ("_lo", "_hi")
        }
        assert found <= {*COLUMNS, *own, *ends}, path
    assert "PPO, sparse reward" in (tmp_path / "comparison.html").read_text(), "K29: a page"
    assert (tmp_path / "comparison.md").read_text() == table.to_markdown()
    row = table.frame.set_index("policy").loc["ppo"]
    summary = pd.read_csv(tmp_path / "ppo" / "backtest" / "summary.csv").set_index("policy")
    best = summary[summary["kind"] == "checkpoint"]["validation_pa"].idxmax()
    assert row["pa_mean"] == pytest.approx(summary.loc[best, "pa_mean"])
    assert (row["pa_lo"], row["pa_hi"]) == pytest.approx(tuple(summary.loc[best, ["pa_lo", "pa_hi"]]))

    order_id = orders[0]["order_id"].iloc[0]
    for method in ("ppo", "ppo_sparse", "twap", "bertsimas_lo", "filter_optimum-knows_volatility=true"):
        checks = audit_method(tmp_path, method, order_id).checks()
        np.testing.assert_allclose(checks.iloc[:, 0], checks.iloc[:, 1], rtol=1e-12, atol=1e-12)

    for name in ("ppo/checkpoint-0001", "ppo_sparse/last"):
        assert len(audit_method(tmp_path, name, order_id).ticks)
    # K26: two learners have such a checkpoint.
    with pytest.raises(CheckpointError, match=r"of ppo, ppo_sparse.*ppo/checkpoint-0001"):
        audit_method(tmp_path, "checkpoint-0001", order_id)

    again: list[str] = []
    compare(tmp_path, configs, echo=again.append)
    assert [line.strip() for line in again if "unchanged" in line] == [
        f"{stage}: unchanged, kept" for stage in ("orders", "train", "backtest")
    ] * 2
    assert RunDirectory(tmp_path / "ppo").state == "finished"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Comparisons whose methods train nothing; what they would have done."""
    did: list[str] = []

    def do(run: RunDirectory, config: RunConfig) -> None:
        did.append(f"{run.path.name} {config.algorithm.name} {config.train.iterations} {config.seed}")
        if config.seed == 13:
            raise ConfigError("seed 13 brings bad luck.")
        for folder in (run.orders, run.checkpoints, run.metrics, run.backtest):
            folder.mkdir(exist_ok=True)

    class Done:
        frame = pd.DataFrame({"policy": []})
        header, rows, notes = (), (), ()

        def to_markdown(self) -> str:
            return ""

    monkeypatch.setattr(of_compare, "_WORK", {ORDERS: do})
    monkeypatch.setattr(of_compare, "stop_on_terminate", lambda: None)
    monkeypatch.setattr(of_compare, "_tables", lambda *_: Done())
    return did


def launch(
    folder: Path, *changes: str, methods: Sequence[str] = (), resume: bool = False, file: Path | None = None
) -> str:
    said: list[str] = []
    try:
        launch_comparison(file, changes, folder, methods, resume=resume, echo=said.append)
    except ConfigError as error:
        said.append(str(error))
    return "\n".join(said)


def test_k23_the_folder_remembers_what_it_was_begun_with(tmp_path: Path, quick: list[str]) -> None:
    folder, own = tmp_path / "c", "mine={algorithm: dqn}"
    launch(folder, "train.iterations=4", "seed=5", methods=["ppo", own])
    assert quick == ["ppo ppo 4 5", "mine dqn 4 5"]
    shutil.rmtree(folder / "mine")  # as if it had been killed before
    quick.clear()
    said = launch(folder, resume=True)
    assert quick == ["mine dqn 4 5"]
    assert "mine: mine" in said
    again = launch(folder, "train.iterations=4", "seed=5", methods=["ppo", own])
    assert f"holds something already; go on there with rlwb compare --resume --run-dir {folder}" in again


@pytest.mark.parametrize(
    ("changes", "methods", "named"),
    [
        (["seed=5"], ["ppo", "dqn"], ["train.iterations 4 there, 40 now"]),
        (["train.iterations=4"], ["ppo", "dqn"], ["seed 5 there, 0 now"]),
        (["train.iterations=4", "seed=5"], ["ppo"], ["has dqn too"]),
        ([], ["ppo"], ["has dqn too"]),
        (["train.iterations=4", "seed=5"], [], ["nothing"]),
    ],
    ids=["fewer settings", "another seed", "fewer methods", "fewer words", "all methods"],
)
def test_k23_other_words_do_not_move_what_is_finished(
    tmp_path: Path,
    quick: list[str],
    changes: list[str],
    methods: list[str],
    named: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = of_compare._WORK[ORDERS]
    monkeypatch.setattr(of_compare, "_WORK", {ORDERS: work, TRAIN: work})
    launch(tmp_path / "c", "train.iterations=4", "seed=5", methods=["ppo", "dqn"])
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*.json")}
    quick.clear()
    said = launch(tmp_path / "c", *changes, methods=methods, resume=True)
    if named == ["nothing"]:  # more methods with the same settings are welcome
        assert len(quick) == 2 * (len(METHODS) - 2)
        return
    assert all(text in said for text in named)
    assert "Go on with" not in said, "these words are refused again"
    assert f"leave them as they were, as rlwb compare --resume --run-dir {tmp_path / 'c'} does" in said
    assert not quick
    assert {path: path.read_bytes() for path in (tmp_path / "c").rglob("*.json")} == before


def test_k23_k05_what_failed_is_corrected_by_the_command_that_was_printed(tmp_path: Path, quick: list[str]) -> None:
    file = tmp_path / "my own.yaml"
    file.write_text("seed: 13\n")
    said = launch(tmp_path / "c", "train.iterations=4", methods=["ppo", "mine={algorithm: dqn}"], file=file)
    assert "seed 13 brings bad luck" in said
    words = shlex.split(said.partition("Go on with: rlwb ")[2].splitlines()[0])
    assert words[:2] == ["compare", str(file)]
    file.write_text("seed: 14\n")
    quick.clear()
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert not stop.value.code
    assert quick == ["ppo ppo 4 14", "mine dqn 4 14"]


@pytest.mark.parametrize("harmed", ["", "methods: {}\n"])
def test_k23_a_memory_that_was_changed_is_refused(tmp_path: Path, quick: list[str], harmed: str) -> None:
    launch(tmp_path / "c", methods=["ppo"])
    (tmp_path / "c" / "comparison.yaml").write_text(harmed)
    assert "comparison.yaml is not as the comparison wrote it" in launch(tmp_path / "c", resume=True)
    assert "not as" not in launch(tmp_path / "c", methods=["ppo"], resume=True), "as it was begun, said again"
    assert launch(tmp_path / "c", resume=True).startswith("comparison: ")


def test_k15_a_mistyped_comparison_leaves_nothing(tmp_path: Path, quick: list[str]) -> None:
    for methods in ([], ["ppo"]):
        said = launch(tmp_path / "typo", methods=methods, resume=True)
        assert "typo holds no comparison; correct the path, or begin one there without --resume" in said
    assert not list(tmp_path.iterdir())
    assert not quick


def test_k01_a_comparison_that_was_killed_at_its_start_is_begun_anew(tmp_path: Path, quick: list[str]) -> None:
    launch(tmp_path / "c", methods=["ppo"])
    shutil.rmtree(tmp_path / "c" / "ppo")
    for path in (tmp_path / "c").glob("comparison.[chm]*"):
        path.unlink()
    assert launch(tmp_path / "c", methods=["dqn"]).startswith("comparison: ")
    assert quick[-1].startswith("dqn")


def test_a_teacher_stands_last_of_what_is_beside_the_learners(tmp_path: Path) -> None:
    configs = method_configs(parse_methods(["ppo", "opd"]), None, said(**{"algorithm.distillation": 0.5}))
    assert configs["ppo"] == alone("ppo")
    table = compare(tmp_path, configs, echo=lambda line: None)
    assert table.frame["policy"].to_list()[-3:] == ["teacher", "ppo", "opd"]
    assert table.frame["policy"].is_unique
    assert RunDirectory(tmp_path / "opd").config.algorithm.settings["distillation"] == 0.5

    order_id = pd.read_parquet(tmp_path / "opd" / "orders" / "test.parquet")["order_id"].iloc[0]
    checks = audit_method(tmp_path, "teacher", order_id).checks()
    np.testing.assert_allclose(checks.iloc[:, 0], checks.iloc[:, 1], rtol=1e-12, atol=1e-12)

    results = {result.policy: result for result in read_results(RunDirectory(tmp_path / "opd"))}
    below = results["hindsight"].pa - results["teacher"].pa
    assert below.min() > -1e-9, "what knows the rest of the day stays below what knows all of it, order by order"
    assert (below > 1e-3).mean() > 0.5


def test_an_audit_without_a_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no comparison; make one first"):
        audit_method(tmp_path, "ppo", "x")


def test_k24_a_part_that_a_method_has_itself_is_refused_and_rows_say_which_parts_are_not_those_of_the_name(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="algorithm=dqn has no effect on ppo"):
        method_configs(parse_methods(["ppo", "dqn"]), None, own_of(algorithm="dqn"))
    with pytest.raises(ConfigError, match="algorithm=dqn has no effect on ppo"):
        method_configs(parse_methods(["ppo"]), None, own_of(algorithm="dqn"))
    with pytest.raises(ConfigError, match="network=mlp has no effect on ppo_attention"):
        method_configs(parse_methods(["ppo_attention"]), None, own_of(network="mlp"))
    file = tmp_path / "run.yaml"
    file.write_text("reward: sparse\nalgorithm: dqn\n")
    configs = method_configs(parse_methods(["ppo", "ppo_sparse", "dqn"]), file, said())
    configs.pop("dqn")
    assert {name: title(name, one) for name, one in configs.items()} == {
        "ppo": "PPO (reward sparse)",
        "ppo_sparse": "PPO, sparse reward",
    }
    own = method_configs(parse_methods(["mine={network: mlp}"]), None, said())["mine"]
    assert title("mine", own) == "mine (network mlp)"
    assert title("ppo", RunConfig.load(None, own_of(algorithm="dqn"))) == "PPO (algorithm dqn)"


def test_an_objective_that_one_method_does_not_take_is_refused_before_any_trains(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="objective is entropic, but dqn"):
        launch_comparison(
            None, ["objective={name: entropic, aversion: 0.01}"], tmp_path / "new", ["ppo", "dqn"], resume=False
        )
    assert not (tmp_path / "new").exists()
