"""Methods compared on a small market."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.compare import METHODS, audit_method, compare, method_config
from rlwb.experiment.config import RunConfig
from rlwb.experiment.parameters import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.sections import BASELINES
from rlwb.experiment.work import read_results

SMALL = {
    "market.synthetic.instruments": 3,
    "market.synthetic.days": 16,
    "policy.hidden": 8,
    "train.iterations": 2,
    "train.episodes_per_iteration": 40,
    "train.batch_size": 50,
    "train.repeats": 1,
    "backtest.top": 2,
    "backtest.bootstrap_samples": 100,
}


def config(**changes: object) -> RunConfig:
    return RunConfig.load(None, Layer("test", {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}}))


def test_every_method_has_a_configuration_and_all_share_the_rest() -> None:
    shared = config(train__penalty=3.0, train__entropy=0.02)
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
    assert method_config(shared, "ppo_sparse").train.penalty == RunConfig().train.penalty, "without effect there"


def test_every_baseline_and_ceiling_stands_beside_the_learners_unless_some_are_named() -> None:
    assert method_config(config(), "ppo").backtest.baselines == tuple(b for b in BASELINES if b != "hindsight_uncapped")
    capped = config(execution__rules__volume_limit=0.1)
    assert method_config(capped, "ppo").backtest.baselines == BASELINES
    assert method_config(config(backtest__baselines=["twap"]), "ppo").backtest.baselines == ("twap",)


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no method 'ddpn' to compare; did you mean ddqn\?"):
        method_config(config(), "ddpn")
    with pytest.raises(ConfigError, match="no method was named"):
        compare(Path("nowhere"), config(), [])


def test_methods_trade_the_same_orders_and_any_may_be_audited(tmp_path: Path) -> None:
    said: list[str] = []
    table = compare(tmp_path, config(), ["ppo", "ppo_sparse"], echo=said.append)
    orders = [pd.read_parquet(tmp_path / name / "orders" / "test.parquet") for name in ("ppo", "ppo_sparse")]
    pd.testing.assert_frame_equal(*orders)
    methods = table.frame["method"].to_list()
    assert methods[0] == "TWAP"
    twap = table.frame.set_index("method").loc["TWAP"]
    assert twap["reward"] == pytest.approx(-config().train.penalty / 48), "paid by the reward of the first method"
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
    compare(tmp_path, config(), ["ppo", "ppo_sparse"], echo=again.append)
    assert [line.strip() for line in again if "unchanged" in line] == [
        f"{stage}: unchanged, kept" for stage in ("orders", "train", "backtest")
    ] * 2
    assert RunDirectory(tmp_path / "ppo").state == "finished"


def test_a_teacher_stands_last_of_what_is_beside_the_learners(tmp_path: Path) -> None:
    shared = config(train__algorithm="opd", train__opd__teacher_iterations=2, train__opd__distillation=0.5)
    assert method_config(shared, "ppo") == method_config(config(), "ppo")
    table = compare(tmp_path, shared, ["ppo", "opd"], echo=lambda line: None)
    assert table.frame["method"].to_list()[-3:] == ["teacher (sees the future)", "PPO", "OPD"]
    assert table.frame["method"].is_unique
    assert RunDirectory(tmp_path / "opd").config.train.opd.distillation == 0.5

    results = {result.policy: result for result in read_results(RunDirectory(tmp_path / "opd"))}
    below = results["hindsight"].pa - results["teacher"].pa
    assert below.min() > -1e-9, "what knows the rest of the day stays below what knows all of it, order by order"
    assert (below > 1e-3).mean() > 0.5


def test_an_audit_without_a_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no comparison; make one first"):
        audit_method(tmp_path, "ppo", "x")
