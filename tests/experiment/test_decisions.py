"""What policies do at their decisions, by the simple rule's forecast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import CheckpointError
from rlwb.evaluation.decision_plots import decision_curves
from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import finished_run
from rlwb.experiment.config import RunConfig
from rlwb.experiment.decisions import decision_table
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory


def run_with(folder: Path, *baselines: str) -> RunDirectory:
    small = {"market.days": 20, "market.instruments": 3, "train.iterations": 1, "train.episodes_per_iteration": 20}
    small |= {"network": "mlp", "backtest.top": 1, "backtest.bootstrap_samples": 100, "baselines": baselines}
    return finished_run(folder, RunConfig.load(None, Layer("test", small)))


def test_the_rule_trades_everything_above_its_threshold_and_twap_evenly(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", "twap", "forecast")
    results = {one.policy: one for one in read_results(run) if one.kind == "baseline"}
    found, thresholds = decision_table(run, results)
    assert len(thresholds) == 8
    rule = found[found["policy"] == "forecast"]
    above = rule["forecast"] > rule["steps_left"].map(thresholds)
    assert 0 < above.sum() < len(rule)
    np.testing.assert_allclose(rule["share"], above, atol=1e-6)
    even = found[found["policy"] == "twap"]
    assert len(even) == 7 * len(results["twap"].orders), "all but the last step of each"
    np.testing.assert_allclose(even["share"], 1 / (even["steps_left"] + 1), atol=1e-5)
    figure = decision_curves(found, thresholds)
    assert figure.axes[-1].get_ylabel().replace("\n", " ").endswith("1 step left")
    drawn = {line.get_label() for line in figure.axes[-1].lines}
    assert {"forecast", "twap"} <= drawn
    nothing = decision_curves(found.assign(forecast=0.0), thresholds)
    assert "no decision" in nothing.axes[0].texts[-1].get_text()


def test_a_run_without_the_rule_is_refused(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", "twap")
    with pytest.raises(CheckpointError, match="forecast"):
        decision_table(run, {})
