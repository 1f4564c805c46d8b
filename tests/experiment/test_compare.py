"""Methods compared on a small market."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rlwb.experiment.methods import METHODS, method_config, method_configs
from rlwb.experiment.sections import BASELINES

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import audit_method, compare
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory

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


def test_every_method_has_a_configuration_and_all_share_the_rest() -> None:
    shared = config(reward__penalty=3.0, algorithm__entropy_coef=0.02)
    for name, method in METHODS.items():
        own = method_config(shared, name)
        assert own.orders == shared.orders
        assert own.market == shared.market
        assert own.execution == shared.execution
        assert own.train.iterations == 2
        for dotted, value in method.changes.items():
            assert own.get(dotted) == value
    assert method_config(shared, "ppo").train.entropy == 0.02
    assert method_config(shared, "ddqn").train.entropy == RunConfig().train.entropy, "without effect there"
    assert method_config(shared, "ppo_sparse").reward.penalty == RunConfig().reward.penalty, "without effect there"


def test_every_baseline_and_ceiling_stands_beside_the_learners_unless_some_are_named() -> None:
    assert method_config(config(), "ppo").baselines == tuple(b for b in BASELINES if b != "hindsight_uncapped")
    capped = config(execution__rules__volume_limit=0.1)
    assert method_config(capped, "ppo").baselines == BASELINES
    assert method_config(config(baselines=["twap"]), "ppo").baselines == ("twap",)


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no method 'ddpn' to compare; did you mean ddqn\?"):
        method_config(config(), "ddpn")
    with pytest.raises(ConfigError, match="no method was named"):
        method_configs([])


def test_a_setting_of_one_algorithm_goes_to_the_methods_that_use_it(tmp_path: Path) -> None:
    own = said(algorithm__distillation=0.05, algorithm__n_step=2, train__iterations=6, algorithm__entropy_coef=0.02)
    configs = method_configs(list(METHODS), None, own)
    assert configs["opd"].algorithm.distillation == 0.05
    assert configs["opd"].algorithm.teacher_iterations == 6
    assert configs["ddqn"].algorithm.n_step == 2
    for name in METHODS:
        alone = method_config(config(train__iterations=6, algorithm__entropy_coef=0.02), name)
        assert name in ("opd", "ddqn") or configs[name] == alone
    assert configs["opd"].train.entropy == 0.02

    file = tmp_path / "mine.yaml"
    file.write_text("train:\n  algorithm: dqn\n  clip: 0.1\n")
    both = method_configs(["ddqn", "ppo"], file, own_of(algorithm__n_step=3))
    assert both["ppo"].train.clip == 0.1
    assert (both["ddqn"].algorithm.n_step, both["ddqn"].train.clip) == (3, RunConfig().train.clip)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"algorithm__distillation": 0.05},
            "test: algorithm.distillation has no effect on any of ddqn, ppo; drop it or compare a method that uses it.",
        ),
        ({"reward": "sparse", "reward__penalty": 3.0}, "test: reward.penalty has no effect on any of ddqn, ppo;"),
        ({"algorithm__n_step": 0}, "test: algorithm.n_step is 0; it should be greater than or equal to 1."),
        ({"algorithm__n_stop": 2}, "test: there is no parameter algorithm.n_stop; did you mean algorithm.n_step?"),
        ({"algorithm": ["ppo"]}, "test: train.algorithm is ['ppo']; it must be 'ppo', 'dqn' or 'opd'"),
    ],
)
def test_a_setting_that_no_method_uses_or_that_is_wrong_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        method_configs(["ddqn", "ppo"], None, own_of(**values))


def test_methods_trade_the_same_orders_and_any_may_be_audited(tmp_path: Path) -> None:
    configs = method_configs(["ppo", "ppo_sparse"], None, said())
    table = compare(tmp_path, configs, echo=lambda line: None)
    orders = [pd.read_parquet(tmp_path / name / "orders" / "test.parquet") for name in ("ppo", "ppo_sparse")]
    pd.testing.assert_frame_equal(*orders)
    methods = table.frame["method"].to_list()
    assert methods[0] == "TWAP"
    twap = table.frame.set_index("method").loc["TWAP"]
    assert twap["reward"] == pytest.approx(-config().reward.penalty / 48), "paid by the reward of the first method"
    assert methods[-2:] == ["PPO", "PPO, sparse reward"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "comparison.csv"), table.frame, check_dtype=False)
    assert (tmp_path / "comparison.md").read_text() == table.to_markdown()
    row = table.frame.set_index("method").loc["PPO"]
    summary = pd.read_csv(tmp_path / "ppo" / "backtest" / "summary.csv").set_index("policy")
    best = summary[summary["kind"] == "checkpoint"]["validation_pa"].idxmax()
    assert row["pa"] == pytest.approx(summary.loc[best, "pa_mean"])
    assert (row["pa_lo"], row["pa_hi"]) == pytest.approx(tuple(summary.loc[best, ["pa_lo", "pa_hi"]]))

    order_id = orders[0]["order_id"].iloc[0]
    for method in ("ppo", "ppo_sparse", "twap", "bertsimas_lo"):
        checks = audit_method(tmp_path, method, order_id).checks()
        np.testing.assert_allclose(checks.iloc[:, 0], checks.iloc[:, 1], rtol=1e-12, atol=1e-12)

    again: list[str] = []
    compare(tmp_path, configs, echo=again.append)
    assert [line.strip() for line in again if "unchanged" in line] == [
        f"{stage}: unchanged, kept" for stage in ("orders", "train", "backtest")
    ] * 2
    assert RunDirectory(tmp_path / "ppo").state == "finished"


def test_a_teacher_stands_last_of_what_is_beside_the_learners(tmp_path: Path) -> None:
    shared = config(algorithm="opd", algorithm__distillation=0.5)
    assert method_config(shared, "ppo") == method_config(config(), "ppo")
    configs = method_configs(["ppo", "opd"], None, said(algorithm__distillation=0.5))
    assert configs["opd"] == method_config(shared, "opd")
    table = compare(tmp_path, configs, echo=lambda line: None)
    assert table.frame["method"].to_list()[-3:] == ["teacher (sees the future)", "PPO", "OPD"]
    assert table.frame["method"].is_unique
    assert RunDirectory(tmp_path / "opd").config.algorithm.distillation == 0.5

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
