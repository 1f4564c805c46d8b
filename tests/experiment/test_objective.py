"""A run with another objective than the mean: learners, choice of checkpoints, tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.backtest import backtest_policies, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.report import stability_figures
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import training_id
from rlwb.experiment.training import train_policy
from rlwb.experiment.workbench import Workbench
from rlwb.reading import read_json
from tests.experiment.test_work import tiny

CVAR = {"objective": "cvar", "objective.level": 0.9, "backtest.confidence": 0.7}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**CVAR)
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "cvar", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    return run


def test_checkpoints_are_chosen_by_the_value_of_the_objective(judged: RunDirectory) -> None:
    log = pd.read_csv(judged.metrics / "validation.csv").set_index("iteration")["objective"]
    best = log.sort_values(ascending=False, kind="stable").index[:2]
    assert read_json(judged.backtest / "selection.json")["chosen"] == [f"checkpoint-{number:04d}" for number in best]
    summary = pd.read_csv(judged.backtest / "summary.csv").set_index("policy")
    assert summary.loc[f"checkpoint-{best[0]:04d}", "validation_pa"] == pytest.approx(log[best[0]], abs=1e-9)


def test_tables_have_the_value_of_the_objective_with_its_interval(judged: RunDirectory) -> None:
    summary = pd.read_csv(judged.backtest / "summary.csv").set_index("policy")
    for one in read_results(judged):
        worst = (np.sort(one.pa)[:2] * [1.0, 0.8]).sum() / 1.8  # a tenth of 18 orders
        row = summary.loc[one.policy]
        if one.kind == "ceiling":
            assert np.isnan(row["objective"])
        else:
            assert row["objective"] == pytest.approx(worst, abs=1e-9)
            assert row["objective_lo"] <= row["objective"] <= row["objective_hi"]
    headline = read_json(judged.backtest / "headline.json")
    assert "objective, bp" in headline["header"]
    assert sum("Checkpoints are chosen by it" in note for note in headline["notes"]) == 1
    assert set(stability_figures(judged, judged.config)) >= {"learning_curves", "validation_against_test"}


def test_another_objective_is_another_training() -> None:
    assert training_id(tiny()) != training_id(tiny(**CVAR))
    assert tiny().judged_by == "pa"
    assert tiny(**{"execution.rules.commission_bps": 1.0}).judged_by == "pa_net"
    assert tiny(**CVAR).judged_by == "objective"


@pytest.mark.parametrize("algorithm", ["dqn", "opd", {"name": "tianshou", "algorithm": "A2C"}])
def test_a_learner_of_the_mean_alone_refuses_another_objective(algorithm: Any) -> None:
    market = {"market.instruments": 3, "market.days": 15}
    config = RunConfig.load(None, Layer("test", {**market, **CVAR, "algorithm": algorithm}))
    bench = Workbench(config)
    with pytest.raises(ConfigError, match=rf"cvar.*{config.algorithm.name}"):
        bench.learner(bench.features(bench.make_orders()[0]["train"]))
